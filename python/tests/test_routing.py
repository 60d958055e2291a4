"""The rule by which requests find their replicas; tests/clients/routing_test.py compares HAProxy's with it."""

import json

import pytest

from kakeya._routing import Route, route_of

DIGITS = "0123456789abcdef" * 2
CHAT = "/v1/chat/completions"


def route(path, body=None, **fields):
    named = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in fields.items()]
    return route_of(path, named, json.dumps(body).encode() if body is not None else b"")


def conversation(body, path=CHAT, **fields):
    return route(path, body, **fields).conversation


QUESTION = {"role": "user", "content": "a"}


def test_ids_name_their_replica():
    kept = f"resp_gpu7-8080_{DIGITS}"
    assert route(f"/v1/responses/{kept}") == Route("gpu7-8080", None)
    assert route(f"/v1/responses/{kept}/input_items") == Route("gpu7-8080", None)
    assert route(f"/v1/sessions/sess-a-b_{DIGITS}/fork", {}, X_Session_ID="s") == Route("a-b", "s")
    assert route("/v1/responses", {"previous_response_id": kept, "input": "a"}).replica == "gpu7-8080"
    assert route(CHAT, {"previous_response_id": kept}).replica is None


@pytest.mark.parametrize("kept", ["", "resp_1", f"resp_{DIGITS}", f"resp_A_{DIGITS}", f"resp_a_{DIGITS}0", f"resp_a_b_{DIGITS}",
                                  f"chatcmpl_a_{DIGITS}", f"resp_{'a' * 49}_{DIGITS}", f"resp__{DIGITS}"])
def test_other_ids_name_none(kept):
    assert route(f"/v1/responses/{kept}").replica is None
    assert route("/v1/responses", {"previous_response_id": kept}).replica is None


def test_the_first_name_counts():
    body = {"messages": [QUESTION], "safety_identifier": "c"}
    assert conversation(body) == "c"
    assert conversation({**body, "user": "b"}) == "b"
    assert conversation({**body, "user": "b", "prompt_cache_key": "a"}) == "a"
    assert conversation({**body, "user": "", "prompt_cache_key": 7}) == "c"
    assert conversation(body, X_Session_ID="d") == "d"
    assert conversation(body, X_Session_ID="d", Session_ID="e") == "e"
    assert conversation(body, X_Claude_Code_Session_ID="f", Session_ID="e") == "f"
    assert conversation(body, X_Claude_Code_Session_ID="f", X_Dynamo_Session_ID="g") == "g"
    assert conversation(body, X_Session_ID="d", Session_ID="") == "d"


def test_else_the_first_message_with_its_system_text():
    later = [{"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "z"}]}
    first = conversation({"messages": [QUESTION]})
    assert first
    assert conversation({"messages": [QUESTION, *later]}) == first
    assert conversation({"messages": [parts, *later]}) == first
    assert conversation({"input": "a"}, "/v1/responses") == first
    assert conversation({"messages": [{"role": "user", "content": "b"}]}) != first
    for role in ("system", "developer"):
        system = {"role": role, "content": "s"}
        assert conversation({"messages": [system, QUESTION]}) == conversation({"messages": [system, parts, *later]})
        assert conversation({"messages": [system, QUESTION]}) != conversation({"messages": [system, later[1]]})
    for more in ({"system": "s"}, {"system": [{"type": "text", "text": "s"}]}, {"instructions": "s"}):
        assert conversation({**more, "messages": [QUESTION]}) != first


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"messages":[]}', b'{"messages":[1]}', b'{"messages":{"0":1}}',
                                  b'{"messages":[{"content":[]}]}', b'{"messages":[{"content":[1]}]}', b'{"messages":[{"content":null}]}'])
def test_what_names_nothing_goes_anywhere(body):
    assert route_of(CHAT, [], body) == Route(None, None)


def test_embeddings_and_completions_are_no_conversations():
    assert route("/v1/embeddings", {"input": "a"}) == Route(None, None)
    assert route("/v1/completions", {"prompt": "a"}) == Route(None, None)
    assert route("/v1/completions", {"prompt": "a", "user": "b"}) == Route(None, "b")
