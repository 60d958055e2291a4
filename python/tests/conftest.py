import json
import os
import pathlib

import kakeya
import pytest

ROOT = pathlib.Path(os.environ["KAKEYA_ROOT"])


@pytest.fixture(scope="session")
def engine():
    return kakeya.Engine(threads=1, pin_threads=False)


@pytest.fixture(scope="session")
def goldens():
    """Answers of an independent implementation, greedy: prompt, prompt_ids, output_ids, text, max_tokens."""
    lines = (ROOT / "models/demo/golden/greedy.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[:6]]
