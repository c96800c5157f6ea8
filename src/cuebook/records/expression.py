"""Lazily compiled regular expressions, and small text helpers.

Compiling all expressions at once takes most of the import time (measured: 75 of 140 ms; docs/design/002).
"""

import re
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any


class Expression:
    """A regular expression that is compiled when one of its methods is first used.

    Its methods are those of `re.Pattern`. `pattern` may be a function that loads the pattern from a file.
    """

    search: Callable[..., re.Match[str] | None]
    match: Callable[..., re.Match[str] | None]
    fullmatch: Callable[..., re.Match[str] | None]
    finditer: Callable[..., Iterator[re.Match[str]]]
    findall: Callable[..., list[str]]
    split: Callable[..., list[str]]
    sub: Callable[..., str]

    def __init__(self, pattern: str | Callable[[], str], flags: re.RegexFlag = re.NOFLAG) -> None:
        self._pattern = pattern
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        """Compile the expression at the first use of a method. Later uses find the methods without this call."""
        if name not in Expression.__annotations__:
            raise AttributeError(name)
        compiled = re.compile(self._pattern if isinstance(self._pattern, str) else self._pattern(), self._flags)
        vars(self).update({each: getattr(compiled, each) for each in Expression.__annotations__})
        return vars(self)[name]


def lowered(text: str) -> str:
    """Return `text` in lower case, at the same length, for fast case-insensitive search.

    A lower-case pattern matches it like `text` with `re.IGNORECASE`, in half the time or less. ſ, ı, İ become s, i.
    """
    return text.replace("ſ", "s").replace("ı", "i").replace("İ", "i").lower()


_ONE_KIND = bytes.maketrans(b"[]{}", b"()()")
_OPEN = ord("(")
#: Innermost levels removed at once; ordinary JSON leaves few brackets, which are counted one by one.
_PASSES = 8
_NO_STRUCTURE = bytes(byte for byte in range(256) if byte not in b'"[]{}')


def nests_deeper(document: bytes, levels: int) -> bool:
    """Return whether brackets outside of strings nest deeper than `levels`, more than 8; either for invalid JSON."""
    if document.count(b"[") + document.count(b"{") <= levels:
        return False
    if b"\\" in document:
        document = document.replace(b"\\\\", b"").replace(b'\\"', b"")
    quoted = document.translate(_ONE_KIND, _NO_STRUCTURE)
    brackets = b"".join(quoted.split(b'"')[::2])  # every second piece is outside of strings
    for _ in range(_PASSES):
        brackets = brackets.replace(b"()", b"")
    reached = accumulate(1 if bracket == _OPEN else -1 for bracket in brackets)
    return any(level > levels - _PASSES for level in reached)


def shortened(text: str, most: int) -> str:
    """Return a text as one line of at most `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def counted(count: float, one: str, more: str = "") -> str:
    """Return a number with its noun: "1 post", "2,000 posts", "1.5 posts"; `more` is an irregular plural."""
    text = f"{count:,.1f}".removesuffix(".0")
    return f"{text} {one if text == '1' else more or f'{one}s'}"
