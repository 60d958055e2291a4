"""Requests in the shapes that agents and other clients send (tests/clients/recorded), all in one life of `kakeya serve`.

They are made by hand after public reports and sources of these programs; names and paths in them are invented. A file has "from", "method",
"path", "headers" and "body"; "then": what the user says in later turns, behind the server's own answers; "refused": the field
that the error names, and "because": why. usage: recorded_test.py KAKEYA (tools/test_clients runs it)"""

import json
import sys
import unittest
import urllib.error
import urllib.request

from serving import ROOT, Server

KAKEYA = sys.argv.pop(1)
RECORDED = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "tests/clients/recorded").glob("*.json"))}
RESULT = "Done."


class Messages:
    """Reads Anthropic's /v1/messages, and says what a client repeats of an answer."""
    history = "messages"

    @staticmethod
    def blocks_of(events):
        assert events[0]["type"] == "message_start" and events[-1]["type"] == "message_stop", [event["type"] for event in events]
        blocks, open_block, stops = [], None, []
        for event in events[1:-1]:
            kind = event["type"]
            if kind == "content_block_start":
                assert open_block is None and not stops and event["index"] == len(blocks), event
                open_block = {**event["content_block"], "json": ""}
            elif kind == "content_block_delta":
                delta = dict(event["delta"])
                delta_kind = delta.pop("type")
                name = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "json", "signature_delta": "signature"}[delta_kind]
                open_block[name] = open_block.get(name, "") + next(iter(delta.values()))
            elif kind == "content_block_stop":
                blocks.append(open_block)
                open_block = None
            elif kind == "message_delta":
                stops.append(event["delta"]["stop_reason"])
            else:
                assert kind == "ping", event
        assert open_block is None and len(stops) == 1 and stops[0], stops
        return [finished for finished in (Messages.finish(block, stops[0]) for block in blocks) if finished]

    @staticmethod
    def finish(block, stop):
        """The block with its input; none of a call that max_tokens cut, which clients drop."""
        text = block.pop("json")
        if block["type"] != "tool_use":
            return block
        try:
            return {**block, "input": json.loads(text or "{}")}
        except json.JSONDecodeError:
            assert stop == "max_tokens", text
            return None

    def read(self, text, is_stream):
        blocks = self.blocks_of(events_of(text, named=True)) if is_stream else json.loads(text)["content"]
        results = [{"type": "tool_result", "tool_use_id": block["id"], "content": RESULT} for block in blocks if block["type"] == "tool_use"]
        return [{"role": "assistant", "content": blocks}] + ([{"role": "user", "content": results}] if results else [])


class Responses:
    """Reads OpenAI's /v1/responses."""
    history = "input"

    def read(self, text, is_stream):
        assert is_stream
        events = events_of(text, named=True)
        kinds = [event["type"] for event in events]
        assert kinds[:2] == ["response.created", "response.in_progress"], kinds
        assert kinds[-1] in ("response.completed", "response.incomplete"), kinds
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        added = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
        done = [event["output_index"] for event in events if event["type"] == "response.output_item.done"]
        assert added == done == list(range(len(added))) and added, (added, done)
        items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert items == events[-1]["response"]["output"]
        calls = [item for item in items if item["type"] in ("function_call", "custom_tool_call")]
        results = [{"type": item["type"] + "_output", "call_id": item["call_id"], "output": RESULT} for item in calls]
        return items + results


