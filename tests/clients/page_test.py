"""The page of `kakeya serve` in Chromium, used as a person uses it.
usage: page_test.py KAKEYA (tools/test_page runs it); SCREENSHOTS=FOLDER keeps pictures of it"""

import base64
import json
import os
import pathlib
import subprocess
import sys
import unittest
import urllib.request

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

ROOT = pathlib.Path(__file__).resolve().parents[2]
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
HOSTILE = """<img src=x onerror="document.title='broken'"> and <script>document.title='broken'</script>

[x](javascript:document.title='broken') [y](data:text/html,z) [z](https://example.com/a?b=<i>)

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
        cls.server = subprocess.Popen([KAKEYA, "serve", "--port", "0", "--ctx", "32768",
                                       "--model", ROOT / "models/demo"],
                                      stdout=subprocess.PIPE, text=True)
        cls.address = cls.server.stdout.readline().split()[0]
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        cls.browser = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.server.terminate()
        cls.server.stdout.close()
        if cls.server.wait(timeout=30) != 0:
            raise RuntimeError(f"expected exit code 0 of the server, got {cls.server.returncode}")

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

    def picture(self, name):
        if SCREENSHOTS:
            pathlib.Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
            got = self.browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
            (pathlib.Path(SCREENSHOTS) / f"{name}.png").write_bytes(base64.b64decode(got["data"]))

    def test_chats(self):
        self.ask(QUESTION)
        self.assertEqual(self.texts("user"), [QUESTION])
        self.assertEqual(self.texts("assistant"), [ANSWER])
        self.assertRegex(self.text(".assistant .measured"), r"^\d+ tokens · .*prompt \d+ tokens$")


if __name__ == "__main__":
    unittest.main()
