#!/usr/bin/env python3
"""Compares what Kakeya and llama.cpp compute on the same files, not how fast.

Texts are cut into runs of tokens, each after a token of beginning. For each run and model file the
logits of every position are compared with those of a reference, such as the unquantised model in
Kakeya's f32 mode. Printed are the mean Kullback-Leibler divergence from the reference, the
difference from llama.cpp's with its standard error, and how often both give the same best token.
usage: bench/peers/agreement.py --help; README.md explains.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

from compare import Engine, EngineError

PEER = "llama.cpp"


@dataclasses.dataclass
class Rows:
    """What is known of each position: divergence from the reference in nats, and best token."""

    divergences: list = dataclasses.field(default_factory=list)
    best: list = dataclasses.field(default_factory=list)


def mean_and_error(values):
    """The mean and its standard error, as if the values were independent."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "error": error}


def summarise(model, rows):
    """One model: `rows` is a Rows for each engine."""
    peer = rows.get(PEER)
    report = {"model": model, "engines": {}}
    for name, own in rows.items():
        entry = {"divergence": mean_and_error(own.divergences)}
        if peer and name != PEER:
            pairs = zip(own.divergences, peer.divergences)
            entry["difference"] = mean_and_error([ours - theirs for ours, theirs in pairs])
            same = sum(ours == theirs for ours, theirs in zip(own.best, peer.best))
            entry["same_best"] = same / len(own.best)
        report["engines"][name] = entry
    report["positions"] = len(next(iter(rows.values())).best)
    return report


HEADER = f"{'':<34} {'divergence':>20} {'less that of ' + PEER:>24} {'same best token':>16}"


def lines_of(report):
    """Lines of the table."""
    lines = []
    for name, entry in report["engines"].items():
        divergence, difference = entry["divergence"], entry.get("difference")
        line = f"{report['model'] + ', ' + name:<34}"
        line += f" {divergence['mean']:>10.5f} +- {divergence['error']:.5f}"
        if difference:
            line += f" {difference['mean']:>+14.5f} +- {difference['error']:.5f}"
            line += f" {100 * entry['same_best']:>14.2f} %"
        lines.append(line)
    return lines


def runs_of(texts, length, most):
    """Runs of `length` tokens, each after a token of beginning if there is one: `most` of a text at
    most, whole ones unless the text has no more. `texts` are answers to the command tokens."""
    runs = []
    for text in texts:
        begin = [text["bos"]] if text["bos"] >= 0 else []
        own = length - len(begin)
        ids = text["ids"]
        count = max(1, len(ids) // own)
        runs += [begin + ids[i * own : (i + 1) * own] for i in range(min(count, most))]
    return [run for run in runs if run]


class Agreement:
    """Keeps an engine for each of `commands` (a command line for each model and engine) while it is
    entered."""

    def __init__(self, reference, commands, compare_logits, folder):
        self.commands = {None: reference, **commands}
        self.compare_logits = compare_logits
        self.folder = folder
        self.engines = {}
        self.rows = {key: Rows() for key in commands}

    def __enter__(self):
        try:
            for key, command in self.commands.items():
                self.engines[key] = Engine(command)
        except EngineError:
            self.__exit__()
            raise
        self.reference = self.engines[None]
        self.columns = self.reference.ready["vocab_size"]
        return self

    def logits(self, engine, name):
        out = self.folder / name
        engine.ask(f"logits {self.folder / 'ids'} {out}")
        return str(out)

    def tokens(self, path):
        return self.reference.ask(f"tokens {path}")

    def add(self, run):
        """Compares one run of ids."""
        (self.folder / "ids").write_text(" ".join(map(str, run)))
        reference = self.logits(self.reference, "reference")
        for key in self.rows:
            command = [self.compare_logits, "--each", "--columns", str(self.columns)]
            command += [reference, self.logits(self.engines[key], "other")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise EngineError(done.stderr.strip())
            found = json.loads(done.stdout)[0]
            self.rows[key].divergences += found["divergences"]
            self.rows[key].best += found["best"]

    def reports(self):
        models = dict.fromkeys(model for model, _ in self.rows)
        return [
            summarise(model, {name: rows for (of, name), rows in self.rows.items() if of == model})
            for model in models
        ]

    def __exit__(self, *_):
        for engine in self.engines.values():
            engine.close()  # also what stands still, which would stay behind


def commands_of(flags):
    """The command line of the reference, and of each model and engine."""
    common = ["--threads", str(flags.threads), "--context", str(flags.run)]
    kakeya, llama = str(flags.kakeya), str(flags.llama)
    commands = {}
    for model in flags.model:
        name = pathlib.Path(model).name
        own = ["--model", model, *common]
        commands[name, "kakeya fast"] = [kakeya, *own]
        commands[name, "kakeya f32"] = [kakeya, *own, "--compute", "f32"]
        if not flags.without_llama:
            commands[name, PEER] = [llama, *own]
    return [kakeya, "--model", flags.reference, *common, "--compute", "f32"], commands


def parse_flags(arguments):
    build = pathlib.Path(__file__).resolve().parents[2] / "build/release/bin"
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="+", help="GGUF files to compare with the reference")
    parser.add_argument("--reference", required=True, help="model or GGUF file; run in f32")
    parser.add_argument("--text", type=pathlib.Path, action="append", required=True)
    parser.add_argument("--run", type=int, default=1000, help="tokens of a run")
    parser.add_argument("--runs", type=int, default=12, help="of each text, at most")
    parser.add_argument("--without-llama", action="store_true", help="Kakeya's two modes alone")
    parser.add_argument("--kakeya", type=pathlib.Path, default=build / "peer_kakeya")
    parser.add_argument("--llama", type=pathlib.Path, default=build / "peer_llama")
    parser.add_argument("--compare", type=pathlib.Path, default=build / "compare_logits")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    flags = parser.parse_args(arguments)
    if flags.run < 2 or flags.runs < 1:
        parser.error("--run, --runs: expected at least 2 and 1")
    return flags


def measure(flags, folder):
    reference, commands = commands_of(flags)
    with Agreement(reference, commands, str(flags.compare), folder) as agreement:
        texts = [agreement.tokens(path) for path in flags.text]
        runs = runs_of(texts, flags.run, flags.runs)
        if not runs:
            raise EngineError("--text: expected text, got none")
        for index, run in enumerate(runs):
            agreement.add(run)
            print(f"\r{index + 1} of {len(runs)} runs", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        return agreement.reports()


def main(arguments=None):
    flags = parse_flags(arguments)
    try:
        with tempfile.TemporaryDirectory() as folder:
            reports = measure(flags, pathlib.Path(folder))
    except (EngineError, OSError) as failure:
        print(f"agreement.py: {failure}", file=sys.stderr)
        return 1
    print(f"{reports[0]['positions']} positions\n{HEADER}")
    for report in reports:
        print("\n".join(lines_of(report)))
    if flags.json:
        flags.json.write_text(json.dumps({"models": reports}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaves no engine behind, stopped
    sys.exit(main())
