"""Messages as clients of OpenAI's interface dump them."""

import pytest

NOTHING = {"refusal": None, "function_call": None, "tool_calls": None, "audio": None, "annotations": [], "name": None,
           "tool_call_id": None, "reasoning": None, "reasoning_content": None}
CALL = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{}"}}


@pytest.mark.parametrize("plain, dumped", [
    ({"role": "assistant", "content": "5, 6."}, {"role": "assistant", "content": "5, 6.", **NOTHING}),
    ({"role": "assistant", "content": "5, 6."}, {"role": "assistant", "content": "5, 6.", "tool_calls": []}),
    ({"role": "assistant", "content": "", "tool_calls": [CALL]}, {**NOTHING, "role": "assistant", "content": None, "tool_calls": [CALL]}),
    ({"role": "assistant", "content": "", "tool_calls": [CALL]}, {"role": "assistant", "tool_calls": [CALL]}),
    ({"role": "assistant", "content": ""}, {"role": "assistant", "content": None}),
    ({"role": "user", "content": "5, 6."}, {"role": "user", "content": [{"type": "text", "text": "5,"}, {"type": "text", "text": " 6."}]}),
    ({"role": "system", "content": "5"}, {"role": "developer", "content": "5"}),
])
def test_a_dumped_message_is_the_plain_one(engine, plain, dumped):
    asked = {"role": "user", "content": "x"}
    expected = engine.apply_chat_template([asked, plain, asked]).tolist()
    assert engine.apply_chat_template([asked, dumped, asked]).tolist() == expected


@pytest.mark.parametrize("message, refusal", [
    ({"role": "user", "content": None}, "expected role and content, got no content"),
    ({"role": None, "content": "x"}, "got no role"),
    ({"role": "assistant", "content": "x", "refusal": "no"}, "refusal: no such option"),
    ({"role": "assistant", "content": "x", "audio": {"id": "a"}}, "audio: no such option"),
    ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "image_url"),
    ({"role": "user", "content": ["x"]}, "content: expected text parts, got str"),
])
def test_what_a_message_says_and_nobody_reads_is_refused(engine, message, refusal):
    with pytest.raises((TypeError, ValueError), match=refusal):
        engine.apply_chat_template([message])


def test_no_messages_are_refused(engine):
    for call in (engine.chat, engine.apply_chat_template, lambda messages: engine.call(messages, [])):
        with pytest.raises(ValueError, match="^messages: expected at least one, got none$"):
            call([])
