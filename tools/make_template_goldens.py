#!/usr/bin/env python3
"""Writes tests/data/chat_templates/cases.json with jinja2 set up as Transformers does it.

    pip install jinja2==3.1.6
    python3 tools/make_template_goldens.py

Each conversation is rendered by every template of tests/data/chat_templates and by Gemma 4's in
tests/data/tokenizers/gemma4; the fixture holds the prompt, or that rendering fails and whether the
template raised the error itself. A second list holds small templates that show single features.
"""
import copy
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests/data"
TIME = "2026-07-14"


class Raised(Exception):
    pass


def raise_exception(message):
    raise Raised(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: TIME
    return env


def render(source, context):
    """{"text"} or {"raised"} or {"fails"}."""
    try:
        return {"text": environment().from_string(source).render(**copy.deepcopy(context))}
    except Raised as error:
        return {"raised": str(error)}
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError,
            AttributeError, SyntaxError):
        return {"fails": True}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def system(content):
    return {"role": "system", "content": content}


def call(name, arguments, id="call_1"):
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


def tool(content, **more):
    return {"role": "tool", "content": content, **more}


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather, in \"plain\" words — with units.",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "City & country"},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "description": "How many days", "nullable": True},
                "Hours": {"type": "array", "items": {"type": "number"}},
            },
            "required": ["location"],
        },
    },
}
NESTED = {
    "type": "function",
    "function": {
        "name": "book",
        "description": "Books a trip",
        "parameters": {
            "type": "object",
            "properties": {
                "travellers": {
                    "type": "array",
                    "description": "Who goes",
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                        "required": ["name"],
                    },
                },
                "hotel": {
                    "type": "object",
                    "description": "Where to stay",
                    "properties": {
                        "stars": {"type": "number", "default": 4.5},
                        "tags": {"type": "array", "items": {"type": "string"}},
                        "meals": {"type": "boolean", "default": True},
                    },
                    "required": ["stars", "meals"],
                },
                "price": {"oneOf": [{"type": "number", "description": "exact", "default": 1},
                                    {"type": "string", "default": "any"}]},
                "mixed": {"type": ["string", "null"], "description": "two types"},
                "empty": {"type": "object", "properties": {}},
                "matrix": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
                "bare_array": {"type": "array"},
            },
            "required": ["travellers", "hotel"],
        },
        "response": {"type": "object", "description": "A booking"},
    },
}
PLAIN = {"type": "function", "function": {"name": "now", "description": "The time",
                                         "parameters": {"type": "object", "properties": {}}}}

PARIS = call("get_weather", {"location": "Paris, France", "unit": "celsius"})
ODD_ARGUMENTS = call("book", {
    "travellers": [{"name": "Zoë \"Z\"", "age": 31}, {"name": "Bo", "age": None}],
    "hotel": {"stars": 4.5, "tags": ["a", "b\n"], "meals": False}, "b": 1e21, "A": -0.0, "a": 7,
}, "call_2")


