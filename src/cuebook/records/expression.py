"""When regular expressions are compiled: each when it is first used, since all of them together take longer than
everything else that an import does (measured: 75 of 140 ms; docs/design/002).
"""

import re
from collections.abc import Callable, Iterator
from functools import cached_property


class Expression:
    """A regular expression with the methods of a compiled one, made of its text when one of them is first called.

    A call costs 0.1 µs more; what is called for every word of a text is compiled at once instead.
    """

    def __init__(self, pattern: str, flags: re.RegexFlag = re.NOFLAG) -> None:
        self.pattern = pattern
        self._flags = flags

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, self._flags)

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self._compiled.search(text, start)

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self._compiled.match(text, start)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self._compiled.fullmatch(text)

    def finditer(self, text: str, start: int = 0, end: int | None = None) -> Iterator[re.Match[str]]:
        return self._compiled.finditer(text, start, len(text) if end is None else end)

    def findall(self, text: str) -> list[str]:
        return self._compiled.findall(text)

    def split(self, text: str) -> list[str]:
        return self._compiled.split(text)

    def sub(self, new: str | Callable[[re.Match[str]], str], text: str, count: int = 0) -> str:
        return self._compiled.sub(new, text, count)


def lowered(text: str) -> str:
    """Return `text` in lower case, place for place: a lower-case pattern finds in it what it finds in `text` with
    `re.IGNORECASE`, in half the time or less. The letters ſ, ı and İ count as s and i there too.
    """
    return text.replace("ſ", "s").replace("ı", "i").replace("İ", "i").lower()
