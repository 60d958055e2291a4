"""How a process ends while the package is in use: by itself, by an exception, by Ctrl-C."""

import signal
import subprocess
import sys
import time

import pytest
from kakeya._core import has_grammars

PRELUDE = """
import itertools, signal, sys, threading, time
import kakeya
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where tests run in the background
LONG = {"max_tokens": 8000, "ignore_model_stop_ids": True}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
engine = kakeya.Engine(threads=1, pin_threads=False)
ids = engine.encode("The cat sat on the mat. " * 100).tolist()

def begun():
    session = engine.session()
    session.append(ids[:8])
    return session

class Free(kakeya.Constraint):
    def fill_mask(self, mask):
        return False
    def advance(self, id):
        return True
    def roll_back(self, count):
        pass

class Slow(kakeya.Constraint):
    def fill_mask(self, mask):
        time.sleep(20)
        return False
    def advance(self, id):
        return True
    def roll_back(self, count):
        pass

class Ids(list):
    def __getitem__(self, index):
        return super().__getitem__(index)
    def __iter__(self):
        return (id for id in super().__iter__())

counter = itertools.count()
def schema():
    return {"type": "object", "properties": {f"field{next(counter)}_{i}": {"type": "string", "maxLength": 9} for i in range(30)}}
"""
# Each is long, or begun again at once.
CALLS = {
    "chat": "engine.chat('x', **LONG)",
    "generate": "engine.generate(['The cat', 'A dog'], **LONG)",
    "step": "list(engine.stream('x', **LONG))",
    "session": "begun().generate(**LONG)",
    "stream": "list(begun().stream(**LONG))",
    "constraint": "begun().generate(constraint=Free(), **LONG)",
    "stream with a constraint": "list(begun().stream(constraint=Free(), **LONG))",
    "prompt": "s = begun(); s.append(ids); s.generate(max_tokens=1)",
    "append": "s = begun(); s.append(Ids(ids)); s.sync(ids)",
    "score": "begun().score(ids)",
    "logits": "begun().logits(ids[:200])",
    "hidden": "begun().hidden(ids)",
    "embed": "engine.embed(ids)",
    "encode": "engine.encode('The cat sat on the mat. ' * 5000)",
    "template": "engine.apply_chat_template('x', tools=[WEATHER] * 50)",
    "load": "kakeya.Engine(threads=1, pin_threads=False)",
    "load with progress": "kakeya.Engine(threads=1, pin_threads=False, on_progress=lambda done, total: sum(range(1000)))",
    "estimate": "kakeya.Engine.estimate()",
    "schema": "engine.chat('x', max_tokens=1, json_schema=schema())",
    "call": "engine.call('x', [WEATHER], max_tokens=1)",
    "fork": "begun().fork().truncate(3)",
}
NEEDS_GRAMMARS = {"schema"}


def calls(*without):
    return [pytest.param(name, marks=pytest.mark.skipif(name in NEEDS_GRAMMARS and not has_grammars, reason="no grammars"))
            for name in CALLS if name not in without]


def run(program):
    return subprocess.run([sys.executable, "-c", PRELUDE + program], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, check=False)


def loop_of(name):
    return f"""
def loop():
    while True:
        {CALLS[name]}
"""


@pytest.mark.parametrize("name", calls())
def test_the_interpreter_ends_while_a_daemon_thread_is_in_a_call(name):
    ended = run(loop_of(name) + "for _ in range(2): threading.Thread(target=loop, daemon=True).start()\ntime.sleep(0.4)")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_interpreter_ends_while_code_of_python_within_a_pass_sleeps():
    began = time.monotonic()
    ended = run("threading.Thread(target=lambda: begun().generate(constraint=Slow(), **LONG), daemon=True).start()\ntime.sleep(0.4)")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert time.monotonic() - began < 10


HALF_READ = {
    "session": "pieces = begun().stream(**LONG)",
    "session with a constraint": "pieces = begun().stream(constraint=Free(), **LONG)",
    "engine": "pieces = engine.stream('x', **LONG)",
}


@pytest.mark.parametrize("way", HALF_READ)
@pytest.mark.parametrize("end, code", [("pass", 0), ("sys.exit(3)", 3), ("1 / 0", 1), ("signal.raise_signal(signal.SIGINT)", -2)])
def test_the_interpreter_ends_while_a_stream_is_half_read(way, end, code):
    ended = run(f"{HALF_READ[way]}\nnext(pieces)\n{end}")
    assert ended.returncode == code
    assert ended.stderr.count("Error") == (1 if end == "1 / 0" else 0) and "terminate" not in ended.stderr


@pytest.mark.parametrize("way", HALF_READ)
@pytest.mark.parametrize("end, code", [("1 / 0", 1), ("signal.raise_signal(signal.SIGINT)", -2)])
def test_the_interpreter_ends_by_the_loop_over_a_stream(way, end, code):
    assert run(f"{HALF_READ[way]}\nfor piece in pieces:\n    {end}").returncode == code


# One that loads has little of its own to wait for; the others come to a next step at once.
@pytest.mark.parametrize("name", calls())
def test_ctrl_c_ends_a_call_as_it_ends_python(name):
    program = PRELUDE + loop_of(name) + "print('begun', flush=True)\nloop()\n"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "begun\n"
    time.sleep(0.3)
    child.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, errors = child.communicate(timeout=60)
    assert child.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert time.monotonic() - began < 3


def test_calls_behind_the_end_are_refused():
    ended = run("""
import atexit
def late():
    try:
        engine.chat("x")
    except kakeya.FailedPrecondition as error:
        print(error)
kakeya._core.end_calls()
late()
""")
    assert ended.returncode == 0
    assert ended.stdout == "the interpreter ends: the package takes no more calls\n"
