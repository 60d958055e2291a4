#!/usr/bin/env python3
"""Measures `kakeya serve` and llama.cpp's `llama-server` on the same file, under the same load.

A load is so many clients, each of which sends its next prompt when it has its answer: streams of
/v1/completions, greedy, of a fixed length. No two prompts begin alike, unless --turns asks for
conversations: then each prompt is followed by others that begin with it and its answer, and those
are measured. The servers take turns, one of them running at a time. usage: bench/peers/compare_servers.py --help; README.md explains.
"""

import argparse
import contextlib
import dataclasses
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import threading
import time

import compare

KAKEYA, LLAMA = compare.ENGINES
WORDS = "the sea river stone light paper garden winter copper letter engine harbour silent green".split()


NEW_WORDS = 20  # of a turn of a conversation, behind the first


class ServerError(Exception):
    """A server ended, or did not answer as asked."""


@dataclasses.dataclass
class Answer:
    """One stream as its client saw it, seconds since the load began."""

    sent: float
    first: float
    last: float
    tokens: int
    text: str = ""


class Server:
    """A server that answers on a port of its own, until close()."""

    def __init__(self, command, port, log):
        self.port = port
        self.log = log
        with open(log, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise ServerError(f"{command[0]} does not answer: {self._last_line()}")
            time.sleep(0.1)

    def _last_line(self):
        lines = pathlib.Path(self.log).read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"

    def _is_ready(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/health")
                with connection.getresponse() as response:
                    return response.status == 200
            except OSError:
                return False

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def prompt_of(seed, words):
    """A text of its own from the first word on."""
    draw = random.Random(seed)
    return f"{seed} " + " ".join(draw.choice(WORDS) for _ in range(words))


def events(response):
    """The JSON of each event of a stream, up to its end."""
    for line in response:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        yield json.loads(data)


def model_of(port):
    """The name of the model that a server has."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/v1/models")
        with connection.getresponse() as response:
            return json.load(response)["data"][0]["id"]


def ask(port, model, prompt, tokens, clock):
    """Sends a prompt and reads the stream of its answer."""
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    with contextlib.closing(connection):
        return read_answer(connection, body, clock)


def read_answer(connection, body, clock):
    sent = clock()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    first = last = None
    used = 0
    text = ""
    with connection.getresponse() as response:
        if response.status != 200:
            raise ServerError(f"status {response.status}: {response.read(300)!r}")
        for event in events(response):
            used = (event.get("usage") or {}).get("completion_tokens", used)
            if event.get("choices"):
                last = clock()
                first = first or last
                text += event["choices"][0].get("text") or ""
    if first is None or used == 0:
        raise ServerError("a stream without tokens or usage")
    return Answer(sent, first, last, used, text)


def run_load(port, clients, flags, seed):
    """All answers of a load. Errors: ServerError, of the first client that met one."""
    model = model_of(port)
    start = time.monotonic()
    answers, failures = [], []

    def client(number):
        try:
            for index in range(flags.requests):
                own = seed * 100_000 + number * 1_000 + index
                text = prompt_of(own, flags.words)
                for turn in range(flags.turns):
                    answer = ask(port, model, text, flags.tokens, lambda: time.monotonic() - start)
                    if turn == flags.turns - 1:
                        answers.append(answer)
                    text += answer.text + " " + prompt_of(own + turn + 1, NEW_WORDS)
        except (ServerError, OSError, ValueError, http.client.HTTPException) as failure:
            failures.append(failure)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise ServerError(str(failures[0]))
    return answers


def sample_of(answers, asking=None):
    """Tokens a second of all clients, and how long each waited for its first token. `asking`: how many
    clients there were, if their answers were not all that the servers did meanwhile."""
    seconds = max(answer.last for answer in answers) - min(answer.sent for answer in answers)
    if asking:
        seconds = sum(answer.last - answer.sent for answer in answers) / asking
    waits = sorted(answer.first - answer.sent for answer in answers)
    return {
        "tokens_per_second": sum(answer.tokens for answer in answers) / seconds,
        "first_token_seconds": statistics.median(waits),
        "first_token_seconds_p99": waits[min(len(waits) - 1, len(waits) * 99 // 100)],
        "tokens": sum(answer.tokens for answer in answers),
        "answers": len(answers),
    }


def commands_of(flags, clients, port):
    """Both servers with room for all clients at once, and as many threads."""
    context = flags.context
    ours = [str(flags.kakeya), "serve", "--model", str(flags.kakeya_model or flags.model), "--port", str(port)]
    ours += ["--threads", str(flags.threads), "--parallel", str(clients), "--ctx", str(context)]
    theirs = [str(flags.llama_server), "--model", str(flags.model), "--port", str(port)]
    theirs += ["--threads", str(flags.threads), "--parallel", str(clients)]
    theirs += ["--ctx-size", str(context * clients), "--no-webui"]
    return {KAKEYA: ours + flags.kakeya_flag, LLAMA: theirs + flags.llama_flag}


def measure(flags, engine, clients, pair):
    port = free_port()
    log = flags.logs / f"{engine.replace('.', '-')}.log"
    server = Server(commands_of(flags, clients, port)[engine], port, log)
    try:
        run_load(port, clients, dataclasses.replace(flags, requests=1), seed=900 + pair)  # warm
        answers = run_load(port, clients, flags, seed=pair)
        return sample_of(answers, clients if flags.turns > 1 else None)
    finally:
        server.close()


def summarise(clients, pairs):
    row = {"clients": clients, "pairs": pairs}
    for engine in compare.ENGINES:
        samples = [pair[engine] for pair in pairs]
        row[engine] = {
            name: statistics.median(sample[name] for sample in samples)
            for name in ("tokens_per_second", "first_token_seconds", "first_token_seconds_p99")
        }
    ratios = [pair[KAKEYA]["tokens_per_second"] / pair[LLAMA]["tokens_per_second"] for pair in pairs]
    row["ratio"] = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
    return row


def row_text(row):
    ours, theirs, ratio = row[KAKEYA], row[LLAMA], row["ratio"]
    return (
        f"{row['clients']:>7} {ours['tokens_per_second']:>10.0f} {theirs['tokens_per_second']:>10.0f} "
        f"{ratio['median']:>6.2f} ({ratio['min']:.2f} - {ratio['max']:.2f}) "
        f"{1e3 * ours['first_token_seconds']:>10.0f} {1e3 * theirs['first_token_seconds']:>10.0f}"
    )


HEADER = (
    f"{'':7} {'kakeya':>10} {'llama.cpp':>10} {'ratio (min - max)':>20} {'kakeya':>10} {'llama.cpp':>10}\n"
    f"clients {'tokens/s':>10} {'tokens/s':>10} {'':>20} {'first, ms':>10} {'first, ms':>10}"
)


@dataclasses.dataclass
class Flags:
    kakeya: pathlib.Path
    llama_server: pathlib.Path
    model: pathlib.Path
    kakeya_model: str
    clients: list
    requests: int
    tokens: int
    words: int
    turns: int
    pairs: int
    threads: int
    context: int
    kakeya_flag: list
    llama_flag: list
    logs: pathlib.Path
    json: pathlib.Path


def parse_flags(arguments):
    build = pathlib.Path(__file__).resolve().parents[2] / "build/release/bin"
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=pathlib.Path, required=True, help="GGUF file")
    parser.add_argument("--llama-server", type=pathlib.Path, required=True)
    parser.add_argument("--kakeya", type=pathlib.Path, default=build / "kakeya")
    parser.add_argument("--kakeya-model", help="another model for Kakeya, such as a folder")
    parser.add_argument("--clients", type=compare.numbers, default=[1, 8, 32], help="1,8,32")
    parser.add_argument("--requests", type=int, default=3, help="of each client")
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--words", type=int, default=60, help="of each prompt")
    parser.add_argument("--turns", type=int, default=1, help="of a conversation, of which the last one is measured")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--context", type=int, default=1024, help="of each client")
    parser.add_argument("--kakeya-flag", action="append", default=[], help="one more, as it is")
    parser.add_argument("--llama-flag", action="append", default=[], help="one more, as it is")
    parser.add_argument("--logs", type=pathlib.Path, default=pathlib.Path("/tmp"), help="a folder")
    parser.add_argument("--json", type=pathlib.Path, help="write the results here")
    return Flags(**vars(parser.parse_args(arguments)))


def report_of(flags, given, rows, conditions):
    return {
        "schema": "kakeya.servers/2",
        **compare.provenance("bench/peers/compare_servers.py", given, conditions),
        "model": flags.model.name,
        "options": {name: getattr(flags, name) for name in ("requests", "tokens", "words", "turns", "pairs", "threads")},
        "measures": rows,
    }


def main(arguments=None):
    given = sys.argv[1:] if arguments is None else list(arguments)
    flags = parse_flags(arguments)
    conditions = compare.Conditions()
    rows = []
    print(HEADER)
    try:
        for clients in flags.clients:
            pairs = []
            for index in range(flags.pairs):
                order = compare.order_of(index)
                pairs.append({engine: measure(flags, engine, clients, index) for engine in order})
            rows.append(summarise(clients, pairs))
            print(row_text(rows[-1]), flush=True)
    except (ServerError, OSError) as failure:
        print(f"compare_servers.py: {failure}", file=sys.stderr)
        return 1
    if flags.json:
        flags.json.write_text(json.dumps(report_of(flags, given, rows, conditions), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
