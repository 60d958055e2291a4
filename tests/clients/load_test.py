"""Many clients at once against `kakeya serve`: ones that read their answers to the end, and ones that
vanish, stall or send rubbish. What a well-behaved client gets is, id for id, what it gets alone.
usage: load_test.py KAKEYA SECONDS CLIENTS (tools/test_load runs it)"""

import asyncio
import collections
import dataclasses
import http.client
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import sys
import time

from serving import Server

KAKEYA, SECONDS, CLIENTS = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
# How much the server may have grown when all is over, after a first round of all clients: what the
# allocator keeps of a crowd's buffers and threads. A leak of 1 KiB a request shows in minutes.
MOST_GROWTH = 32 << 20
PAUSE = min(5.0, SECONDS / 5)  # the longest of who stalls
PATIENCE = 60.0  # seconds; who waits longer for a part of an answer is starved
QUESTIONS = ("Count from 5 to 12.", "Count from 3 to 8.", "Spell cat.",
             "Write a Python function that adds two numbers.")


def bodies():
    """Requests of every kind: greedy and seeded, chats and plain completions."""
    for number, question in enumerate(QUESTIONS):
        chat = {"model": "demo", "messages": [{"role": "user", "content": question}],
                "max_tokens": 60, "stream": True, "return_token_ids": True}
        text = {"model": "demo", "prompt": question, "max_tokens": 40, "stream": True,
                "return_token_ids": True}
        for body in (chat, text):
            yield {**body, "temperature": 0}
            yield {**body, "temperature": 1.2, "top_p": 0.95, "top_k": 0, "seed": number}


BODIES = list(bodies())


class Broken(Exception):
    """An answer that is not what it should be."""


@dataclasses.dataclass
class Tally:
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failures: list = dataclasses.field(default_factory=list)


def request(body, path=None):
    path = path or ("/v1/chat/completions" if "messages" in body else "/v1/completions")
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Connection: close\r\nContent-Length: {len(data)}\r\n\r\n").encode() + data


