#!/usr/bin/env python3
"""Measures Kakeya and llama.cpp on the same file, alternating single measurements between them.

Both engines are programs that keep a model loaded and answer commands (peer.h). While one is
measured the other is stopped, so that threads that spin cost the other nothing. Between pairs the
memory bandwidth of the moment is probed. usage: bench/peers/compare.py --help; README.md explains.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import time

ENGINES = ("kakeya", "llama.cpp")


class EngineError(Exception):
    """An engine ended or answered with an error."""


class Engine:
    """A running engine, stopped unless it is asked something."""

    def __init__(self, command):
        self.command = command
        start = time.monotonic()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ready = self._read("start")
        self.start_seconds = time.monotonic() - start
        self._pause()

    def _signal(self, number):
        os.kill(self.process.pid, number)

    def _pause(self):
        """Stops the engine and waits until it stands still; nothing if it has ended."""
        if self.process.poll() is not None:
            return
        self._signal(signal.SIGSTOP)
        state = os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if state.si_code == os.CLD_STOPPED:
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def _read(self, what):
        line = self.process.stdout.readline()
        if not line:
            raise EngineError(f"{self.command[0]} ended during: {what}")
        answer = json.loads(line)
        if "error" in answer:
            raise EngineError(f"{self.command[0]}: {what}: {answer['error']}")
        return answer

    def ask(self, command):
        """The answer to one command. Errors: EngineError."""
        self._signal(signal.SIGCONT)
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
            return self._read(command)
        finally:
            self._pause()

    def memory(self):
        """Bytes in memory at most so far, and now by kind; empty where /proc does not say."""
        return memory_of(self.process.pid)

    def close(self):
        if self.process.poll() is None:
            self._signal(signal.SIGCONT)
            self.process.stdin.close()  # the end of its commands
            self.process.wait()
        self.process.stdout.close()


class BusyProcess:
    """A process that computes without end on one core, while it is entered."""

    LOOP = "import os; os.sched_setaffinity(0, {%d}); print(flush=True)\nwhile True: pass"

    def __init__(self, core):
        self.core = core

    def __enter__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", self.LOOP % self.core], stdout=subprocess.PIPE
        )
        self.process.stdout.readline()  # it is where it belongs
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


def memory_of(pid):
    kinds = {"VmHWM": "peak", "RssAnon": "own", "RssFile": "mapped"}
    found = {}
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as status:
            for line in status:
                key, _, value = line.partition(":")
                if key in kinds:
                    found[kinds[key]] = int(value.split()[0]) * 1024
    except OSError:
        pass
    return found


@dataclasses.dataclass(frozen=True)
class Measure:
    """One thing to measure; `tokens` is what one timed unit of the command gives."""

    name: str
    command: str
    tokens: int
    busy: bool = False


@dataclasses.dataclass
class Sample:
    """One answer: the median of its seconds, and what else it said."""

    seconds: float
    bytes: int = 0
    answer: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Pair:
    """Both engines' samples of one round, and the bandwidth around them (GB/s, 0: not probed)."""

    samples: dict
    probe: float = 0.0


def sample_of(answer):
    return Sample(statistics.median(answer["seconds"]), answer.get("bytes", 0), answer)


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def summarise(measure, pairs):
    """Speeds, the ratio of the two (Kakeya by llama.cpp, of each pair), and bandwidth.

    Bytes are what Kakeya counts: every weight that the pass needs once, of experts the chosen ones,
    and the cached rows. The same number counts for both, so that GB/s compare the same work.
    """
    count = max(sample.bytes for pair in pairs for sample in pair.samples.values())
    row = {"measure": measure.name, "command": measure.command, "bytes": count, "engines": {}}
    for engine in pairs[0].samples:
        seconds = [pair.samples[engine].seconds for pair in pairs]
        entry = {
            "seconds": seconds,
            "tokens_per_second": spread([measure.tokens / each for each in seconds]),
        }
        if count:
            entry["gb_per_s"] = spread([1e-9 * count / each for each in seconds])
            shares = [
                100e-9 * count / pair.samples[engine].seconds / pair.probe
                for pair in pairs
                if pair.probe > 0
            ]
            if shares:
                entry["percent_of_probe"] = spread(shares)
        row["engines"][engine] = entry
    if all(engine in pairs[0].samples for engine in ENGINES):
        ours, theirs = ENGINES
        row["ratio"] = spread(
            [pair.samples[theirs].seconds / pair.samples[ours].seconds for pair in pairs]
        )
    row["probe_gb_per_s"] = [pair.probe for pair in pairs]
    return row


