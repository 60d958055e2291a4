"""Names for type checkers against those that the engine takes."""

import re
import time
import typing

import kakeya
import pytest
from kakeya import _options


@pytest.mark.parametrize("names, call", [
    (_options.GenerateOptions, lambda engine, wrong: engine.generate([[2]], **wrong)),
    (_options.SessionOptions, lambda engine, wrong: engine.session(**wrong)),
    (_options.ChatOptions, lambda engine, wrong: engine.apply_chat_template("x", **wrong)),
    (_options.EmbeddingOptions, lambda engine, wrong: engine.embed("x", **wrong)),
    (_options.EngineOptions, lambda engine, wrong: kakeya.Engine(**wrong)),
    (_options.Message, lambda engine, wrong: engine.apply_chat_template([{"role": "user", "content": "x", **wrong}])),
])
def test_every_name_is_known_to_both(engine, names, call):
    with pytest.raises(TypeError) as raised:
        call(engine, {"wrong": 1})
    known = set(re.search("expected (.*)$", str(raised.value))[1].split(", ")) - {"model"}
    assert known == set(typing.get_type_hints(names))


MANY = range(10**9)


class Liar(list):
    def __iter__(self):
        return iter(MANY)


@pytest.mark.parametrize("ids", [MANY, Liar([1])])
@pytest.mark.parametrize("call", ["append", "sync", "score", "logits", "hidden", "generate", "embed", "decode", "stop_ids"])
def test_more_token_ids_than_there_is_room_for_are_not_read(engine, call, ids):
    session = engine.session(context=64)
    session.append([2])
    calls = {"generate": lambda: engine.generate([ids]), "embed": lambda: engine.embed(ids), "decode": lambda: engine.decode(ids),
             "stop_ids": lambda: session.generate(stop_ids=ids)}
    began = time.monotonic()
    with pytest.raises(kakeya.ResourceExhausted, match="token ids: expected at most [0-9]+ .*, got [0-9]+"):
        calls.get(call, lambda: getattr(session, call)(ids))()
    assert time.monotonic() - began < 5
    assert session.tokens.tolist() == [2]


def test_zero_is_not_the_default():
    options = {"threads": 1, "pin_threads": False, "draft": "none", "context": 2048, "evicted_full": "drop", "evicted_sliding": "drop"}
    engine = kakeya.Engine(window=128, sink=64, **options)
    assert engine.session(sink=0).footprint()["kv_full"] < engine.session().footprint()["kv_full"]
    with pytest.raises(kakeya.InvalidArgument, match="rows can be dropped only behind a window"):
        engine.session(window=0)
    assert engine.generate(["The cat"], max_tokens=0)[0].ids.size == 0
    assert engine.generate(["The cat"], max_tokens=3, repetition_penalty=1.0, top_k=0, seed=0, draft_length=0)[0].ids.size == 3


def test_full_layers_in_calibrated_codes():
    options = {"threads": 1, "pin_threads": False, "draft": "none", "context": 2048}
    engine = kakeya.Engine(kv_full="k5v5", **options)
    plain = kakeya.Engine(**options)
    assert engine.session().footprint()["codes"] > 0
    assert engine.chat("Count from 5 to 12.", max_tokens=40) == plain.chat("Count from 5 to 12.", max_tokens=40)
    with pytest.raises(kakeya.InvalidArgument, match="kv_exact must be 1"):
        engine.session(kv_exact=0)
    with pytest.raises(kakeya.Error, match="nowhere"):
        kakeya.Engine(kv_full="k4v4", kv_statistics="/nowhere", **options)


@pytest.mark.parametrize("name", ["kv_full", "kv_sliding", "kv_drafter", "kv_codes"])
def test_removed_ways_to_keep_rows_name_another(name):
    with pytest.raises(ValueError, match=f"{name}: int4 was removed, .*expected e8, or for full layers k4v4 after `kakeya calibrate`"):
        kakeya.Engine(**{name: "int4"})


def test_the_client_sends_zero():
    calls = pytest.importorskip("kakeya._client_calls")
    policy = calls.create_request((), "", calls.DecodeMode(0), calls.Evicted(0), 0, 0).kv_policy
    assert policy.HasField("sink") and policy.HasField("window")
    fields = ["seed", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"]
    request = calls.generate_request("a", 0, **dict.fromkeys(fields, 0))
    assert all(request.HasField(name) for name in fields)
