"""Names for type checkers against those that the engine takes."""

import re
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