def numbers(text):
    return [int(part) for part in text.split(",") if part]


def measures_of(flags):
    """The measures that the flags ask for, in their order."""
    measures = []
    for depth in flags.decode:
        measures.append(Measure(f"decode at {depth}", f"decode {depth} {flags.steps}", 1))
    for rows in flags.batch:
        measures.append(
            Measure(
                f"{rows} rows at {flags.depth}",
                f"batch {flags.depth} {rows} {flags.repeats}",
                rows,
            )
        )
    for rows in flags.prefill:
        measures.append(Measure(f"prefill of {rows}", f"prefill {rows} 1", rows))
    if flags.generate:
        measures.append(
            Measure(
                f"generate {flags.count}", f"generate {flags.generate} {flags.count}", flags.count
            )
        )
    if flags.busy_core is not None:
        for depth in flags.decode:
            measures.append(
                Measure(
                    f"decode at {depth}, a core busy",
                    f"decode {depth} {flags.steps}",
                    1,
                    busy=True,
                )
            )
    return measures


def order_of(index):
    """Who goes first alternates."""
    return ENGINES if index % 2 == 0 else ENGINES[::-1]


class Comparison:
    """Runs measures on engines that are started by `commands`, a command line for each name."""

    def __init__(self, commands, probe_command, busy_core):
        self.commands = commands
        self.busy_core = busy_core
        self.probe_engine = Engine(probe_command) if probe_command else None
        self.starts = {name: [] for name in commands}
        self.memory = {name: {} for name in commands}

    def probe(self):
        return self.probe_engine.ask("probe")["gb_per_s"] if self.probe_engine else 0.0

    def start(self, name):
        engine = Engine(self.commands[name])
        self.starts[name].append(
            {"seconds": engine.start_seconds, "load_seconds": engine.ready["load_seconds"]}
        )
        return engine

    def stop(self, name, engine):
        for kind, count in engine.memory().items():
            self.memory[name][kind] = max(count, self.memory[name].get(kind, 0))
        engine.close()

    def ask(self, engine, measure):
        if not measure.busy:
            return sample_of(engine.ask(measure.command))
        with BusyProcess(self.busy_core):
            return sample_of(engine.ask(measure.command))

    def run_together(self, measures, num_pairs, on_pair):
        """Both engines stay loaded; single measurements alternate."""
        engines = {name: self.start(name) for name in self.commands}
        try:
            pairs = {measure: [] for measure in measures}
            for measure in measures:
                for engine in engines.values():  # warms up, and fills the cache to the depth
                    engine.ask(measure.command)
                for index in range(num_pairs):
                    before = self.probe()
                    order = [name for name in order_of(index) if name in engines]
                    samples = {name: self.ask(engines[name], measure) for name in order}
                    pairs[measure].append(Pair(samples, 0.5 * (before + self.probe())))
                on_pair(measure, pairs[measure])
            return pairs
        finally:
            for name, engine in engines.items():
                self.stop(name, engine)

    def run_alone(self, measures, num_pairs, on_pair):
        """One engine in memory at a time: for models that do not fit twice. Slower, as each pair
        loads both."""
        pairs = {measure: [Pair({}) for _ in range(num_pairs)] for measure in measures}
        for index in range(num_pairs):
            for name in [name for name in order_of(index) if name in self.commands]:
                engine = self.start(name)
                try:
                    for measure in measures:
                        engine.ask(measure.command)
                        before = self.probe()
                        pair = pairs[measure][index]
                        pair.samples[name] = self.ask(engine, measure)
                        now = 0.5 * (before + self.probe())
                        pair.probe = now if pair.probe == 0 else 0.5 * (pair.probe + now)
                finally:
                    self.stop(name, engine)
        for measure in measures:
            on_pair(measure, pairs[measure])
        return pairs

    def time_starts(self, count):
        """Starts both engines alternately without measuring anything else."""
        for index in range(count):
            for name in [name for name in order_of(index) if name in self.commands]:
                self.stop(name, self.start(name))

    def close(self):
        if self.probe_engine:
            self.probe_engine.close()


