"""JSON as models write it: fenced, with trailing commas, single quotes, comments, bare words, or cut off at its end.

Nothing is guessed beyond that: what stands there is read, in one pass, to a depth and a length.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

#: Characters of a text that are read, and levels of nesting.
READ: Final = 20_000
DEEPEST: Final = 32
#: Brackets that begin nothing, behind which none is looked for any more.
TRIES: Final = 64

_FENCE: Final = re.compile(r"```[\w-]*[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL)
_SPACE: Final = re.compile(r"(?:\s|//[^\n]*|/\*.*?(?:\*/|\Z)|#[^\n]*)+", re.DOTALL)
_BARE: Final = re.compile(r"[^\s,:{}\[\]\"'`“”]+(?:[ \t]+[^\s,:{}\[\]\"'`“”]+)*")
_NUMBER: Final = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?(?:[eE][+-]?\d{1,2})?")
_QUOTES: Final = {'"': '"', "'": "'", "“": "”", "`": "`"}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_WORDS: Final[dict[str, Any]] = {"true": True, "false": False, "null": None, "none": None}


class NotJsonError(ValueError):
    """A text is no JSON, however loosely it is read."""


def documents(text: str) -> Iterator[tuple[Any, bool]]:
    """Give what reads as an object or a list in a text, and whether it was fenced; the fenced ones first."""
    text = text[:READ]
    for fenced in _FENCE.finditer(text):
        yield from ((value, True) for value in _found(fenced[1]))
    yield from ((value, False) for value in _found(_FENCE.sub(" ", text)))


def _found(text: str) -> Iterator[Any]:
    at = failed = 0
    while failed < TRIES and (begin := _first(text, at)) >= 0:
        try:
            value, at = _value(text, begin, 0)
        except NotJsonError:
            at, failed = begin + 1, failed + 1
        else:
            yield value


def _first(text: str, at: int) -> int:
    found = [place for place in (text.find("{", at), text.find("[", at)) if place >= 0]
    return min(found, default=-1)


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    at = _skip(text, at)
    if depth > DEEPEST or at >= len(text):
        raise NotJsonError
    if text[at] == "{":
        return _object(text, at + 1, depth)
    if text[at] == "[":
        return _list(text, at + 1, depth)
    if text[at] in _QUOTES:
        return _string(text, at)
    bare = _BARE.match(text, at)
    if bare is None:
        raise NotJsonError
    word = bare[0].rstrip()
    if _NUMBER.fullmatch(word):
        return float(word), bare.end()
    return _WORDS.get(word.casefold(), word), bare.end()


def _object(text: str, at: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while True:
        at = _skip(text, at)
        while at < len(text) and text[at] == ",":
            at = _skip(text, at + 1)
        if at >= len(text):
            return found, at  # cut off: what came whole is read
        if text[at] == "}":
            return found, at + 1
        key, at = _value(text, at, depth + 1)
        at = _skip(text, at)
        if at >= len(text):
            return found, at
        if isinstance(key, dict | list) or text[at] != ":":
            raise NotJsonError
        if _skip(text, at + 1) >= len(text):
            return found, len(text)
        value, at = _value(text, at + 1, depth + 1)
        found[_name(key)] = value


def _name(key: Any) -> str:
    if isinstance(key, float) and key.is_integer():
        return str(int(key))
    return {True: "true", False: "false", None: "null"}.get(key, str(key)) if not isinstance(key, str) else key


def _list(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    while True:
        at = _skip(text, at)
        while at < len(text) and text[at] == ",":
            at = _skip(text, at + 1)
        if at >= len(text):
            return found, at
        if text[at] == "]":
            return found, at + 1
        value, at = _value(text, at, depth + 1)
        found.append(value)


def _string(text: str, at: int) -> tuple[str, int]:
    end, found = _QUOTES[text[at]], list[str]()
    at += 1
    while at < len(text) and text[at] != end:
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
            found.append(_ESCAPES.get(text[at], text[at]))
        else:
            found.append(text[at])
        at += 1
    return "".join(found), at + 1
