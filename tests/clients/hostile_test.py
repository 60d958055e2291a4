"""One client attacks `kakeya serve` while four others ask as always: their answers are the same, and come within three
times their time alone; the server stays well, within its memory, and ends when it is told to.
usage: hostile_test.py KAKEYA [ROUNDS] (tools/test_clients runs it)"""

import json
import pathlib
import socket
import statistics
import sys
import threading
import time
import urllib.error
import urllib.request

from serving import Replica

KAKEYA = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 1
LIMIT = 512 << 20
SLACK = 64 << 20
QUESTIONS = ("Count from 5 to 12.", "Count from 3 to 8.", "Spell cat.", "Write a Python function that adds two numbers.")
# A pass beside an attack may be one of the attack's, and a machine of CI runs other things: what is shorter is no delay.
LEAST = 0.5
DRAIN = 3.0


def chat(**fields):
    return {"messages": [{"role": "user", "content": "Go on."}], "max_tokens": 400, **fields}


def schema(of):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": of}}}


def text_of(pattern):
    return {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}, "required": ["a"]}


def tool(parameters, name="f"):
    return {"tools": [{"type": "function", "function": {"name": name, "parameters": parameters}}], "tool_choice": "required"}


def many(count, number=0):
    return {str(i + number): 0 for i in range(count)}


WIDE = "[^x]{0,60000}"
PATTERNS = [
    "^" + WIDE * 100 + "$", "^" + WIDE * 30 + "$", "^.{0,60000}a.{0,60000}$", "(.{0,200}a){20}", "^([^x]{0,8}){12}$",
    "^" + "[^x]{0,8}" * 12 + "$", "^(a?){64}(b*)*$", "^((a+)+)+b$", "^(.*,)*.*$", "^([a-z]*[ ]?)*$", "foo.{0,60}bar"]
GRAMMARS = [
    'root ::= ([a-z]+ " "?)* "."', 'root ::= ([^"]? [^"]?)* "\\""', "root ::= " + "[^x]{0,4000} " * 50,
    "root ::= a\na ::= [a-z]* a? [a-z]* | b\nb ::= [^.]* b?", 'root ::= (a | a a | a a a)*\na ::= [^"]{1,16}',
    "root ::= " + " | ".join(f"[a-{chr(ord('b') + i % 20)}]* [^{i % 10}]*" for i in range(200))]


def wide_forms():
    for pattern in PATTERNS:
        yield chat(**schema(text_of(pattern)))
        yield chat(**tool(text_of(pattern)))
        yield chat(structured_outputs={"regex": pattern.strip("^$")})
        yield chat(structured_outputs={"regex": "([a-zA-P]|Q" + pattern.strip("^$") + ")"}, logit_bias={"49": 100})


def slow_grammars():
    for grammar in GRAMMARS:
        yield chat(grammar=grammar)


def large_schemas():
    for number in range(6):
        names = {f"property_{number}_{i}": {"type": "string"} for i in range(1000)}
        yield chat(**schema({"type": "object", "properties": names, "additionalProperties": False}))
        lengths = {f"p{number}_{i}": {"type": "string", "maxLength": 100 + i} for i in range(1000)}
        yield chat(**schema({"type": "object", "properties": lengths}))


def many_members():
    yield chat(chat_template_kwargs=many(200_000))
    yield chat(chat_template_kwargs={"a": many(200_000)})
    call = {"role": "assistant", "content": "", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": json.dumps(many(200_000))}}]}
    yield chat(messages=[{"role": "user", "content": "a"}, call, {"role": "user", "content": "b"}])
    call["tool_calls"][0]["function"]["arguments"] = "[" * 4_000_000
    yield chat(messages=[{"role": "user", "content": "a"}, call, {"role": "user", "content": "b"}])
    yield chat(**tool({"type": "object", "properties": many(2000)}))
    yield chat(response_format=many(200_000))
    yield chat(metadata=many(200_000))
    yield chat(logit_bias=many(200_000))
    yield {"messages": [{"role": "user", "content": "a " * 2_000_000}]}
    yield {"messages": [{"role": "user", "content": "a"}] * 100_000}


ATTACKS = {"wide forms": wide_forms, "slow grammars": slow_grammars, "large schemas": large_schemas, "many members": many_members}


def ask(url, body, timeout=120):
    """The status and the body of an answer."""
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def quiet(url, question):
    """The text of a quiet client's answer, and the seconds that it took."""
    begin = time.monotonic()
    status, answer = ask(url, {"messages": [{"role": "user", "content": question}], "max_tokens": 60, "temperature": 0})
    assert status == 200, answer
    return answer["choices"][0]["message"]["content"], time.monotonic() - begin


def four(url, rounds=1):
    """Texts and seconds of four clients at once."""
    texts, seconds, failures = {}, [], []

    def client(question):
        try:
            for _ in range(rounds):
                text, time_taken = quiet(url, question)
                assert texts.setdefault(question, text) == text, question
                seconds.append(time_taken)
        except (AssertionError, OSError) as failure:
            failures.append(failure)

    threads = [threading.Thread(target=client, args=(question,)) for question in QUESTIONS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return texts, seconds


def memory_of(process):
    """Resident bytes."""
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0]) << 10


