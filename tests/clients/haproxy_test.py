"""Three replicas of `kakeya serve` behind deploy/haproxy.cfg: one is killed, one frozen, one drained, all restarted
under load; conversations find their replicas. usage: haproxy_test.py KAKEYA STREAMS (tools/test_clients runs it where haproxy is installed)"""

import contextlib
import http.client
import json
import re
import signal
import sys
import threading
import time
import unittest
import urllib.request

from serving import Proxy, Replica

STREAMS = int(sys.argv.pop(2))
KAKEYA = sys.argv.pop(1)


def tokens_of(replica):
    text = urllib.request.urlopen(f"{replica.url}/metrics").read().decode()
    return int(float(re.search(r"^kakeya_tokens_total (\S+)", text, re.M).group(1)))


def ask(port, question, tokens, session=None, stream=False):
    """The text, and whether its end has come."""
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": tokens, "seed": 1,
            "temperature": 0.8, "stream": stream, "ignore_eos": True}
    headers = {"Content-Type": "application/json", **({"X-Session-ID": session} if session else {})}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=120)) as connection:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if stream and response.status in (502, 503):
            return "", False  # the replica was killed before its first piece, or while it was asked again
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


def send(port, method, path, body=None, headers=None):
    """The status and the JSON of an answer."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        return response.status, json.load(response)


def in_threads(calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    return threads


class Fleet(unittest.TestCase):
    def setUp(self):
        flags = ["--drain-delay", "3", "--trusted-proxy", "127.0.0.1", "--replica-name"]
        self.replicas = [Replica(KAKEYA, *flags, f"replica{i + 1}") for i in range(3)]
        for replica in self.replicas:
            self.addCleanup(replica.kill)
            replica.wait_until_ready()
        self.proxy = Proxy([replica.port for replica in self.replicas])
        self.addCleanup(self.proxy.end)
        self.port = self.proxy.port
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
                ask(self.port, f"{turn}", 4, session=f"conversation-{session}")
                time.sleep(0.05)  # HAProxy still counts a request whose end it has not seen: the next would go elsewhere
            grown = [tokens_of(replica) > tokens for replica, tokens in zip(self.replicas, before)]
            self.assertEqual(sum(grown), 1, session)

    def test_conversations_find_their_replicas_without_a_header(self):
        prompt_tokens = cached_tokens = 0
        for i in range(6):
            messages = [{"role": "system", "content": "Be brief. " * 20}, {"role": "user", "content": f"Count from {i} to {i + 9}."}]
            for turn in range(4):
                status, answer = send(self.port, "POST", "/v1/chat/completions", {"messages": messages, "max_tokens": 40, "temperature": 0})
                self.assertEqual(status, 200, answer)
                if turn:
                    prompt_tokens += answer["usage"]["prompt_tokens"]
                    cached_tokens += answer["usage"]["prompt_tokens_details"]["cached_tokens"]
                messages += [answer["choices"][0]["message"], {"role": "user", "content": f"And from {turn}?"}]
                time.sleep(0.05)  # as above
        print(f"later turns: {cached_tokens / prompt_tokens:.0%} of their prompts cached")
        self.assertGreater(cached_tokens, 0.8 * prompt_tokens)

    def test_a_stored_response_is_found_by_its_id(self):
        for i in range(6):
            previous = None
            for turn in range(4):
                status, made = send(self.port, "POST", "/v1/responses", {"input": f"{i} {turn}", "max_output_tokens": 4, "previous_response_id": previous})
                self.assertEqual(status, 200, made)
                previous = made["id"]
                self.assertEqual(send(self.port, "GET", f"/v1/responses/{previous}"), (200, made))
            self.assertEqual(send(self.port, "DELETE", f"/v1/responses/{previous}")[0], 200)
            status, said = send(self.port, "GET", f"/v1/responses/{previous}")
            self.assertEqual(status, 404)
            self.assertIn(f"made by replica '{previous.split('_')[1]}'", said["error"]["message"])

    def test_a_frozen_replica_loses_its_clients_within_six_seconds(self):
        ended, texts = [], []

        def run():
            texts.append(ask(self.port, "Count from 5 to 14.", 7000, "frozen", stream=True))
            ended.append(time.monotonic())

        threads = in_threads([run])
        time.sleep(0.5)
        frozen = max(self.replicas, key=tokens_of)
        frozen.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        for thread in threads:
            thread.join(timeout=30)
        self.assertFalse(texts[0][1])
        self.assertLess(ended[0] - began, 6.0)
        print(f"a frozen replica's client was ended after {ended[0] - began:.1f} s")
        self.assertTrue(ask(self.port, "Count from 5 to 14.", 4, "frozen", stream=True)[1])

    def test_errors_of_the_proxy_are_json(self):
        for replica in self.replicas:
            replica.kill()
        time.sleep(2)
        status, said = send(self.port, "POST", "/v1/chat/completions", {"messages": []})
        self.assertEqual((status, said["error"]["type"]), (503, "server_error"))

    def test_one_quota_counts_over_all_replicas(self):
        proxy = Proxy([replica.port for replica in self.replicas], quota=6)
        self.addCleanup(proxy.end)

        def statuses(count, headers):
            return [send(proxy.port, "POST", "/v1/completions", {"prompt": "1", "max_tokens": 1}, headers)[0] for _ in range(count)]

        before = [tokens_of(replica) for replica in self.replicas]
        self.assertEqual(statuses(9, {"Authorization": "Bearer ann"}), 6 * [200] + 3 * [429])
        self.assertGreater(sum(tokens_of(replica) > tokens for replica, tokens in zip(self.replicas, before)), 1)
        self.assertEqual(statuses(7, {"x-api-key": "bob"}), 6 * [200] + [429])
        self.assertEqual(statuses(7, {}), 6 * [200] + [429])
        status, said = send(proxy.port, "POST", "/v1/completions", {"prompt": "1"}, {"Authorization": "Bearer ann"})
        self.assertEqual((status, said["error"]["type"]), (429, "rate_limit_error"))
        self.assertEqual(send(proxy.port, "GET", "/v1/models", None, {"Authorization": "Bearer ann"})[0], 200)

    def test_one_is_killed_and_one_drained_under_streams(self):
        questions = [f"Count from {i} to {i + 9}." for i in range(STREAMS)]
        expected = [ask(self.replicas[0].port, question, 150)[0] for question in questions]
        texts, broken, failures = [""] * STREAMS, [], []

        def run(i):
            try:
                for attempt in range(3):
                    text, whole = ask(self.port, questions[i], 150, f"session-{i}", stream=True)
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
                    session = f"client-{client}" if client % 2 else None
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
