"""Calls of tools, which are held to the tools' schemas."""

import enum
import json
from typing import Annotated, Any, Literal, Required, TypedDict

import kakeya
import pytest
from kakeya import _core

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a town.", "parameters": {
        "type": "object", "required": ["town", "days"], "properties": {
            "town": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1, "maximum": 7}}}}}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
NAMED = {"type": "function", "function": {"name": "weather"}}
needs_grammars = pytest.mark.skipif(not _core.has_grammars, reason="built without xgrammar")


def check_call(call):
    assert call["type"] == "function" and call["id"].startswith("call_")
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "weather":
        assert len(arguments["town"]) <= 8 and 1 <= arguments["days"] <= 7
    else:
        assert call["function"]["name"] == "clock" and isinstance(arguments, dict)


@needs_grammars
@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_required_call_is_of_a_tool_and_valid(engine, choice):
    for seed in range(3):
        message = engine.call("The weather of Rome?", [WEATHER, CLOCK], tool_choice=choice, parallel_tool_calls=False,
                              temperature=1.0, seed=seed)
        assert message["role"] == "assistant" and message["content"] is None
        [call] = message["tool_calls"]
        check_call(call)
        assert choice == "required" or call["function"]["name"] == "weather"


@needs_grammars
def test_parallel_calls_are_as_many_as_the_model_writes_or_one(engine):
    [begin] = engine.encode("<|tool_call>", begin=False)
    wish = {"tool_choice": "required", "logit_bias": {int(begin): 100.0}, "max_tokens": 120}
    calls = engine.call("x", [WEATHER], **wish)["tool_calls"]
    assert len({call["id"] for call in calls}) == len(calls) > 1
    check_call(calls[0])
    assert len(engine.call("x", [WEATHER], parallel_tool_calls=False, **wish)["tool_calls"]) == 1


def test_answers_without_calls_are_those_of_chat(engine):
    free = engine.chat("Count from 5 to 12.")
    for tools, choice in (([], "auto"), ([WEATHER], "none")):
        assert engine.call("Count from 5 to 12.", tools, tool_choice=choice) == {"role": "assistant", "content": free}


