"""bench/peers/compare.py: its arithmetic, and that it alternates between engines and stops the one
that is not asked. The engines are programs of this file with times that are made up."""

import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/peers"))

import compare  # noqa: E402  (found by the path above)

# usage: ENGINE LOG NAME SECONDS; answers every command with SECONDS three times, notes it in LOG.
ENGINE = """\
import json, sys
log, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
print(json.dumps({"engine": name, "load_seconds": 0.25, "vocab_size": 8}), flush=True)
for line in sys.stdin:
    with open(log, "a") as file:
        file.write(f"{name} {line}")
    answer = {"seconds": [seconds, seconds / 2, seconds * 9], "gb_per_s": 50.0}
    if name == "kakeya":
        answer["bytes"] = 10**9
    if line.startswith("batch 64 13 "):
        answer = {"error": "too many rows"}
    print(json.dumps(answer), flush=True)
"""


def pair(ours, theirs, probe=50.0, count=10**9):
    return compare.Pair(
        {"kakeya": compare.Sample(ours, count), "llama.cpp": compare.Sample(theirs)}, probe
    )


class Summary(unittest.TestCase):
    MEASURE = compare.Measure("4 rows", "batch 64 4 5", 4)

    def test_ratio_is_that_of_pairs(self):
        # The ratios are 2, 3 and 1; the ratio of the medians would be 2.5.
        pairs = [pair(0.1, 0.2), pair(0.02, 0.06), pair(0.08, 0.08)]
        row = compare.summarise(self.MEASURE, pairs)
        self.assertAlmostEqual(row["ratio"]["median"], 2.0)
        self.assertAlmostEqual(row["ratio"]["min"], 1.0)
        self.assertAlmostEqual(row["ratio"]["max"], 3.0)

    def test_speed_counts_tokens_and_bandwidth_kakeyas_bytes_for_both(self):
        row = compare.summarise(self.MEASURE, [pair(0.04, 0.1)])
        ours, theirs = (row["engines"][name] for name in compare.ENGINES)
        self.assertAlmostEqual(ours["tokens_per_second"]["median"], 100.0)
        self.assertAlmostEqual(ours["gb_per_s"]["median"], 25.0)
        self.assertAlmostEqual(ours["percent_of_probe"]["median"], 50.0)
        self.assertAlmostEqual(theirs["gb_per_s"]["median"], 10.0)
        self.assertAlmostEqual(theirs["percent_of_probe"]["median"], 20.0)

    def test_says_nothing_of_bandwidth_without_bytes_or_probe(self):
        row = compare.summarise(self.MEASURE, [pair(1.0, 1.0, count=0)])
        self.assertNotIn("gb_per_s", row["engines"]["kakeya"])
        row = compare.summarise(self.MEASURE, [pair(1.0, 1.0, probe=0.0)])
        self.assertNotIn("percent_of_probe", row["engines"]["kakeya"])

    def test_one_engine_alone_has_no_ratio(self):
        row = compare.summarise(
            self.MEASURE, [compare.Pair({"kakeya": compare.Sample(0.5, 10**9)}, 50.0)]
        )
        self.assertNotIn("ratio", row)
        self.assertIn("8.00", compare.row_text(row))

    def test_bars_are_as_long_as_the_ratios(self):
        rows = [
            compare.summarise(compare.Measure(name, "decode 1 1", 1), [pair(1.0, ratio)])
            for name, ratio in [("twice", 2.0), ("half", 0.5)]
        ]
        root = xml.etree.ElementTree.fromstring(compare.bar_chart(rows))
        widths = [float(bar.get("width")) for bar in root.iter("{http://www.w3.org/2000/svg}rect")]
        self.assertEqual(len(widths), 2)
        self.assertAlmostEqual(widths[0], 4 * widths[1])
        compare.bar_chart([])  # nothing to draw is no error

    def test_commands_are_kept_without_folders_of_this_machine(self):
        words = ["/a/b/peer", "--model", "/c/six.gguf", "--json", "docs/x.json", "64"]
        self.assertEqual(compare.without_folders(words),
                         ["peer", "--model", "six.gguf", "--json", "docs/x.json", "64"])

    def test_a_sample_is_the_median(self):
        self.assertEqual(compare.sample_of({"seconds": [3.0, 1.0, 2.0]}).seconds, 2.0)


