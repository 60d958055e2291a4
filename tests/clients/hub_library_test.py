"""`kakeya pull` and the Hub's own Python library share a cache. usage: hub_library_test.py KAKEYA (tools/test_clients runs it)"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from hub_stand_in import Model, StandIn
from serving import ROOT

KAKEYA = str(pathlib.Path(sys.argv.pop(1)).resolve())
FILES = {path.name: path.read_bytes() for path in (ROOT / "models/demo").iterdir() if path.is_file()}
HUB = StandIn({"kakeya/demo": Model({**FILES, "README.md": b"words"})})
HOME = tempfile.TemporaryDirectory()
# The library reads them when it is imported.
for variable in [name for name in os.environ if name.startswith("HF_") or name.lower().endswith("_proxy")]:
    del os.environ[variable]
os.environ.update(HF_ENDPOINT=HUB.url(), HF_HOME=HOME.name, HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1")
import huggingface_hub  # noqa: E402


def tearDownModule():
    HUB.end()
    HOME.cleanup()


class SharedCache(unittest.TestCase):
    def kakeya(self, cache, *arguments):
        return subprocess.run([KAKEYA, *arguments], env={**os.environ, "HF_HUB_CACHE": cache}, check=True, capture_output=True, text=True)

    def test_the_library_finds_what_was_pulled(self):
        with tempfile.TemporaryDirectory() as cache:
            pulled = json.loads(self.kakeya(cache, "pull", "kakeya/demo", "--json").stdout)
            folder = huggingface_hub.snapshot_download("kakeya/demo", cache_dir=cache, local_files_only=True)
            self.assertEqual(folder, pulled["path"])
            scanned = huggingface_hub.scan_cache_dir(cache)
            self.assertEqual((scanned.warnings, [model.repo_id for model in scanned.repos]), ([], ["kakeya/demo"]))
            (revision,) = next(iter(scanned.repos)).revisions
            self.assertEqual((revision.commit_hash, revision.refs, len(revision.files)), (pulled["commit"], {"main"}, len(pulled["files"])))
            before = HUB.count("resolve")
            huggingface_hub.snapshot_download("kakeya/demo", cache_dir=cache)
            fetched = [path.rsplit("/", 1)[1] for _, path, _ in HUB.asked[-(HUB.count("resolve") - before):] if "resolve" in path]
            self.assertFalse(set(fetched) & {file["path"] for file in pulled["files"]}, "fetched twice")

    def test_kakeya_finds_what_the_library_fetched(self):
        with tempfile.TemporaryDirectory() as cache:
            folder = huggingface_hub.snapshot_download("kakeya/demo", cache_dir=cache)
            before = HUB.count("resolve")
            pulled = json.loads(self.kakeya(cache, "pull", "kakeya/demo", "--json").stdout)
            self.assertEqual(pulled["path"], folder)
            self.assertFalse(any(file["fetched"] for file in pulled["files"]))
            self.assertEqual(HUB.count("resolve"), before)
            listed = json.loads(self.kakeya(cache, "models", "--json").stdout)["models"]
            self.assertIn(("kakeya/demo", folder), [(model["name"], model["path"]) for model in listed])


if __name__ == "__main__":
    unittest.main()