class Chat:
    """Reads OpenAI's /v1/chat/completions."""
    history = "messages"

    @staticmethod
    def message_of(chunks):
        assert chunks.pop() == "[DONE]"
        usage = [chunk for chunk in chunks if not chunk["choices"]]
        assert len(usage) == 1 and usage[0] is chunks[-1] and usage[0]["usage"]["total_tokens"] > 0, chunks[-1]
        ends = [bool(chunk["choices"][0]["finish_reason"]) for chunk in chunks[:-1]]
        assert ends == [False] * (len(ends) - 1) + [True], ends
        message = {"role": "assistant", "content": ""}
        calls = {}
        for chunk in chunks[:-1]:
            delta = chunk["choices"][0]["delta"]
            message["content"] += delta.get("content") or ""
            for call in delta.get("tool_calls") or []:
                known = calls.setdefault(call["index"], {"id": call.get("id"), "type": "function", "function": {"name": "", "arguments": ""}})
                for name, piece in call["function"].items():
                    known["function"][name] += piece
        if calls:
            message["tool_calls"] = list(calls.values())
        return message

    def read(self, text, is_stream):
        message = self.message_of(events_of(text, named=False)) if is_stream else json.loads(text)["choices"][0]["message"]
        results = [{"role": "tool", "tool_call_id": call["id"], "content": RESULT} for call in message.get("tool_calls") or []]
        return [message] + results


class Ollama:
    """Reads Ollama's /api/chat."""
    history = "messages"

    def read(self, text, is_stream):
        assert is_stream
        lines = [json.loads(line) for line in text.splitlines()]
        assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True], text
        assert lines[-1]["done_reason"] in ("stop", "length") and lines[-1]["eval_count"] > 0, lines[-1]
        message = {"role": "assistant", "content": "".join(line["message"]["content"] for line in lines)}
        calls = [call for line in lines for call in line["message"].get("tool_calls") or []]
        if calls:
            message["tool_calls"] = [{"function": call["function"]} for call in calls]
        return [message] + [{"role": "tool", "content": RESULT} for _ in calls]


APIS = {"/v1/messages": Messages(), "/v1/responses": Responses(), "/v1/chat/completions": Chat(), "/api/chat": Ollama()}


def greedily(record):
    """The body, which asks for the likeliest answer: that is the same in each run."""
    body = record["body"]
    if record["path"].startswith("/api/"):
        return {**body, "options": {**body["options"], "temperature": 0}}
    return {**body, "temperature": 0}


def events_of(text, named):
    """The events of a stream; `named`: each says its type before its data, too."""
    assert text.endswith("\n\n"), text[-100:]
    events = []
    for event in text[:-2].split("\n\n"):
        lines = [line for line in event.split("\n") if not line.startswith(":")]
        if not lines:
            continue
        data = lines[-1].removeprefix("data: ")
        events.append(data if data == "[DONE]" else json.loads(data))
        assert lines[:-1] == ([f"event: {events[-1]['type']}"] if named else []), event
    return events


class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = Server(KAKEYA, "--ctx", "8192")
        cls.addClassCleanup(server.end)
        cls.address = server.url

    def ask(self, record, body):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + record["path"], data, record["headers"], method=record["method"])
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def converse(self, record):
        """Asks, and goes on behind each answer as the client does."""
        api = APIS.get(record["path"].split("?")[0])
        if api is None:
            status, text = self.ask(record, record.get("body"))
            self.assertEqual(status, 200, text)
            self.assertTrue(json.loads(text))
            return
        body = greedily(record)
        for number, words in enumerate([None, *record.get("then", [])], 1):
            if words:
                body = {**body, api.history: body[api.history] + repeated + words}
            status, text = self.ask(record, body)
            self.assertEqual(status, 200, f"turn {number}: {text}")
            repeated = api.read(text, body.get("stream", False))

    def test_serves_what_clients_send(self):
        for name, record in RECORDED.items():
            if "refused" not in record:
                with self.subTest(name):
                    self.converse(record)

    def test_refuses_by_name_what_is_listed(self):
        for name, record in RECORDED.items():
            if "refused" not in record:
                continue
            with self.subTest(name):
                self.assertTrue(record["because"])
                status, text = self.ask(record, record["body"])
                self.assertEqual(status, 400, text)
                error = json.loads(text)["error"]
                message = error if isinstance(error, str) else error["message"]
                self.assertTrue(message.startswith(record["refused"] + ": expected "), message)

    def test_knows_each_client(self):
        for program in ("Claude Code", "Cline", "Codex CLI", "Home Assistant", "n8n", "Open WebUI"):
            self.assertTrue(any(record["from"].startswith(program + " ") and "then" in record for record in RECORDED.values()), program)


if __name__ == "__main__":
    unittest.main()
