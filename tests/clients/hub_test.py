"""`kakeya pull` against a stand-in of the Hugging Face Hub. usage: hub_test.py KAKEYA (tools/test_clients runs it)"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from hub_stand_in import Model, StandIn
from serving import ROOT

KAKEYA = str(pathlib.Path(sys.argv.pop(1)).resolve())
DEMO = ROOT / "models/demo"
BESIDE = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]


def demo_files():
    files = {path.name: path.read_bytes() for path in DEMO.iterdir() if path.is_file()}
    return {**files, "README.md": b"words", "pytorch_model.bin": b"x" * 100, "modeling.py": b"raise SystemExit"}


class Pull(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        gguf = pathlib.Path(cls.folder.name) / "demo-BF16.gguf"
        subprocess.run([KAKEYA, "convert", DEMO, gguf], check=True, capture_output=True)
        cls.gguf = gguf.read_bytes()
        split = dict(demo_files())
        split["model.safetensors.index.json"] = json.dumps({"weight_map": {"a": "model.safetensors"}}).encode()
        cls.models = {
            "kakeya/demo": Model(demo_files()),
            "kakeya/indexed": Model(split),
            "kakeya/demo-GGUF": Model({"demo-BF16.gguf": cls.gguf, "demo-Q4_K_M.gguf": cls.gguf[:-1] + b"", "mmproj-F16.gguf": b"g" * 200,
                                       "config.json": b"{}"}),
            "kakeya/none": Model({"pytorch_model.bin": b"x", "README.md": b"y"}),
        }

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.hub = StandIn(self.models)
        self.cache = pathlib.Path(self.home.name) / "hub"
        self.token = ""

    def tearDown(self):
        self.hub.end()
        self.home.cleanup()

    def environment(self, **more):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_") and not name.lower().endswith("_proxy")}
        return {**kept, "HOME": self.home.name, "HF_HOME": self.home.name, "HF_ENDPOINT": self.hub.url(), "HF_TOKEN": self.token, **more}

    def kakeya(self, *arguments, **more):
        return subprocess.run([KAKEYA, *arguments], env=self.environment(**more), capture_output=True, text=True, timeout=120)

    def pull(self, *arguments, **more):
        done = self.kakeya("pull", *arguments, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, *arguments, words, **more):
        done = self.kakeya("pull", *arguments, **more)
        self.assertEqual(done.returncode, 2, done.stderr + done.stdout)
        last = done.stderr.splitlines()[-1]
        for word in words:
            self.assertIn(word, last)
        self.assertFalse(list(self.cache.glob("*/refs/main")), "a failed fetch has no reference")
        return done

    def entry(self, name):
        return self.cache / ("models--" + name.replace("/", "--"))

    def files(self, name):
        snapshot = self.entry(name) / "snapshots" / self.models[name].commit
        return {str(path.relative_to(snapshot)): path for path in snapshot.rglob("*") if not path.is_dir()}

    def begun(self, name):
        return list((self.entry(name) / "blobs").glob("*.incomplete"))

    def test_brings_a_folder_that_runs(self):
        done = self.pull("kakeya/demo")
        there = self.files("kakeya/demo")
        self.assertEqual(sorted(there), sorted(["model.safetensors", *(name for name in BESIDE if (DEMO / name).exists())]))
        for name, path in there.items():
            self.assertTrue(path.is_symlink() and str(path.readlink()).startswith("../../blobs/"), path)
            self.assertEqual(path.read_bytes(), self.models["kakeya/demo"].files[name])
        self.assertEqual((self.entry("kakeya/demo") / "refs/main").read_text(), self.models["kakeya/demo"].commit)
        self.assertIn("kakeya run kakeya/demo", done.stdout)
        listed = json.loads(self.kakeya("models", "--json").stdout)["models"]
        self.assertEqual([(model["name"], model["runs"]) for model in listed], [("kakeya/demo", True)])
        answer = self.kakeya("run", "kakeya/demo", "Count from 5 to 12.")
        self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertIn("5", answer.stdout)
        again = self.pull("kakeya/demo")
        self.assertEqual(again.stderr.count("was here"), len(there))
        self.assertEqual(self.hub.count("resolve"), len(there))

    def test_brings_what_a_command_needs(self):
        done = self.kakeya("run", "--pull", "kakeya/demo", "Count from 5 to 12.")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("model.safetensors", done.stderr)
        self.assertEqual(done.stdout, self.kakeya("run", str(DEMO), "Count from 5 to 12.").stdout)
        asked = len(self.hub.asked)
        again = self.kakeya("run", "--pull", "--model", "kakeya/demo", "Count from 5 to 12.")
        self.assertEqual((again.returncode, again.stdout, len(self.hub.asked)), (0, done.stdout, asked))
        chat = subprocess.run([KAKEYA, "chat", "--pull", "kakeya/indexed"], env=self.environment(), input="", capture_output=True, text=True, timeout=60)
        self.assertEqual(chat.returncode, 0, chat.stderr)
        self.assertIn("model.safetensors.index.json", self.files("kakeya/indexed"))
        for model, word in [(str(DEMO), "--pull: expected"), ("demo", "--pull: expected"), ("kakeya/nothing", "no such")]:
            done = self.kakeya("run", "--pull", "--model", model, "x")
            self.assertEqual(done.returncode, 2)
            self.assertIn(word, done.stderr)
        self.assertIn("kakeya pull kakeya/nothing", self.kakeya("run", "kakeya/nothing", "x").stderr)

    def test_brings_the_weights_that_an_index_names(self):
        self.pull("kakeya/indexed")
        self.assertIn("model.safetensors", self.files("kakeya/indexed"))
        self.assertIn("model.safetensors.index.json", self.files("kakeya/indexed"))

    def test_brings_one_gguf_file_by_its_type(self):
        done = json.loads(self.pull("kakeya/demo-GGUF:q4_k_m", "--json").stdout)
        self.assertEqual([file["path"] for file in done["files"]], ["demo-Q4_K_M.gguf"])
        self.assertTrue(done["path"].endswith("/demo-Q4_K_M.gguf"))
        largest = self.pull("kakeya/demo-GGUF")
        self.assertIn("note: kakeya/demo-GGUF is demo-BF16.gguf", largest.stderr)
        self.assertIn("there are also demo-Q4_K_M.gguf", largest.stderr)
        self.assertEqual(self.kakeya("run", "kakeya/demo-GGUF:demo-BF16.gguf", "Count from 5 to 12.").returncode, 0)

    def test_tells_what_is_there(self):
        self.refused("kakeya/demo-GGUF:Q5_K_M", words=["demo-BF16.gguf", "demo-Q4_K_M.gguf"])
        self.refused("kakeya/none", words=["pytorch_model.bin", "GGUF"])
        self.refused("kakeya/nothing", words=["kakeya/nothing", "no such"])
        self.refused("kakeya/demo", "--revision", "v2", words=["v2", "no such revision"])

    def test_refuses_names(self):
        for name in ["demo", "a/b/c", "../x", "a/..", "kakeya/demo:../x", "kakeya/de--mo", "https://huggingface.co/a/b"]:
            self.refused(name, words=["expected a model"])
        self.refused("kakeya/demo", "--revision", "../../x", words=["--revision"])
        self.assertEqual(self.hub.asked, [])

    def test_goes_on_after_cut_connections(self):
        size = len(self.gguf)
        self.hub.trouble = lambda server, path, count: size // 4 if server == "contents" and count < 3 else None
        done = self.pull("kakeya/demo-GGUF:BF16")
        ranges = [headers.get("Range") for server, _, headers in self.hub.asked if server == "contents"]
        self.assertEqual(ranges, [None, *(f"bytes={size // 4 * part}-" for part in (1, 2, 3))])
        self.assertIn("again in", done.stderr)
        self.assertEqual(self.files("kakeya/demo-GGUF")["demo-BF16.gguf"].read_bytes(), self.gguf)

    def test_goes_on_where_it_was_stopped(self):
        self.hub.slow.clear()
        process = subprocess.Popen([KAKEYA, "pull", "kakeya/demo-GGUF:BF16"], env=self.environment(), stderr=subprocess.PIPE, text=True)
        for _ in range(300):
            if any(path.stat().st_size > 0 for path in self.begun("kakeya/demo-GGUF")):
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        self.assertIn("goes on", process.communicate(timeout=20)[1])
        self.assertEqual(process.returncode, 130)
        self.assertGreater(self.begun("kakeya/demo-GGUF")[0].stat().st_size, 0)
        self.hub.slow.set()
        self.pull("kakeya/demo-GGUF:BF16")
        self.assertTrue(self.hub.asked[-1][2]["Range"].startswith("bytes="))
        self.assertEqual(self.begun("kakeya/demo-GGUF"), [])

    def test_starts_anew_where_a_server_knows_no_ranges(self):
        self.test_goes_on_after_cut_connections()  # for a blob; then one whose rest is refused
        blob = self.files("kakeya/demo-GGUF")["demo-BF16.gguf"].resolve()
        blob.rename(str(blob) + ".incomplete")
        os.truncate(str(blob) + ".incomplete", 1000)
        self.hub.asked.clear()
        self.hub.trouble = lambda server, path, count: (416, []) if server == "contents" and count == 0 else None
        self.pull("kakeya/demo-GGUF:BF16")
        self.assertEqual(blob.read_bytes(), self.gguf)

    def test_keeps_the_token_from_other_hosts(self):
        self.hub.token = self.token = "hf_secret"
        self.pull("kakeya/demo-GGUF:BF16")
        for server, path, headers in self.hub.asked:
            self.assertEqual("Authorization" in headers, server == "hub", (server, path))
        self.assertEqual({server for server, _, _ in self.hub.asked}, {"hub", "contents"})

    def test_reads_the_token_of_a_file(self):
        self.hub.token = "hf_of_a_file"
        (pathlib.Path(self.home.name) / "token").write_text("hf_of_a_file\n")
        self.pull("kakeya/demo")

    def test_says_why_it_is_refused(self):
        self.hub.token = "hf_other"
        self.refused("kakeya/demo", words=["terms", f"{self.hub.url()}/kakeya/demo", "HF_TOKEN"])
        self.token = "hf_wrong"
        self.assertNotIn("hf_wrong", self.refused("kakeya/demo", words=["terms", "the token"]).stderr)
        self.refused("kakeya/demo", words=["one word"], HF_TOKEN="a b")
        self.refused("kakeya/demo", words=["HF_HUB_OFFLINE"], HF_HUB_OFFLINE="1")
        self.refused("kakeya/demo", words=["HF_ENDPOINT"], HF_ENDPOINT="file:///etc")

    def test_waits_for_a_busy_hub(self):
        troubles = {0: (429, [("Retry-After", "1")]), 1: 503}
        self.hub.trouble = lambda server, path, count: troubles.get(count) if path.startswith("/api/") else None
        begun = time.monotonic()
        done = self.pull("kakeya/demo")
        self.assertGreater(time.monotonic() - begun, 1.0)
        self.assertIn("status 429; again in 1.0 s", done.stderr)

    def test_waits_no_longer_than_sensible(self):
        self.hub.trouble = lambda *_: (429, [("Retry-After", "3600")])
        self.refused("kakeya/demo", words=["3600 s"])
        self.hub.end()
        self.hub = StandIn(self.models)
        self.hub.trouble = lambda server, path, count: 500
        self.refused("kakeya/demo", words=["gave up after 6 tries", "500"])

    def test_refuses_other_contents(self):
        wrong = dict(self.models["kakeya/demo-GGUF"].files)
        listing = self.models["kakeya/demo-GGUF"].listing()
        wrong["demo-BF16.gguf"] = self.gguf[:-1] + bytes([self.gguf[-1] ^ 1])
        self.hub.models = {"kakeya/demo-GGUF": Model(wrong)}
        self.hub.change_listing = lambda answer: answer.update(siblings=listing["siblings"])
        done = self.refused("kakeya/demo-GGUF:BF16", words=["expected the SHA-256", "removed"])
        self.assertIn("demo-BF16.gguf", done.stderr)
        self.assertEqual(self.begun("kakeya/demo-GGUF"), [])
        self.hub.models = {"kakeya/demo-GGUF": Model({**wrong, "demo-BF16.gguf": self.gguf + b"more"})}
        self.refused("kakeya/demo-GGUF:BF16", words=["got more"])

    def test_refuses_paths_that_leave_the_model(self):
        for path in ["../../../outside.gguf", "/etc/outside.gguf", "a/../../x.gguf", "a\nb.gguf", "./x.gguf"]:
            self.hub.change_listing = lambda answer: answer["siblings"].append({"rfilename": path, "size": 1, "blobId": "0" * 40})
            self.refused("kakeya/demo", words=["within the repository"])
        self.hub.change_listing = lambda answer: answer["siblings"][0].update(blobId="../../../x", lfs=None)
        self.refused("kakeya/demo", words=["expected its hash"])
        self.hub.change_listing = lambda answer: answer.update(sha="../..")
        self.refused("kakeya/demo", words=["expected a commit"])

    def test_asks_for_room_first(self):
        self.hub.change_listing = lambda answer: answer["siblings"][0].update(size=1 << 60)
        self.hub.models = {"kakeya/demo-GGUF": self.models["kakeya/demo-GGUF"]}
        self.refused("kakeya/demo-GGUF:BF16", words=["free on its disk"])
        self.assertEqual(self.hub.count("resolve"), 0)

    def test_fetches_once_for_two(self):
        self.hub.slow.clear()
        both = [subprocess.Popen([KAKEYA, "pull", "kakeya/demo-GGUF:BF16"], env=self.environment(), stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                                 text=True) for _ in range(2)]
        for _ in range(200):
            if self.hub.count("/api/") == 2 and self.begun("kakeya/demo-GGUF"):
                break
            if self.hub.count("/api/") < 2:
                time.sleep(0.02)
        threading.Timer(1.0, self.hub.slow.set).start()
        words = [process.communicate(timeout=60)[1] for process in both]
        self.assertEqual([process.returncode for process in both], [0, 0], words)
        self.assertEqual(sum(server == "contents" for server, _, _ in self.hub.asked), 1)
        self.assertTrue(any("another process fetches it" in text for text in words), words)
        self.assertEqual(self.files("kakeya/demo-GGUF")["demo-BF16.gguf"].read_bytes(), self.gguf)


if __name__ == "__main__":
    unittest.main()
