"""Three replicas of `kakeya serve` behind deploy/haproxy.cfg: one is killed, one drained, all restarted
under load. usage: haproxy_test.py KAKEYA STREAMS (tools/test_clients runs it where haproxy is installed)"""

import http.client
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

from serving import ROOT, Replica, free_port

STREAMS = int(sys.argv.pop(2))
KAKEYA = sys.argv.pop(1)


def tokens_of(replica):
    text = urllib.request.urlopen(f"{replica.url}/metrics").read().decode()
    return int(float(re.search(r"^kakeya_tokens_total (\S+)", text, re.M).group(1)))


def ask(port, question, tokens, session=None, stream=False):
    """The text, and whether its end has come."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": tokens, "seed": 1,
            "temperature": 0.8, "stream": stream, "ignore_eos": True}
    headers = {"Content-Type": "application/json", **({"X-Session-ID": session} if session else {})}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    response = connection.getresponse()
    if stream and response.status == 502:
        return "", False  # the replica was killed before its first piece
    if response.status != 200:
        raise RuntimeError(f"status {response.status}: {response.read()[:200]}")
    if not stream:
        return json.load(response)["choices"][0]["message"]["content"], True
    text = ""
    try:
        for line in response:
            if line.strip() == b"data: [DONE]":
                return text, True
            if line.startswith(b"data: {"):
                text += json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
    except (http.client.HTTPException, OSError):
        pass  # the replica was killed
    return text, False


def in_threads(calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    return threads


class Fleet(unittest.TestCase):
    def setUp(self):
        self.replicas = [Replica(KAKEYA, "--drain-delay", "3", "--trusted-proxy", "127.0.0.1") for _ in range(3)]
        for replica in self.replicas:
            self.addCleanup(replica.kill)
            replica.wait_until_ready()
        self.port = free_port()
        text = (ROOT / "deploy/haproxy.cfg").read_text().replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        for i, replica in enumerate(self.replicas):
            text = text.replace(f"127.0.0.1:808{i + 1}", f"127.0.0.1:{replica.port}")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        pathlib.Path(folder.name, "haproxy.cfg").write_text(text)
        self.proxy = subprocess.Popen(["haproxy", "-f", f"{folder.name}/haproxy.cfg"],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(self.proxy.wait)
        self.addCleanup(self.proxy.kill)
        for _ in range(200):
            try:
                ask(self.port, "1", 1)
                break
            except (OSError, RuntimeError):
                time.sleep(0.05)

    def test_a_conversation_stays_at_one_replica(self):
        for session in range(6):
            before = [tokens_of(replica) for replica in self.replicas]
            for turn in range(4):
                ask(self.port, f"{turn}", 4, session=f"conversation {session}")
                time.sleep(0.05)  # HAProxy still counts a request whose end it has not seen: the next would go elsewhere
            grown = [tokens_of(replica) > tokens for replica, tokens in zip(self.replicas, before)]
            self.assertEqual(sum(grown), 1, session)

    def test_one_is_killed_and_one_drained_under_streams(self):
        questions = [f"Count from {i} to {i + 9}." for i in range(STREAMS)]
        expected = [ask(self.replicas[0].port, question, 150)[0] for question in questions]
        texts, broken, failures = [""] * STREAMS, [], []

        def run(i):
            try:
                for attempt in range(3):
                    text, whole = ask(self.port, questions[i], 150, f"session {i}", stream=True)
                    if whole:
                        break
                    broken.append(i)
                    self.assertTrue(expected[i].startswith(text), (expected[i], text))
                    # The conversation goes on by its text, at another replica, when this one is seen
                    # to be gone: OpenAI's clients wait as long before they try again.
                    time.sleep(0.5 * 2**attempt)
                texts[i] = text
            except Exception as failure:  # pylint: disable=broad-except
                failures.append((i, failure))

        threads = in_threads([lambda i=i: run(i) for i in range(STREAMS)])
        time.sleep(0.4)
        self.replicas[2].drain()
        self.replicas[1].kill()
        for thread in threads:
            thread.join()
        self.assertEqual(self.replicas[2].process.wait(timeout=40), 0)
        self.assertEqual(failures, [])
        self.assertEqual(texts, expected)
        print(f"{STREAMS} streams, one replica killed and one drained: {len(set(broken))} broke and went on elsewhere")

    def test_a_rolling_restart_fails_no_request(self):
        stop, answers, failures = threading.Event(), [], []
        expected = ask(self.port, "Count from 5 to 12.", 40)[0]

        def run(client):
            while not stop.is_set():
                try:
                    session = f"client {client}" if client % 2 else None
                    answers.append(ask(self.port, "Count from 5 to 12.", 40, session)[0] == expected)
                except Exception as failure:  # pylint: disable=broad-except
                    failures.append(failure)

        threads = in_threads([lambda client=client: run(client) for client in range(8)])
        for replica in self.replicas:
            replica.drain()
            self.assertEqual(replica.process.wait(timeout=40), 0)
            replica.start()
            replica.wait_until_ready()
            time.sleep(1.0)  # the proxy has seen it
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertTrue(all(answers))
        print(f"rolling restart of three replicas: {len(answers)} requests, none failed")


if __name__ == "__main__":
    unittest.main()
