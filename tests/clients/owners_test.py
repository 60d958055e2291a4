"""What is one key's nobody else reads, pushes out or delays; what two servers make has names of its own.
usage: owners_test.py KAKEYA (tools/test_clients runs it)"""

import concurrent.futures
import json
import sys
import tempfile
import urllib.error
import urllib.request

from serving import Replica, make_keys

KAKEYA = sys.argv[1]
RESPONSES = 1030  # more than are kept of all
SECRET = "The door opens with 4711. " + "Say nothing of it to anybody. " * 20


def ask(url, path, key=None, body=None):
    """The status and the body of an answer."""
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    request = urllib.request.Request(url + path, body and json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def response(url, key=None):
    return ask(url, "/v1/responses", key, {"input": "a", "max_output_tokens": 1})[1]["id"]


def cached_tokens(url, key, **fields):
    body = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 1, **fields}
    return ask(url, "/v1/chat/completions", key, body)[1]["usage"]["prompt_tokens_details"]["cached_tokens"]


def prompts_stay_secret(url, ann, bob):
    cached_tokens(url, ann)
    assert cached_tokens(url, ann) > 100
    assert cached_tokens(url, bob) == 0, "bob has seen that ann asked the same"
    assert cached_tokens(url, ann, cache_salt="a") == 0


def nobody_is_more_urgent(url, _, bob):
    status, refused = ask(url, "/v1/chat/completions", bob, {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1, "priority": -1000})
    assert status == 400 and refused["error"]["param"] == "priority", (status, refused)


def responses_stay(url, ann, bob):
    kept = response(url, ann)
    assert ask(url, f"/v1/responses/{kept}", bob)[0] == 404
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: response(url, bob), range(RESPONSES)))
    assert ask(url, f"/v1/responses/{kept}", ann)[0] == 200, "bob has pushed out ann's response"


def names_are_of_one_server():
    replicas = [Replica(KAKEYA) for _ in range(2)]
    try:
        for replica in replicas:
            replica.wait_until_ready()
        ids = [response(replica.url) for replica in replicas for _ in range(4)]
        assert len(set(ids)) == len(ids), ids
    finally:
        for replica in replicas:
            replica.kill()


def main():
    names_are_of_one_server()
    with tempfile.TemporaryDirectory() as folder:
        ann, bob = make_keys(KAKEYA, folder, "ann", "bob")
        server = Replica(KAKEYA, "--keys", f"{folder}/keys")
        failed = []
        try:
            server.wait_until_ready()
            for attack in (prompts_stay_secret, nobody_is_more_urgent, responses_stay):
                try:
                    attack(server.url, ann, bob)
                except AssertionError as failure:
                    failed.append((attack.__name__, failure))
        finally:
            server.kill()
    assert not failed, failed
    print("owners: keys keep what is theirs")


main()
