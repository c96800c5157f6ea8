"""How cache breakpoints go on Anthropic's wire: behind what stays, where the client placed none of its own."""

from typing import Any, Final

import msgspec
from msgspec import Raw

#: What a block carries whose prefix is to be cached (Anthropic's prompt caching guide, read 2026-11-22).
FIELD: Final = "cache_control"
#: Blocks that carry none.
_BARE: Final = frozenset({"thinking", "redacted_thinking"})

_fields = msgspec.json.Decoder(dict[str, Raw])
_raws = msgspec.json.Decoder(list[Raw])
_object = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.Encoder().encode


def with_cache_marks(body: bytes, *, hour: bool = False) -> bytes:
    """Mark a request behind its tools and system text, and, where it goes on, behind the last two of its user's turns.

    Everything else keeps its bytes. What cannot be read, or holds markers already, is given back as it is. `hour`: the
    cache is to last one, not five minutes.
    """
    if FIELD.encode() in body:
        return body
    mark = {"type": "ephemeral"} | ({"ttl": "1h"} if hour else {})
    try:
        fields = _fields.decode(body)
        front = _front(fields, mark)
        messages = _messages(fields, mark) if "messages" in fields else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body
    return _encode(fields | front | messages) if front or messages else body


def _front(fields: dict[str, Raw], mark: dict[str, str]) -> dict[str, Raw]:
    """Mark the system text, or the tools where there is none: they stand before it."""
    if "system" in fields and (parts := _parts(msgspec.json.decode(fields["system"]), mark)):
        return {"system": Raw(_encode(parts))}
    tools = _raws.decode(fields["tools"]) if "tools" in fields else []
    if not tools:
        return {}
    return {"tools": Raw(_encode([*tools[:-1], _object.decode(tools[-1]) | {FIELD: mark}]))}


def _messages(fields: dict[str, Raw], mark: dict[str, str]) -> dict[str, Raw]:
    """Mark the user's newest message and the one before: what the last request wrote is then found, however many
    blocks came since. A single question is asked but once; it is not written to the cache.
    """
    raws = _raws.decode(fields["messages"])
    roles = [_object.decode(raw).get("role") for raw in raws]
    asked = [number for number, role in enumerate(roles) if role == "user"]
    if "assistant" not in roles and "tools" not in fields:
        return {}
    marked = list(raws)
    for number in asked[-2:]:
        message = _object.decode(raws[number])
        if parts := _parts(message.get("content"), mark):
            marked[number] = Raw(_encode(message | {"content": parts}))
    return {"messages": Raw(_encode(marked))} if marked != raws else {}


def _parts(content: object, mark: dict[str, str]) -> list[Any]:
    """Give a content as blocks whose last one is marked; nothing where that carries no marker."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list) or not parts or not isinstance(parts[-1], dict):
        return []
    last = parts[-1]
    if last.get("type") in _BARE or (last.get("type") == "text" and not str(last.get("text", "")).strip()):
        return []
    return [*parts[:-1], {**last, FIELD: mark}]
