"""tools/mac_report: what it concludes from what `kakeya` prints. The program is one of this file, which answers
as a plan says: the arguments that a command begins with, and the JSON that it prints, or the error."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]

PROGRAM = """\
#!{python}
import json, pathlib, sys
arguments = sys.argv[1:]
if arguments[:2] == ["eval", "report"]:
    pathlib.Path(arguments[arguments.index("--out") + 1]).write_text("page")
    sys.exit(0)
backend = arguments[arguments.index("--backend") + 1] if "--backend" in arguments else ""
for key, answer in json.loads(pathlib.Path({plan!r}).read_text()).items():
    if " ".join([*arguments, backend]).startswith(key.partition("@")[0]) and key.partition("@")[2] in ("", backend):
        if isinstance(answer, str):
            sys.exit(answer)
        print(json.dumps(answer))
        sys.exit(0)
sys.exit("not in the plan: " + " ".join(arguments))
"""


def passes(rows):
    return {"passes": [{"rows": rows, "tokens_per_second": 10.0 * rows, "gb_per_s": 5.0}]}


def a_set(different):
    return {"set": "needle", "prompts": 2, "differing": different, "speedup": 1.5}


class MacReport(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "out"
        golden = json.loads((ROOT / "models/demo/golden/greedy.jsonl").read_text().splitlines()[0])
        self.plan = {
            "doctor": {"backends": {"cpu": "available", "mlx": "available", "cuda": "there is no driver"}},
            "run": {"output_ids": golden["output_ids"]},
            "eval spec": {"sets": [a_set([])]},
            "bench decode": passes(1), "bench verify": passes(8), "bench prefill": passes(512),
        }

    def run_tool(self, *arguments):
        plan = self.folder / "plan.json"
        plan.write_text(json.dumps(self.plan))
        program = self.folder / "bin/kakeya"
        program.parent.mkdir(exist_ok=True)
        program.write_text(PROGRAM.format(python=sys.executable, plan=str(plan)))
        program.chmod(0o755)
        done = subprocess.run([sys.executable, ROOT / "tools/mac_report", "--build", self.folder, "--out", self.out,
                               "--prompts", "1", *arguments], capture_output=True, text=True)
        summary = self.out / "summary.json"
        return done, json.loads(summary.read_text()) if summary.exists() else None

    def test_equal_answers_on_each_usable_backend(self):
        done, summary = self.run_tool()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(summary["backends"]), ["cpu", "mlx"])
        self.assertEqual(summary["backends"]["mlx"]["tokens"], {"prompts": 1, "different": []})
        self.assertEqual(summary["backends"]["cpu"]["prefill"], {"512": {"tokens_per_second": 5120.0, "gb_per_s": 5.0}})
        self.assertEqual(len(list((self.out / "reports").glob("*.json"))), 8)
        self.assertTrue((self.out / "index.html").exists())

    def test_with_a_gpu_the_cpu_device_is_reported_too(self):
        self.plan["doctor"]["devices"] = {"mlx": {"name": "a GPU"}}
        done, summary = self.run_tool()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(list(summary["backends"]), ["cpu", "mlx", "mlx/cpu"])
        self.assertEqual(len(list((self.out / "reports").glob("*-mlx-cpu.json"))), 4)

    def other_engine(self, name, lines):
        program = self.folder / "path" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!{sys.executable}\n{lines}\n")
        program.chmod(0o755)
        path = mock.patch.dict(os.environ, PATH=f"{program.parent}:{os.environ['PATH']}")
        path.start()
        self.addCleanup(path.stop)

    def test_llama_bench_measures_a_gguf_file(self):
        model = self.folder / "model.gguf"
        model.write_text("")
        tests = [{"n_prompt": 512, "n_gen": 0, "avg_ts": 300.5}, {"n_prompt": 0, "n_gen": 64, "avg_ts": 40.25}]
        self.other_engine("llama-bench", f"import json\nprint(json.dumps({tests}))")
        done, summary = self.run_tool("--model", str(model))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(summary["peers"]["llama-bench"], {"512": {"tokens_per_second": 300.5},
                                                           "1": {"tokens_per_second": 40.25}})

    def test_mlx_lm_measures_a_folder_and_its_failure_is_a_line(self):
        self.other_engine("mlx_lm.benchmark",
                          "print('Averages: prompt_tps=512.500, generation_tps=64.250, peak_memory=1.000')")
        _, summary = self.run_tool("--model", str(self.folder))
        self.assertEqual(summary["peers"]["mlx_lm.benchmark"], {"512": {"tokens_per_second": 512.5},
                                                                "1": {"tokens_per_second": 64.25}})
        self.other_engine("mlx_lm.benchmark", "raise SystemExit('no such model type')")
        done, summary = self.run_tool("--model", str(self.folder))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(summary["peers"]["mlx_lm.benchmark"], {"failed": "mlx_lm.benchmark: no such model type"})

    def test_an_answer_that_differs_is_named(self):
        self.plan = {"run@mlx": {"output_ids": [1, 2]}, **self.plan}
        done, summary = self.run_tool()
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr.strip(), "differs or failed: mlx tokens")
        self.assertEqual(len(summary["backends"]["mlx"]["tokens"]["different"]), 1)

    def test_drafts_that_change_an_answer_are_named(self):
        self.plan["eval spec"] = {"sets": [a_set([{"id": "3"}])]}
        done, _ = self.run_tool("--backends", "cpu")
        self.assertEqual((done.returncode, done.stderr.strip()), (1, "differs or failed: cpu spec"))
        self.assertIn("1 of 2 equal; needle 1.50 times plain", done.stdout)

    def test_what_fails_is_a_line_and_the_rest_goes_on(self):
        self.plan["bench decode"] = "out of memory"
        done, summary = self.run_tool("--backends", "cpu")
        self.assertEqual((done.returncode, done.stderr.strip()), (1, "differs or failed: cpu decode"))
        self.assertEqual(summary["backends"]["cpu"]["decode"], {"failed": "bench decode: out of memory"})
        self.assertIn("512", summary["backends"]["cpu"]["prefill"])

    def test_refusals_are_a_line(self):
        done, summary = self.run_tool("--backends", "cuda")
        self.assertEqual(done.stderr.strip(), "--backends: cuda cannot be used here: there is no driver")
        self.assertIsNone(summary)
        done, _ = self.run_tool("--backends", "cpu", "--prompts", "25")
        self.assertIn("--prompts: expected 1 to 24, got 25", done.stderr)


if __name__ == "__main__":
    unittest.main()