def row_text(row):
    """A line of the table."""
    parts = [f"{row['measure']:<28}"]
    for name in ENGINES:
        entry = row["engines"].get(name)
        parts.append(f"{entry['tokens_per_second']['median']:>10.2f}" if entry else f"{'-':>10}")
    ratio = row.get("ratio")
    parts.append(
        f"{ratio['median']:>7.2f} ({ratio['min']:.2f} - {ratio['max']:.2f})"
        if ratio
        else f"{'-':>21}"
    )
    for name in ENGINES:
        entry = row["engines"].get(name, {})
        rate, share = entry.get("gb_per_s"), entry.get("percent_of_probe")
        parts.append(f"{rate['median']:>7.1f}" if rate else f"{'-':>7}")
        parts.append(f"{share['median']:>5.0f}%" if share else f"{'-':>6}")
    return " ".join(parts)


HEADER = (
    f"{'':<28} {'kakeya':>10} {'llama.cpp':>10} {'ratio (min - max)':>21}"
    f" {'kakeya':>14} {'llama.cpp':>14}\n"
    f"{'':<28} {'tokens/s':>10} {'tokens/s':>10} {'':>21} {'GB/s, of probe':>14}"
    f" {'GB/s, of probe':>14}"
)


class Conditions:
    """When a run was made, and what the machine did before and after it."""

    def __init__(self):
        self.started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.clock = time.monotonic()
        self.load_before = os.getloadavg()[0]

    def report(self):
        return {
            "started": self.started,
            "seconds": time.monotonic() - self.clock,
            "load_before": self.load_before,
            "load_after": os.getloadavg()[0],
        }


def git(*arguments):
    """What git says of the sources; nothing where they are no checkout."""
    folder = pathlib.Path(__file__).resolve().parent
    command = ["git", "-C", str(folder), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else ""


def without_folders(words):
    """A command line whose absolute paths, which say nothing to another reader, are names alone."""
    return [pathlib.PurePath(word).name if word.startswith("/") else word for word in words]


def provenance(program, given, conditions):
    """What made a report, on which machine, and when."""
    return {
        "commit": git("rev-parse", "HEAD"),
        "dirty": git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)docs") != "",
        "command": [program, *without_folders(given)],
        "machine": {
            "cpu": cpu_name(),
            "cpus": os.cpu_count(),
            "system": f"{platform.system()} {platform.release()}",
        },
        "conditions": conditions.report(),
    }


def report_of(flags, comparison, rows, conditions):
    return {
        "schema": "kakeya.peers/2",
        **provenance("bench/peers/compare.py", flags.given, conditions),
        "model": flags.model.name,
        "commands": {name: without_folders(words) for name, words in comparison.commands.items()},
        "pairs": flags.pairs,
        "measures": rows,
        "starts": comparison.starts,
        "memory": comparison.memory,
    }


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def print_starts(comparison):
    for name, starts in comparison.starts.items():
        seconds = spread([start["seconds"] for start in starts])
        memory = comparison.memory[name]
        kinds = ", ".join(f"{kind} {count / 1e9:.2f} GB" for kind, count in memory.items())
        print(
            f"{name:<10} ready after {seconds['median']:.2f} s"
            f" ({seconds['min']:.2f} - {seconds['max']:.2f}, {len(starts)} starts); {kinds}"
        )


def bar_chart(rows):
    """An SVG picture of the ratios: a bar to the median, a line from the least to the most."""
    rows = [row for row in rows if "ratio" in row]
    most = max([row["ratio"]["max"] for row in rows], default=1.0)
    left, width, step = 220, 520, 26

    def x(ratio):
        return left + width * ratio / max(most, 1.0)

    height = step * (len(rows) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 20}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<text x="{left}" y="16">speed of Kakeya by that of llama.cpp'
        " (median of pairs, least to most)</text>",
    ]
    for index, row in enumerate(rows):
        y = step * (index + 1)
        ratio = row["ratio"]
        parts += [
            f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{row["measure"]}'
            f" {ratio['median']:.2f}</text>",
            f'<rect x="{left}" y="{y + 3}" width="{x(ratio["median"]) - left:.1f}" height="14"'
            ' fill="#4477aa"/>',
            f'<path d="M{x(ratio["min"]):.1f} {y + 10}H{x(ratio["max"]):.1f}" stroke="black"/>',
        ]
    parts.append(f'<path d="M{x(1.0):.1f} {step}V{height - step}" stroke="#aa3333"/>')
    return "\n".join([*parts, "</svg>", ""])


