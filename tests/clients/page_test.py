"""The page of `kakeya serve` in Chromium, used as a person uses it.
usage: page_test.py KAKEYA (tools/test_page runs it); SCREENSHOTS=FOLDER keeps pictures of it"""

import base64
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import unittest
import urllib.request

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

from serving import ROOT, Server

KAKEYA = sys.argv.pop(1)
SCREENSHOTS = os.environ.get("SCREENSHOTS")
QUESTION = "Count from 5 to 12."
ANSWER = "5, 6, 7, 8, 9, 10, 11, 12."
# Answers the page's next requests with a text of ours, as the server would.
SAY = """const text = arguments[0], real = window.fetch;
window.fetch = (path, options) => path !== "/v1/chat/completions" ? real(path, options) :
  Promise.resolve(new Response(["data: " + JSON.stringify({choices: [{delta: {content: text}, finish_reason: "stop"}]}),
                                "data: [DONE]", ""].join("\\n\\n")));"""
# No stop id ends the answers that are asked for from here on.
ENDLESS = """const ids = arguments[0], real = window.fetch;
window.fetch = (path, options) => {
  if (options?.body) {
    const bias = Object.fromEntries(ids.map((id) => [id, -100]));
    options.body = JSON.stringify({...JSON.parse(options.body), logit_bias: bias});
  }
  return real(path, options);
};"""
HOSTILE = """<img src=x onerror="window.broken=1"> and <script>window.broken=1</script>

[x](javascript:window.broken=1) [y](data:text/html,z) [z](https://example.com/a?b=<i>)

# A <b>heading</b>

* **bold** and *slanted* and `a < b`
* [kept](https://example.com)

1. one
2. two

```js
<b>x</b>
```"""


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = Server(KAKEYA, "--ctx", "32768", "--draft-length", "4")
        cls.addClassCleanup(server.end)
        cls.address = server.url
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        cls.browser = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()

    def setUp(self):
        self.size(1280, 800)
        self.browser.get(self.address + "/health")
        self.browser.execute_script("localStorage.clear()")
        self.open()
        self.set("temperature", "0")

    def tearDown(self):
        # Scripts of the page fail loudly there; refused requests are logged by the browser itself.
        complaints = [entry for entry in self.browser.get_log("browser")
                      if entry["source"] != "network"]
        self.assertEqual(complaints, [])

    # What a person sees and does.

    def open(self):
        self.browser.get(self.address)
        self.wait(lambda: self.text("#model") == "demo")

    def wait(self, condition):
        return WebDriverWait(self.browser, 20, poll_frequency=0.02).until(lambda _: condition())

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        found = self.all(selector)
        self.assertEqual(len(found), 1, selector)
        return found[0]

    def text(self, selector):
        return self.one(selector).text

    def texts(self, role):
        return [element.text for element in self.all(f".message.{role} .text")]

    def size(self, width, height, dark=False, touch=False):
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": touch})
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def press(self, *keys):
        self.browser.switch_to.active_element.send_keys(*keys)

    def set(self, name, value):
        self.one("#open-settings").click()
        field = self.one(f"#settings [name={name}]")
        field.clear()
        field.send_keys(value)
        self.press(Keys.ESCAPE)
        self.wait(lambda: not self.one("#settings").is_displayed())
        self.one("#question").click()

    def answered(self):
        self.wait(lambda: "answering" not in (self.one("body").get_attribute("class") or ""))

    def ask(self, text):
        self.one("#question").send_keys(text, Keys.ENTER)
        self.answered()

    def get(self, path):
        return urllib.request.urlopen(self.address + path, timeout=20)

    def endless(self):
        ids = json.loads((ROOT / "models/demo/generation_config.json").read_text())["eos_token_id"]
        self.browser.execute_script(ENDLESS, ids)

    def picture(self, name):
        if SCREENSHOTS:
            pathlib.Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
            got = self.browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
            (pathlib.Path(SCREENSHOTS) / f"{name}.png").write_bytes(base64.b64decode(got["data"]))

    def test_chats_and_remembers(self):
        self.ask(QUESTION)
        self.assertEqual(self.texts("user"), [QUESTION])
        self.assertEqual(self.texts("assistant"), [ANSWER])
        self.assertRegex(self.text(".assistant .measured"), r"^\d+ tokens · .*prompt \d+$")
        self.assertEqual(self.text("#title"), QUESTION)
        self.ask("Spell cat.")
        said = self.texts("user"), self.texts("assistant")
        self.open()
        self.assertEqual((self.texts("user"), self.texts("assistant")), said)
        # The second question was sent with what was said before.
        path = self.one_request(lambda: self.ask("Repeat: a."))["messages"]
        self.assertEqual([message["content"] for message in path][:2], [QUESTION, ANSWER])
        self.assertEqual(len(path), 5)

    def one_request(self, act):
        """The body that the page sends meanwhile."""
        self.browser.execute_script("""const real = window.fetch, sent = window.sent = [];
            window.fetch = (path, options) => (options?.body && sent.push(options.body), real(path, options));""")
        act()
        sent = self.browser.execute_script("return window.sent")
        self.assertEqual(len(sent), 1)
        return json.loads(sent[0])

    def test_asks_the_model_that_is_chosen(self):
        with tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder, "other")
            other.symlink_to(ROOT / "models/demo")
            server = Server(KAKEYA, "--model", other, "--ctx", "4096")
            self.addCleanup(server.end)
            self.browser.get(server.url)
            self.wait(lambda: self.text("#model").split() == ["demo", "other"])
            Select(self.one("#model")).select_by_visible_text("other")
            self.wait(lambda: self.one("#about").get_attribute("textContent").startswith("other on"))
            self.assertEqual(self.one_request(lambda: self.ask(QUESTION))["model"], "other")
            self.wait(lambda: "Weights" in self.text("#memory-legend"))
            self.picture("models")

    def test_stops_by_key_and_by_button(self):
        self.endless()
        for stop in (lambda: self.press(Keys.ESCAPE), lambda: self.one("#send").click()):
            self.one("#question").send_keys("Tell me a story.", Keys.ENTER)
            self.wait(lambda: len(self.texts("assistant")[-1]) > 20)
            self.assertEqual(self.one("#send").get_attribute("aria-label"), "Stop")
            stop()
            self.answered()
            self.assertEqual(self.all(".assistant .measured")[-1].text, "stopped")
        # What had come is kept, and the server has let go of the requests.
        self.open()
        self.assertTrue(all(len(text) > 20 for text in self.texts("assistant")))
        self.wait(lambda: "kakeya_requests_running 0" in self.get("/metrics").read().decode())

    def test_edits_and_asks_again_in_branches(self):
        self.ask(QUESTION)
        self.one(".user [aria-label=Edit]").click()
        self.press(Keys.CONTROL, "a")
        self.press("Count from 3 to 8.", Keys.ENTER)
        self.answered()
        self.assertEqual(self.texts("user"), ["Count from 3 to 8."])
        self.assertEqual(self.texts("assistant"), ["3, 4, 5, 6, 7, 8."])
        self.assertIn("2/2", self.text(".user .branches"))
        self.one(".user [aria-label='The version before']").click()
        self.assertEqual(self.texts("assistant"), [ANSWER])
        self.set("max_tokens", "3")
        self.one("[aria-label='Answer again']").click()
        self.answered()
        self.assertIn("cut at its length", self.text(".assistant .measured"))
        self.assertIn("2/2", self.text(".assistant .branches"))
        self.open()
        self.assertNotEqual(self.texts("assistant"), [ANSWER])
        self.one(".assistant [aria-label='The version before']").click()
        self.assertEqual(self.texts("assistant"), [ANSWER])
        self.one(".user [aria-label='The next version']").click()
        self.assertEqual(self.texts("assistant"), ["3, 4, 5, 6, 7, 8."])
        self.one(".user [aria-label=Edit]").click()
        self.press("x", Keys.ESCAPE)  # leaves it as it was
        self.assertEqual(self.texts("user"), ["Count from 3 to 8."])

    def test_marks_what_was_drafted(self):
        self.ask(QUESTION)
        self.assertRegex(self.text(".assistant .measured"), r"· \d+ % drafted ·")
        self.assertEqual(self.all("mark"), [])
        self.one("[aria-label='Mark what was drafted']").click()
        marked = "".join(element.text for element in self.all("mark"))
        self.assertGreater(len(marked), 0)
        self.assertLess(len(marked), len(ANSWER))
        self.assertEqual(self.texts("assistant"), [ANSWER])
        self.picture("drafts")
        self.open()  # it is kept, and so is the setting
        self.assertEqual(self.texts("assistant"), [ANSWER])
        self.assertGreater(len(self.all("mark")), 0)
        self.one("[aria-label='Mark what was drafted']").click()
        self.assertEqual(self.all("mark"), [])

    def test_keeps_several_conversations(self):
        self.ask(QUESTION)
        self.one("#new").click()
        self.assertEqual(self.texts("user"), [])
        self.ask("Count from 3 to 8.")
        titles = [item.text for item in self.all("#conversations li button:first-child")]
        self.assertEqual(titles, ["Count from 3 to 8.", QUESTION])
        self.all("#conversations li button:first-child")[1].click()
        self.assertEqual(self.texts("assistant"), [ANSWER])
        self.browser.execute_script("arguments[0].click()", self.all("#conversations .icon")[1])
        self.browser.switch_to.alert.accept()
        self.wait(lambda: self.texts("assistant") == ["3, 4, 5, 6, 7, 8."])
        self.open()
        self.assertEqual(len(self.all("#conversations li")), 1)

    def test_sends_what_is_set(self):
        for name, value in (("temperature", "0.5"), ("top_p", "0.9"), ("top_k", "7"), ("min_p", "0.1"),
                            ("max_tokens", "4"), ("seed", "11"), ("system", "Be brief.")):
            self.set(name, value)
        self.open()
        self.set("system", "Be brief.")  # of a conversation, and this one is new
        body = self.one_request(lambda: self.ask(QUESTION))
        self.assertEqual(body["messages"], [{"role": "system", "content": "Be brief."},
                                            {"role": "user", "content": QUESTION}])
        for name, value in {"model": "demo", "temperature": 0.5, "top_p": 0.9, "top_k": 7,
                            "min_p": 0.1, "max_tokens": 4, "seed": 11, "stream": True}.items():
            self.assertEqual(body[name], value, name)
        # What the server would refuse is not sent.
        self.set("temperature", "9")
        self.one("#open-settings").click()
        self.one("#reset").click()
        self.press(Keys.ESCAPE)
        body = self.one_request(lambda: self.ask(QUESTION))
        self.assertNotIn("temperature", body)
        self.assertNotIn("seed", body)

    def test_shows_json_and_calls_of_tools(self):
        schema = {"type": "object", "required": ["n", "c"], "properties": {
            "n": {"type": "integer", "minimum": 10, "maximum": 99}, "c": {"enum": ["red", "blue"]}}}
        self.set("schema", json.dumps(schema))
        self.ask(QUESTION)
        self.assertRegex(self.text(".assistant .json"), r'^\{\s+"n": \d\d,\s+"c": "(red|blue)"\s+\}$')
        self.assertEqual(len(self.all(".json .json-key")), 2)
        self.picture("json")
        self.set("schema", "")
        tool = {"type": "function", "function": {"name": "count", "parameters": schema}}
        self.set("tools", json.dumps([tool]))
        body = self.one_request(lambda: self.ask(QUESTION))
        self.assertEqual(body["tools"], [tool])
        self.assertNotIn("response_format", body)
        self.open()
        self.browser.execute_script(SAY.replace("{content: text}", "{tool_calls: text}"), [
            {"index": 0, "function": {"name": "count", "arguments": '{"n": 12}'}}])
        self.ask(QUESTION)
        self.assertRegex(self.text(".assistant:last-child .call"), r'^Call of count\s+\{\s+"n": 12\s+\}$')
        # No JSON is not kept, and the field says why.
        self.one("#open-settings").click()
        field = self.one("#settings [name=schema]")
        field.send_keys("{", Keys.TAB)
        self.assertNotEqual(field.get_property("validationMessage"), "")
        self.assertNotIn('"schema"', self.browser.execute_script("return localStorage.getItem('kakeya.settings')"))

    def test_begins_a_line_with_shift(self):
        self.one("#question").send_keys("a", Keys.SHIFT, Keys.ENTER)
        self.one("#question").send_keys(Keys.NULL, "b")
        self.assertEqual(self.one("#question").get_attribute("value"), "a\nb")
        self.assertEqual(self.texts("user"), [])

    def test_text_of_a_model_never_becomes_markup(self):
        self.browser.execute_script(SAY, HOSTILE)
        self.ask(HOSTILE)
        self.ask("again")
        for _ in range(2):
            self.assertEqual(self.all("#messages img, #messages script, #messages i, #messages b"), [])
            self.assertFalse(self.browser.execute_script("return window.broken === 1"))
            shown = self.texts("assistant")[0]
            for part in ('<img src=x onerror="', "<script>", "[x](javascript:", "[y](data:", "A <b>heading</b>", "a < b"):
                self.assertIn(part, shown)
            addresses = {link.get_attribute("href") for link in self.all("#messages a")}
            self.assertEqual(addresses, {"https://example.com/a?b=%3Ci%3E", "https://example.com/"})
            self.open()  # from what was kept
        tags = self.browser.execute_script(
            "return [...document.querySelector('.assistant .text').children].map((one) => one.tagName)")
        self.assertEqual(tags, ["P", "P", "H3", "UL", "OL", "DIV"])
        self.assertEqual(self.all("pre")[0].text, "<b>x</b>")

    def test_loads_nothing_from_elsewhere(self):
        policy = self.get("/").headers["Content-Security-Policy"]
        self.assertTrue(policy.startswith("default-src 'none'; script-src 'self';"), policy)
        ran = self.browser.execute_script("""const script = document.createElement("script");
            script.textContent = "window.ran = true"; document.body.append(script); return window.ran === true;""")
        self.assertFalse(ran)
        fetched = self.browser.execute_async_script("""const done = arguments[0];
            fetch("http://localhost:1/").then(() => done("fetched"), () => {});
            document.addEventListener("securitypolicyviolation", (event) => done(event.effectiveDirective));""")
        self.assertEqual(fetched, "connect-src")
        self.browser.get_log("browser")  # those two, which the browser complains of

    def test_says_in_a_line_what_went_wrong(self):
        self.ask(QUESTION)
        self.browser.execute_script("window.fetch = () => Promise.reject(new TypeError('gone'))")
        self.ask("Spell cat.")
        self.assertEqual(self.text(".error span"), "The server cannot be reached.")
        self.open()
        self.one(".error button").click()
        self.answered()
        self.assertEqual(self.all(".error"), [])
        self.assertEqual(self.all(".branches"), [])  # the failure is no version
        self.assertEqual(len(self.texts("assistant")), 2)
        self.browser.execute_script("document.getElementById('question').value = 'word '.repeat(40000)")
        self.ask(".")
        self.assertIn("context", self.text(".error span"))

    def test_shows_what_the_server_holds(self):
        self.ask(QUESTION)
        self.wait(lambda: "Drafts accepted" in self.text("#drafts"))
        self.assertIn("Weights", self.text("#memory-legend"))
        bar = self.one("#memory-bar")
        self.assertGreaterEqual(len(bar.find_elements(By.TAG_NAME, "span")), 3)
        self.assertIn("Weights: ", bar.get_attribute("aria-label"))

    def test_works_on_a_phone_and_in_the_dark(self):
        self.ask(QUESTION)
        self.ask("Write a Python function that adds two numbers.")
        for dark in (False, True):
            for name, width, height in (("desktop", 1280, 800), ("phone", 390, 844)):
                self.size(width, height, dark, touch=name == "phone")
                self.open()
                wide = self.browser.execute_script("return document.documentElement.scrollWidth")
                self.assertLessEqual(wide, width)
                ground = self.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
                self.assertEqual(max(int(part) for part in re.findall(r"\d+", ground)[:3]) < 128, dark)
                self.picture(f"{name}-{'dark' if dark else 'light'}")
        # By keys alone: the menu opens, its first button has the focus, Esc closes it.
        self.assertFalse(self.one("#new").is_displayed())
        self.browser.execute_script("document.getElementById('open-menu').focus()")
        self.press(Keys.ENTER)
        self.wait(lambda: self.one("#new").is_displayed())
        self.wait(lambda: self.browser.switch_to.active_element.get_attribute("id") == "close-menu")
        time.sleep(0.3)  # it comes in
        self.picture("phone-menu")
        self.press(Keys.ESCAPE)
        self.wait(lambda: not self.one("#new").is_displayed())
        self.one("#theme").click()
        self.open()
        self.assertEqual(self.one("html").get_attribute("data-theme"), "light")
        self.size(1280, 800)
        self.one("#open-settings").click()
        self.picture("settings")


if __name__ == "__main__":
    unittest.main()
