"""Answers to random JSON schemas, asked for by many clients at once: all valid by the package `jsonschema`, and
the same tokens whatever drafts. usage: structured_test.py KAKEYA [REQUESTS] (tools/test_clients runs it)"""

import asyncio
import json
import random
import sys

import httpx2
import jsonschema

from random_schemas import random_schema
from serving import ROOT, Server

CLIENTS = 32
MOST_TOKENS = 300
VALIDATOR = jsonschema.Draft202012Validator
DRAFTS = ["none", "auto", "ngram", str(ROOT / "models/demo/drafter")]


def problem_of(schema, choice):
    """Why an answer is not what was asked for; None if it is."""
    if choice["finish_reason"] != "stop":
        return "cut" if len(choice["token_ids"]) == MOST_TOKENS else choice["finish_reason"]
    try:
        value = json.loads(choice["message"]["content"])
    except ValueError as error:
        return str(error)
    error = next(VALIDATOR(schema, format_checker=VALIDATOR.FORMAT_CHECKER).iter_errors(value), None)
    return error.message if error else None


async def ask_all(address, requests):
    """The ids of all answers, and what is wrong with some."""
    ids, problems = [None] * requests, []
    numbers = iter(range(requests))

    async def client_of_one(client):
        for number in numbers:
            choose = random.Random(number // 4)  # four answers to each schema
            schema = random_schema(choose, 3)
            body = {"messages": [{"role": "user", "content": f"Question {number % 37}: say something."}],
                    "max_tokens": MOST_TOKENS, "seed": number, "temperature": [0, 0.8, 1.5][number % 3],
                    "return_token_ids": True, "guided_json": schema}
            response = await client.post("/v1/chat/completions", json=body)
            if response.status_code != 200:
                problems.append((number, response.text))
                continue
            choice = response.json()["choices"][0]
            ids[number] = choice["token_ids"]
            problem = problem_of(schema, choice)
            if problem:
                problems.append((number, problem))

    async with httpx2.AsyncClient(base_url=address, timeout=300) as client:
        await asyncio.gather(*[client_of_one(client) for _ in range(CLIENTS)])
    return ids, problems


def answers(kakeya, draft, requests):
    server = Server(kakeya, "--draft", draft)
    try:
        return asyncio.run(ask_all(server.url, requests))
    finally:
        server.end()


def main():
    kakeya = sys.argv[1]
    requests = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    plain = None
    for draft in DRAFTS:
        ids, problems = answers(kakeya, draft, requests)
        plain = plain or ids
        cut = sum(problem == "cut" for _, problem in problems)
        wrong = [one for one in problems if one[1] != "cut"]
        other = sum(one != first for one, first in zip(ids, plain))
        print(f"structured_test: {requests} requests with --draft {draft}: {len(wrong)} invalid, {cut} cut, "
              f"{other} other than without drafts")
        if wrong or other or cut > requests // 20:
            sys.exit(f"structured_test: expected valid answers and the same tokens, got {wrong[:3]}")


main()