def engine_commands(flags):
    common = [
        "--threads", str(flags.threads), "--context", str(flags.context),
    ]  # fmt: skip
    kakeya = [str(flags.kakeya), "--model", str(flags.kakeya_model or flags.model), *common]
    llama = [str(flags.llama), "--model", str(flags.model), *common]
    if flags.kakeya_draft:
        kakeya += ["--draft", flags.kakeya_draft]
    if flags.llama_draft:
        llama += ["--draft", flags.llama_draft, "--draft-max", str(flags.llama_draft_max)]
    commands = {"kakeya": kakeya, "llama.cpp": llama}
    return {name: commands[name] for name in ENGINES if name not in flags.without}


def parse_flags(arguments):
    build = pathlib.Path(__file__).resolve().parents[2] / "build/release/bin"
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=pathlib.Path, required=True, help="GGUF file")
    parser.add_argument("--kakeya-model", help="another model for Kakeya, such as a folder")
    parser.add_argument("--kakeya", type=pathlib.Path, default=build / "peer_kakeya")
    parser.add_argument("--llama", type=pathlib.Path, default=build / "peer_llama")
    parser.add_argument("--without", default=[], action="append", choices=ENGINES)
    parser.add_argument("--decode", type=numbers, default=[64], help="depths: 64,4096")
    parser.add_argument("--batch", type=numbers, default=[2, 4, 8, 16], help="rows: 2,4,8")
    parser.add_argument("--prefill", type=numbers, default=[512], help="tokens: 512,2048")
    parser.add_argument("--depth", type=int, default=64, help="of --batch")
    parser.add_argument("--generate", help="file of token ids to go on with")
    parser.add_argument("--count", type=int, default=128, help="tokens of --generate")
    parser.add_argument("--kakeya-draft", help="drafts of --generate: auto, a folder, ...")
    parser.add_argument("--llama-draft", help="the same: GGUF file of a DFlash drafter")
    parser.add_argument("--llama-draft-max", type=int, default=3)
    parser.add_argument("--busy-core", type=int, help="decode also while this core is busy")
    parser.add_argument("--steps", type=int, default=16, help="of one measurement of decode")
    parser.add_argument("--repeats", type=int, default=5, help="of one measurement of --batch")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--starts", type=int, default=0, help="time this many further starts")
    parser.add_argument("--alone", action="store_true", help="one engine in memory at a time")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--no-probe", action="store_true")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    parser.add_argument("--plot", type=pathlib.Path, help="write a chart of the ratios here (.svg)")
    flags = parser.parse_args(arguments)
    flags.given = sys.argv[1:] if arguments is None else list(arguments)
    return flags


def main(arguments=None):
    flags = parse_flags(arguments)
    conditions = Conditions()
    measures = measures_of(flags)
    probe = None if flags.no_probe else [str(flags.kakeya), "--threads", str(flags.threads)]
    comparison = Comparison(engine_commands(flags), probe, flags.busy_core)
    rows = []

    def on_pair(measure, pairs):
        rows.append(summarise(measure, pairs))
        print(row_text(rows[-1]), flush=True)

    try:
        print(HEADER)
        run = comparison.run_alone if flags.alone else comparison.run_together
        run(measures, flags.pairs, on_pair)
        comparison.time_starts(flags.starts)
        print_starts(comparison)
    except EngineError as failure:
        print(f"compare.py: {failure}", file=sys.stderr)
        return 1
    finally:
        comparison.close()
    if flags.json:
        flags.json.write_text(json.dumps(report_of(flags, comparison, rows, conditions), indent=1) + "\n")
    if flags.plot:
        flags.plot.write_text(bar_chart(rows))
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # leaves no engine behind, stopped
    sys.exit(main())
