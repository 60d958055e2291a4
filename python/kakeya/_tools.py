"""Tools that an answer may call, as OpenAI's interface has them."""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

Tool = dict[str, Any]


class _Named(TypedDict):
    name: str


class NamedTool(TypedDict):
    """The choice of one tool."""

    type: Literal["function"]
    function: _Named


ToolChoice = Literal["auto", "none", "required"] | NamedTool


def names_of(tools: Sequence[Tool]) -> list[str]:
    """The tools' names. Raises ValueError for what is no tool."""
    names = []
    for index, tool in enumerate(tools):
        function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str):
            raise ValueError(
                f"tools[{index}]: expected {{'type': 'function', 'function': {{'name': ...}}}}, got {tool!r}")
        names.append(name)
    return names


def forced_by(choice: ToolChoice, names: Sequence[str]) -> tuple[bool, str]:
    """Whether the answer must be calls, and the one tool that they may be of; "": any."""
    if choice in ("auto", "none"):
        return False, ""
    if choice == "required" and names:
        return True, ""
    if isinstance(choice, dict) and choice.get("type") == "function":
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if name in names:
            return True, name
    raise ValueError(f"tool_choice: expected auto, none, required or the function of one of the tools, got {choice!r}")
