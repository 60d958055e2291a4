"""Random texts that forms allow: of the official suite of JSON Schema, of what generators of schemas write, and of
random schemas. Each can be read by Python, is valid by the package `jsonschema` where its schema is wholly enforced, and
is no longer than its form's bound; masks are quick. usage: form_walks_test.py FORM_WALKS [TOKENS] (tools/test_clients
runs it)"""

import collections
import concurrent.futures
import json
import os
import random
import subprocess
import sys

import jsonschema

from random_schemas import random_schema
from serving import ROOT

DATA = ROOT / "tests/data"
VALIDATORS = {"draft2020-12": jsonschema.Draft202012Validator, "draft7": jsonschema.Draft7Validator}
# Masks that a machine was slow at, of all: one of them is no promise broken, a form of such masks is.
MOST_MASK_MS = 20
MOST_SLOW_FORMS = 0.002
# Rules that may go on for ever, by the words that they are made with: texts without maxLength, names of further
# members, arrays without maxItems, objects with further members, any value, definitions that lead to themselves,
# expressions with * or +.
MAY_BE_ENDLESS = {"string", "characters", "key", "key_rest", "items", "tail", "array", "others", "members", "object", "first", "more",
                  "value", "definition", "any", "any_of", "text"}


def forms(choose):
    """(name, validator, schema, close_objects) of all forms, the random ones without end."""
    for draft, validator in VALIDATORS.items():
        for name, schema, _ in json.loads((DATA / f"json_schema_suite/{draft}.json").read_text()):
            yield f"{draft}: {name}", validator, schema, False
    for file in ["python.json", "others.json"]:
        for name, schema in json.loads((DATA / "json_schemas" / file).read_text()):
            has_tuples = '"items": [' in json.dumps(schema)  # as draft 7 has them
            yield name, VALIDATORS["draft7" if has_tuples else "draft2020-12"], schema, True
    for number in range(10**9):
        yield f"random {number}", VALIDATORS["draft2020-12"], random_schema(choose, 3), True


def problem_of(validator, schema, report, text):
    """Why a text is not what its form promises; None if it is."""
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"cannot be read: {error}"
    if report["most"] is not None and len(text) > report["most"]:
        return f"has {len(text)} characters, of at most {report['most']}"
    if report["notes"]:
        return None
    error = next(validator(schema, format_checker=validator.FORMAT_CHECKER).iter_errors(value), None)
    return f"is not valid: {error.message[:200]}" if error else None


def walk(program, seed, tokens):
    """Counts of what `tokens` of walks gave."""
    counts = collections.Counter()
    process = subprocess.Popen([program, str(seed)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for name, validator, schema, close_objects in forms(random.Random(seed)):
        if counts["tokens"] >= tokens:
            break
        form = {"schema": schema, "close_objects": close_objects, "tokens": max(100, tokens // 10_000)}
        process.stdin.write(json.dumps(form) + "\n")
        process.stdin.flush()
        report = json.loads(process.stdout.readline())
        counts["forms"] += 1
        if "broken" in report:
            sys.exit(f"form_walks_test: {name} {json.dumps(schema)}: {report['broken']}")
        if "refused" in report:
            counts["refused"] += 1
            continue
        counts["tokens"] += report["tokens"]
        counts["texts"] += len(report["texts"])
        counts["bounded"] += report["most"] is not None
        counts["slow"] += report["slowest_ms"] > MOST_MASK_MS
        if not set(report["endless"]) <= MAY_BE_ENDLESS:
            sys.exit(f"form_walks_test: {name} {json.dumps(schema)}: goes on for ever: {report['endless']}")
        for text in report["texts"]:
            problem = problem_of(validator, schema, report, text)
            if problem:
                sys.exit(f"form_walks_test: {name} {json.dumps(schema)} (seed {seed}): {text!r} {problem}")
    process.stdin.close()
    if process.wait() != 0:
        sys.exit(f"form_walks_test: expected form_walks to end with 0, got {process.returncode}")
    return counts


def main():
    program = sys.argv[1]
    tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 200_000
    walkers = os.cpu_count()
    with concurrent.futures.ProcessPoolExecutor(walkers) as pool:
        all_counts = sum(pool.map(walk, [program] * walkers, range(1, walkers + 1), [tokens // walkers] * walkers),
                         collections.Counter())
    print(f"form_walks_test: {all_counts['tokens']} tokens of {all_counts['forms']} forms, {all_counts['refused']} of them refused, "
          f"{all_counts['bounded']} with a longest text: {all_counts['texts']} texts, all as promised; {all_counts['slow']} forms with a "
          f"mask over {MOST_MASK_MS} ms")
    if all_counts["slow"] > MOST_SLOW_FORMS * all_counts["forms"] + 1:
        sys.exit("form_walks_test: expected quick masks")


if __name__ == "__main__":
    main()
