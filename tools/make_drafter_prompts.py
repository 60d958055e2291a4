#!/usr/bin/env python3
"""Makes the prompts of docs/training.md, "On 200 fresh prompts": train.jsonl to train a drafter on, and
fresh-*.jsonl, 200 others of the same four kinds, to ask before and after. A prompt a line, as JSON.

usage: tools/make_drafter_prompts.py SETS WORDS OUT

SETS holds the public files gsm8k/train.jsonl.xz (openai/grade-school-math), spec_bench/question.jsonl
(hemingkx/Spec-Bench) and humaneval/HumanEval.jsonl.gz (openai/human-eval); WORDS is a list of English words.
"""
import gzip
import json
import lzma
import pathlib
import random
import sys

FRESH = 50  # of each kind
MADE_UP = 700
LONGEST = 4000  # characters
NAMES = "Anna Ben Clara David Emma Frank Grace Henry Ida Jack Kate Leo Mia Noah Olga Paul Rosa Sam Tina Victor".split()
TOWNS = "Paris Rome Oslo Lima Cairo Berlin Tokyo Madrid Delhi Boston".split()


def made_up(pick, words):
    """A request of the kinds that the demo model was trained on."""
    kind = pick.randrange(8)

    def some(count):
        return " ".join(pick.choice(words) for _ in range(count))
    if kind == 0:
        first = pick.randrange(60)
        return f"Count from {first} to {first + pick.randrange(4, 12)}."
    if kind == 1:
        return f"Spell the word {pick.choice(words)}."
    if kind == 2:
        return f"Repeat: {some(pick.randrange(4, 14))}"
    if kind == 3:
        return f"What is {pick.randrange(80)} plus {pick.randrange(80)}?"
    if kind == 4:
        return (f"Write a Python function that {pick.choice(['adds', 'subtracts', 'multiplies', 'compares'])} two "
                f"numbers, called {pick.choice(words)}.")
    if kind == 5:
        return (f"Write a JSON object for {pick.choice(NAMES)}, who is {pick.randrange(18, 80)} years old and lives in "
                f"{pick.choice(TOWNS)}.")
    if kind == 6:
        return f"What is the weather in {pick.choice(TOWNS)}?"
    door = pick.choice(["red", "blue", "green", "black", "white"])
    return (f"{some(20)}. The secret code for the {door} door is {pick.randrange(1000, 9999)}. {some(20)}. What is the "
            f"secret code for the {door} door?")


def prompts_by_kind(sets, words):
    pick = random.Random(20261126)
    with lzma.open(sets / "gsm8k/train.jsonl.xz", "rt", encoding="utf-8") as lines:
        problems = [json.loads(line)["question"] for line in lines]
    pick.shuffle(problems)
    with open(sets / "spec_bench/question.jsonl", encoding="utf-8") as lines:
        questions = [json.loads(line)["turns"][0] for line in lines]
    questions = [question for question in questions if len(question) < LONGEST]
    pick.shuffle(questions)
    with gzip.open(sets / "humaneval/HumanEval.jsonl.gz", "rt", encoding="utf-8") as lines:
        functions = ["Complete this Python function.\n\n" + json.loads(line)["prompt"] for line in lines]
    pick.shuffle(functions)
    requests = []
    while len(requests) < MADE_UP:
        request = made_up(pick, words)
        if request not in requests:
            requests.append(request)
    return pick, {"gsm8k": problems[:1150], "spec-bench": questions, "humaneval": functions, "made-up": requests}


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sets, words, out = map(pathlib.Path, sys.argv[1:])
    pick, kinds = prompts_by_kind(sets, words.read_text(encoding="utf-8").split())
    fresh = {prompt for prompts in kinds.values() for prompt in prompts[:FRESH]}
    train = [prompt for prompts in kinds.values() for prompt in prompts[FRESH:]]
    if fresh & set(train):
        sys.exit("a fresh prompt is trained on")
    pick.shuffle(train)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "train.jsonl", "w", encoding="utf-8") as lines:
        for prompt in train:
            lines.write(json.dumps({"prompt": prompt}) + "\n")
    for kind, prompts in kinds.items():
        with open(out / f"fresh-{kind}.jsonl", "w", encoding="utf-8") as lines:
            for index, prompt in enumerate(prompts[:FRESH]):
                lines.write(json.dumps({"id": f"{kind}-{index}", "prompt": prompt}) + "\n")
    print(f"{len(train)} prompts to train on, {len(fresh)} others")


main()
