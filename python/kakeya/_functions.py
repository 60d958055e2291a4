"""Functions of Python as tools that an answer may call."""

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

from kakeya._options import Message
from kakeya._tools import Tool

Function = Callable[..., object]
_PLAIN: dict[object, dict[str, Any]] = {str: {"type": "string"}, int: {"type": "integer"}, float: {"type": "number"},
                                        bool: {"type": "boolean"}, type(None): {"type": "null"}, Any: {}}


def tool_of(function: Function) -> Tool:
    """The tool that a function is: its name, its docstring, its parameters by their type hints.

    Raises TypeError for a parameter without a hint, or with one that no JSON value stands for.
    """
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(f"tools: expected a dict or a function with a name, got {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"tools: expected a function that answer_calls() can run, got the async function {name}")
    text, of_parameters = _described(inspect.getdoc(function) or "")
    hints = typing.get_type_hints(function, include_extras=True)
    properties, required = {}, []
    for parameter in inspect.signature(function).parameters.values():
        where = f"tool {name}: {parameter.name}"
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{where}: expected a parameter that is given by its name, got '{parameter}'")
        if parameter.name not in hints:
            raise TypeError(f"{where}: expected a type hint, got none")
        schema = _schema_of(hints[parameter.name], where)
        if parameter.name in of_parameters:
            schema = {"description": of_parameters[parameter.name], **schema}
        properties[parameter.name] = schema
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    described = {"name": name, **({"description": text} if text else {})}
    return {"type": "function", "function": {
        **described, "parameters": {"type": "object", "properties": properties, "required": required}}}


def as_tools(tools: Sequence[Tool | Function]) -> list[Tool]:
    """Tools as dicts; those that are functions by their hints."""
    return [tool_of(tool) if callable(tool) else tool for tool in tools]


def answer_calls(message: Message, functions: Sequence[Function]) -> list[Message]:
    """Runs the functions that a message calls, one after the other; what each returned, as messages of the role tool.

    What is no str becomes JSON. Raises ValueError for a call of none of them, for arguments that are no JSON object and
    for a result that JSON has not, such as NaN, and whatever a function raises.
    """
    by_name = {getattr(function, "__name__", ""): function for function in functions}
    answers: list[Message] = []
    for call in message.get("tool_calls") or []:
        name, given = call["function"]["name"], call["function"]["arguments"]
        if name not in by_name:
            raise ValueError(f"call of {name!r}: expected one of {', '.join(sorted(by_name)) or 'no functions'}")
        arguments = json.loads(given) if isinstance(given, str) else given
        if not isinstance(arguments, dict):
            raise ValueError(f"call of {name!r}: expected a JSON object of arguments, got {given!r}")
        result = by_name[name](**arguments)
        try:
            content = result if isinstance(result, str) else json.dumps(result, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"call of {name!r}: expected a result that JSON has, got {result!r}") from error
        answers.append({"role": "tool", "name": name, "tool_call_id": call["id"], "content": content})
    return answers


def _described(doc: str) -> tuple[str, dict[str, str]]:
    """A docstring's text before its part on arguments, and what that says of each."""
    text, _, rest = doc.partition("\nArgs:\n")
    section = re.split(r"\n(?=\S)", rest, maxsplit=1)[0]
    found = re.findall(r"^ +(\w+)(?: *\([^)]*\))?: *(.*(?:\n {6,}.*)*)", section, re.MULTILINE)
    return text.strip(), {name: re.sub(r"\s+", " ", said).strip() for name, said in found}


def _schema_of(hint: Any, where: str) -> dict[str, Any]:
    if isinstance(hint, typing.Hashable) and hint in _PLAIN:
        return dict(_PLAIN[hint])
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        said = next((extra for extra in arguments[1:] if isinstance(extra, str)), None)
        return {**({"description": said} if said else {}), **_schema_of(arguments[0], where)}
    if origin in (typing.Required, typing.NotRequired):
        return _schema_of(arguments[0], where)
    if origin is Literal:
        for value in arguments:
            if type(value) not in (str, int, bool, type(None)):
                raise TypeError(f"{where}: expected a Literal of str, int, bool or None, got {value!r}")
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_schema_of(argument, where) for argument in arguments]}
    if origin in (list, Sequence) and len(arguments) == 1:
        return {"type": "array", "items": _schema_of(arguments[0], where)}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1], where)}
    if typing.is_typeddict(hint):
        fields = typing.get_type_hints(hint, include_extras=True)
        return {"type": "object", "required": sorted(hint.__required_keys__),
                "properties": {name: _schema_of(field, f"{where}.{name}") for name, field in fields.items()}}
    raise TypeError(f"{where}: expected str, int, float, bool, Literal, list[...], dict[str, ...], a TypedDict or a "
                    f"union of them as its type, got {hint!r}")
