"""A client of gRPC made by grpcio-tools, against `kakeya serve --grpc`: the calls of the first
kakeya.v1 and what this server has besides. usage: grpc_test.py KAKEYA CYCLES (tools/test_clients runs it; CYCLES: so many
sessions come and go)"""

import json
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_service import MODES, Server, append, code_of, create, generate, pb, prompt, rpc
from serving import ROOT, make_certificate, make_keys

CYCLES = int(sys.argv.pop(2))
KAKEYA = sys.argv.pop(1)


class Messages(unittest.TestCase):
    """The bytes of the first kakeya.v1, written by hand from its field numbers."""

    def check(self, message, text):
        self.assertEqual(message.SerializeToString(deterministic=True).hex(), text.replace(" ", ""))
        self.assertEqual(type(message).FromString(bytes.fromhex(text.replace(" ", ""))), message)

    def test_bytes(self):
        self.check(pb.CreateSessionRequest(client_label="ab", eos_token_ids=[1, 300]), "0a026162 120301ac02")
        self.check(pb.CreateSessionResponse(session_id="s"), "0a0173")
        self.check(pb.AppendTokensRequest(session_id="s", token_ids=[5]), "0a0173 120105")
        self.check(pb.AppendTokensResponse(history_length=300), "08ac02")
        self.check(pb.CloseSessionRequest(session_id="s"), "0a0173")
        self.check(pb.CloseSessionResponse(final_history_length=1), "0801")
        self.check(pb.GenerateRequest(session_id="s", max_tokens=7, seed=0, temperature=1, top_p=0.5, top_k=2),
                   "0a0173 1007 1800 250000803f 2d0000003f 3002")
        self.check(pb.GenerateResponse(token_id=0), "0800")
        self.check(pb.GenerateResponse(done=pb.GenerateDone(
            stop_reason=pb.STOP_REASON_EOS, generated_token_count=3, prefill_duration_seconds=1,
            total_duration_seconds=2)), "1216 0802 1003 19000000000000f03f 210000000000000040")
        self.check(pb.GenerateResponse(truncated=pb.HistoryTruncated(dropped_token_count=9)), "1a020809")
        self.check(pb.GetSessionInfoRequest(session_id="s"), "0a0173")
        self.check(pb.GetSessionInfoResponse(
            history_length=1, kv_live_bytes=2, cache_invariant_inv1_violations=3,
            cache_invariant_inv2_violations=4, idle_seconds=0.5), "0801 1002 1803 2004 29000000000000e03f")
        self.assertEqual([pb.STOP_REASON_MAX_TOKENS, pb.STOP_REASON_EOS, pb.STOP_REASON_CANCELLED,
                          pb.STOP_REASON_TRUNCATED], [1, 2, 3, 4])


