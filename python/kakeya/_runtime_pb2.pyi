"""Messages of kakeya.v1, made by protoc."""

from typing import Any

def __getattr__(name: str) -> Any: ...
