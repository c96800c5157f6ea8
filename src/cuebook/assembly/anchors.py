"""How cache breakpoints go on the OpenAI wire (5.6 and later): at a window's anchors, never on volatile text."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cuebook.assembly.window import Sheet, volatile_text
from cuebook.records.turn import Anchor

#: A content block's marker (notes: provider-caches; OpenAI's prompt caching guide, read 2026-11).
BREAKPOINT = {"mode": "explicit"}
FIELD = "prompt_cache_breakpoint"

_decode: Any = msgspec.json.Decoder(dict[str, Any]).decode
_encode = msgspec.json.Encoder().encode


def with_breakpoints(messages: Sequence[bytes], anchors: Sequence[Anchor], sheet: Sheet) -> tuple[bytes, ...]:
    """Mark the places where caching can hold on. Where the client placed markers of its own, nothing is added."""
    if any(FIELD.encode() in message for message in messages):
        return tuple(messages)
    marked = list(messages)
    volatile = volatile_text(sheet.volatile, sheet.fence) if sheet.volatile else ""
    for anchor in anchors:
        fields = _decode(marked[anchor.after])
        if anchor.name in ("system", "summary"):
            parts = _parts(fields.get("content"), sheet.summary.text if sheet.summary else "", mark_tail=True)
        else:
            parts = _parts(fields.get("content"), volatile, mark_tail=False)
        if parts:  # calls have no text a marker could stand on
            marked[anchor.after] = _encode(fields | {"content": parts})
    return tuple(marked)


def _parts(content: object, tail: str, *, mark_tail: bool) -> list[Any]:
    """Give a content as parts with its stable part marked, and its tail (a summary, or volatile text) apart."""
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