def attack(url, bodies, stop, refused):
    for body in bodies:
        if stop.is_set():
            return
        try:
            status, answer = ask(url, body, timeout=20)
        except OSError:
            continue  # it took longer, which is the attacker's own concern, or the server has ended
        assert status != 500 and "error" in answer or status == 200, (status, answer)
        refused.append(status)


def framings(url):
    """Bodies of unknown framings are never read as requests."""
    for encoding in ("xchunked", "identity", "gzip", "chunked, chunked"):
        with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])), timeout=20) as connection:
            hidden = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
            connection.sendall(("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                                f"Transfer-Encoding: {encoding}\r\n\r\n{hidden}").encode())
            read = b""
            while piece := connection.recv(65536):
                read += piece
            assert read.startswith(b"HTTP/1.1 501"), read
            assert read.count(b"HTTP/1.1 ") == 1, read


def try_attack(name, alone, seconds_alone):
    server = Replica(KAKEYA, "--memory", str(LIMIT), "--drain", str(DRAIN), "--request-timeout", "10")
    try:
        server.wait_until_ready()
        four(server.url)
        stop, statuses = threading.Event(), []
        bodies = list(ATTACKS[name]())
        halves = [bodies[0::2], bodies[1::2]]
        attackers = [threading.Thread(target=attack, args=(server.url, half, stop, statuses)) for half in halves]
        for thread in attackers:
            thread.start()
        longest = 0.0
        peak = 0
        for _ in range(200):
            texts, seconds = four(server.url)
            assert texts == alone, f"{name}: other answers"
            longest = max(longest, *seconds)
            peak = max(peak, memory_of(server.process))
            with urllib.request.urlopen(server.url + "/health", timeout=5) as health:
                assert json.load(health)["status"] == "ok", name
            if not any(thread.is_alive() for thread in attackers):
                break
        # One more time, and an end in the middle of it.
        again = threading.Thread(target=attack, args=(server.url, bodies[:8], stop, statuses), daemon=True)
        again.start()
        time.sleep(0.5)
        stop.set()
        begin = time.monotonic()
        server.drain()
        code = server.process.wait(timeout=60)
        ended = time.monotonic() - begin
    finally:
        if server.process.poll() is None:
            server.kill()
    most = max(3 * seconds_alone, LEAST)
    print(f"{name}: statuses {dict(sorted((s, statuses.count(s)) for s in set(statuses)))}, longest answer of a quiet client "
          f"{longest:.2f} s of {most:.2f} s, {peak >> 20} MiB, ended after {ended:.1f} s")
    assert longest <= most, f"{name}: expected answers within {most:.2f} s, got one after {longest:.2f} s"
    assert peak <= LIMIT + SLACK, f"{name}: expected at most {LIMIT + SLACK} resident bytes, got {peak}"
    assert code == 0 and ended <= DRAIN + 1.0, f"{name}: expected an end within {DRAIN + 1.0} s, got {code} after {ended:.1f} s"


def main():
    server = Replica(KAKEYA, "--memory", str(LIMIT))
    try:
        server.wait_until_ready()
        framings(server.url)
        alone, _ = four(server.url)
        seconds_alone = statistics.median(max(four(server.url)[1]) for _ in range(5))
    finally:
        server.kill()
    for _ in range(ROUNDS):
        for name in ATTACKS:
            try_attack(name, alone, seconds_alone)


if __name__ == "__main__":
    main()
