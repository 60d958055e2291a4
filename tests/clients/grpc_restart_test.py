"""Sessions of the gRPC service whose server is killed or starts again.
usage: grpc_restart_test.py KAKEYA KILLS (tools/test_clients runs it; KILLS: so many times the server is killed)"""

import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
import unittest

import grpc
from grpc_service import MODES, Server, append, create, generate, pb, prompt, rpc
from serving import ROOT

KILLS = int(sys.argv.pop(2))
KAKEYA = sys.argv.pop(1)


class Restarts(unittest.TestCase):
    def test_kill_9_loses_nothing_that_was_sent(self):
        flags = ["--projection", str(ROOT / "models/demo/projections/context")]
        with tempfile.TemporaryDirectory() as folder:
            server = Server(KAKEYA, "--sessions-dir", folder, *flags)
            texts, expected = {}, {}
            with grpc.insecure_channel(server.address) as channel:
                stub = rpc.RuntimeServiceStub(channel)
                for mode in MODES:
                    session, reference = create(stub, mode), create(stub, mode)
                    append(stub, session, prompt(8, 40))
                    append(stub, reference, prompt(8, 40))
                    texts[session] = []
                    expected[session] = generate(stub, reference, 1400, temperature=0.8)[0]
            self.assertEqual(len({tuple(text) for text in expected.values()}), 3)  # drafts change nothing
            for kill in range(KILLS):
                with grpc.insecure_channel(server.address) as channel:
                    stub = rpc.RuntimeServiceStub(channel)
                    threads = [threading.Thread(target=self.read, args=(stub, each, texts[each], 1300))
                               for each in texts]
                    for thread in threads:
                        thread.start()
                    time.sleep(random.Random(kill).uniform(0.0, 0.15))
                    server.kill()
                    for thread in threads:
                        thread.join()
                server = Server(KAKEYA, "--sessions-dir", folder, *flags)
                with grpc.insecure_channel(server.address) as channel:
                    stub = rpc.RuntimeServiceStub(channel)
                    for session, sent in texts.items():
                        info = stub.GetSessionInfo(pb.GetSessionInfoRequest(session_id=session))
                        self.assertGreaterEqual(info.history_length, 40 + len(sent))
                        # The tokens that the server has and the client never read are the same ones.
                        stub.TruncateSession(pb.TruncateSessionRequest(session_id=session, length=40 + len(sent)))
                        sent += generate(stub, session, 1, temperature=0.8)[0]
                        self.assertEqual(sent, expected[session][:len(sent)])
                        if len(sent) > 1200:
                            stub.TruncateSession(pb.TruncateSessionRequest(session_id=session, length=40))
                            sent.clear()
            server.end()

    def test_the_second_turn_of_a_long_conversation(self):
        """From memory, from files behind a restart, and run again: the same tokens, and the times."""
        seconds, rows, ids = {}, {}, {}

        def turn(stub, session, name):
            start = time.monotonic()
            call = stub.Generate(pb.GenerateRequest(session_id=session, max_tokens=8, seed=3))
            next(call)
            seconds[name] = time.monotonic() - start
            frames = list(call)
            rows[name] = frames[-1].done.prompt_rows
            stub.TruncateSession(pb.TruncateSessionRequest(session_id=session, length=4020))
            ids[name] = [frame.token_id for frame in frames[:-1]]

        def channel_of(server):
            return grpc.insecure_channel(server.address)

        with tempfile.TemporaryDirectory() as folder:
            flags = ["--sessions-dir", folder, "--ctx", "4200"]
            # As on another machine: it has the folder of prefixes alone.
            other = Server(KAKEYA, "--prompt-cache-dir", folder + "/prefixes", "--ctx", "4200")
            server = Server(KAKEYA, *flags)
            with channel_of(server) as channel:
                stub = rpc.RuntimeServiceStub(channel)
                session = create(stub)
                append(stub, session, prompt(9, 4000))
                append(stub, session, prompt(10, 20))
                turn(stub, session, "memory")
            server.end()
            with channel_of(other) as channel:
                stub = rpc.RuntimeServiceStub(channel)
                # The client brings its text: its session was the first server's.
                elsewhere = create(stub)
                start = time.monotonic()
                append(stub, elsewhere, prompt(9, 4000) + prompt(10, 20))
                appended = time.monotonic() - start
                turn(stub, elsewhere, "another server's files")
                seconds["another server's files"] += appended
            size = sum(path.stat().st_size for path in pathlib.Path(folder, "prefixes").iterdir())
            other.end()
            for name, more in [("files", []), ("run again", ["--prompt-cache", "off"])]:
                server = Server(KAKEYA, *flags, *more)
                with channel_of(server) as channel:
                    turn(rpc.RuntimeServiceStub(channel), session, name)
                server.end()
        print("first token of the second turn behind 4,000: " +
              ", ".join(f"{name} {value * 1000:.0f} ms" for name, value in seconds.items()) + f"; {size} bytes of files")
        for name in ("files", "run again", "another server's files"):
            self.assertEqual(ids[name], ids["memory"], name)
        self.assertLess(max(rows["memory"], rows["files"]), 200)
        self.assertEqual(rows["run again"], 4020)

    def test_a_restart_takes_the_rows_from_files(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(KAKEYA, "--sessions-dir", folder, "--ctx", "2048")
            with grpc.insecure_channel(server.address) as channel:
                stub = rpc.RuntimeServiceStub(channel)
                session = create(stub)
                append(stub, session, prompt(9, 1000))
                first = generate(stub, session, 8)[0]
                stub.TruncateSession(pb.TruncateSessionRequest(session_id=session, length=1000))
            server.end()
            server = Server(KAKEYA, "--sessions-dir", folder, "--ctx", "2048")
            with grpc.insecure_channel(server.address) as channel:
                stub = rpc.RuntimeServiceStub(channel)
                info = stub.GetSessionInfo(pb.GetSessionInfoRequest(session_id=session))
                self.assertGreater(info.kv_disk_bytes, 0)
                again, done = generate(stub, session, 8)
                self.assertEqual(again, first)
                self.assertLess(done.prompt_rows, 100)
                stub.CloseSession(pb.CloseSessionRequest(session_id=session))
                self.assertEqual(list(pathlib.Path(folder, "prefixes").glob("*.prefix")), [])
            server.end()

    @staticmethod
    def read(stub, session, into, count):
        try:
            for frame in stub.Generate(pb.GenerateRequest(
                    session_id=session, max_tokens=count - len(into), seed=3, temperature=0.8)):
                if frame.WhichOneof("payload") == "token_id":
                    into.append(frame.token_id)
        except grpc.RpcError:
            pass  # the server was killed


if __name__ == "__main__":
    os.environ["GRPC_VERBOSITY"] = "NONE"
    signal.alarm(600)
    unittest.main()
