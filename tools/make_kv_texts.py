#!/usr/bin/env python3
"""Writes the texts of `kakeya eval kv`, four a set, as lines of {"id", "prompt"}.

usage: tools/make_kv_texts.py wikitext2 wiki.test.txt > eval/data/wikitext2.jsonl
       tools/make_kv_texts.py code HumanEval.jsonl > eval/data/code.jsonl
       tools/make_kv_texts.py prose Dickens_Hard.txt > eval/data/prose.jsonl

Inputs may be compressed (.gz, .xz). wikitext2: the beginning of the file, cut after whole lines into pieces
of 30,000 bytes or a little more. prose: the same of a novel, in pieces of 24,000. code: the problems in order, each its prompt and its solution, an empty
line between two, cut after whole problems into pieces of 16,000 characters or a little more.
"""

import gzip
import json
import lzma
import pathlib
import sys

TEXTS = 4
WIKITEXT_BYTES = 30000
PROSE_BYTES = 24000
CODE_CHARACTERS = 16000


def read_lines(name):
    openers = {".gz": gzip.open, ".xz": lzma.open}
    with openers.get(pathlib.Path(name).suffix, open)(name, "rt", encoding="utf-8", newline="\n") as file:
        return file.readlines()


def pieces(parts, enough):
    """The first TEXTS texts of whole parts, each closed by the part with which it is long enough."""
    text = ""
    count = 0
    for part in parts:
        text += part
        if enough(text):
            yield text
            text = ""
            count += 1
            if count == TEXTS:
                return
    sys.exit(f"make_kv_texts: the input is enough for {count} texts, expected {TEXTS}")


def wikitext2(lines):
    return pieces(lines, lambda text: len(text.encode()) >= WIKITEXT_BYTES)


def prose(lines):
    return pieces(lines, lambda text: len(text.encode()) >= PROSE_BYTES)


def code(lines):
    problems = (json.loads(line) for line in lines)
    parts = (problem["prompt"] + problem["canonical_solution"] + "\n" for problem in problems)
    return pieces(parts, lambda text: len(text) >= CODE_CHARACTERS)


def main():
    makers = {"wikitext2": wikitext2, "code": code, "prose": prose}
    if len(sys.argv) != 3 or sys.argv[1] not in makers:
        print(__doc__, file=sys.stderr)
        return 2
    for index, text in enumerate(makers[sys.argv[1]](read_lines(sys.argv[2]))):
        print(json.dumps({"id": f"{sys.argv[1]}/{index}", "prompt": text}, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
