"""deploy/haproxy.cfg in front of servers that answer nothing but their names: each request goes where the rule in
python/kakeya/_routing.py says. usage: routing_test.py (tools/test_clients runs it where haproxy is installed)"""

import collections
import http.client
import http.server
import importlib.util
import json
import threading
import unittest

from serving import ROOT, Proxy

NAMES = ("replica1", "replica2", "replica3")
DIGITS = "0123456789abcdef" * 2
MOST_BUFFERED = 200_000  # bytes, below tune.bufsize

_spec = importlib.util.spec_from_file_location("_routing", ROOT / "python/kakeya/_routing.py")
routing = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(routing)


def made_requests():
    """(path, fields, body) of several turns of conversations, each turn by another form that has the same meaning."""
    for i in range(8):
        question = {"role": "user", "content": f"Question {i}, \"quoted\"\n\u00fc\u4f60\U0001f600"}
        parts = {"role": "user", "content": [{"type": "text", "text": question["content"]}]}
        later = [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And then?"}]
        chat, answers = "/v1/chat/completions", "/v1/responses"
        for field in ("X-Dynamo-Session-ID", "X-Claude-Code-Session-ID", "Session-ID", "X-Session-ID"):
            yield chat, {field: f"session {i}"}, {"messages": [question]}
        yield chat, {"X-Session-ID": f"session {i}", "Session-ID": ""}, {"messages": [parts], "user": "ann"}
        for turn in ([question], [question, *later], [parts, *later]):
            yield chat, {}, {"messages": turn}
            yield chat, {}, {"messages": [{"role": "system", "content": f"You are {i % 3}."}, *turn]}
            yield "/v1/messages", {}, {"system": f"You are {i}.", "messages": turn}
            yield answers, {}, {"instructions": "Be brief.", "input": turn}
            for name in routing.BODY_FIELDS:
                yield chat, {}, {"messages": turn, name: f"{name} {i}"}
            yield chat, {}, {"messages": turn, "user": f"user {i}", "prompt_cache_key": "", "safety_identifier": "b"}
            yield chat, {}, {"messages": [*turn, {"role": "user", "content": "a" * (MOST_BUFFERED // 8 * i)}]}
        yield answers, {}, {"instructions": "Be brief.", "input": question["content"]}
        name = NAMES[i % 3]
        for kept in (f"resp_{name}_{DIGITS}", f"sess-{name}_{DIGITS}"):
            yield f"/v1/responses/{kept}", {}, None
            yield f"/v1/sessions/{kept}", {"X-Session-ID": f"session {i}"}, None
        yield f"/v1/responses/resp_{name}_{DIGITS}/input_items?limit=2", {}, None
        yield answers, {"X-Session-ID": f"session {i}"}, {"input": "a", "previous_response_id": f"resp_{name}_{DIGITS}"}
        yield f"{answers}/input_tokens", {}, {"input": "a", "previous_response_id": f"resp_{name}_{DIGITS}"}
        # Ids of earlier versions, ids of no replica here, what is no conversation.
        for kept in (f"resp_{DIGITS}", "resp_none", f"resp_{name}_{DIGITS}0"):
            yield answers, {}, {"input": f"{kept} {i}", "previous_response_id": kept}
            yield f"/v1/responses/{kept}", {}, None
        yield "/v1/embeddings", {}, {"input": "a"}
        yield "/v1/completions", {}, {"prompt": "a"}
        yield chat, {}, "{"


class Named(http.server.BaseHTTPRequestHandler):
    """Answers by its server's name."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        said = self.server.replica.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = answer  # noqa: N815

    def log_message(self, *_words):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Says nothing of checks that end as soon as they know enough."""

    def __init__(self, replica):
        super().__init__(("127.0.0.1", 0), Named)
        self.replica = replica

    def handle_error(self, request, client_address):
        pass


class Routing(unittest.TestCase):
    def setUp(self):
        self.servers = [Server(name) for name in NAMES]
        for server in self.servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.addCleanup(server.server_close)
            self.addCleanup(server.shutdown)
        self.proxy = Proxy([server.server_port for server in self.servers], bounded=False)
        self.addCleanup(self.proxy.end)

    def ask(self, path, fields, body, escaped=False):
        connection = http.client.HTTPConnection("127.0.0.1", self.proxy.port, timeout=20)
        sent = body if isinstance(body, (str, type(None))) else json.dumps(body, ensure_ascii=escaped).encode()
        connection.request("POST" if body else "GET", path, sent, fields)
        response = connection.getresponse()
        said = response.read().decode()
        connection.close()
        self.assertEqual(response.status, 200, said)
        return said

    def test_a_text_in_escapes_stays_at_one_replica(self):
        for i in range(8):
            turns = [{"role": "user", "content": f"{i}: \u4f60 \\u \U0001f600 \\\\ \\\" \"\n</p>"}, {"role": "assistant", "content": "Yes."}]
            places = {self.ask("/v1/chat/completions", {}, {"messages": turns[:n]}, escaped=True) for n in (1, 2, 1, 2)}
            self.assertEqual(len(places), 1, (i, places))

    def test_each_request_goes_where_the_rule_says(self):
        places = collections.defaultdict(set)
        for path, fields, body in made_requests():
            sent = body if isinstance(body, str) else json.dumps(body) if body else ""
            lower = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
            route = routing.route_of(path.split("?")[0], lower, sent.encode())
            place = self.ask(path, fields, body)
            if route.replica in NAMES:
                self.assertEqual(place, route.replica, (path, fields))
            else:
                places[route.conversation].add(place)
        self.assertEqual(places.pop(None), set(NAMES))
        for conversation, there in places.items():
            self.assertEqual(len(there), 1, (conversation, there))
        self.assertEqual(set().union(*places.values()), set(NAMES))
        print(f"{len(places)} conversations, each at one replica")


if __name__ == "__main__":
    unittest.main()
