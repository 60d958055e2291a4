import contextlib
import json
import os
import pathlib
import re
import subprocess
import threading

import kakeya
import pytest

ROOT = pathlib.Path(os.environ["KAKEYA_ROOT"])
PROGRAM = pathlib.Path(os.environ.get("KAKEYA_PROGRAM", ROOT / "build/release/bin/kakeya"))


def document_blocks():
    """The examples of docs/python.md."""
    text = (ROOT / "docs/python.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@contextlib.contextmanager
def serve(*flags, begins="http"):
    """A server of the demo model; gives the address in its first line that begins so, None if there is none."""
    if not os.access(PROGRAM, os.X_OK):
        pytest.skip(f"there is no {PROGRAM}")
    with subprocess.Popen([PROGRAM, "serve", "--port", "0", "--model", ROOT / "models/demo", *flags],
                          stdout=subprocess.PIPE, text=True) as server:
        line = next((text for text in server.stdout if text.startswith(begins)), "")
        address = next((word.rstrip(":") for word in line.split() if ":" in word), None)
        drain = threading.Thread(target=server.stdout.read)
        drain.start()
        try:
            yield address
        finally:
            server.terminate()
            server.wait(timeout=30)
            drain.join()
    assert server.returncode == 0


@pytest.fixture(scope="session")
def engine():
    return kakeya.Engine(threads=1, pin_threads=False)


@pytest.fixture(scope="session")
def goldens():
    """Answers of an independent implementation, greedy: prompt, prompt_ids, output_ids, text, max_tokens."""
    lines = (ROOT / "models/demo/golden/greedy.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[:6]]
