"""Processes that are forked while the package is in use."""

import subprocess
import sys

import pytest

# The child does what `%s` says, beside a parent whose threads generate.
FORKED = """
import os, sys, threading, time
import kakeya
LONG = {"max_tokens": 8000, "ignore_model_stop_ids": True}
engine = kakeya.Engine(threads=2, pin_threads=False)
session, busy = engine.session(), engine.session()
for each in (session, busy):
    each.append(engine.encode("The cat"))
pieces, read = session.stream(**LONG), engine.stream("x", **LONG)
next(pieces), next(read)

def loop(call):
    while True:
        call()

for call in (lambda: engine.chat("x", max_tokens=50, ignore_model_stop_ids=True), lambda: engine.encode("The cat. " * 3000)):
    threading.Thread(target=loop, args=(call,), daemon=True).start()
time.sleep(0.3)
children = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        %s
        sys.exit(0)
    children.append(child)
ends = time.monotonic() + 20
codes = []
for child in children:
    ended, status = 0, 0
    while not ended and time.monotonic() < ends:
        time.sleep(0.02)
        ended, status = os.waitpid(child, os.WNOHANG)
    codes.append(os.waitstatus_to_exitcode(status) if ended else "hangs")
    if not ended:
        os.kill(child, 9)
print(*codes)
"""
REFUSED = """try:
            %s
        except kakeya.FailedPrecondition as error:
            assert str(error).startswith("the engine was opened before this process was forked"), error
        else:
            sys.exit(5)"""


def children_of(program):
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED % program], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=100, check=False)
    return ended.stdout, ended.stderr, ended.returncode


@pytest.mark.parametrize("call", [
    "engine.chat('x', max_tokens=2)", "engine.generate(['x'], max_tokens=2)", "engine.encode('x')", "engine.decode([2])", "engine.session()",
    "engine.embed('x')", "engine.apply_chat_template('x')", "engine.footprint()", "busy.generate(max_tokens=2)", "list(busy.stream(max_tokens=2))",
    "busy.append([2])", "busy.tokens", "busy.fork()", "next(pieces)", "next(read)", "engine.call('x', [])"])
def test_what_the_parent_opened_is_refused_in_a_child(call):
    assert children_of(REFUSED % call) == ("0 0 0 0\n", "", 0)


def test_a_child_that_lets_all_go_ends():
    assert children_of("del engine, session, busy, pieces, read") == ("0 0 0 0\n", "", 0)


def test_a_child_opens_an_engine_of_its_own():
    program = "assert kakeya.Engine(threads=1, pin_threads=False).chat('Count from 5 to 12.') == '5, 6, 7, 8, 9, 10, 11, 12.'"
    assert children_of(program) == ("0 0 0 0\n", "", 0)
