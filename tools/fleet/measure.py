"""simulate_fleet measure: how long passes of a running `kakeya serve` take, seen by its clients."""

import argparse
import contextlib
import json
import pathlib
import statistics
import threading

from compare import Conditions, provenance
from fleet.client import Address, ask, made_up
from fleet.passes import SCHEMA, InputError

STEPS = 20  # of probability, in which the spread of gaps is kept
PROMPT, CONTEXT = 32, 512  # tokens of who decodes, and how many more tell what a longer context costs
CROWD = 4  # requests whose prompts are read one behind the other
KEPT = 1024  # tokens of a prompt that tells what the cache takes


def flags():
    parser = argparse.ArgumentParser(prog="simulate_fleet measure", allow_abbrev=False, description="""Measures pass times of a
        running `kakeya serve` for --passes, in half a minute. Nothing else should use the server. Where replicas share a machine,
        give all of them, so that each is measured while the others are as busy.""")
    parser.add_argument("--server", required=True, action="append", metavar="URL",
                        help="http://HOST:PORT; repeatable: measured at the same time, the mean is kept")
    parser.add_argument("--json", required=True, type=pathlib.Path, metavar="FILE", help="where to write")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64], metavar="N",
                        help="requests that decode together (default: 1 2 4 8 16 32 64)")
    parser.add_argument("--tokens", type=int, default=200, metavar="N", help="of each answer (default: 200)")
    parser.add_argument("--prompts", type=int, nargs=2, default=[512, 1024], metavar=("NEW", "TEXT"),
                        help="new tokens of a turn, and of the text before, which is cached: about as yours (default: 512 1024)")
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


def decode_gaps(servers, rows, prompt, tokens):
    answers = together([lambda server=server: ask(server, made_up(prompt), tokens) for server in servers for _ in range(rows)])
    return [gap for place in range(len(servers)) for gap in gaps_of(answers[place * rows:(place + 1) * rows])]


@contextlib.contextmanager
def decoding(servers, rows, tokens):
    """Keeps servers busy: each decodes `rows` answers meanwhile."""
    stop = threading.Event()

    def run(server):
        while not stop.is_set():
            ask(server, made_up(PROMPT), tokens)

    failures = []

    def run_all():
        try:
            together([lambda server=server: run(server) for server in servers for _ in range(rows)])
        except InputError as failure:
            failures.append(failure)

    busy = threading.Thread(target=run_all)
    busy.start()
    try:
        yield
    finally:
        stop.set()
        busy.join()
    if failures:
        raise failures[0]


def crowd_seconds(server, prompts):
    """From the first of such requests to the first token of the last."""
    answers = together([lambda prompt=prompt: ask(server, prompt, 1) for prompt in prompts])
    return max(came[0] for _, came, _, _ in answers) - min(sent for sent, *_ in answers)


def reading(server, new, text, repeats):
    """Seconds of a crowd of turns of `new` tokens behind a text that is cached, of a crowd of turns of one token, and of
    one of these alone."""
    seconds = [[], [], []]
    for _ in range(repeats):
        texts = [made_up(text) for _ in range(CROWD)]
        crowd_seconds(server, texts)
        crowds = ([each + made_up(new) for each in texts], [each + made_up(1) for each in texts], [texts[0] + made_up(1)])
        for place, prompts in enumerate(crowds):
            seconds[place].append(crowd_seconds(server, prompts))
    return map(statistics.median, seconds)


def capacity(server):
    """(tokens that requests and the cache may hold, the cache's share), by what a prompt adds to the cache."""
    limit, before = server.metric("kakeya_prompt_cache_limit_bytes"), server.metric("kakeya_prompt_cache_bytes")
    ask(server, made_up(KEPT), 1)
    each = (server.metric("kakeya_prompt_cache_bytes") - before) / KEPT
    if each <= 0:
        raise InputError(f"{server.url}: expected a prefix cache with room for {KEPT} tokens, got {before:.0f} bytes of {limit:.0f} taken: "
                         "measure a server that was just started")
    used = sum(float(line.split()[-1]) for line in server.get("/metrics").splitlines()
               if line.startswith("kakeya_memory_bytes{") and any(f'"{kind}"' in line for kind in ("weights", "activations", "logits")))
    return int((server.metric("kakeya_memory_limit_bytes") - used) / each), int(limit / each)


def context_seconds(servers, rows, tokens, repeats):
    """What a token of context adds to a pass, by requests of two lengths, in turns."""
    means = [[], []]
    for _ in range(repeats):
        for place, prompt in enumerate((PROMPT, PROMPT + CONTEXT)):
            means[place].append(statistics.mean(decode_gaps(servers, rows, prompt, tokens)))
    return max(0.0, statistics.median(long - short for short, long in zip(*means)) / (rows * CONTEXT))


def measure(servers, rows, tokens, prompts, repeats):
    """The table of PassTimes."""
    kv_tokens, cache_tokens = capacity(servers[0])
    each_token = context_seconds(servers, rows[len(rows) // 2], tokens, repeats)
    context = PROMPT + tokens / 2  # of a request, in the mean
    passes, shapes = {}, {}
    for count in rows:
        gaps = sorted(gap for _ in range(repeats) for gap in decode_gaps(servers, count, PROMPT, tokens))
        mean = statistics.mean(gaps)
        passes[str(count)] = max(mean - count * context * each_token, mean / 10)
        shapes[str(count)] = [round(gaps[int((step + 0.5) / STEPS * len(gaps))] / mean, 4) for step in range(STEPS)]
    with decoding(servers[1:], rows[len(rows) // 2], tokens):
        turns, crowd, alone = reading(servers[0], *prompts, 2 * repeats + 1)
    one_row = passes[str(min(rows))]
    request = max(0.0, (crowd - one_row) / CROWD)
    return {
        "pass_seconds": passes,
        "context_seconds": each_token,
        "prefill_tokens_per_second": CROWD * (prompts[0] - 1) / max(turns - crowd, 1e-9),
        "request_seconds": request,
        "latency_seconds": max(0.0, alone - request - one_row),
        "kv_tokens": kv_tokens,
        "cache_tokens": cache_tokens,
        "gap_quantiles": shapes,
    }


def main(given):
    conditions = Conditions()
    options = flags().parse_args(given)
    if min(options.rows) < 1 or options.tokens < 16 or options.repeats < 1 or min(options.prompts) < 2:
        flags().error("expected --rows and --repeats of at least 1, --tokens of at least 16, --prompts of at least 2")
    if options.max_requests and not 1 <= options.max_requests <= max(options.rows):
        flags().error("expected --max-requests of at most the most --rows")
    servers = [Address(url) for url in options.server]
    table = measure(servers, options.rows, options.tokens, options.prompts, options.repeats)
    table["max_requests"] = options.max_requests or max(options.rows)
    made = provenance("tools/simulate_fleet measure", given, conditions)
    options.json.write_text(json.dumps({"schema": SCHEMA, **made, **table}, indent=1) + "\n", encoding="utf-8")
    for count, seconds in table["pass_seconds"].items():
        print(f"{count:>3} rows: {1e3 * seconds:.2f} ms a pass, {int(count) / seconds:.0f} tokens/s")
    print(f"a token of context: {1e6 * table['context_seconds']:.3f} us a pass")
    print(f"prompts: {table['prefill_tokens_per_second']:.0f} tokens/s; a request: {1e3 * table['request_seconds']:.2f} ms, "
          f"and {1e3 * table['latency_seconds']:.2f} ms before it begins; "
          f"memory: {table['kv_tokens']} tokens")
