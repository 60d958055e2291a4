"""bench/peers/compare_perplexity.py: its arithmetic, and what it reads from the programs, which are stand-ins of this
file."""

import contextlib
import io
import json
import math
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/peers"))

import compare_perplexity  # noqa: E402  (found by the path above)

# Two windows of which 3 tokens count; in f32 they are less sure than with 8-bit activations.
KAKEYA = """\
#!/usr/bin/env python3
import json, pathlib, sys
flags = dict(zip(sys.argv[1:], sys.argv[2:]))
if sys.argv[1] == "convert":
    sys.exit(0)
assert flags["--counted"] == "second-half" and flags["--length"] == "8", flags
assert pathlib.Path(flags["--file"]).read_text() == "one two", flags
nll = [6.0, 9.0] if flags["--compute"] == "f32" else [6.0, 9.6]
windows = [{"tokens": 3, "nll": each} for each in nll]
pathlib.Path(flags["--out"]).write_text(json.dumps({"sets": [{"windows": windows}]}))
"""
LLAMA = """\
#!/usr/bin/env python3
import sys
print("loading\\n[1]7.5000,[2]%s,\\nFinal estimate" % ("12.3" if "f32.gguf" in sys.argv[2] else "12.9"))
"""


class Perplexities(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)
        for name, program in (("kakeya", KAKEYA), ("llama", LLAMA)):
            (self.folder / name).write_text(program)
            (self.folder / name).chmod(0o755)
        (self.folder / "text.jsonl").write_text('{"prompt": "one "}\n{"prompt": "two"}\n')

    def compare(self):
        flags = ["--model", "model.gguf", "--text", str(self.folder / "text.jsonl"), "--length", "8"]
        for name in ("kakeya", "llama"):
            flags += [f"--{name}", str(self.folder / name)]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = compare_perplexity.main([*flags, "--json", str(self.folder / "report.json")])
        return code, said.getvalue()

    def test_the_same_windows_by_each(self):
        code, said = self.compare()
        self.assertEqual(code, 0, said)
        rows = json.loads((self.folder / "report.json").read_text())["engines"]
        names = ["kakeya, f32", "kakeya, fast", "llama.cpp", "llama.cpp, F32 weights"]
        self.assertEqual([row["name"] for row in rows], names)
        self.assertAlmostEqual(rows[0]["running"][0], math.exp(2.0))
        self.assertAlmostEqual(rows[0]["perplexity"], math.exp(2.5))
        self.assertAlmostEqual(rows[1]["ratio"], math.exp(0.1))
        self.assertEqual([row["perplexity"] for row in rows[2:]], [12.9, 12.3])

    def test_other_windows_are_an_error(self):
        (self.folder / "llama").write_text(LLAMA.replace("[1]7.5000,", ""))
        code, said = self.compare()
        self.assertEqual(code, 1)
        self.assertIn("llama.cpp: expected 2 windows, got 1", said)

    def test_a_program_that_fails_is_named(self):
        (self.folder / "llama").write_text("#!/bin/sh\necho no such model; exit 3\n")
        code, said = self.compare()
        self.assertEqual(code, 1)
        self.assertIn("exit code 3: no such model", said)


if __name__ == "__main__":
    unittest.main()