class Run(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "engine.py").write_text(ENGINE)
        self.log = self.folder / "log"
        self.log.touch()
        self.engines = {}
        for name, seconds in [("kakeya", 0.5), ("llama.cpp", 1.0)]:
            self.engines[name] = self.program(name, seconds)

    def program(self, name, seconds):
        """A program of its own, as compare.py adds flags to the path."""
        path = self.folder / name
        path.write_text(
            f'#!/bin/sh\nexec {sys.executable} {self.folder}/engine.py {self.log} {name} {seconds}\n'
        )
        path.chmod(0o755)
        return path

    def run_compare(self, *flags):
        """Exit code, the report and what was printed."""
        out = self.folder / "out.json"
        arguments = ["--model", "file.gguf", "--json", str(out), "--pairs", "3"]
        arguments += ["--kakeya", str(self.engines["kakeya"])]
        arguments += ["--llama", str(self.engines["llama.cpp"]), *flags]
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = compare.main(arguments)
        return code, json.loads(out.read_text()) if code == 0 else None, said.getvalue()

    def commands(self):
        return [line.split(maxsplit=1) for line in self.log.read_text().splitlines()]

    def test_alternates_who_goes_first(self):
        code, report, said = self.run_compare(
            "--decode", "64", "--batch", "", "--prefill", "", "--no-probe"
        )
        self.assertEqual(code, 0, said)
        names = [name for name, _ in self.commands()]
        # One warm-up each, then three pairs.
        pairs = ["kakeya", "llama.cpp", "llama.cpp", "kakeya", "kakeya", "llama.cpp"]
        self.assertEqual(names, ["kakeya", "llama.cpp", *pairs])
        self.assertEqual(report["measures"][0]["ratio"]["median"], 2.0)
        self.assertEqual(len(report["starts"]["kakeya"]), 1)
        self.assertIn("decode at 64", said)

    def test_probes_before_and_after_every_pair(self):
        code, _, said = self.run_compare("--decode", "64", "--batch", "", "--prefill", "")
        self.assertEqual(code, 0, said)
        self.assertEqual([line for _, line in self.commands()].count("probe"), 6)

    def test_alone_starts_an_engine_for_each_pair(self):
        code, report, said = self.run_compare(
            "--decode", "64", "--batch", "2", "--prefill", "", "--no-probe", "--alone",
            "--starts", "2",
        )  # fmt: skip
        self.assertEqual(code, 0, said)
        self.assertEqual(len(report["starts"]["llama.cpp"]), 3 + 2)
        self.assertEqual([len(row["engines"]["kakeya"]["seconds"]) for row in report["measures"]],
                         [3, 3])

    def test_an_engines_error_ends_it_with_one_line(self):
        code, _, said = self.run_compare("--decode", "", "--batch", "13", "--prefill", "")
        self.assertEqual(code, 1)
        self.assertIn("too many rows", said)
        self.assertNotIn("Traceback", said)

    def test_the_busy_process_ends(self):
        core = min(os.sched_getaffinity(0))
        code, report, said = self.run_compare(
            "--decode", "64", "--batch", "", "--prefill", "", "--no-probe",
            "--busy-core", str(core), "--pairs", "1",
        )  # fmt: skip
        self.assertEqual(code, 0, said)
        self.assertEqual(report["measures"][1]["measure"], "decode at 64, a core busy")

    def test_an_engine_is_stopped_unless_asked(self):
        engine = compare.Engine([str(self.engines["kakeya"])])
        try:
            engine.ask("decode 1 1")
            status = pathlib.Path(f"/proc/{engine.process.pid}/status").read_text()
            self.assertIn("State:\tT", status)
        finally:
            engine.close()


if __name__ == "__main__":
    unittest.main()
