"""Set cache breakpoints at a window's anchors, for OpenAI (5.6 and later) and Anthropic, never on volatile text."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from cuebook.records.turn import Anchor
from cuebook.window.window import Sheet, volatile_text
from cuebook.wire.chat_messages import has_cache_marks

#: Cache marker of a content block (notes: provider-caches; OpenAI's prompt caching guide, read 2026-11).
BREAKPOINT = {"mode": "explicit"}
FIELD = "prompt_cache_breakpoint"

_decode: Any = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


def with_breakpoints(messages: Sequence[bytes], anchors: Sequence[Anchor], sheet: Sheet) -> tuple[bytes, ...]:
    """Set breakpoints where caching can continue. If the client set its own, add none."""
    if any(map(has_cache_marks, messages)):
        return tuple(messages)
    marked = list(messages)
    volatile = volatile_text(sheet.volatile, sheet.fence) if sheet.volatile else ""
    for anchor in anchors:
        fields = _decode(marked[anchor.after])
        if anchor.name in ("system", "summary"):
            parts = _parts(fields.get("content"), sheet.summary.text if sheet.summary else "", mark_tail=True)
        else:
            parts = _parts(fields.get("content"), volatile, mark_tail=False)
        if parts:  # calls have no text to mark
            marked[anchor.after] = _encode(fields | {"content": parts})
    return tuple(marked)


def _parts(content: object, tail: str, *, mark_tail: bool) -> list[Any]:
    """Return a content as parts: the marked stable part, and its tail (a summary or volatile text)."""
    parts: list[Any]
    if isinstance(content, list):
        parts = list(content)
        rest = [parts.pop()] if tail and parts and parts[-1] == {"type": "text", "text": tail} else []
    else:
        text = content if isinstance(content, str) else ""
        rest = []
        if tail and text.endswith(tail):
            rest = [{"type": "text", "text": tail}]
            text = text[: -len(tail)]
        parts = [{"type": "text", "text": text}] if text else []
    if parts and isinstance(parts[-1], dict):
        parts[-1] = {**parts[-1], FIELD: BREAKPOINT}
    if rest and mark_tail:
        rest[-1] = {**rest[-1], FIELD: BREAKPOINT}
    return parts + rest


# ---- The Anthropic wire ---------------------------------------------------------------------------------------------


#: Cache breakpoint of a block (Anthropic's prompt caching guide, read 2026-11-22).
ANTHROPIC_FIELD: Final = "cache_control"
#: Block types that support no breakpoint.
_BARE: Final = frozenset({"thinking", "redacted_thinking"})

_fields = msgspec.json.Decoder(dict[str, Raw])
_raws = msgspec.json.Decoder(list[Raw])
_object = msgspec.json.Decoder(dict[str, Any])


def with_cache_marks(body: bytes, *, hour: bool = False) -> bytes:
    """Set breakpoints after a request's tools and system text and, in a longer conversation, after its last two user
    turns.

    All other bytes stay the same. An unreadable request, or one with breakpoints, is returned unchanged. `hour`: cache
    for one hour instead of five minutes.
    """
    if ANTHROPIC_FIELD.encode() in body:
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
    """Mark the system text or, without one, the tools before it."""
    if "system" in fields and (parts := _marked_blocks(msgspec.json.decode(fields["system"]), mark)):
        return {"system": Raw(_encode(parts))}
    tools = _raws.decode(fields["tools"]) if "tools" in fields else []
    if not tools:
        return {}
    return {"tools": Raw(_encode([*tools[:-1], _object.decode(tools[-1]) | {ANTHROPIC_FIELD: mark}]))}


def _messages(fields: dict[str, Raw], mark: dict[str, str]) -> dict[str, Raw]:
    """Mark the user's newest message and the one before, so that the last request's cache entry is found after any
    number of blocks. A single question is not repeated and is not written to the cache.
    """
    raws = _raws.decode(fields["messages"])
    roles = [_object.decode(raw).get("role") for raw in raws]
    asked = [number for number, role in enumerate(roles) if role == "user"]
    if "assistant" not in roles and "tools" not in fields:
        return {}
    marked = list(raws)
    for number in asked[-2:]:
        message = _object.decode(raws[number])
        if parts := _marked_blocks(message.get("content"), mark):
            marked[number] = Raw(_encode(message | {"content": parts}))
    return {"messages": Raw(_encode(marked))} if marked != raws else {}


def _marked_blocks(content: object, mark: dict[str, str]) -> list[Any]:
    """Return a content as blocks with the last one marked, or None if it supports no marker."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list) or not parts or not isinstance(parts[-1], dict):
        return []
    last = parts[-1]
    if last.get("type") in _BARE or (last.get("type") == "text" and not str(last.get("text", "")).strip()):
        return []
    return [*parts[:-1], {**last, ANTHROPIC_FIELD: mark}]