def conversations():
    hi = user("What is the capital of France?")
    yield "single user", dict(messages=[hi])
    yield "no generation prompt", dict(messages=[hi], add_generation_prompt=False)
    yield "system", dict(messages=[system("You are terse."), hi])
    yield "developer", dict(messages=[{"role": "developer", "content": "Be terse."}, hi])
    yield "three turns without system", dict(messages=[
        hi, assistant("Paris."), user("And of Spain?"), assistant("Madrid."), user("Thanks!")])
    yield "code", dict(messages=[user("Fix this:\n```python\nprint('hi'\n```\n"),
                                 assistant("```python\nprint('hi')\n```"), user("Why?")])
    yield "long lines", dict(messages=[user("word " * 300), assistant("w" * 1000), user("more")])
    yield "thinking on", dict(messages=[hi], enable_thinking=True)
    yield "thinking off", dict(messages=[hi], enable_thinking=False)
    yield "system, thinking on", dict(messages=[system("S"), hi], enable_thinking=True)
    yield "turns", dict(messages=[system("S"), hi, assistant("Paris."), user("And of Spain?"),
                                  assistant("Madrid."), user("Thanks")])
    yield "ends with the assistant", dict(messages=[hi, assistant("Paris.")],
                                          add_generation_prompt=False)
    yield "unicode", dict(messages=[system("Ты полезен. 你好 🎉"), user("नमस्ते “quotes” \u00a0nbsp\u3000"),
                                    assistant("👩\u200d👧 e\u0301"), user("Ünïcödé \U0001F600")])
    yield "white space", dict(messages=[system("  S \n"), user("\n\n  hi\t \n"),
                                        assistant("  Paris \n\n"), user("   ")])
    yield "empty contents", dict(messages=[system(""), user(""), assistant(""), user("x")])
    yield "markup", dict(messages=[user("<b>&amp; \"q\" 'a' {{ x }} {% y %} <|im_end|> <end>")])
    yield "crlf", dict(messages=[user("a\r\nb\rc"), assistant("d\r\n"), user("\r\n")])
    yield "thoughts in the text", dict(messages=[
        hi, assistant("<think>\nhmm\n</think>\n\nParis."), user("more"),
        assistant("<|channel>thought\nhm<channel|>Madrid. <|channel>x<channel|> tail"), user("more")])
    yield "reasoning", dict(messages=[
        hi, assistant("Paris.", reasoning_content="It is Paris.", thinking="T"), user("sure?"),
        assistant("Yes.", reasoning_content="\nI am.\n\n", reasoning="R")],
        add_generation_prompt=False)
    yield "thinking field", dict(messages=[hi, assistant("Paris.", thinking="It is Paris.")],
                                 add_generation_prompt=False)
    yield "tools", dict(messages=[hi], tools=[WEATHER])
    yield "tools and system", dict(messages=[system("S"), hi], tools=[WEATHER, PLAIN])
    yield "nested tools", dict(messages=[hi], tools=[NESTED, WEATHER], enable_thinking=True)
    yield "tool call", dict(messages=[user("Weather?"), assistant("", tool_calls=[PARIS])],
                            tools=[WEATHER])
    yield "tool call without tools", dict(messages=[user("W?"), assistant("", tool_calls=[PARIS]),
                                                    tool("sunny", name="get_weather")])
    yield "tool result", dict(messages=[
        user("Weather?"), assistant("", tool_calls=[PARIS]),
        tool('{"temperature": 21}', name="get_weather", tool_call_id="call_1")], tools=[WEATHER])
    yield "content with the call", dict(messages=[
        user("Weather?"), assistant("Let me look.", tool_calls=[PARIS]),
        tool("21 °C", tool_call_id="call_1"), assistant("It is 21 °C."), user("Thanks!")],
        tools=[WEATHER])
    yield "no content key", dict(messages=[
        user("Weather?"), {"role": "assistant", "tool_calls": [PARIS]},
        tool("21", tool_call_id="call_1")], tools=[WEATHER])
    yield "null content", dict(messages=[
        user("Weather?"), assistant(None, tool_calls=[PARIS]), tool("21", tool_call_id="call_1")],
        tools=[WEATHER])
    yield "two calls, two results", dict(messages=[
        user("Weather, and book"), assistant("", tool_calls=[PARIS, ODD_ARGUMENTS]),
        tool("21", tool_call_id="call_1"), tool("booked", tool_call_id="call_2"),
        assistant("Done."), user("ok")], tools=[WEATHER, NESTED])
    yield "arguments as text", dict(messages=[
        user("W?"), assistant("", tool_calls=[call("get_weather", '{"location": "Oslo"}')]),
        tool("-3", tool_call_id="call_1")], tools=[WEATHER])
    yield "bare call", dict(messages=[
        user("W?"), assistant("", tool_calls=[{"name": "get_weather",
                                               "arguments": {"location": "Oslo"}}]),
        tool("-3")], tools=[WEATHER])
    yield "thinking with the call", dict(messages=[
        user("W?"), assistant("", thinking="Look.", reasoning_content="Look it up.",
                              tool_calls=[PARIS]),
        tool("21", tool_call_id="call_1"), assistant("21.", thinking="Now."), user("and now?"),
        assistant("", reasoning="Again.", tool_calls=[PARIS])], tools=[WEATHER])
    yield "calls in a row", dict(messages=[
        user("W?"), assistant("", tool_calls=[PARIS]), tool("21", tool_call_id="call_1"),
        assistant("", tool_calls=[ODD_ARGUMENTS]), tool("ok", tool_call_id="call_2"),
        assistant("All done.")], tools=[WEATHER, NESTED], add_generation_prompt=False)
    yield "tool result as mapping", dict(messages=[
        user("W?"), assistant("", tool_calls=[PARIS]),
        tool({"temperature": 21.5, "sky": ["clear", None, True], "Wind": {"kmh": 3}},
             tool_call_id="call_1")], tools=[WEATHER])
    yield "legacy tool responses", dict(messages=[
        user("W?"), assistant("", tool_calls=[PARIS],
                              tool_responses=[{"name": "get_weather", "response": {"t": 21}}]),
        user("ok")], tools=[WEATHER])
    yield "content parts", dict(messages=[
        system("S"), user([{"type": "text", "text": " Look: "}, {"type": "image"},
                           {"type": "text", "text": "what?"}]),
        assistant([{"type": "text", "text": "A cat."}]), user([{"type": "text", "text": "ok"}])])
    yield "content parts in the system turn", dict(messages=[
        {"role": "system", "content": [{"type": "text", "text": " a "}, {"type": "text", "text": "b"}]},
        user("x")])
    yield "media parts", dict(messages=[user([{"type": "video"}, {"type": "audio"},
                                              {"type": "image", "image": "x.png"},
                                              {"type": "text", "text": "t"}])], add_vision_id=True)
    yield "roles do not alternate", dict(messages=[user("a"), user("b"), assistant("c"),
                                                   assistant("d"), user("e")])
    yield "system in the middle", dict(messages=[user("a"), assistant("b"), system("S"), user("c")])
    yield "starts with the assistant", dict(messages=[assistant("Hi, I am"), user("x")])
    yield "only the system", dict(messages=[system("S")])
    yield "no messages", dict(messages=[])
    yield "unknown role", dict(messages=[{"role": "critic", "content": "meh"}, user("x")])
    yield "empty tools", dict(messages=[hi], tools=[])
    yield "null tools", dict(messages=[hi], tools=None)
    yield "reasoning effort", dict(messages=[system("S"), hi], reasoning_effort="high",
                                   model_identity="You are Test.", builtin_tools=["browser", "python"])
    yield "channel tags", dict(messages=[hi, assistant("<|channel|>final<|message|>x"), user("y")])
    yield "long", dict(messages=[user("lorem ipsum " * 300)] + [assistant("a"), user("b")] * 12)


