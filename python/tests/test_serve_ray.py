"""Replicas under Ray Serve: what one server alone says, sessions that stay, a replica that dies, the end."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import time
import urllib.parse

import pytest

pytest.importorskip("ray", reason="pip install kakeya[ray]")

from conftest import ROOT, serve
from kakeya import _ray_options

STREAMS = 24


def ask(port, method, path, body=None, **fields):
    """The status, the type and the whole body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    fields = {name.replace("_", "-"): value for name, value in fields.items()}
    connection.request(method, path, body if body is None or isinstance(body, str) else json.dumps(body),
                       {"Content-Type": "application/json", **fields})
    response = connection.getresponse()
    said = response.status, response.getheader("Content-Type"), response.read().decode()
    connection.close()
    return said


def question(i, **options):
    return {"messages": [{"role": "user", "content": f"Count from {i} to {i + 9}."}], "max_tokens": 60, "seed": 1,
            "temperature": 0.8, "ignore_eos": True, **options}


def text(said):
    """The text of a stream that has come to its end."""
    status, _, body = said
    assert status == 200, said
    assert body.endswith("data: [DONE]\n\n"), body[-200:]
    parts = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    return "".join(part["choices"][0]["delta"].get("content") or "" for part in parts if part["choices"])


def answer(said):
    status, kind, body = said
    made = json.loads(re.sub(r"call_[0-9a-f]+", "call", body))
    return status, kind, made.get("error") or made.get("choices") or made.get("tokens")


