"""bench/peers/agreement.py: its arithmetic, and what it asks the engines. The engines are programs
of this file whose "logits" say who they are; the program that compares them knows the answers."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/peers"))

import agreement  # noqa: E402  (found by the path above)

# usage: ENGINE NAME ARGUMENTS...; writes "NAME MODEL COMPUTE" as its logits.
ENGINE = """\
import json, pathlib, sys
name, flags = sys.argv[1], sys.argv[2:]
model = flags[flags.index("--model") + 1]
compute = flags[flags.index("--compute") + 1] if "--compute" in flags else "-"
print(json.dumps({"engine": name, "load_seconds": 0.0, "vocab_size": 8}), flush=True)
for line in sys.stdin:
    words = line.split()
    answer = {"error": f"what is {line}"}
    if words[0] == "tokens":
        ids = [int(c) for c in pathlib.Path(words[1]).read_text()]
        answer = {"ids": ids, "bos": 7 if ids else -1}
    if words[0] == "logits":
        ids = pathlib.Path(words[1]).read_text()
        pathlib.Path(words[2]).write_text(f"{name} {model} {compute}; {ids}")
        answer = {"rows": len(ids.split()), "columns": 8}
    print(json.dumps(answer), flush=True)
"""

# Two positions of each run: llama.cpp is 0.2 and 0.4 nats off, Kakeya 0.1 and 0.2; in f32 nothing,
# and one of two best tokens is llama.cpp's.
COMPARE = """\
import json, pathlib, sys
reference, other = (pathlib.Path(path).read_text() for path in sys.argv[-2:])
assert reference.startswith("kakeya whole.gguf f32; 7"), reference
assert reference.split(";")[1] == other.split(";")[1], "other tokens"
who = other.split(";")[0]
found = {
    "llama.cpp small.gguf -": {"divergences": [0.2, 0.4], "best": [1, 2]},
    "kakeya small.gguf -": {"divergences": [0.1, 0.2], "best": [1, 2]},
    "kakeya small.gguf f32": {"divergences": [0.0, 0.0], "best": [1, 3]},
}
print(json.dumps([found[who]]))
"""


class Arithmetic(unittest.TestCase):
    def test_error_of_a_mean(self):
        found = agreement.mean_and_error([1.0, 2.0, 3.0, 4.0])
        self.assertAlmostEqual(found["mean"], 2.5)
        self.assertAlmostEqual(found["error"], (5.0 / 3.0 / 4.0) ** 0.5)
        self.assertEqual(agreement.mean_and_error([1.0])["error"], 0.0)

    def test_the_difference_is_that_of_pairs(self):
        # Each varies by much, their difference not at all.
        ours = agreement.Rows([1.0, 2.0, 9.0], [1, 2, 3])
        theirs = agreement.Rows([1.5, 2.5, 9.5], [1, 2, 4])
        report = agreement.summarise("m", {"kakeya fast": ours, "llama.cpp": theirs})
        entry = report["engines"]["kakeya fast"]
        self.assertAlmostEqual(entry["difference"]["mean"], -0.5)
        self.assertAlmostEqual(entry["difference"]["error"], 0.0)
        self.assertAlmostEqual(entry["same_best"], 2 / 3)
        self.assertEqual(report["positions"], 3)
        self.assertIn("-0.50000 +- 0.00000", agreement.lines_of(report)[0])
        self.assertIn("66.67 %", agreement.lines_of(report)[0])

    def test_without_the_peer_there_is_no_difference(self):
        report = agreement.summarise("m", {"kakeya fast": agreement.Rows([1.0], [1])})
        self.assertNotIn("difference", report["engines"]["kakeya fast"])
        self.assertIn("1.00000", agreement.lines_of(report)[0])

    def test_runs_begin_with_the_token_of_beginning_and_are_whole(self):
        texts = [{"ids": [1, 2, 3, 4, 5], "bos": 9}, {"ids": [6], "bos": 9}]
        self.assertEqual(agreement.runs_of(texts, 3, 5), [[9, 1, 2], [9, 3, 4], [9, 6]])
        self.assertEqual(agreement.runs_of(texts, 3, 1), [[9, 1, 2], [9, 6]])
        self.assertEqual(agreement.runs_of([{"ids": [1, 2], "bos": -1}], 1, 5), [[1], [2]])
        self.assertEqual(agreement.runs_of([{"ids": [], "bos": -1}], 2, 5), [])


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "text").write_text("12345")

    def program(self, name, source, *arguments):
        (self.folder / f"{name}.py").write_text(source)
        path = self.folder / name
        command = " ".join([sys.executable, f"{self.folder}/{name}.py", *arguments])
        path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        path.chmod(0o755)
        return str(path)

    def running(self):
        """Command lines of processes that run this test's programs."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                found.append(path.read_text())
        return [line for line in found if str(self.folder) in line]

    def run_agreement(self, *flags):
        out = self.folder / "out.json"
        arguments = ["small.gguf", "--reference", "whole.gguf", "--json", str(out), "--run", "2"]
        arguments += ["--kakeya", self.program("kakeya", ENGINE, "kakeya")]
        arguments += ["--llama", self.program("llama", ENGINE, "llama.cpp")]
        arguments += ["--compare", self.program("compare", COMPARE), *flags]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = agreement.main(arguments)
        return code, json.loads(out.read_text()) if code == 0 else None, said.getvalue()

    def test_compares_all_engines_on_the_same_runs(self):
        code, report, said = self.run_agreement("--text", str(self.folder / "text"))
        self.assertEqual(code, 0, said)
        (model,) = report["models"]
        self.assertEqual((model["model"], model["positions"]), ("small.gguf", 10))  # five runs
        engines = model["engines"]
        self.assertAlmostEqual(engines["llama.cpp"]["divergence"]["mean"], 0.3)
        self.assertAlmostEqual(engines["kakeya fast"]["difference"]["mean"], -0.15)
        self.assertEqual(engines["kakeya fast"]["same_best"], 1.0)
        self.assertEqual(engines["kakeya f32"]["same_best"], 0.5)
        self.assertIn("50.00 %", said)

    def test_an_engines_error_ends_it_with_one_line(self):
        code, _, said = self.run_agreement(
            "--text", str(self.folder / "text"), "--llama", self.program("bad", "import sys\n")
        )
        self.assertEqual(code, 1)
        self.assertIn("agreement.py: ", said)
        self.assertNotIn("Traceback", said)
        self.assertEqual(self.running(), [])  # the engines that had started ended, too

    def test_an_empty_text_is_said(self):
        (self.folder / "text").write_text("")
        code, _, said = self.run_agreement("--text", str(self.folder / "text"))
        self.assertEqual(code, 1, said)
        self.assertIn("expected text, got none", said)


if __name__ == "__main__":
    unittest.main()