# Single features: source, context.
SNIPPETS = [
    ("{{ x }}|{{ y }}|{{ none }}|{{ true }}|{{ 1.0 }}|{{ 1e16 }}|{{ 1e-5 }}|{{ -0.0 }}", {"x": None}),
    ("{{ [1, 'a', \"it's\", None, True, 2.50, {'k': (1,)}, ('a', 'b'), [], {}] }}", {}),
    ("{{ 'tab\\t nl\\n q\\' \\\\ \\x41 \\u00e9 \\101 \\q' }}{{ ['a\\t\\n\\'\"\\\\é\\u200b\\x00'] }}", {}),
    ("{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7 / 2 }}"
     " {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 + 2 * 3 - 4 }} {{ -2 * 2 }} {{ 'a' * 3 }} {{ [1] * 2 }}", {}),
    ("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 }}"
     " {{ true == 1 }} {{ 'a' in 'cat' }} {{ 2 not in [1] }} {{ 'k' in {'k': 1} }} {{ 1 != '1' }}", {}),
    ("{{ x is defined }} {{ x is undefined }} {{ x is none }} {{ 1 is number }} {{ true is number }}"
     " {{ true is integer }} {{ 'a' is sequence }} {{ {} is sequence }} {{ x is sequence }}"
     " {{ {} is mapping }} {{ [] is iterable }} {{ 3 is odd }} {{ 4 is odd }}"
     " {{ 4 is even }} {{ 'a' is in ['a'] }} {{ 1 is eq 1 }}"
     " {{ none is none }} {{ 1.5 is float }} {{ x is iterable }} {{ false is false }}"
     " {{ [] is not string }} {{ 1 is boolean }}", {}),
    ("{{ 'Hello' | upper }} {{ 'ÀÉ ß' | lower }} {{ 'ab cd' | title }}"
     " {{ '  x ' | trim }}| {{ 'xxaxx' | trim('x') }}", {}),
    ("{{ {'b': 1, 'A': 2, 'a': 3} | dictsort }} {{ {'B': [], 'b': {}, 'A': 1} | dictsort }} {{ {2: 'b', 1: 'a'} | dictsort }}"
     " {{ {'b': 1, 'a': 2}.items() | list }} {{ {'a': 1} | items | list }} {{ {'a': 1, 'b': 2} | list }}", {}),
    ("{{ [1, 2] | join(', ') }} {{ 'abc' | join('-') }} {{ [{'n': 1}, {'n': 2}] | map(attribute='n') | list }}"
     " {{ ['a', 'b'] | map('upper') | join }} {{ [1, 0, none] | select | list }} {{ [1, 2, 3] | select('odd') | list }}"
     " {{ [1, 2] | reject('eq', 1) | list }} {{ ms | selectattr('role', 'equalto', 'user') | list | length }}"
     " {{ ms | rejectattr('x') | map(attribute='role') | list }} {{ ms | selectattr('x', 'defined') | list }}",
     {"ms": [{"role": "user"}, {"role": "tool", "x": 1}]}),
    ("{{ '42' | int }} {{ 'x' | int(7) }} {{ '3.9' | int }} {{ 3.9 | int }} {{ ' 7 ' | int }} {{ '' | int }}"
     " {{ 'abc' | first }} {{ [1, 2] | last }} {{ [] | first }}|", {}),
    ("{{ x | default('d') }} {{ '' | default('d') }}| {{ '' | default('d', true) }} {{ none | default(1) }}"
     " {{ m.a.b | default('n') if m.a is defined else 'no' }} {{ m['q'] | default('q') }}", {"m": {}}),
    ("{{ v | tojson }} {{ v | tojson(indent=2) }} {{ v | tojson(sort_keys=true) }} {{ v | tojson(ensure_ascii=true) }}"
     " {{ v | tojson(separators=(',', ':')) }} {{ '</é\\u2028\\x7f\\x01' | tojson }} {{ 1e22 | tojson }} {{ {1: 2} | tojson }}",
     {"v": {"b": [1, 2.0, None, True, "é\n\"\\/\t"], "a": {}, "c": []}}),
    ("{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a,b,c'.split(',', 1) }}"
     " {{ 'aXbX'.replace('X', '-') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'abc'.startswith(('x', 'a')) }}"
     " {{ 'abc'.endswith('bc') }} {{ 'xxaxx'.strip('x') }} {{ '\\n\\na'.lstrip('\\n') }} {{ 'a  '.rstrip() }}|"
     " {{ 'abcb'.find('b') }} {{ 'ééb'.find('b') }}"
     " {{ '-'.join(['a', 'b']) }} {{ 'hello world'.title() }}"
     " {{ 'ab'.upper() }} {{ 'tEst'.capitalize() }}", {}),
    ("{{ 'héllo'[1] }} {{ 'héllo'[1:3] }} {{ 'héllo'[::-1] }} {{ 'abc'[-2:] }} {{ [1,2,3,4][::2] }} {{ [1,2,3][-1] }}"
     " {{ [1,2,3][5:] }} {{ [1,2,3][:-1] }} {{ (1,2,3)[1:] }} {{ [1,2,3][::-1] }} {{ [0,1,2,3,4,5][4:1:-2] }}"
     " {{ 'abc'[10] }}| {{ 'abc'[:0] }}|", {}),
    ("{% for x in [1,2,3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}"
     "{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% else %}none{% endfor %}"
     "{% for x in [] %}x{% else %}none{% endfor %}{% for k, v in {'a': 1}.items() %}{{ k }}={{ v }}{% endfor %}"
     "{% for x in [1,2,3,4] if x is even %}{{ loop.index }}:{{ x }} {% endfor %}"
     "{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 4 %}{% break %}{% endif %}{{ x }}{% endfor %}"
     "{% for c in 'añb' %}{{ c }}.{% endfor %}{% for x in y %}{% endfor %}{{ range(2, 8, 3) | list }}{{ range(3, 0, -1) | list }}", {}),
    ("{% set x = 1 %}{% for i in [1,2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}"
     "{% if true %}{% set x = 9 %}{% endif %}{{ x }}{% set a, b = 1, 2 %}{{ b }}{{ a }}{% set t = 1, 2 %}{{ t }}", {}),
    ("{% set ns = namespace(a=1, b='x') %}{% for i in [1,2,3] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.c }}|{{ ns['a'] }}", {}),
    ("{% set x %}a{{ 1 + 1 }}b {% endset %}[{{ x }}]{% set y %}{% endset %}[{{ y }}]", {}),
    ("{% macro f(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ f(1) }} {{ f(1, c=3) }} {{ f() }}| {{ f(b=1, a=0) | length }}"
     "{% macro g(n) %}{% if n > 0 %}{{ n }}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(5) }}"
     "{% set z = 1 %}{% macro h() %}{{ z }}{% set z = 3 %}{{ z }}{% endmacro %}{% set z = 2 %}{{ h() }}{{ z }}", {}),
    ("a\n  {% if true %}\n  b\n  {% endif %}\nc {%- if true %} d {%+ if true %} e {% endif -%} \n f{% endif %}\n\n  {# note #}\n  g\n"
     "   {{ 1 }}   \n  {{- 2 -}}  \n 3\n{%- raw %} {{ x }} {% y %}{% endraw %}\n  z \n\n", {}),
    ("  {% set a = 1 %}  {% set b = 2 %}\n{{ a }}\n\t{% set c = 3 %}\n\t x\n{%+ set d = 4 %}\ne{% if a +%}\nf{% endif %}\n", {}),
    ("{{ 'a' if x else 'b' }}{{ 'c' if false }}{{ 1 if 0 else 2 if 0 else 3 }}{{ x or 'o' }}{{ 0 or none }}{{ 1 and 'y' }}{{ not x }}{{ not 1 == 2 }}", {}),
    ("{{ 'a' ~ 1 ~ none ~ 2.0 }}{{ (1 + 1) ~ 2 }}{{ 'x' 'y' }}{{ [1] + [2] }}{{ 'a' + 'b' }}{{ (1, 2) + (3,) }}{{ -x.y | string }}", {"x": {"y": 3}}),
    ("{{ d.items is defined }}{{ d['items'] is string }}{{ d.a.b }}|{{ d.keys() | list }}{{ d.values() | list }}{{ d.get('z') }}{{ d.get('z', 0) }}{{ d['a'].b.c }}|",
     {"d": {"a": {"b": {}}, "items": "s"}}),
    ("{{ x.y }}", {}), ("{{ x + 1 }}", {}), ("{{ 1 + 'a' }}", {}), ("{{ [1] < 2 }}", {}), ("{{ none | length }}", {}),
    ("{{ 1 // 0 }}", {}), ("{% for x in none %}{% endfor %}", {}), ("{{ 'a' in 1 }}", {}), ("{{ 1 in 'a' }}", {}),
    ("{% set a, b = [1] %}", {}), ("{{ {[1]: 2} }}", {}), ("{{ x() }}", {}), ("{{ 'a'.nope() }}", {}),
    ("{{ raise_exception('no: ' ~ 1) }}", {}), ("{{ [] | tojson | nope }}", {}), ("{{ 1 is nope }}", {}),
    ("{% if %}", {}), ("{{ 1", {}), ("{% for x in [1] %}", {}), ("{{ ) }}", {}), ("{% endif %}", {}), ("{{ 'a }}", {}),
    ("{# open", {}), ("{% raw %} open", {}), ("{% macro f(a=1, b) %}{% endmacro %}", {}), ("{{ 1 2 }}", {}),
    ("{% set x.y = 1 %}", {}), ("{% break %}", {}), ("{{ f(a=1, 2) }}", {}), ("{{ @ }}", {}),
    ("{{ [1,2,3].append(4) }}", {}), ("{{ ''.__class__.__mro__ }}", {}), ("{{ range(1000000000) }}", {}),
    ("{{ strftime_now('%Y-%m-%d') }}", {}),
    ("{{ 'line one\\nline two\\n\\nend' | indent }}{{ 'a\\nb' | indent(2, true) }}{{ 5 | string + '5' }}", {}),
    ("{{ 'x' if 1 is number else 'y' }}{{ a is defined and a }}{{ a is not defined or b }}", {}),
    ("{{ {'a': 1, 'a': 2} }}{{ {1: 'i', 1.5: 'f', none: 'n', true: 't'} }}", {}),
    ("{{ [[1, 2], [3]] | map('length') | list }}{{ ['1', '2'] | map('int') | list }}{{ [{'a': {'b': 5}}] | map(attribute='a.b') | first }}", {}),
    ("{{ 'ΑΒΓ' | lower }} {{ 'ёж' | upper }} {{ 'mIxEd éÉ' | title }}", {}),
    ("{{ '\\u00a0x\\u3000\\u200b' | trim | tojson }}{{ '\\x1cx\\x1f'.strip() }}{{ 'a\\u00a0b\\u2003c'.split() }}", {}),
    ("{{ loop }}{{ self_ is defined }}{{ (1,) }}{{ () }}{{ (1) }}{{ 1, 2 }}", {}),
    ("{{ 1_000 }} {{ 1_0.5 }} {{ 2e3 }} {{ 1.5e-7 }} {{ 123456789012345678 }} {{ 0.1 + 0.2 }} {{ 1e15 }} {{ 123456789.123456789 }}", {}),
]


def main():
    templates = {path.stem: path for path in sorted((DATA / "chat_templates").glob("*.jinja"))}
    templates["google-gemma-4-E2B-it"] = DATA / "tokenizers/gemma4/chat_template.jinja"
    cases = []
    for name, context in conversations():
        context = {"add_generation_prompt": True, "bos_token": "<bos>", "eos_token": "<eos>",
                   **context}
        rendered = {key: render(path.read_text("utf-8"), context)
                    for key, path in templates.items()}
        cases.append({"name": name, "context": context, "rendered": rendered})
    snippets = [{"source": source, "context": context, "rendered": render(source, context)}
                for source, context in SNIPPETS]
    fixture = {
        "generator": f"tools/make_template_goldens.py, jinja2 {jinja2.__version__}",
        "strftime_now": TIME,
        "templates": {key: str(path.relative_to(DATA)) for key, path in templates.items()},
        "cases": cases,
        "snippets": snippets,
    }
    text = json.dumps(fixture, ensure_ascii=True, indent=1)
    (DATA / "chat_templates/cases.json").write_text(text + "\n", "utf-8")


if __name__ == "__main__":
    main()
