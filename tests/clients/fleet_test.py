"""Three replicas of `kakeya serve` against tools/simulate_fleet: the same trace through both.
usage: fleet_test.py KAKEYA [--json FILE] [--rounds N] (tools/test_clients --all runs it)

The replicas share the machine, so pass times are measured while the others do what they will do: nothing beside sessions
that arrive one by one, the same beside those that come all at once. The client chooses the replica itself, by the router
that is simulated. A round measures before and behind each of two traces; what is compared is the median of the rounds. Where
the machine had other work, which the rounds' real tokens a second tell, nothing is judged."""

import argparse
import json
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "bench/peers")]
# pylint: disable=wrong-import-position
from compare import Conditions, provenance
from fleet import report
from fleet.client import Address, ask, made_up
from fleet.load import Trace
from fleet.measure import measure
from fleet.passes import PassTimes
from fleet.routers import ROUTERS
from fleet.simulation import Simulation
from serving import Replica

REPLICAS = 3
ROUTER = "hash"
ROWS = [1, 2, 4, 8, 16]
SERVED = ("--draft", "none", "--parallel", str(ROWS[-1]), "--memory", "4GiB")
MOST_DIFFERENCE = 0.15
MOST_SPREAD = 1.3  # of the rounds' real tokens a second, largest by smallest, on a machine that is otherwise idle
JUDGED = ("tokens_per_second", "first_token_p50", "gap_p50")


def write_trace(path, sessions, turns, every, pause):
    """Sessions begin `every` seconds apart in the mean, their turns at least `pause` apart."""
    source = random.Random(7)
    start = 0.0
    with open(path, "w", encoding="utf-8") as out:
        for session in range(sessions):
            prompt = 0
            for turn in range(turns):
                prompt += round(source.lognormvariate(3.4, 0.5))
                answer = round(source.lognormvariate(4.1, 0.5))
                line = {"seconds": start + turn * pause, "session": session, "prompt_tokens": prompt, "answer_tokens": answer}
                out.write(json.dumps(line) + "\n")
                prompt += answer
            start += source.expovariate(1 / every) if every else 0.0


class Client:
    """Sends a trace: a thread a session, a router for all of them."""

    def __init__(self, addresses, trace):
        self.addresses, self.trace = addresses, trace
        self.router = ROUTERS[ROUTER](len(addresses), 0)
        self.lock = threading.Lock()
        self.first_tokens, self.gaps, self.failures = [], [], []
        self.tokens = self.prompt_tokens = self.cached_tokens = 0

    def run(self):
        self.began = time.monotonic()
        threads = [threading.Thread(target=self._session, args=(session,)) for session in self.trace]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.failures:
            raise self.failures[0]
        return {"tokens_per_second": self.tokens / (time.monotonic() - self.began), "first_token_p50": statistics.median(self.first_tokens),
                "gap_mean": statistics.mean(self.gaps), "gap_p50": statistics.median(self.gaps), "cached_share": self.cached_tokens / self.prompt_tokens}

    def _session(self, session):
        text = []
        try:
            for turn in session.turns:
                time.sleep(max(0.0, self.began + turn.not_before - time.monotonic()))
                text += made_up(turn.prompt - len(text))
                with self.lock:
                    replica = self.router.route(session.name)
                sent, came, ids, cached = ask(self.addresses[replica], text, turn.answer)
                with self.lock:
                    self.router.ended(replica)
                    self.first_tokens.append(came[0] - sent)
                    self.gaps += [later - earlier for earlier, later in zip(came, came[1:])]
                    self.tokens += len(ids)
                    self.prompt_tokens += turn.prompt
                    self.cached_tokens += cached
                text += ids
        except Exception as failure:  # pylint: disable=broad-except
            self.failures.append(failure)


def mean_of(tables):
    """One table of several."""
    first = tables[0]
    if isinstance(first, dict):
        return {key: mean_of([table[key] for table in tables]) for key in first}
    if isinstance(first, list):
        return [mean_of(list(column)) for column in zip(*tables)]
    return statistics.mean(tables)


def one_round(kakeya, traces):
    """Replicas of its own, whose caches are empty. Measures before and behind each trace, for the machine may have other work:
    replicas that are mostly idle one at a time, busy ones all at once."""
    compared = []
    replicas = [Replica(kakeya, *SERVED) for _ in range(REPLICAS)]
    try:
        for replica in replicas:
            replica.wait_until_ready()
        addresses = [Address(replica.url) for replica in replicas]
        for name, trace in traces.items():
            measured = [addresses[:1] if name == "arriving" else addresses, ROWS, 100, [32, 256], 2]
            tables = [measure(*measured)]
            real = Client(addresses, trace).run()
            tables.append(measure(*measured))
            table = {**mean_of(tables), "max_requests": ROWS[-1]}
            simulated = report.results(Simulation(trace, PassTimes(table), REPLICAS, ROUTER).run())
            compared.append({"trace": name, "passes": table, "real": real, "simulated": {key: simulated[key] for key in real}})
    finally:
        for replica in replicas:
            replica.kill()
    return compared


def main():
    conditions = Conditions()
    flags = argparse.ArgumentParser()
    flags.add_argument("kakeya")
    flags.add_argument("--json", type=pathlib.Path)
    flags.add_argument("--rounds", type=int, default=3)
    options = flags.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_trace(f"{folder}/arriving", 60, 4, 0.2, 0.4)
        write_trace(f"{folder}/together", 24, 6, 0, 0)
        traces = {name: Trace(f"{folder}/{name}") for name in ("arriving", "together")}
    rounds = [one_round(options.kakeya, traces) for _ in range(options.rounds)]
    summary = summary_of(rounds)
    if options.json:
        made = provenance("tests/clients/fleet_test.py", sys.argv[1:], conditions)
        options.json.write_text(json.dumps({"schema": "kakeya.fleet-check/1", **made, "summary": summary, "rounds": rounds}, indent=1) + "\n",
                                encoding="utf-8")
    wrong = [f"{key} of {name}" for name, keys in summary.items() for key in JUDGED if abs(keys[key]["ratio"] - 1) > MOST_DIFFERENCE]
    together = summary["together"]["tokens_per_second"]
    if together["real_most"] > MOST_SPREAD * together["real_least"]:
        print(f"not judged: the machine had other work; real tokens/s were {together['real_least']:.0f} to {together['real_most']:.0f}")
    elif wrong:
        sys.exit(f"fleet_test: more than {MOST_DIFFERENCE:.0%} away: " + ", ".join(wrong))


def summary_of(rounds):
    """{trace: {what: medians of the rounds, and what they were between}}; prints it."""
    summary = {}
    for place, one in enumerate(rounds[0]):
        keys = summary[one["trace"]] = {}
        for key in one["real"]:
            real, simulated = ([each[place][side][key] for each in rounds] for side in ("real", "simulated"))
            ratios = [ours / theirs for ours, theirs in zip(simulated, real)]
            keys[key] = {"real": statistics.median(real), "real_least": min(real), "real_most": max(real), "simulated": statistics.median(simulated),
                         "ratio": statistics.median(ratios), "ratio_least": min(ratios), "ratio_most": max(ratios)}
            print(f"{one['trace']:>9} {key:>18}: real {keys[key]['real']:.4g}, simulated {keys[key]['simulated']:.4g}, "
                  f"ratio {keys[key]['ratio']:.2f} ({min(ratios):.2f} - {max(ratios):.2f})")
    return summary


if __name__ == "__main__":
    main()
