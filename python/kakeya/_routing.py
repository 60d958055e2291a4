"""The rule by which a request finds its replica, as docs/operating.md has it and deploy/haproxy.cfg does it."""

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

# Names by which conversations are sent, the one that counts first, as the server has it.
SESSION_FIELDS = (b"x-dynamo-session-id", b"x-claude-code-session-id", b"session-id", b"x-session-id")
# Fields of a body that name a conversation or who has it, the one that counts first.
BODY_FIELDS = ("prompt_cache_key", "user", "safety_identifier")
KEPT_ID = re.compile(r"(?:resp_|sess-)([a-z0-9-]{1,48})_[0-9a-f]{32}")
KEPT_PATHS = ("/v1/responses/", "/v1/sessions/")
RESPONSE_PATHS = ("/v1/responses", "/v1/responses/input_tokens")
CONVERSATION_PATHS = (*RESPONSE_PATHS, "/v1/chat/completions", "/v1/messages", "/api/chat")


class Route(NamedTuple):
    """Where a request goes: to this replica if there is one, else by this conversation's hash, else to the least busy."""

    replica: str | None = None
    conversation: str | None = None


def route_of(path: str, fields: Iterable[tuple[bytes, bytes]], body: bytes) -> Route:
    """The rule. Fields have lower-case names; a body that is no JSON names nothing."""
    said = _parsed(body)
    named = dict(fields)
    conversation = next((named[name].decode("latin-1") for name in SESSION_FIELDS if named.get(name)), None)
    conversation = conversation or next((text for name in BODY_FIELDS if (text := _text(said.get(name)))), None)
    if not conversation and path in CONVERSATION_PATHS:
        conversation = _beginning(said)
    return Route(_replica(path, said), conversation)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _replica(path: str, said: dict[str, Any]) -> str | None:
    kept = path.split("/")[3] if path.startswith(KEPT_PATHS) else ""
    if path in RESPONSE_PATHS:
        kept = _text(said.get("previous_response_id")) or ""
    found = KEPT_ID.fullmatch(kept)
    return found.group(1) if found else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _first_text(content: Any) -> str | None:
    """A content's text: itself, or that of its first part."""
    if isinstance(content, list) and content and isinstance(content[0], dict):
        content = content[0].get("text")
    return _text(content)


def _beginning(said: dict[str, Any]) -> str | None:
    """The first message with its system text, which may be a message before it; nothing else is there in each turn."""
    items = said.get("messages") or said.get("input")
    if isinstance(items, str):
        items = [{"content": items}]
    if not isinstance(items, list):
        return None
    messages = [item if isinstance(item, dict) else {} for item in items[:2]]
    if not messages or (first := _first_text(messages[0].get("content"))) is None:
        return None
    system = _first_text(said.get("system")) or _text(said.get("instructions"))
    is_system = messages[0].get("role") in ("system", "developer")
    second = _first_text(messages[1].get("content")) if is_system and len(messages) > 1 else None
    return json.dumps([system, first, second])
