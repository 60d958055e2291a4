#!/usr/bin/env python3
"""Computes a text's perplexity with Kakeya, llama.cpp and transformers, by the same rule on the same file.

The rule is llama-perplexity's: windows follow each other, the second half of each counts. llama.cpp also runs the
file's weights as F32, for its products of quantised weights round activations to 8 bits, as Kakeya's default does.
usage: bench/peers/compare_perplexity.py --help; README.md explains.
"""

import argparse
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import compare

# What runs in the interpreter of --transformers, which has torch, transformers and gguf: it prints the
# sum of each window's negative log-likelihoods.
TRANSFORMERS = """
import json, pathlib, sys, torch, transformers
file, text, length, threads = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.set_num_threads(threads)
source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32).eval()
begin = int(sys.argv[5])
ids = tokenizer(pathlib.Path(text).read_text(encoding="utf-8"), add_special_tokens=False)["input_ids"]
if begin >= 0: ids = [begin, *ids]
for at in range(0, len(ids) - length + 1, length):
    window = torch.tensor([([begin] if begin >= 0 else [ids[at]]) + ids[at + 1 : at + length]])
    with torch.no_grad():
        rows = model(window).logits[0].double().log_softmax(-1)
    half = length // 2
    targets = window[0, half + 1 :]
    print(-rows[half:-1].gather(1, targets[:, None]).sum().item(), flush=True)
"""


class PerplexityError(Exception):
    """A program ended, or printed something else than windows."""


def run(command, environment=None):
    """What a program prints, both streams together."""
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=environment
    )
    if done.returncode != 0:
        raise PerplexityError(f"{command[0]}: exit code {done.returncode}: {done.stdout.strip()[-300:]}")
    return done.stdout


def running(sums, counted):
    """The perplexity of the first window, of the first two, and so on, from sums over `counted` tokens each."""
    perplexities, total = [], 0.0
    for index, each in enumerate(sums):
        total += each
        perplexities.append(math.exp(total / ((index + 1) * counted)))
    return perplexities


def of_kakeya(flags, compute, folder):
    """Running perplexities of `kakeya eval perplexity`."""
    report = folder / "report.json"
    run([
        str(flags.kakeya), "eval", "perplexity", "--model", str(flags.model), "--file", str(flags.text), "--counted",
        "second-half", "--length", str(flags.length), "--compute", compute, "--threads", str(flags.threads),
        "--out", str(report),
    ])  # fmt: skip
    windows = json.loads(report.read_text())["sets"][0]["windows"]
    return running([window["nll"] for window in windows], windows[0]["tokens"])


def of_llama_cpp(flags, model):
    """Running perplexities as llama-perplexity prints them: [1]10.1184,[2]14.3882,..."""
    text = run([
        str(flags.llama), "-m", str(model), "-f", str(flags.text), "-c", str(flags.length), "-b", str(flags.length),
        "-t", str(flags.threads),
    ])  # fmt: skip
    found = [float(number) for number in re.findall(r"\[\d+\](\d+\.\d+),", text)]
    if not found:
        raise PerplexityError(f"{flags.llama.name}: expected [1]PERPLEXITY, got {text.strip()[-200:]}")
    return found


def of_transformers(flags):
    """Running perplexities of transformers, in float32 on the file's weights."""
    command = [flags.transformers, "-c", TRANSFORMERS, str(flags.model.resolve()), str(flags.text), str(flags.length)]
    command += [str(flags.threads), str(flags.begin)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode != 0:
        raise PerplexityError(f"transformers: {done.stderr.strip()[-300:]}")
    return running([float(line) for line in done.stdout.split()], flags.length - 1 - flags.length // 2)


def measure(flags, folder):
    """Rows of the report, the first of which the others are compared with."""
    as_f32 = folder / "f32.gguf"
    ways = {
        "kakeya, f32": lambda: of_kakeya(flags, "f32", folder),
        "kakeya, fast": lambda: of_kakeya(flags, "fast", folder),
        "llama.cpp": lambda: of_llama_cpp(flags, flags.model),
        "llama.cpp, F32 weights": lambda: of_llama_cpp(flags, as_f32),
    }
    run([str(flags.kakeya), "convert", str(flags.model), str(as_f32), "--type", "f32"])
    if flags.transformers:
        ways["transformers, f32"] = lambda: of_transformers(flags)
    rows = []
    for name, way in ways.items():
        perplexities = way()
        if rows and len(perplexities) != len(rows[0]["running"]):
            raise PerplexityError(f"{name}: expected {len(rows[0]['running'])} windows, got {len(perplexities)}")
        row = {"name": name, "perplexity": perplexities[-1], "running": perplexities}
        row["ratio"] = row["perplexity"] / (rows[0] if rows else row)["perplexity"]
        rows.append(row)
        print(f"{name:<24} {row['perplexity']:>10.4f} {100 * (row['ratio'] - 1):>+9.3f} %", flush=True)
    return rows


def parse_flags(arguments):
    build = pathlib.Path(__file__).resolve().parents[2] / "build/release/bin"
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=pathlib.Path, required=True, help="GGUF file")
    parser.add_argument("--text", type=pathlib.Path, required=True, help="file; .jsonl: its prompts, one behind another")
    parser.add_argument("--length", type=int, default=512, help="tokens of a window")
    parser.add_argument("--begin", type=int, default=-1, help="the model's beginning-of-sequence token, if it wants one")
    parser.add_argument("--kakeya", type=pathlib.Path, default=build / "kakeya")
    parser.add_argument("--llama", type=pathlib.Path, required=True, help="llama-perplexity")
    parser.add_argument("--transformers", help="a Python that has torch, transformers and gguf")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    flags = parser.parse_args(arguments)
    flags.given = sys.argv[1:] if arguments is None else list(arguments)
    if flags.length < 4:
        parser.error(f"--length: expected 4 or more, got {flags.length}")
    return flags


def plain_text(path, folder):
    """The file itself, or a file of the prompts of a .jsonl set."""
    if path.suffix != ".jsonl":
        return path
    lines = path.read_text(encoding="utf-8").splitlines()
    text = folder / "text"
    text.write_text("".join(json.loads(line)["prompt"] for line in lines if line.strip()), encoding="utf-8")
    return text


def main(arguments=None):
    flags = parse_flags(arguments)
    conditions = compare.Conditions()
    try:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            text, flags.text = flags.text, plain_text(flags.text, folder)
            rows = measure(flags, folder)
    except (PerplexityError, OSError, KeyError, ValueError) as failure:
        print(f"compare_perplexity.py: {failure}", file=sys.stderr)
        return 1
    if flags.json:
        report = {
            "schema": "kakeya.peers.perplexity/1",
            **compare.provenance("bench/peers/compare_perplexity.py", flags.given, conditions),
            "model": flags.model.name,
            "options": {"length": flags.length, "text": text.name},
            "engines": rows,
        }
        flags.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