class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(KAKEYA, "--ctx", "2048", "--projection", str(ROOT / "models/demo/projections/context"))
        cls.channel = grpc.insecure_channel(cls.server.address)
        cls.stub = rpc.RuntimeServiceStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.server.end()

    def alone(self, mode, ids, count):
        session = create(self.stub, mode)
        append(self.stub, session, ids)
        text = generate(self.stub, session, count, temperature=0.8)[0]
        self.stub.CloseSession(pb.CloseSessionRequest(session_id=session))
        return text

    def test_the_sequence_of_the_first_client(self):
        created = self.stub.CreateSession(pb.CreateSessionRequest(client_label="chat", eos_token_ids=[1, 106]))
        session = created.session_id
        self.assertRegex(session, "^sess-[a-z0-9-]+_[0-9a-f]{32}$")
        self.assertEqual(append(self.stub, session, prompt(1, 30)).history_length, 30)
        self.assertEqual(append(self.stub, session, []).history_length, 30)
        ids, done = generate(self.stub, session, 12)
        self.assertEqual(len(ids), done.generated_token_count)
        self.assertIn(done.stop_reason, [pb.STOP_REASON_MAX_TOKENS, pb.STOP_REASON_EOS])
        more, _ = generate(self.stub, session, 4)
        info = self.stub.GetSessionInfo(pb.GetSessionInfoRequest(session_id=session))
        self.assertEqual(info.history_length, 30 + len(ids) + len(more))
        self.assertEqual(info.client_label, "chat")
        self.assertGreater(info.kv_live_bytes, 0)
        self.assertLess(info.idle_seconds, 30)
        closed = self.stub.CloseSession(pb.CloseSessionRequest(session_id=session))
        self.assertEqual(closed.final_history_length, info.history_length)
        again = lambda: self.stub.CloseSession(pb.CloseSessionRequest(session_id=session))
        self.assertEqual(code_of(again), grpc.StatusCode.NOT_FOUND)

    def test_a_first_append_of_any_length_works_in_every_mode(self):
        for mode in MODES:
            for tokens in [1, 43, 44, 45]:
                session = create(self.stub, mode)
                self.assertEqual(append(self.stub, session, prompt(tokens, tokens)).history_length, tokens)
                self.assertEqual(len(generate(self.stub, session, 3)[0]), 3)

    def test_what_a_session_says_it_runs_it_runs(self):
        shown = {}
        for mode in MODES:
            created = self.stub.CreateSession(pb.CreateSessionRequest(eos_token_ids=[0], **MODES[mode]))
            append(self.stub, created.session_id, prompt(2, 100))
            frames = list(self.stub.Generate(pb.GenerateRequest(
                session_id=created.session_id, max_tokens=40, packed=True)))
            done = frames[-1].done
            self.assertEqual(done.drafted_tokens > 0, created.decode_mode == pb.DECODE_MODE_SPECULATIVE, mode)
            drafted = sum(frame.tokens.drafted for frame in frames if frame.HasField("tokens"))
            self.assertEqual(drafted, done.accepted_tokens)
            first = frames[0].WhichOneof("payload")
            self.assertEqual(first == "truncated", mode == "dropped")
            if first == "truncated":
                self.assertEqual(frames[0].truncated.dropped_token_count, 100 - 44)
            self.assertEqual(done.cached_tokens + done.prompt_rows, 100)
            shown[mode] = created.kv_policy.evicted
        self.assertEqual(shown, {"plain": pb.EVICTED_KEEP, "drafted": pb.EVICTED_KEEP,
                                 "dropped": pb.EVICTED_DROP, "restored": pb.EVICTED_RESTORE})

    def test_64_sessions_of_all_modes_beside_http_are_each_as_alone(self):
        texts = [prompt(i, 20 + i * 3) for i in range(64)]
        modes = [list(MODES)[i % 4] for i in range(64)]
        got = [[] for _ in texts]
        failures = []

        def run(i):
            try:
                session = create(self.stub, modes[i])
                append(self.stub, session, texts[i][:10])
                append(self.stub, session, texts[i][10:])
                if i % 5 == 0:  # a client that stops reading, and goes on
                    call = self.stub.Generate(pb.GenerateRequest(
                        session_id=session, max_tokens=1000, seed=3, temperature=0.8))
                    for frame in call:
                        if frame.WhichOneof("payload") == "token_id":
                            got[i].append(frame.token_id)
                        if len(got[i]) == 5:
                            break
                    call.cancel()
                    info = lambda: self.stub.GetSessionInfo(pb.GetSessionInfoRequest(session_id=session))
                    self.settle(session)
                    kept = info().history_length - len(texts[i])
                    self.assertGreaterEqual(kept, 5)
                    self.stub.TruncateSession(pb.TruncateSessionRequest(
                        session_id=session, length=len(texts[i]) + 5))
                if i % 7 == 0:
                    session = self.stub.ForkSession(pb.ForkSessionRequest(session_id=session)).session_id
                got[i] += generate(self.stub, session, 24 - len(got[i]), temperature=0.8)[0]
            except Exception as failure:  # pylint: disable=broad-except
                failures.append((i, failure))

        def chat():
            body = json.dumps({"messages": [{"role": "user", "content": "Count from 5 to 12."}],
                               "temperature": 0}).encode()
            request = urllib.request.Request(self.server.url + "/v1/chat/completions", body,
                                             {"Content-Type": "application/json"})
            text = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
            if text != "5, 6, 7, 8, 9, 10, 11, 12.":
                failures.append(("http", text))

        threads = [threading.Thread(target=run, args=(i,)) for i in range(64)]
        threads += [threading.Thread(target=chat) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        for i, text in enumerate(texts):
            self.assertEqual(got[i], self.alone(modes[i], text, 24), f"{i} {modes[i]}")

    def settle(self, session):
        """Waits until no call of the session goes on: at most 200 ms, beside what the machine takes."""
        for _ in range(200):
            probe = lambda: append(self.stub, session, [])
            if code_of(probe) != grpc.StatusCode.ABORTED:
                return
            time.sleep(0.01)
        raise RuntimeError("a cancelled call goes on")

    def test_errors_have_their_codes_and_change_nothing(self):
        session = create(self.stub)
        append(self.stub, session, prompt(3, 20))
        codes = grpc.StatusCode
        cases = [
            (codes.NOT_FOUND, lambda: append(self.stub, "sess-none", [5])),
            (codes.INVALID_ARGUMENT, lambda: append(self.stub, session, [1 << 20])),
            (codes.INVALID_ARGUMENT, lambda: append(self.stub, session, [(1 << 32) - 1])),
            (codes.RESOURCE_EXHAUSTED, lambda: append(self.stub, session, prompt(4, 3000))),
            (codes.INVALID_ARGUMENT, lambda: generate(self.stub, session, 0)),
            (codes.INVALID_ARGUMENT, lambda: generate(self.stub, session, 1, top_p=7.0)),
            (codes.INVALID_ARGUMENT, lambda: generate(self.stub, session, 1, temperature=-1.0)),
            (codes.INVALID_ARGUMENT, lambda: generate(self.stub, create(self.stub), 1)),
            (codes.INVALID_ARGUMENT, lambda: self.stub.CreateSession(pb.CreateSessionRequest(decode_mode=9))),
            (codes.INVALID_ARGUMENT, lambda: self.stub.CreateSession(pb.CreateSessionRequest(
                kv_policy=pb.KvPolicy(evicted=pb.EVICTED_DROP)))),
            (codes.INVALID_ARGUMENT, lambda: self.stub.TruncateSession(pb.TruncateSessionRequest(
                session_id=session, length=21))),
            (codes.INVALID_ARGUMENT, lambda: self.stub.TruncateSession(pb.TruncateSessionRequest(
                session_id=session, length=2**63))),
            (codes.INVALID_ARGUMENT, lambda: self.stub.ForkSession(pb.ForkSessionRequest(
                session_id=session, length=2**64 - 1))),
            (codes.DEADLINE_EXCEEDED, lambda: self.stub.AppendTokens(pb.AppendTokensRequest(
                session_id=session, token_ids=prompt(5, 1900)), timeout=0.001)),
        ]
        for code, call in cases:
            self.assertEqual(code_of(call), code)
        self.settle(session)
        info = self.stub.GetSessionInfo(pb.GetSessionInfoRequest(session_id=session))
        self.assertEqual(info.history_length, 20)
        call = self.stub.Generate(pb.GenerateRequest(session_id=session, max_tokens=1500))
        next(call)
        self.assertEqual(code_of(lambda: append(self.stub, session, [130])), codes.ABORTED)
        call.cancel()

    def test_a_client_that_does_not_read_slows_nobody(self):
        sessions = [create(self.stub) for _ in range(5)]
        for session in sessions:
            append(self.stub, session, prompt(7, 30))

        def time_of_four(reads_fifth):
            fifth = self.stub.Generate(pb.GenerateRequest(session_id=sessions[0], max_tokens=1900, seed=3))

            def read_fifth():
                try:
                    for _ in fifth:
                        pass
                except grpc.RpcError:
                    pass  # it was cancelled

            threads = [threading.Thread(target=generate, args=(self.stub, session, 300)) for session in sessions[1:]]
            if reads_fifth:
                threading.Thread(target=read_fifth).start()
            start = time.monotonic()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            seconds = time.monotonic() - start
            fifth.cancel()
            for session in sessions:
                self.settle(session)
                self.stub.TruncateSession(pb.TruncateSessionRequest(session_id=session, length=30))
            return seconds

        times = {reads: sorted(time_of_four(reads) for _ in range(3))[1] for reads in [True, False]}
        print(f"four streams of 300 tokens: {times[True] * 1000:.0f} ms beside a fifth, "
              f"{times[False] * 1000:.0f} ms beside one that nobody reads")

    def test_health_and_reflection(self):
        health = health_pb2_grpc.HealthStub(self.channel)
        # While a long prompt runs.
        session = create(self.stub)
        thread = threading.Thread(target=append, args=(self.stub, session, prompt(6, 2000)))
        thread.start()
        slowest = 0.0
        for _ in range(20):
            start = time.monotonic()
            self.assertEqual(health.Check(health_pb2.HealthCheckRequest()).status,
                             health_pb2.HealthCheckResponse.SERVING)
            slowest = max(slowest, time.monotonic() - start)
        thread.join()
        print(f"health beside a long prompt: at most {slowest * 1000:.1f} ms")
        pool = DescriptorPool(ProtoReflectionDescriptorDatabase(self.channel))
        service = pool.FindServiceByName("kakeya.v1.RuntimeService")
        self.assertEqual([method.name for method in service.methods][:5],
                         ["CreateSession", "AppendTokens", "Generate", "CloseSession", "GetSessionInfo"])


class Many(unittest.TestCase):
    """Sessions and calls that come and go, however they end, leave nothing."""

    def setUp(self):
        self.server = Server(KAKEYA, "--memory", "96MiB", "--prompt-cache", "16MiB", "--sessions", "2000")
        self.channel = grpc.insecure_channel(self.server.address)
        self.stub = rpc.RuntimeServiceStub(self.channel)

    def tearDown(self):
        self.channel.close()
        self.server.end()

    def metrics(self):
        text = urllib.request.urlopen(self.server.url + "/metrics").read().decode()
        values = {}
        for line in text.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                values[name] = float(value)
        values["memory"] = sum(value for name, value in values.items() if name.startswith("kakeya_memory_bytes"))
        return values

    def settled(self):
        for _ in range(500):
            values = self.metrics()
            if values["kakeya_requests_running"] + values["kakeya_requests_waiting"] == 0:
                return values
            time.sleep(0.01)
        raise RuntimeError("requests go on")

    def resident(self):
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024

    def test_sessions_and_cancelled_calls_leave_nothing(self):
        cycles = CYCLES

        def some(count):
            for i in range(count):
                session = create(self.stub, "drafted")
                append(self.stub, session, prompt(i, 40))
                call = self.stub.Generate(pb.GenerateRequest(session_id=session, max_tokens=900))
                if i % 3:
                    next(call)
                call.cancel()
                self.stub.CloseSession(pb.CloseSessionRequest(session_id=session))

        some(50)  # what is made once is there
        before, resident = self.settled(), self.resident()
        some(cycles)
        after = self.settled()
        self.assertEqual(after["kakeya_sessions"], 0)
        self.assertEqual(after["kakeya_prompt_cache_bytes"], before["kakeya_prompt_cache_bytes"])
        self.assertEqual(after["memory"], before["memory"])
        self.assertLess(self.resident(), resident + (8 << 20))

    def test_a_thousand_idle_sessions_stay_within_the_limit(self):
        for i in range(max(100, min(1000, CYCLES // 10))):
            session = create(self.stub)
            append(self.stub, session, prompt(i, 100))
            self.assertLessEqual(self.metrics()["memory"] if i % 50 == 0 else 0, 96 << 20)
        values = self.settled()
        self.assertGreaterEqual(values["kakeya_sessions"], 100)
        self.assertLessEqual(values["kakeya_prompt_cache_bytes"], 16 << 20)
        # Its rows may have gone: the tokens have not.
        first = self.stub.ListSessions(pb.ListSessionsRequest()).sessions[-1].session_id
        self.assertEqual(len(generate(self.stub, first, 5)[0]), 5)

    def test_a_flood_of_sessions_is_refused_and_nobody_loses_one(self):
        kept = create(self.stub)
        codes = set()
        for _ in range(2100):
            codes.add(code_of(lambda: self.stub.CreateSession(pb.CreateSessionRequest())))
        self.assertEqual(codes, {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED})
        self.stub.GetSessionInfo(pb.GetSessionInfoRequest(session_id=kept))

    def test_a_drain_ends_every_stream_with_a_word(self):
        ends = []

        def read(session):
            done = None
            try:
                for frame in self.stub.Generate(pb.GenerateRequest(session_id=session, max_tokens=300)):
                    done = frame
                ends.append(done.WhichOneof("payload"))
            except grpc.RpcError as error:
                ends.append(error.code())

        sessions = [create(self.stub) for _ in range(16)]
        for session in sessions:
            append(self.stub, session, prompt(1, 20))
        threads = [threading.Thread(target=read, args=(session,)) for session in sessions]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
        self.server.process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        self.assertEqual(self.server.process.wait(timeout=40), 0)
        self.assertLessEqual(set(ends), {"done", grpc.StatusCode.UNAVAILABLE})
        self.assertIn("done", ends)


class Keys(unittest.TestCase):
    def test_keys_and_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            key, = make_keys(KAKEYA, folder, "ann")
            make_certificate(folder, "DNS:localhost", ["rsa:2048"])
            server = Server(KAKEYA, "--keys", f"{folder}/keys", "--tls-cert", f"{folder}/tls.crt", "--tls-key", f"{folder}/tls.key")
            tls = grpc.ssl_channel_credentials(pathlib.Path(folder, "tls.crt").read_bytes())
            address = "localhost:" + server.address.rsplit(":", 1)[1]
            with grpc.secure_channel(address, tls) as channel, grpc.insecure_channel(address) as plain:
                request = pb.CreateSessionRequest()
                stub = rpc.RuntimeServiceStub(channel)
                codes = grpc.StatusCode
                self.assertEqual(code_of(lambda: stub.CreateSession(request)), codes.UNAUTHENTICATED)
                wrong = (("authorization", "Bearer wrong"),)
                self.assertEqual(code_of(lambda: stub.CreateSession(request, metadata=wrong)), codes.UNAUTHENTICATED)
                right = (("authorization", "Bearer " + key),)
                session = stub.CreateSession(request, metadata=right).session_id
                other = (("x-api-key", key),)
                info = pb.GetSessionInfoRequest(session_id=session)
                self.assertEqual(stub.GetSessionInfo(info, metadata=other).session_id, session)
                self.assertEqual(code_of(lambda: stub.GetSessionInfo(info)), codes.UNAUTHENTICATED)
                insecure = rpc.RuntimeServiceStub(plain)
                self.assertEqual(code_of(lambda: insecure.CreateSession(request, metadata=right)), codes.UNAVAILABLE)
            server.end()


if __name__ == "__main__":
    os.environ["GRPC_VERBOSITY"] = "NONE"
    signal.alarm(600)
    unittest.main()
