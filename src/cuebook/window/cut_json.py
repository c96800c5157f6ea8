"""Shorten a JSON document so that it stays one: fewer items, shorter strings, and a note in words at each gap."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from cuebook.window.tokens import Counter

#: Characters of a string for each item that a list may have.
_CHARS: Final = 24
#: Least fields of an object: they name what the document is about.
_FIELDS: Final = 8
_HEAD_SHARE: Final = 0.6

_encode: Callable[[Any], bytes] = msgspec.json.Encoder().encode


def cut_json(text: str, tokens: int, *, count: Counter) -> str | None:
    """Return a JSON document of at most `tokens`, or None if the text is no JSON or does not fit.

    Lists keep their first and last items, strings their first and last characters, objects their first fields. One
    limit for all is found by bisection.
    """
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
    best = None
    low, high = 0, max(len(text) // _CHARS, _longest(document))
    while low <= high:
        limit = (low + high) // 2
        shorter = _encode(_shortened(document, limit)).decode()
        if count(shorter) <= tokens:
            best, low = shorter, limit + 1
        else:
            high = limit - 1
    return best


def _longest(document: Any) -> int:
    if isinstance(document, list | dict):
        values = document.values() if isinstance(document, dict) else document
        return max(len(document), *map(_longest, values), 0)
    return 0


def _shortened(document: Any, limit: int) -> Any:
    if isinstance(document, str):
        return _ends(document, limit * _CHARS, "characters")
    if isinstance(document, list):
        if len(document) <= limit:
            return [_shortened(each, limit) for each in document]
        head = max(1, round(limit * _HEAD_SHARE)) if limit else 0
        kept = [*document[:head], *(document[head - limit :] if limit > head else [])]
        items = [_shortened(each, limit) for each in kept]
        return [*items[:head], f"[{len(document) - len(kept):,} items left out]", *items[head:]]
    if isinstance(document, dict):
        names = list(document)[: max(limit, _FIELDS)]
        left_out = len(document) - len(names)
        note = {"[shortened]": f"{left_out:,} fields left out"} if left_out else {}
        return {name: _shortened(document[name], limit) for name in names} | note
    return document


def _ends(text: str, most: int, what: str) -> str:
    """Return a text's start and end around a note, if it is longer than `most` and than the note."""
    note = f" [{len(text) - most:,} {what} left out] "
    if len(text) <= most + len(note):
        return text
    head = round(most * _HEAD_SHARE)
    return text[:head] + note + (text[head - most :] if most > head else "")
