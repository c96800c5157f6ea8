"""Set cache breakpoints at a window's anchors, for OpenAI (5.6 and later), never on volatile text."""

from collections.abc import Sequence
from typing import Any

import msgspec

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
        fields = _decode(marked[anchor.after] or b"{}")
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