class Script(kakeya.Constraint):
    """Allows one text alone."""

    def __init__(self, ids):
        self.ids = ids
        self.done = 0

    def fill_mask(self, mask):
        if self.done >= len(self.ids):  # drafts may go on behind its end
            return False
        mask[self.ids[self.done] // 32] = 1 << self.ids[self.done] % 32
        return True

    def advance(self, id):
        if self.done < len(self.ids) and id != self.ids[self.done]:
            return False
        self.done += 1
        return True

    def roll_back(self, count):
        self.done -= count


def test_thoughts_are_no_part_of_an_answer(engine):
    ids = engine.encode("<|channel>thought\nOne.<channel|>Two.<turn|>", begin=False).tolist()
    assert engine.chat("x", constraint=Script(ids)) == "Two."
    assert "".join(engine.stream("x", constraint=Script(ids))) == "Two."
    assert engine.call("x", [], constraint=Script(ids)) == {"role": "assistant", "content": "Two.", "reasoning": "One."}
    # What no template wrote is the text as it is.
    assert engine.generate(["x"], constraint=Script(ids))[0].text == "thought\nOne.Two."


@needs_grammars
def test_messages_go_back_into_the_conversation(engine):
    asked = [{"role": "user", "content": "The weather of Rome?"}]
    message = engine.call(asked, [WEATHER], tool_choice="required", parallel_tool_calls=False)
    told = [*asked, message, {"role": "tool", "name": "weather", "tool_call_id": message["tool_calls"][0]["id"],
                              "content": "sun"}]
    assert engine.call(told, [WEATHER], max_tokens=5)["role"] == "assistant"
    text = engine.decode(engine.apply_chat_template(told, tools=[WEATHER]), skip_special=False)
    assert "The weather of a town." in text and "sun" in text and text.count("call:weather{") == 1
    call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": {"town": "Rome", "days": 2}}}
    text = engine.decode(engine.apply_chat_template([*asked, {"role": "assistant", "tool_calls": [call]}]))
    assert "Rome" in text


@pytest.mark.parametrize("tools, options, kind, message", [
    ([WEATHER], {"tool_choice": "always"}, ValueError, "tool_choice: expected auto, none, required or .*'always'"),
    ([CLOCK], {"tool_choice": NAMED}, ValueError, "tool_choice: expected auto.*weather"),
    ([], {"tool_choice": "required"}, ValueError, "tool_choice: expected"),
    ([{"name": "weather"}], {}, ValueError, r"tools\[0\]: expected .*'function'"),
    ([CLOCK], {"ignore_model_stop_ids": True}, kakeya.InvalidArgument, "ignore_model_stop_ids: expected none where"),
    ([{**CLOCK, "more": object()}], {}, TypeError, "not JSON serializable"),
])
def test_wrong_tools_and_choices_are_refused(engine, tools, options, kind, message):
    with pytest.raises(kind, match=message):
        engine.call("x", tools, **options)


@pytest.mark.parametrize("calls, message", [
    (5, "tool_calls: expected a sequence of calls, got int"), ([5], r"tool_calls\[0\]: expected a dict, got int"),
    ([{"id": "a"}], "expected a function with a name, got none"),
    ([{"function": {"name": "a", "args": {}}}], "args: no such option; expected arguments, name"),
])
def test_wrong_calls_in_messages_are_refused(engine, calls, message):
    with pytest.raises(TypeError, match="message 0: " + message if isinstance(calls, int) else message):
        engine.apply_chat_template([{"role": "assistant", "content": None, "tool_calls": calls}])
    with pytest.raises(TypeError, match="message 0: expected role and content, got no content"):
        engine.apply_chat_template([{"role": "user", "content": None}])


class Place(TypedDict, total=False):
    town: Required[str]
    street: str | None


def sun(town: Literal["Rome", "Oslo"], days: int = 1, where: list[Place] | None = None) -> str:
    """Days of sun.

    More on it.

    Args:
        town: a town of Europe,
            or near it
        days (int): how many
    Returns:
        words
    """
    return f"{days} days in {town} with {where}"


def test_functions_are_tools_by_their_hints():
    assert kakeya.tool_of(sun) == {"type": "function", "function": {
        "name": "sun", "description": "Days of sun.\n\nMore on it.", "parameters": {
            "type": "object", "required": ["town"], "properties": {
                "town": {"description": "a town of Europe, or near it", "enum": ["Rome", "Oslo"]},
                "days": {"description": "how many", "type": "integer"},
                "where": {"anyOf": [{"type": "array", "items": {"type": "object", "required": ["town"], "properties": {
                    "town": {"type": "string"}, "street": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}},
                    {"type": "null"}]}}}}}

    def other(x: Annotated[float, "a number"], y: dict[str, bool], z: Any):
        pass

    assert kakeya.tool_of(other)["function"] == {"name": "other", "parameters": {
        "type": "object", "required": ["x", "y", "z"], "properties": {
            "x": {"description": "a number", "type": "number"},
            "y": {"type": "object", "additionalProperties": {"type": "boolean"}}, "z": {}}}}


@needs_grammars
def test_functions_are_called_with_what_the_model_writes(engine):
    asked = [{"role": "user", "content": "The sun of Rome?"}]
    for seed in range(3):
        message = engine.call(asked, [sun, CLOCK], parallel_tool_calls=False, temperature=1.0, seed=seed, max_tokens=400,
                              tool_choice={"type": "function", "function": {"name": "sun"}})
        [call] = message["tool_calls"]
        [answer] = kakeya.answer_calls(message, [sun])
        assert answer == {"role": "tool", "name": "sun", "tool_call_id": call["id"],
                          "content": sun(**json.loads(call["function"]["arguments"]))}
    told = engine.decode(engine.apply_chat_template([*asked, message, answer], tools=[sun]), skip_special=False)
    assert "a town of Europe, or near it" in told and answer["content"] in told


def test_wrong_functions_and_calls_are_refused():
    def bare(x):
        pass

    def odd(x: set[int]):
        pass

    def many(*x: int):
        pass

    for function, message in ((bare, "tool bare: x: expected a type hint, got none"),
                              (odd, r"tool odd: x: expected str, int, .* got set\[int\]"),
                              (many, r"tool many: x: expected a parameter that is given by its name, got '\*x: int'")):
        with pytest.raises(TypeError, match=message):
            kakeya.tool_of(function)
    call = {"id": "a", "type": "function", "function": {"name": "rain", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    with pytest.raises(ValueError, match="call of 'rain': expected one of sun"):
        kakeya.answer_calls(message, [sun])
    call["function"] = {"name": "sun", "arguments": "[]"}
    with pytest.raises(ValueError, match="call of 'sun': expected a JSON object of arguments, got '\\[\\]'"):
        kakeya.answer_calls(message, [sun])
    assert kakeya.answer_calls({"role": "assistant", "content": "none"}, []) == []


class Color(enum.Enum):
    RED = "red"


class Flag(enum.IntEnum):
    ON = 1


def test_what_no_schema_can_say_is_refused_as_a_tool():
    async def later() -> str:
        return "x"

    def painted(color: Literal[Color.RED]) -> str:
        return "x"

    def switched(flag: Literal[Flag.ON]) -> str:
        return "x"

    for function, refusal in ((later, "got the async function later"), (painted, "tool painted: color: .*Color.RED"),
                              (switched, "tool switched: flag: .*Flag.ON")):
        with pytest.raises(TypeError, match=refusal):
            kakeya.tool_of(function)


@pytest.mark.parametrize("result", [float("nan"), [float("inf")], {"a": -float("inf")}, object()])
def test_a_result_that_json_has_not_is_refused(result):
    def measure():
        return result

    message = {"tool_calls": [{"id": "a", "function": {"name": "measure", "arguments": "{}"}}]}
    with pytest.raises(ValueError, match="call of 'measure': expected a result that JSON has, got "):
        kakeya.answer_calls(message, [measure])
    assert kakeya.answer_calls({"role": "assistant", "content": "x", "tool_calls": None}, []) == []
