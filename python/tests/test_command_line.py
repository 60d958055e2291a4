"""The same ids as the command line: greedy, sampled, drafted, in bounded memory, in batches."""

import json
import os
import subprocess

import kakeya
import pytest

from conftest import PROGRAM, ROOT

COUNT = 40 if os.environ.get("KAKEYA_THOROUGH") else 3  # prompts of each of the five ways
SAMPLED = {"temperature": 0.9, "top_k": 50, "top_p": 0.95}
BOUNDED = {"window": 24, "evicted_full": "drop", "evicted_sliding": "drop"}
WAYS = {
    "greedy": ({}, {"draft_length": 0}, ["--draft", "none"]),
    "sampled": ({}, {**SAMPLED, "draft_length": 0},
                ["--draft", "none", "--temperature", "0.9", "--top-k", "50", "--top-p", "0.95"]),
    "drafted": ({}, {"draft_length": 4}, ["--draft-length", "4"]),
    "sampled and drafted": ({}, {**SAMPLED, "draft_length": 4},
                            ["--draft-length", "4", "--temperature", "0.9", "--top-k", "50", "--top-p", "0.95"]),
    "bounded": (BOUNDED, {"draft_length": 0},
                ["--draft", "none", "--window", "24", "--evicted-full", "drop", "--evicted-sliding", "drop"]),
}


def prompt(index):
    return (f"Count from {index} to {index + 9}.", "Tell me a story.",
            f"Remember that the number for the yellow cellar is {index * 37}. What is the number for the yellow cellar?"
            )[index % 3]


def told(index, flags):
    done = subprocess.run([PROGRAM, "run", "--json", "--threads", "1", "--max-tokens", "32", "--seed", str(index),
                           "--model", ROOT / "models/demo", "--prompt", prompt(index), *flags],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["output_ids"]


@pytest.mark.parametrize("way", WAYS)
def test_ids_are_those_of_the_command_line(way):
    if not os.access(PROGRAM, os.X_OK):
        pytest.skip(f"there is no {PROGRAM}")
    of_session, of_generation, flags = WAYS[way]
    engine = kakeya.Engine(threads=1, pin_threads=False, **of_session)
    prompts = [engine.apply_chat_template(prompt(index)) for index in range(COUNT)]
    for index, ids in enumerate(prompts):
        alone = engine.generate([ids], max_tokens=32, seed=index, **of_generation)[0]
        assert alone.ids.tolist() == told(index, flags), prompt(index)
    together = engine.generate(prompts, max_tokens=32, seed=0, **of_generation)
    alone = [engine.generate([ids], max_tokens=32, seed=0, **of_generation)[0] for ids in prompts]
    assert [one.ids.tolist() for one in together] == [one.ids.tolist() for one in alone]