class Fleet:
    def __init__(self, folder):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        self.log = folder / "requests.jsonl"
        self.before = []  # statuses before the first replica was there
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kakeya.serve_ray", "--model", ROOT / "models/demo", "--replicas", "2", "--drain", "20",
             "--port", str(self.port), "--", "--threads", "1", "--log", self.log], stdout=subprocess.PIPE, text=True)
        while not select.select([self.process.stdout], [], [], 0.05)[0]:
            try:
                self.before.append(ask(self.port, "GET", "/v1/models")[0])
            except OSError:
                pass  # Serve does not listen yet
        assert self.process.stdout.readline() == f"serve_ray: http://127.0.0.1:{self.port}\n"

    def servers(self):
        """Processes of `kakeya serve` with this fleet's log."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[1:2] == [b"serve"] and str(self.log).encode() in words:
                found.append(int(path.parent.name))
        return sorted(found)

    def ends(self):
        return [line["end"] for line in map(json.loads, self.log.read_text().splitlines()) if line["event"] == "request"]


def wait_for(condition):
    for _ in range(2400):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it does not come")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    made = Fleet(tmp_path_factory.mktemp("fleet"))
    yield made
    statuses = set()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        # An answer that lasts: replicas drain meanwhile.
        last = pool.submit(ask, made.port, "POST", "/v1/chat/completions", question(5, stream=True, max_tokens=1000))
        time.sleep(0.3)
        made.process.terminate()
        while made.process.poll() is None:
            try:
                statuses.add(ask(made.port, "GET", "/v1/models")[0])
            except (OSError, http.client.HTTPException):
                pass  # Serve's proxy is gone
            time.sleep(0.05)
        assert text(last.result())
    assert made.process.wait(timeout=40) == 0
    assert statuses == {200, 503}
    assert made.servers() == []


def test_before_the_first_replica_is_there_clients_are_told_to_come_back(fleet):
    assert set(fleet.before) <= {200, 503}
    assert 503 in fleet.before


def test_answers_are_those_of_one_server_alone(fleet):
    tool = {"type": "function", "function": {"name": "add", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer", "maximum": 9}}, "required": ["a"]}}}
    with serve() as address:
        alone = urllib.parse.urlsplit(address).port
        for request in (("POST", "/v1/chat/completions", question(5)),
                        ("POST", "/v1/chat/completions", {**question(5, ignore_eos=False), "tools": [tool], "tool_choice": "required"}),
                        ("POST", "/v1/chat/completions", "{"), ("POST", "/tokenize", {"content": "a b"}),
                        ("GET", "/nothing%20here?a=%2F"), ("DELETE", "/v1/models")):
            assert answer(ask(fleet.port, *request)) == answer(ask(alone, *request)), request
        assert ask(fleet.port, "GET", "/", Host="example.com") == ask(alone, "GET", "/", Host="example.com")
        assert ask(fleet.port, "GET", "/page/page.js") == ask(alone, "GET", "/page/page.js")
        expected = [text(ask(alone, "POST", "/v1/chat/completions", question(i, stream=True))) for i in range(STREAMS)]
    with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
        said = pool.map(lambda i: ask(fleet.port, "POST", "/v1/chat/completions", question(i, stream=True)), range(STREAMS))
        assert [text(one) for one in said] == expected


@pytest.mark.parametrize("field", ["X-Dynamo-Session-ID", "X-Claude-Code-Session-ID", "Session-ID", "X-Session-ID"])
def test_a_session_stays_at_one_replica(fleet, field):
    for name in ("one", "two", "three"):
        session = f"{field}-{name}"
        for _ in range(2):
            assert ask(fleet.port, "POST", "/v1/chat/completions", question(3, max_tokens=2), **{field: session})[0] == 200
        for _ in range(4):
            assert ask(fleet.port, "GET", f"/v1/sessions/{session}", **{field: session})[0] == 200


def said_by(fleet, method, path, body=None):
    status, _, text_said = ask(fleet.port, method, path, body)
    return status, json.loads(text_said)


def test_a_conversation_without_a_header_stays_at_one_replica(fleet):
    for i in range(4):
        messages = [{"role": "system", "content": "Be brief. " * 20}, {"role": "user", "content": f"{i}, \u4f60"}]
        for turn in range(3):
            body = {"messages": messages, "max_tokens": 4}
            status, made = said_by(fleet, "POST", "/v1/chat/completions", body)
            assert status == 200
            assert turn == 0 or made["usage"]["prompt_tokens_details"]["cached_tokens"] > 60, (i, turn)
            messages += [made["choices"][0]["message"], {"role": "user", "content": f"And {turn}?"}]


def test_a_stored_response_is_found_by_its_id(fleet):
    makers = set()
    for i in range(8):
        previous = None
        for turn in range(3):
            body = {"input": f"{i} {turn}", "max_output_tokens": 4, "previous_response_id": previous}
            status, made = said_by(fleet, "POST", "/v1/responses", body)
            assert status == 200, made
            previous = made["id"]
            assert said_by(fleet, "GET", f"/v1/responses/{previous}") == (200, made)
        makers.add(previous.split("_")[1])
        assert said_by(fleet, "DELETE", f"/v1/responses/{previous}")[0] == 200
        status, said = said_by(fleet, "GET", f"/v1/responses/{previous}")
        assert status == 404
        assert said["error"]["message"].endswith(f"made by replica '{previous.split('_')[1]}'")
    assert len(makers) == 2


def test_long_bodies_come_whole(fleet):
    for size in (10_000, 300_000, 5_000_000):
        status, said = said_by(fleet, "POST", "/v1/chat/completions", question(1, user="a" * size))
        assert status == 200, said
    assert said_by(fleet, "POST", "/v1/chat/completions", question(1, user="a" * (9 << 20)))[0] == 413


def test_a_client_that_goes_away_ends_the_answer(fleet):
    before = fleet.ends().count("cancelled")
    connection = http.client.HTTPConnection("127.0.0.1", fleet.port, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps(question(5, stream=True, max_tokens=7000)),
                       {"Content-Type": "application/json"})
    assert connection.getresponse().readline().startswith(b"data: ")
    connection.sock.shutdown(socket.SHUT_RDWR)
    connection.close()
    wait_for(lambda: fleet.ends().count("cancelled") == before + 1)


def test_another_replica_answers_when_one_is_killed(fleet):
    expected = answer(ask(fleet.port, "POST", "/v1/chat/completions", question(5)))
    before = fleet.servers()
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: before[0] not in fleet.servers())
    time.sleep(0.5)
    for i in range(8):
        got = answer(ask(fleet.port, "POST", "/v1/chat/completions", question(5), X_Session_ID=f"behind-{i}"))
        assert got == expected
    wait_for(lambda: len(fleet.servers()) == 2)


@pytest.mark.parametrize("words, line", [
    (["--replicas", "0"], "--replicas: expected a number from 1 to 65535, got '0'"),
    (["--port", "http"], "--port: expected a number from 1 to 65535, got 'http'"),
    (["--gpus", "-1"], "--gpus: expected a number from 0 to 65535, got '-1'"),
    (["--cpus", "nan"], "--cpus: expected a number from 0 to 65535, got 'nan'"),
    (["--memory", "1GB"], "unrecognized arguments: --memory 1GB"),
    (["--min-replicas", "2"], "expected --max-replicas beside them"),
    (["--max-replicas", "2", "--min-replicas", "3"], "no larger --min-replicas"),
    (["--max-replicas", "2", "--replicas", "2"], "expected no --replicas"),
    (["--", "--replica-name", "a"], "--replica-name of kakeya serve: expected it neither"),
    (["--", "--host=0.0.0.0"], "--host of kakeya serve: expected it neither"),
])
def test_wrong_options_are_one_line(words, line, capsys):
    with pytest.raises(SystemExit) as end:
        _ray_options.read(words)
    said = capsys.readouterr().err
    assert end.value.code == 2
    assert line in said
    assert said.count("\n") == 1


def test_options_of_the_environment_and_a_taken_port(monkeypatch, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SystemExit):
            _ray_options.read(["--port", str(taken.getsockname()[1])])
    assert "expected one that is free" in capsys.readouterr().err
    for name in ("KAKEYA_SERVE_HOST", "RAY_ADDRESS", "RAY_AUTH_MODE"):
        monkeypatch.setenv(name, "10.0.0.1")
        with pytest.raises(SystemExit):
            _ray_options.read([])
        assert name in capsys.readouterr().err
        monkeypatch.delenv(name)


def test_a_model_that_is_not_there_is_the_server_s_line(tmp_path):
    ended = subprocess.run([sys.executable, "-m", "kakeya.serve_ray", "--model", "none", "--port", "8499"], cwd=tmp_path,
                           capture_output=True, text=True, timeout=180)
    assert ended.returncode == 2
    assert ended.stderr == f"kakeya: {tmp_path}/none: expected a model's folder or GGUF file, got no such folder or file\n"
