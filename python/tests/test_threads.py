"""Threads, tasks and Ctrl-C."""

import asyncio
import ctypes
import gc
import signal
import subprocess
import sys
import threading
import time

import kakeya
import pytest

LONG = {"ignore_model_stop_ids": True, "draft_length": 0}
INTERRUPTED = """
import signal
import kakeya
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
engine = kakeya.Engine(threads=1, pin_threads=False)
session = engine.session()
session.append(engine.encode("The cat"))
ways = {
    "chat": lambda: engine.chat("x", max_tokens=8000, ignore_model_stop_ids=True),
    "generate": lambda: session.generate(max_tokens=8000, ignore_model_stop_ids=True),
    "stream": lambda: list(session.stream(max_tokens=8000, ignore_model_stop_ids=True)),
}
print("begun", flush=True)
try:
    ways[%r]()
except KeyboardInterrupt:
    print("interrupted", engine.chat("Count from 5 to 12."))
"""


def test_two_threads_generate_at_once(engine):
    expected = [engine.chat(text, max_tokens=60) for text in ("Count from 5 to 12.", "Tell me a story.")]
    found = {}

    def run(text):
        found[text] = [engine.chat(text, max_tokens=60) for _ in range(3)]

    threads = [threading.Thread(target=run, args=(text,)) for text in ("Count from 5 to 12.", "Tell me a story.")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"Count from 5 to 12.": [expected[0]] * 3, "Tell me a story.": [expected[1]] * 3}


def test_passes_run_without_the_lock_and_a_busy_session_is_refused(engine):
    session = engine.session()
    session.append(engine.encode("The cat"))
    thread = threading.Thread(target=lambda: session.generate(max_tokens=1500, **LONG))
    thread.start()
    refused = 0
    while thread.is_alive():
        try:
            session.tokens
        except kakeya.FailedPrecondition:
            refused += 1
        time.sleep(0.001)
    assert refused > 10


@pytest.mark.parametrize("way", ["chat", "session", "batch"])
def test_a_thread_that_holds_the_lock_does_not_slow_passes(engine, way):
    session = engine.session()
    session.append(engine.encode("The cat"))
    ways = {
        "chat": lambda: engine.chat("x", max_tokens=300, **LONG),
        "session": lambda: session.generate(max_tokens=300, **LONG),
        "batch": lambda: engine.generate(["The cat"], max_tokens=300, **LONG),
    }
    ended = threading.Event()
    sleep = ctypes.PyDLL(None).usleep  # keeps the lock, and no CPU from the passes

    def hold():
        while not ended.is_set():
            sleep(200_000)  # what taking the lock may cost: taken for each of 300 tokens it came to 14 s

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        began = time.monotonic()
        ways[way]()
        assert time.monotonic() - began < 8
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("way", ["chat", "generate", "stream"])
def test_ctrl_c_ends_a_generation(way):
    child = subprocess.Popen([sys.executable, "-c", INTERRUPTED % way], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    began = time.monotonic()
    output, _ = child.communicate(timeout=60)
    assert output == "interrupted 5, 6, 7, 8, 9, 10, 11, 12.\n"
    assert time.monotonic() - began < 5


def test_astream_gives_the_text_and_ends_with_its_task(engine):
    async def whole():
        return "".join([piece async for piece in engine.astream("Count from 5 to 12.")])

    async def cancelled():
        seen = []

        async def read():
            async for piece in engine.astream("Tell me a story.", max_tokens=8000, **LONG):
                seen.append(piece)

        task = asyncio.create_task(read())
        while len(seen) < 3:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await task
        count = len(seen)
        await asyncio.sleep(0.1)  # the pass that ran then ends
        assert raised.value is not None  # its frames are held, and the memory is free all the same
        return count, len(seen), engine.footprint()

    assert asyncio.run(whole()) == "5, 6, 7, 8, 9, 10, 11, 12."
    gc.collect()  # sessions of other tests, which their errors held
    held = engine.footprint()
    before, after, kept = asyncio.run(cancelled())
    assert before == after >= 3
    assert held["kv_full"] == kept["kv_full"] == 0


def test_an_error_of_a_stream_is_raised_where_it_is_read(engine):
    session = engine.session()
    with pytest.raises(kakeya.FailedPrecondition):
        list(session.stream())


class Free(kakeya.Constraint):
    def fill_mask(self, mask):
        return False

    def advance(self, id):
        return True

    def roll_back(self, count):
        pass


@pytest.mark.parametrize("way", ["engine", "session"])
def test_a_constraint_of_two_generations_is_refused(engine, way):
    rules = Free()
    session, other = engine.session(), engine.session()
    for each in (session, other):
        each.append(engine.encode("The cat"))
    first = {"engine": lambda: engine.stream("x", constraint=rules, **LONG), "session": lambda: session.stream(constraint=rules, **LONG)}[way]()
    next(first)
    calls = [lambda: engine.chat("x", constraint=rules, max_tokens=2), lambda: other.generate(constraint=rules, max_tokens=2)]
    for call in calls:
        with pytest.raises(kakeya.FailedPrecondition, match="^constraint: expected one that no other generation uses"):
            call()
    first.close()
    for call in calls:
        call()
