#!/usr/bin/env python3
"""Writes eval/data/needle.jsonl: passages of public-domain texts with one sentence to be found in each.

usage: tools/make_needle_prompts.py TEXT.txt [TEXT.txt ...] > eval/data/needle.jsonl

Each line is {"id", "prompt", "answer"}. A prompt is a passage of one of the texts (they take turns), its
white space collapsed, with "The secret code for the COLOUR OBJECT is NNNN." put between two of its words,
and the question for that code at the end; the answer is the code. The number of tokens grows geometrically
from about 64 to 1,500 by the demo model's tokenizer, chat template included. The same texts in the same
order give the same file: all choices come from one seeded generator.
"""

import json
import pathlib
import random
import sys

SEED = 2026
PROMPTS = 40
SHORTEST, LONGEST = 64, 1500  # tokens
# Of the demo model's tokenizer on prose; and what the template, the needle and the question take.
CHARACTERS_PER_TOKEN = 2.85
FRAME_TOKENS = 40
COLOURS = ["red", "blue", "green", "yellow", "white", "black", "brown", "purple", "orange", "grey"]
OBJECTS = ["door", "vault", "harbor", "cellar", "attic", "garage", "castle", "drawer", "chest", "tower"]


def passage(generator, text, characters):
    """Whole words of `text` from a random place on."""
    start = generator.randrange(len(text) - characters - 1000)
    start = text.index(" ", start) + 1
    return text[start:text.index(" ", start + characters)]


def needle_prompt(generator, text, tokens):
    characters = max(20, round((tokens - FRAME_TOKENS) * CHARACTERS_PER_TOKEN))
    words = passage(generator, text, characters).split(" ")
    thing = f"{generator.choice(COLOURS)} {generator.choice(OBJECTS)}"
    code = f"{generator.randrange(1000, 10000)}"
    words.insert(generator.randrange(len(words) + 1), f"The secret code for the {thing} is {code}.")
    return f"{' '.join(words)}\n\nWhat is the secret code for the {thing}?", code


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    texts = [" ".join(pathlib.Path(name).read_text(encoding="utf-8").split()) for name in sys.argv[1:]]
    generator = random.Random(SEED)
    for index in range(PROMPTS):
        tokens = round(SHORTEST * (LONGEST / SHORTEST) ** (index / (PROMPTS - 1)))
        prompt, answer = needle_prompt(generator, texts[index % len(texts)], tokens)
        line = {"id": f"needle/{index}", "prompt": prompt, "answer": answer}
        print(json.dumps(line, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
