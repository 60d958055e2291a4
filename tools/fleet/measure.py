"""simulate_fleet measure: how long passes of a running `kakeya serve` take, seen by its clients."""

import argparse
import json
import pathlib
import statistics
import threading

from compare import Conditions, provenance
from fleet.client import Address, ask, made_up
from fleet.passes import SCHEMA

STEPS = 40  # of probability, in which the spread of gaps is kept
PROMPT = 32  # tokens of who decodes
KEPT = 1024  # tokens of a prompt that tells what the cache takes


def flags():
    parser = argparse.ArgumentParser(prog="simulate_fleet measure", allow_abbrev=False, description="""Measures pass times of a
        running `kakeya serve` for --passes, in half a minute. Nothing else should use the server. Where replicas share a machine,
        give all of them, so that each is measured while the others are as busy.""")
    parser.add_argument("--server", required=True, action="append", metavar="URL", help="http://HOST:PORT; repeatable: measured at the same time, the mean is kept")
    parser.add_argument("--json", required=True, type=pathlib.Path, metavar="FILE", help="where to write")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64], metavar="N", help="requests that decode together (default: 1 2 4 8 16 32 64)")
    parser.add_argument("--tokens", type=int, default=200, metavar="N", help="of each answer (default: 200)")
    parser.add_argument("--prompts", type=int, nargs=2, default=[512, 2048], metavar="N", help="lengths whose difference tells how fast prompts are read: about as long as yours (default: 512 2048)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="of everything (default: 3)")
    parser.add_argument("--max-requests", type=int, metavar="N", help="the server's --parallel (default: the most of --rows)")
    return parser


def together(calls):
    """What the calls return, each made by a thread of its own. Errors: the first one's."""
    results = [None] * len(calls)

    def run(place):
        try:
            results[place] = calls[place]()
        except Exception as failure:  # pylint: disable=broad-except
            results[place] = failure

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def gaps_of(answers):
    """Between tokens while all of a server's answers decode."""
    start = max(came[0] for _, came, _, _ in answers)
    end = min(came[-1] for _, came, _, _ in answers)
    return [later - earlier for _, came, _, _ in answers for earlier, later in zip(came, came[1:])
            if start <= earlier and later <= end]


def decode_gaps(servers, rows, tokens):
    answers = together([lambda server=server: ask(server, made_up(PROMPT), tokens) for server in servers for _ in range(rows)])
    return [gap for place in range(len(servers)) for gap in gaps_of(answers[place * rows:(place + 1) * rows])]


def first_token_seconds(servers, prompt):
    answers = together([lambda server=server: ask(server, made_up(prompt), 1) for server in servers])
    return statistics.mean(came[0] - sent for sent, came, _, _ in answers)


def capacity(server):
    """(tokens that requests and the cache may hold, the cache's share), by what a prompt adds to the cache."""
    before = server.metric("kakeya_prompt_cache_bytes")
    ask(server, made_up(KEPT), 1)
    each = (server.metric("kakeya_prompt_cache_bytes") - before) / KEPT
    limit = server.metric("kakeya_prompt_cache_limit_bytes")
    if each <= 0:  # without a cache there is nothing to tell by
        return 1 << 40, 0
    used = sum(float(line.split()[-1]) for line in server.get("/metrics").splitlines()
               if line.startswith("kakeya_memory_bytes{") and any(f'"{kind}"' in line for kind in ("weights", "activations", "logits")))
    return int((server.metric("kakeya_memory_limit_bytes") - used) / each), int(limit / each)


def measure(servers, rows, tokens, prompts, repeats):
    """The table of PassTimes."""
    means, shapes = {}, []
    for count in rows:
        gaps = sorted(gap for _ in range(repeats) for gap in decode_gaps(servers, count, tokens))
        means[count] = statistics.mean(gaps)
        shapes.append([gaps[int((step + 0.5) / STEPS * len(gaps))] / means[count] for step in range(STEPS)])
    short, long, least = (statistics.median(first_token_seconds(servers, prompt) for _ in range(repeats)) for prompt in (*prompts, 1))
    kv_tokens, cache_tokens = capacity(servers[0])
    return {
        "pass_seconds": {str(count): mean for count, mean in means.items()},
        "prefill_tokens_per_second": (prompts[1] - prompts[0]) / max(long - short, 1e-9),
        "request_seconds": max(0.0, least - means[min(means)]),
        "kv_tokens": kv_tokens,
        "cache_tokens": cache_tokens,
        "gap_quantiles": [statistics.mean(column) for column in zip(*shapes)],
    }


def main(given):
    conditions = Conditions()
    options = flags().parse_args(given)
    if min(options.rows) < 1 or options.tokens < 16 or options.repeats < 1 or not 1 <= options.prompts[0] < options.prompts[1]:
        flags().error("expected --rows and --repeats of at least 1, --tokens of at least 16, --prompts that grow")
    servers = [Address(url) for url in options.server]
    table = measure(servers, options.rows, options.tokens, options.prompts, options.repeats)
    table["max_requests"] = options.max_requests or max(options.rows)
    made = provenance("tools/simulate_fleet measure", given, conditions)
    options.json.write_text(json.dumps({"schema": SCHEMA, **made, **table}, indent=1) + "\n", encoding="utf-8")
    for count, seconds in table["pass_seconds"].items():
        print(f"{count:>3} rows: {1e3 * seconds:.2f} ms a pass, {int(count) / seconds:.0f} tokens/s")
    print(f"prompts: {table['prefill_tokens_per_second']:.0f} tokens/s; a request: {1e3 * table['request_seconds']:.2f} ms; "
          f"memory: {table['kv_tokens']} tokens")
