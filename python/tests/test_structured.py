"""Answers that are held to a form, or to a constraint of Python's."""

import asyncio
import gc
import json
import re
import threading

import kakeya
import numpy as np
import pytest
from kakeya import _core

PERSON = {"type": "object", "required": ["name", "age"], "properties": {
    "name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 150}}}
needs_grammars = pytest.mark.skipif(not _core.has_grammars, reason="built without xgrammar")


class Person:
    """Stands for a class of pydantic's."""

    @staticmethod
    def model_json_schema():
        return PERSON


def check_person(text):
    person = json.loads(text)
    assert list(person) == ["name", "age"]
    assert len(person["name"]) <= 8 and 0 <= person["age"] <= 150


@pytest.mark.skipif(_core.has_grammars, reason="built with xgrammar")
def test_a_build_without_grammars_says_so(engine):
    with pytest.raises(kakeya.Unimplemented, match="made without xgrammar"):
        engine.chat("x", regex="a")


@needs_grammars
@pytest.mark.parametrize("schema", [PERSON, json.dumps(PERSON), Person])
def test_every_call_holds_its_answer_to_a_schema(engine, schema):
    wish = {"json_schema": schema, "temperature": 1.0, "seed": 3}
    check_person(engine.chat("Name a person.", **wish))
    check_person("".join(engine.stream("Name a person.", **wish)))
    for generation in engine.generate(["A person: ", "Another: "], **wish):
        assert generation.stop_reason == "stop_id"
        check_person(generation.text)
    session = engine.session()
    session.append(engine.encode("A person: "))
    forked = session.fork()
    check_person(session.generate(**wish).text)
    check_person("".join(forked.stream(**wish)))

    async def answer():
        return "".join([piece async for piece in engine.astream("Name a person.", **wish)])

    check_person(asyncio.run(answer()))


@needs_grammars
def test_other_forms(engine):
    assert re.fullmatch("(yes|no), [a-z]{1,5}", engine.chat("Is water wet?", regex="(yes|no), [a-z]{1,5}"))
    assert re.fullmatch("(- [ab]\n){3}", engine.chat("x", grammar='root ::= ("- " [ab] "\\n"){3}'))
    assert engine.chat("x", choices=["left", "right"]) in ("left", "right")
    assert engine.generate(["x"], json_object=True, max_tokens=30)[0].text.startswith("{")
    free = engine.chat("Count from 5 to 12.")
    assert engine.chat("Count from 5 to 12.", json_object=False, regex=None, constraint=None) == free


@needs_grammars
def test_drafts_change_no_token_of_a_form(engine):
    session = engine.session()
    session.append(engine.apply_chat_template("Count from 5 to 12."))
    wish = {"regex": "[0-9, ]{30,40}", "max_tokens": 60}
    drafted, plain = session.fork().generate(**wish, draft_length=7), session.generate(**wish, draft_length=0)
    assert drafted.ids.tolist() == plain.ids.tolist() and drafted.accepted > 0


@needs_grammars
@pytest.mark.parametrize("wish, kind, message", [
    ({"json_schema": {"type": "array", "uniqueItems": True}}, kakeya.Error, "uniqueItems at # is not supported"),
    ({"json_schema": "{"}, kakeya.InvalidArgument, "JSON"),
    ({"json_schema": 5}, TypeError, "json_schema: expected a dict, a JSON text or a class"),
    ({"json_schema": {"a": object()}}, TypeError, "not JSON serializable"),
    ({"json_object": "yes"}, TypeError, "json_object: expected a bool, got str"),
    ({"regex": "(?=a)"}, kakeya.Error, "regular expression"),
    ({"regex": "\ud800"}, ValueError, "surrogates"),
    ({"grammar": "rot ::= 5"}, kakeya.InvalidArgument, "grammar"),
    ({"choices": []}, kakeya.InvalidArgument, "choices: expected 1 to 1000 texts"),
    ({"choices": "left"}, TypeError, "choices: expected a sequence of str, got str"),
    ({"regex": "a", "json_schema": PERSON}, ValueError, "regex: expected one form .*, got json_schema beside it"),
    ({"regex": "a", "ignore_model_stop_ids": True}, ValueError, "ignore_model_stop_ids: expected False"),
    ({"constraint": 5}, TypeError, "constraint: expected a kakeya.Constraint, got int"),
])
def test_what_cannot_be_held_is_refused(engine, wish, kind, message):
    session = engine.session()
    session.append([2])
    for call in (lambda: engine.chat("x", **wish), lambda: engine.generate(["x"], **wish),
                 lambda: session.generate(**wish)):
        with pytest.raises(kind, match=message) as raised:
            call()
        assert "\n" not in str(raised.value)


class Even(kakeya.Constraint):
    """Allows even ids alone, and keeps count of what it is told."""

    def __init__(self):
        self.ids = []
        self.taken_back = 0

    def fill_mask(self, mask):
        assert mask.dtype == np.uint32 and not mask.any()
        mask[:] = 0x55555555
        return True

    def advance(self, id):
        if id % 2:
            return False
        self.ids.append(id)
        return True

    def roll_back(self, count):
        self.taken_back += count
        del self.ids[len(self.ids) - count:]


def test_a_constraint_allows_even_ids_alone_with_drafts_and_without(engine):
    session = engine.session()
    session.append(engine.apply_chat_template("Count from 5 to 12."))
    found = {}
    for draft_length in (0, 7):
        rules = Even()
        generation = session.fork().generate(constraint=rules, draft_length=draft_length, max_tokens=60)
        found[draft_length] = generation.ids.tolist()
        assert rules.ids == found[draft_length]
        assert (generation.drafted > 0) == (draft_length > 0)
    assert found[0] == found[7]
    assert all(id % 2 == 0 for id in found[0])
    assert any(id % 2 for id in session.generate().ids)
    rules = Even()
    assert engine.chat("Count from 5 to 12.", constraint=rules, max_tokens=20) == engine.decode(rules.ids)


class Raising(Even):
    """Raises in one of its methods."""

    def __init__(self, method, answer):
        super().__init__()
        setattr(self, method, answer)


def gives_up(*_):
    raise LookupError("no such rule")


@pytest.mark.parametrize("method, answer, kind, message", [
    ("fill_mask", gives_up, LookupError, "no such rule"), ("advance", gives_up, LookupError, "no such rule"),
    ("fill_mask", lambda mask: None, TypeError, "fill_mask: expected a bool, got None"),
    ("advance", lambda id: None, TypeError, "advance: expected a bool, got None"),
    ("fill_mask", lambda: True, TypeError, "argument"),
    ("fill_mask", lambda mask: True, kakeya.FailedPrecondition, "allows no token"),
])
def test_what_a_constraint_raises_ends_its_generation(engine, method, answer, kind, message):
    session = engine.session()
    session.append(engine.encode("The cat"))
    for call in (lambda rules: engine.chat("x", constraint=rules), lambda rules: session.generate(constraint=rules),
                 lambda rules: list(session.stream(constraint=rules)),
                 lambda rules: engine.generate(["x"], constraint=rules)):
        with pytest.raises(kind, match=message):
            call(Raising(method, answer))
    assert engine.chat("Count from 5 to 12.") == "5, 6, 7, 8, 9, 10, 11, 12."


def test_what_a_constraint_raised_keeps_no_generation():
    engine = kakeya.Engine(threads=1, pin_threads=False)
    with pytest.raises(LookupError):
        engine.chat("x", constraint=Raising("advance", gives_up))
    gc.collect()
    assert engine.footprint()["kv_full"] == 0


def test_a_constraint_is_of_one_prompt_and_its_mask_may_be_kept(engine):
    class Keeps(Even):
        def fill_mask(self, mask):
            self.mask = mask
            return super().fill_mask(mask)

    with pytest.raises(kakeya.InvalidArgument, match="constraint: expected one prompt.*got 2"):
        engine.generate(["x", "y"], constraint=Even())
    rules = Keeps()
    engine.chat("x", constraint=rules, max_tokens=2)
    assert rules.mask.size == (engine.vocab_size + 31) // 32 and (rules.mask == 0x55555555).all()


def test_threads_with_constraints_wait_for_no_other(engine):
    found = []

    def run():
        for _ in range(8):
            rules = Even()
            engine.chat("Tell me a story.", constraint=rules, max_tokens=10)
            engine.footprint()
            found.append(rules.ids)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert len(found) == 24 and all(ids == found[0] for ids in found)


def test_a_constraint_may_not_use_the_engine_and_may_drop_what_did(engine):
    kept = [engine.session(), engine.stream("x")]
    next(kept[1])

    class Drops(Even):
        def fill_mask(self, mask):
            kept.clear()
            gc.collect()
            return super().fill_mask(mask)

    rules = Drops()
    engine.chat("x", constraint=rules, max_tokens=3)
    assert len(rules.ids) > 0
    session = engine.session()
    for use in (lambda: engine.chat("x"), lambda: engine.embed("x"), lambda: engine.session(), lambda: session.tokens,
                engine.footprint):
        with pytest.raises(kakeya.FailedPrecondition, match="runs nothing else of an engine"):
            engine.chat("x", constraint=Raising("fill_mask", lambda mask: use()))