class Client:
    """A connection of its own for each request."""

    def __init__(self, port, number, tally):
        self.port, self.tally = port, tally
        self.random = random.Random(number)

    async def open(self, data):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(data)

    async def line(self):
        return await asyncio.wait_for(self.reader.readline(), PATIENCE)

    async def status(self):
        words = (await self.line()).split()
        if len(words) < 2 or words[0] != b"HTTP/1.1":
            raise Broken(f"no answer of HTTP: {words}")
        return int(words[1])

    async def events(self):
        """The data of a stream's events, one after the other."""
        status = await self.status()
        if status != 200:
            rest = await asyncio.wait_for(self.reader.read(2000), PATIENCE)
            raise Broken(f"status {status}: {rest[-300:]}")
        while line := await self.line():
            if line.startswith(b"data: [DONE]"):
                return
            if line.startswith(b"data: "):
                yield json.loads(line[6:])
        raise Broken("the stream ends before its end")

    async def answer(self, body, pause=0.0):
        """The ids of an answer, and how it ended; read nothing for `pause` seconds after its first."""
        ids, reason = [], None
        await self.open(request(body))
        async for event in self.events():
            if "error" in event:
                raise Broken(str(event["error"]))
            for choice in event["choices"]:
                ids += choice.get("token_ids") or []
                reason = choice["finish_reason"] or reason
            if pause and ids:
                await asyncio.sleep(pause)
                pause = 0.0
        return ids, reason

    def close(self, rudely=False):
        if rudely:
            self.writer.transport.abort()
        else:
            self.writer.close()

    # What clients do, once.

    async def behave(self, alone):
        which = self.random.randrange(len(BODIES))
        got = await self.answer(BODIES[which])
        if got != alone[which]:
            raise Broken(f"another answer than alone to {BODIES[which]}: {got} for {alone[which]}")

    async def stall(self, alone):
        which = self.random.randrange(len(BODIES))
        if await self.answer(BODIES[which], pause=self.random.uniform(PAUSE / 4, PAUSE)) != alone[which]:
            raise Broken("another answer than alone to who stalls")

    async def overflow(self, _):
        """More tokens than a mailbox and the system's buffers hold, of which few are read."""
        bias = {str(token): -100 for token in (1, 50, 106)}
        await self.open(request({**BODIES[0], "max_tokens": 3000, "logit_bias": bias}))
        await self.line()
        await asyncio.sleep(self.random.uniform(PAUSE / 4, PAUSE))

    async def vanish(self, _):
        await self.open(request(self.random.choice(BODIES)))
        parts = self.random.randrange(8)
        async for _event in self.events():
            parts -= 1
            if parts < 0:
                break
        self.close(rudely=self.random.random() < 0.5)

    async def send_rubbish(self, _):
        binary = self.random.randbytes(2000)
        deep = b'{"messages":' + b"[" * 100000
        body, expected = self.random.choice((
            (request(b'{"model": "demo", "messages": [', "/v1/chat/completions"), 400),
            (request(binary, "/tokenize"), 400),
            (request(deep, "/v1/chat/completions"), 400),
            (request({"model": "demo", "messages": 7}), 400),
            (request({"model": "demo", "prompt": "x" * 100000}), 400),
            (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (20 << 10) + b"\r\n\r\n", 431),
            (b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", 413),
            (b"\x16\x03\x01" + binary + b"\r\n\r\n", 400),
            (request({"model": "demo", "messages": []})[:-20], None)))
        await self.open(body)
        if expected is None:  # half a request, and gone
            return
        got = await self.status()
        if got != expected:
            raise Broken(f"expected status {expected} of {body[:80]}, got {got}")

    async def go_on(self, deed, alone, until):
        name = deed.__name__
        while time.monotonic() < until:
            self.writer = None
            try:
                await deed(self, alone)
                self.tally.counts[name] += 1
            except (Broken, OSError, asyncio.TimeoutError, ValueError, KeyError) as failure:
                self.tally.counts[name + " failed"] += 1
                self.tally.failures.append(f"{name}: {failure!r}")
                await asyncio.sleep(0.1)
            finally:
                if self.writer:
                    self.close()


def poll_health(port, pid, until, results):
    """In a process of its own, so that what it measures is the server. And how large that is."""
    times, failures, sizes = [], [], []
    while time.monotonic() < until:
        if len(sizes) < 4 - (until - time.monotonic()) / SECONDS * 4:
            sizes.append(resident_bytes(pid))
        begin = time.perf_counter()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", "/health", headers={"Host": "localhost"})
            if connection.getresponse().status != 200:
                failures.append("/health is not 200")
            connection.close()
        except OSError as failure:
            failures.append(f"/health: {failure!r}")
        times.append(time.perf_counter() - begin)
        time.sleep(0.05)
    results.put((times, failures, sizes))


def resident_bytes(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) << 10


def metrics(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.request("GET", "/metrics", headers={"Host": "localhost"})
    lines = connection.getresponse().read().decode().splitlines()
    return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
            for line in lines if not line.startswith("#")}


async def all_at_once(port, tally, alone, seconds):
    until = time.monotonic() + seconds
    deeds = itertools.cycle((Client.behave, Client.vanish, Client.behave, Client.stall,
                             Client.behave, Client.send_rubbish, Client.behave, Client.overflow))
    await asyncio.gather(*(Client(port, number, tally).go_on(next(deeds), alone, until)
                           for number in range(CLIENTS)))


async def answers_alone(port):
    return [await Client(port, 0, Tally()).answer(body) for body in BODIES]


def idle(port):
    """Waits until no request is left; false if some stay."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        now = metrics(port)
        if now["kakeya_requests_running"] == now["kakeya_requests_waiting"] == 0:
            return True
        time.sleep(0.1)
    return False


def load(server, port):
    """What went wrong; prints what was seen."""
    alone = asyncio.run(answers_alone(port))
    warm = Tally()
    asyncio.run(all_at_once(port, warm, alone, 2))
    failures = [] if idle(port) else ["requests stay after their clients have gone"]
    before = resident_bytes(server.pid)
    results = multiprocessing.Queue()
    poller = multiprocessing.Process(
        target=poll_health, args=(port, server.pid, time.monotonic() + SECONDS, results))
    poller.start()
    tally = Tally()
    asyncio.run(all_at_once(port, tally, alone, SECONDS))
    times, unhealthy, sizes = results.get(timeout=2 * PATIENCE)
    poller.join()
    if not idle(port):
        failures.append("requests stay after their clients have gone")
    after = resident_bytes(server.pid)
    failures += warm.failures + tally.failures + unhealthy
    if after - before > MOST_GROWTH:
        failures.append(f"the server has grown by {after - before} bytes, over {MOST_GROWTH}")
    for deed in (Client.behave, Client.stall, Client.vanish, Client.send_rubbish, Client.overflow):
        if tally.counts[deed.__name__] == 0:
            failures.append(f"no client was done: {deed.__name__}")
    times.sort()
    p50, p99 = (times[len(times) * part // 100] for part in (50, 99))
    print(f"{CLIENTS} clients for {SECONDS:.0f} s: "
          + ", ".join(f"{name} {count}" for name, count in sorted(tally.counts.items())))
    print(f"/health asked {len(times)} times: median {1e3 * p50:.1f} ms, p99 {1e3 * p99:.1f} ms, "
          f"most {1e3 * times[-1]:.1f} ms")
    print(f"resident MiB: {before / 2**20:.1f} before, "
          + ", ".join(f"{size / 2**20:.1f}" for size in sizes)
          + f" at each quarter's begin, {after / 2**20:.1f} after; "
          f"load of the machine {os.getloadavg()[0]:.1f}; {len(failures)} failures")
    # Twenty times what was ever seen: a server that waits for a client, not a machine that is busy.
    if p50 > 1.0 or times[-1] > 20.0:
        failures.append("/health is answered too late")
    return failures


def main():
    server = Server(KAKEYA)
    try:
        failures = load(server.process, int(server.url.rsplit(":", 1)[1]))
    finally:
        server.end()
    for failure in failures[:10]:
        print(failure, file=sys.stderr)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
