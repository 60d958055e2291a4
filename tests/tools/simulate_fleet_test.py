"""tools/simulate_fleet against arithmetic by hand and a formula of queues."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
# pylint: disable=wrong-import-position
from fleet import report
from fleet.load import Lengths, Load, Session, Trace, Turn
from fleet.passes import DEFAULT, InputError, PassTimes, read_passes
from fleet.routers import HashRouter, LeastLoadedRouter, UnboundedHashRouter
from fleet.simulation import Simulation

TABLE = {"pass_seconds": {"1": 0.010, "3": 0.020}, "prefill_tokens_per_second": 1000, "max_requests": 3, "kv_tokens": 100_000}


class Turns:
    """A load of sessions that are given as lists of (not before, prompt, answer)."""

    def __init__(self, *sessions):
        self.sessions = sessions

    def __iter__(self):
        for name, turns in enumerate(self.sessions):
            yield Session(name, [Turn(seconds, 0.0, prompt, answer) for seconds, prompt, answer in turns])

    def measured(self, warmup):
        return warmup, float("inf")


def run(load, table=None, replicas=1, router="hash", **options):
    return Simulation(load, PassTimes({**TABLE, **(table or {})}), replicas, router, **options).run()


class OneReplica(unittest.TestCase):
    def test_one_request(self):
        # 600 tokens: 512 in the first pass, 88 in the second, which gives the first token; four passes of a row each.
        done = run(Turns([(0.0, 600, 5)]))
        self.assertAlmostEqual(done.first_tokens[0], 0.512 + 0.088)
        self.assertAlmostEqual(done.end, 0.6 + 4 * 0.010)
        self.assertEqual(done.tokens, 5)
        self.assertEqual(dict(done.gaps), {(1, 0.010): 4})

    def test_a_prompt_takes_no_less_than_a_row(self):
        self.assertAlmostEqual(run(Turns([(0.0, 3, 1)])).end, 0.010)

    def test_a_request_joins_when_the_pass_is_over(self):
        # The second comes in the pass from 0.11 to 0.12. That of 0.12 has a row and 50 of its prompt; those behind it two.
        done = run(Turns([(0.0, 100, 5)], [(0.113, 50, 3)]))
        self.assertAlmostEqual(done.first_tokens[1], 0.12 + 0.010 + 0.050 - 0.113)
        self.assertAlmostEqual(done.end, 0.18 + 0.015 + 0.010)

    def test_a_prompt_beside_others_is_read_in_chunks(self):
        # 300 tokens beside one who decodes: 128, 128, 44, a row of 10 ms in each.
        done = run(Turns([(0.0, 10, 100)], [(0.005, 300, 1)]))
        self.assertAlmostEqual(done.first_tokens[1], 0.010 + 0.300 + 3 * 0.010 - 0.005)

    def test_a_prompt_alone_is_read_in_larger_ones(self):
        # The second waits until the first 512 are read; the pass behind has 88 and its 50.
        done = run(Turns([(0.0, 600, 1)], [(0.2, 50, 1)]))
        self.assertAlmostEqual(done.first_tokens[1], 0.512 + 0.138 - 0.2)

    def test_prompts_take_turns(self):
        # Who decodes holds chunks at 128 rows. 256 and 128 tokens: first, second, first, a pass each.
        done = run(Turns([(0.0, 10, 100)], [(0.001, 256, 1)], [(0.002, 128, 1)]))
        arrived = dict(zip(done.arrivals, done.first_tokens))
        self.assertAlmostEqual(arrived[0.002], 0.010 + 2 * 0.138 - 0.002)
        self.assertAlmostEqual(arrived[0.001], 0.010 + 3 * 0.138 - 0.001)

    def test_a_turn_starts_from_what_is_cached(self):
        done = run(Turns([(0.0, 100, 10), (1.0, 160, 1)]))
        self.assertEqual(done.cached_tokens, 110)
        self.assertAlmostEqual(done.first_tokens[1], 0.050)

    def test_the_cache_forgets_who_was_not_used_for_the_longest(self):
        sessions = Turns([(0.0, 100, 10), (3.0, 160, 1)], [(1.0, 100, 10), (4.0, 160, 1)], [(2.0, 100, 10)])
        done = run(sessions, {"cache_tokens": 250})
        self.assertEqual(done.cached_tokens, 0)  # room for two of three, and the first comes again first
        self.assertEqual(run(sessions, {"cache_tokens": 400}).cached_tokens, 220)

    def test_context_takes_time(self):
        # Behind 100 tokens and the first of the answer: passes over 101, 102, 103 and 104, 1 ms each token. The second
        # joins when 101 and 102 are over; it decodes beside 103 tokens, with 51, and behind that alone with 52.
        table = {"context_seconds": 0.001}
        self.assertAlmostEqual(run(Turns([(0.0, 100, 5)]), table).end, 0.1 + 4 * 0.010 + 0.410)
        done = run(Turns([(0.0, 100, 5)], [(0.25, 50, 3)]), {**table, "pass_seconds": {"1": 0.010, "3": 0.010}})
        mixed = 0.1 + 2 * 0.010 + 2 * 0.1025 + 0.010 + 0.103 + 0.050  # the pass of the second's prompt
        self.assertAlmostEqual(done.end, mixed + 0.010 + 0.104 + 0.051 + 0.010 + 0.052)

    def test_who_begins_holds_up_the_others(self):
        # The first decodes until 0.456; the second's three chunks begin at 0.123, and the first of them alone takes longer.
        done = run(Turns([(0.0, 100, 6)], [(0.115, 300, 1)]), {"request_seconds": 0.003})
        self.assertAlmostEqual(done.first_tokens[0], 0.103)
        self.assertAlmostEqual(done.first_tokens[1], 0.123 + 0.003 + 3 * 0.010 + 0.300 - 0.115)
        self.assertAlmostEqual(done.end, 0.456)

    def test_the_way_to_a_replica_holds_up_nobody(self):
        done = run(Turns([(0.0, 100, 5), (1.0, 155, 1)], [(0.095, 50, 1)]), {"latency_seconds": 0.010})
        self.assertAlmostEqual(done.first_tokens[0], 0.110)
        self.assertAlmostEqual(done.first_tokens[1], 0.110 + 0.060 - 0.095)
        self.assertAlmostEqual(done.first_tokens[2], 0.010 + 0.050)

    def test_memory_bounds_who_runs(self):
        two = Turns([(0.0, 100, 11)], [(0.0, 100, 11)])
        self.assertAlmostEqual(run(two).first_tokens[1], 0.1 + 0.010 + 0.1)  # joins behind the first's prompt
        self.assertAlmostEqual(run(two, {"kv_tokens": 221}).first_tokens[1], 0.3)

    def test_a_queue_waits_as_the_formula_says(self):
        # Poisson arrivals, one at a time, each 0.1 s: M/D/1, mean wait rho * service / (2 * (1 - rho)).
        for rate in (5.0, 8.0):
            load = Load(rate, 40_000, 1, 0.0, Lengths(50, 0), Lengths(6, 0), seed=3)
            done = run(load, {"max_requests": 1})
            wait = sum(done.first_tokens) / len(done.first_tokens) - 0.050
            expected = rate * 0.1 * 0.1 / (2 * (1 - rate * 0.1))
            self.assertAlmostEqual(wait / expected, 1.0, delta=0.05)


class Fleet(unittest.TestCase):
    LOAD = Load(20.0, 400, 3, 1.0, Lengths(80, 1.0), Lengths(20, 0.8), seed=5)

    def test_a_seed_is_a_run(self):
        for router in ("hash", "least-loaded", "random"):
            first, second = (report.results(run(self.LOAD, replicas=5, router=router, losses=[(1, 7.0)])) for _ in range(2))
            self.assertEqual(first, second)
        other = Load(20.0, 400, 3, 1.0, Lengths(80, 1.0), Lengths(20, 0.8), seed=6)
        self.assertNotEqual(report.results(run(other, replicas=5)), report.results(run(self.LOAD, replicas=5)))

    def test_every_token_is_counted_once(self):
        tokens = sum(turn.answer for session in self.LOAD for turn in session.turns)
        load = Turns(*([(turn.not_before, turn.prompt, turn.answer) for turn in session.turns] for session in self.LOAD))
        done = run(load, replicas=4, router="least-loaded")
        self.assertEqual(done.tokens, tokens)
        self.assertEqual(len(done.first_tokens), 1200)
        self.assertEqual(sum(done.gaps.values()), tokens - 1200)

    def test_hashing_moves_a_lost_replicas_share_alone(self):
        router = HashRouter(10, 0)
        before = [router.choose(session) for session in range(2000)]
        router.lose(4)
        after = [router.choose(session) for session in range(2000)]
        moved = {was for was, now in zip(before, after) if was != now}
        self.assertEqual(moved, {4})
        self.assertNotIn(4, after)
        self.assertEqual(set(before), set(range(10)))
        larger = HashRouter(11, 0)
        self.assertEqual({now for was, now in zip(before, map(larger.choose, range(2000))) if was != now}, {10})

    def test_hashing_keeps_to_the_bound(self):
        router = HashRouter(10, 0)
        for _ in range(100):
            router.route("one session")
        self.assertLessEqual(max(router.load), 15)
        self.assertGreaterEqual(max(router.load), 14)
        router = UnboundedHashRouter(10, 0)
        self.assertEqual(len({router.route("one session") for _ in range(100)}), 1)

    def test_the_least_loaded_gets_the_next(self):
        router = LeastLoadedRouter(3, 0)
        self.assertEqual(sorted(router.route(0) for _ in range(3)), [0, 1, 2])
        router.ended(1)
        self.assertEqual(router.route(0), 1)
        router.lose(2)
        self.assertEqual({router.route(0) for _ in range(6)}, {0, 1})

    def test_a_lost_replicas_requests_come_again(self):
        # Both run when one replica is lost at 0.15; its request comes again at 0.65 and reads its prompt anew.
        two = Turns([(0.0, 100, 50)], [(0.0, 100, 50)])
        done = run(two, replicas=2, router="least-loaded", losses=[(0, 0.15)])
        self.assertEqual(done.interrupted, 1)
        self.assertEqual(len(done.first_tokens), 2)
        self.assertAlmostEqual(done.resumed[0], 0.5 + 0.100)
        self.assertAlmostEqual(done.end, 0.65 + 0.100 + 49 * 0.010)


class Report(unittest.TestCase):
    def test_quantiles(self):
        self.assertEqual([report.quantile(range(1, 101), share) for share in (0.5, 0.99, 1.0)], [50, 99, 100])
        self.assertIsNone(report.quantile([], 0.5))
        # Nine gaps of 1 s and one of 5 with few rows, each half or one and a half times as long; ten of 3 s with many.
        done = run(Turns(), {"gap_quantiles": {"1": [0.5, 1.5], "3": [1.0]}})
        done.gaps.update({(1, 1.0): 9, (1, 5.0): 1, (3, 3.0): 10})
        self.assertEqual(report.gap_quantiles(done, (0.225, 0.23, 0.46, 0.48, 0.97, 0.98)), [0.5, 1.5, 2.5, 3.0, 3.0, 7.5])

    def test_recovery(self):
        # A request a second, 10 ms each but for 300 after the loss at 1500, that of 1600 the first of them.
        done = run(Turns())
        for second in range(4000):
            done.arrivals.append(second)
            done.first_tokens.append(0.1 if 1600 <= second < 1900 else 0.01)
        self.assertEqual(report.cost_of_loss(done, 1500), {"p99_before_loss": 0.01, "p99_after_loss": 0.1, "recovered_after": 400})
        self.assertEqual(report.cost_of_loss(done, 2000)["recovered_after"], 0)
        self.assertEqual(report.cost_of_loss(done, 0), {"p99_before_loss": None, "p99_after_loss": 0.1, "recovered_after": None})
        self.assertEqual(report.cost_of_loss(done, 3500)["recovered_after"], None)


class Input(unittest.TestCase):
    def test_passes_are_checked(self):
        read_passes(DEFAULT)
        for wrong in ({"pass_seconds": {}}, {"pass_seconds": {"0": 1}}, {"pass_seconds": {"1": -1}}, {"pass_seconds": {"1": True}},
                      {"kv_tokens": None}, {"max_requests": 4}, {"prefill_tokens_per_second": 0}, {"max_rows": 4}, {"gap_quantiles": [1.0]}, {"gap_quantiles": {"1": [-1]}}):
            with self.assertRaisesRegex(InputError, "expected .*, got"):
                PassTimes({**TABLE, **wrong})

    def test_traces_are_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "trace.jsonl")
            line = {"seconds": 2, "session": "a", "prompt_tokens": 10, "answer_tokens": 3}
            path.write_text(f"{json.dumps(line)}\n\n{json.dumps({**line, 'seconds': 1})}\n", encoding="utf-8")
            session, = Trace(path)
            self.assertEqual([turn.not_before for turn in session.turns], [1.0, 2.0])
            for wrong in ("", "[]", "{}", json.dumps({**line, "answer_tokens": 0}), json.dumps({**line, "session": []}), "NaN"):
                path.write_text(wrong, encoding="utf-8")
                with self.assertRaisesRegex(InputError, "trace.jsonl.*expected"):
                    Trace(path)

    def test_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            program = [sys.executable, ROOT / "tools/simulate_fleet"]
            out = subprocess.run([*program, "--replicas", "3", "--sessions", "60", "--lose", "0@2", "--json", f"{folder}/a.json",
                                  "--plot", f"{folder}/a.svg"], capture_output=True, text=True, check=True).stdout
            self.assertEqual(len(out.splitlines()), 3)
            self.assertIn("least-loaded", out)
            made = json.loads(pathlib.Path(folder, "a.json").read_text(encoding="utf-8"))
            self.assertEqual([row["router"] for row in made["runs"]], ["hash", "least-loaded"])
            self.assertIn("</svg>", pathlib.Path(folder, "a.svg").read_text(encoding="utf-8"))
            for wrong, word in ((["--lose", "9@1"], "--lose"), (["--passes", "/nonexistent"], "nonexistent"),
                                (["--warmup", "9999"], "--warmup"), (["--trace", "x", "--rate", "1"], "--rate"),
                                (["measure", "--server", "ftp://a", "--json", "x"], "ftp://a"), (["--replicas", "1", "--lose", "0@1"], "--lose")):
                failed = subprocess.run([*program, *wrong], capture_output=True, text=True, check=False)
                self.assertNotEqual(failed.returncode, 0)
                self.assertIn(word, failed.stderr.splitlines()[-1])
                self.assertNotIn("Traceback", failed.stderr)


if __name__ == "__main__":
    unittest.main()
