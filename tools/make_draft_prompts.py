#!/usr/bin/env python3
"""Writes prompts whose answers say much of the prompt again, or little of it, for `kakeya eval spec`.

usage: tools/make_draft_prompts.py edit > eval/data/edit.jsonl
       tools/make_draft_prompts.py summary > eval/data/summary.jsonl

edit: functions of HumanEval (eval/data/humaneval.jsonl) that shall be written again with another name.
summary: passages of a novel (eval/data/prose.jsonl) that shall be summed up.
"""

import json
import pathlib
import sys

DATA = pathlib.Path(__file__).resolve().parent.parent / "eval/data"
EDITS, SUMMARIES = 24, 16
PASSAGE = 1600  # characters, at least; a passage ends with its line


def lines_of(name):
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def edits():
    problems = lines_of("humaneval.jsonl")
    for problem in problems[:: len(problems) // EDITS][:EDITS]:
        code = (problem["prompt"] + problem["canonical_solution"]).strip()
        yield (f"Rename the function {problem['entry_point']} to solve. Write all of the code again, with nothing else changed."
               f"\n\n```python\n{code}\n```")


def summaries():
    for text in lines_of("prose.jsonl"):
        lines = iter(text["prompt"].splitlines(keepends=True))
        for _ in range(SUMMARIES // 4):
            passage = ""
            while len(passage) < PASSAGE:
                passage += next(lines)
            yield f"Summarize this passage in a few sentences.\n\n{passage.strip()}"


def main():
    made = {"edit": edits, "summary": summaries}
    if len(sys.argv) != 2 or sys.argv[1] not in made:
        sys.exit(__doc__)
    for number, prompt in enumerate(made[sys.argv[1]]()):
        print(json.dumps({"id": f"{sys.argv[1]}/{number}", "prompt": prompt}, ensure_ascii=False))


if __name__ == "__main__":
    main()
