"""Calls of tools, which are held to the tools' schemas."""

import json

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
    with pytest.raises(TypeError, match="message 0: content: expected str, got NoneType"):
        engine.apply_chat_template([{"role": "user", "content": None}])
