#!/usr/bin/env python3
"""Writes passages of public-domain texts with one sentence to be found in each, as prompts.

usage: tools/make_needle_prompts.py TEXT.txt [TEXT.txt ...] > eval/data/needle.jsonl
       tools/make_needle_prompts.py --lengths 512,1024 --number 8 TEXT.txt ... > eval/data/needle_long.jsonl

Each line is {"id", "prompt", "answer"}, with --lengths also "length". A prompt is a passage of one of the texts (they take turns), its
white space collapsed, with "The secret code for the COLOUR OBJECT is NNNN." put between two of its words,
and the question for that code at the end; the answer is the code. The number of tokens grows geometrically
from about 64 to 1,500 by the demo model's tokenizer, chat template included; with --lengths there are
--number prompts of about each number of tokens instead. The same texts in the same order give the same
file: all choices come from one seeded generator.
"""

import argparse
import json
import pathlib
import random
import sys

SEED = 2026
PROMPTS = 40
SHORTEST, LONGEST = 64, 1500  # tokens
# Of the demo model's tokenizer on plays; and what the template, the needle and the question take.
CHARACTERS_PER_TOKEN = 2.85
FRAME_TOKENS = 40
COLOURS = ["red", "blue", "green", "yellow", "white", "black", "brown", "purple", "orange", "grey"]
OBJECTS = ["door", "vault", "harbor", "cellar", "attic", "garage", "castle", "drawer", "chest", "tower"]


def passage(generator, text, characters):
    """Whole words of `text` from a random place on."""
    start = generator.randrange(len(text) - characters - 1000)
    start = text.index(" ", start) + 1
    return text[start:text.index(" ", start + characters)]


def needle_prompt(generator, text, tokens, characters_per_token):
    characters = max(20, round((tokens - FRAME_TOKENS) * characters_per_token))
    words = passage(generator, text, characters).split(" ")
    thing = f"{generator.choice(COLOURS)} {generator.choice(OBJECTS)}"
    code = f"{generator.randrange(1000, 10000)}"
    words.insert(generator.randrange(len(words) + 1), f"The secret code for the {thing} is {code}.")
    return f"{' '.join(words)}\n\nWhat is the secret code for the {thing}?", code


def growing_lengths():
    """(id, tokens, further fields) of the prompts, from the shortest to the longest."""
    for index in range(PROMPTS):
        yield f"needle/{index}", round(SHORTEST * (LONGEST / SHORTEST) ** (index / (PROMPTS - 1))), {}


def given_lengths(lengths, number):
    for length in lengths:
        for index in range(number):
            yield f"needle/{length}/{index}", length, {"length": length}


def lengths_of(text):
    lengths = [int(part) for part in text.split(",")]
    if min(lengths) < SHORTEST:
        raise argparse.ArgumentTypeError(f"expected lengths from {SHORTEST} on, got {min(lengths)}")
    return lengths


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=lengths_of, metavar="N,N,...")
    parser.add_argument("--number", type=int, default=8, help="prompts of each length (default: 8)")
    parser.add_argument("--characters-per-token", type=float, action="append", metavar="X",
                        help=f"of each text, in their order (default: {CHARACTERS_PER_TOKEN})")
    parser.add_argument("texts", nargs="+", metavar="TEXT.txt")
    arguments = parser.parse_args()
    rates = arguments.characters_per_token or [CHARACTERS_PER_TOKEN] * len(arguments.texts)
    if len(rates) != len(arguments.texts):
        parser.error(f"expected --characters-per-token {len(arguments.texts)} times, got {len(rates)}")
    texts = [" ".join(pathlib.Path(name).read_text(encoding="utf-8").split()) for name in arguments.texts]
    generator = random.Random(SEED)
    plan = given_lengths(arguments.lengths, arguments.number) if arguments.lengths else growing_lengths()
    for index, (name, tokens, fields) in enumerate(plan):
        turn = index % len(texts)
        prompt, answer = needle_prompt(generator, texts[turn], tokens, rates[turn])
        line = {"id": name, **fields, "prompt": prompt, "answer": answer}
        print(json.dumps(line, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
