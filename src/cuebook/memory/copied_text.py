"""Detect copied text: RUN words in a row of another text, or all words of a shorter text."""

from collections.abc import Iterable
from itertools import islice

from cuebook.memory.item_keys import normal

#: Words in a row that count as copied: chance repeats of this length are rare, and quotations are longer.
RUN = 5
#: A shorter text counts as a whole if it has at least two words and this many characters.
LEAST = 12


class CopyIndex:
    """An index of the word runs of some texts, to find copies of them in other texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._runs: set[tuple[str, ...]] = set()
        for text in texts:
            words = _words(text)
            runs = _runs(words, RUN)
            if not runs and len(words) > 1 and sum(map(len, words)) >= LEAST:
                runs = {tuple(words)}
            self._runs |= runs
        self._sizes = sorted({len(run) for run in self._runs})

    def __bool__(self) -> bool:
        """Return whether the index has any words."""
        return bool(self._runs)

    def stand_in(self, text: str) -> bool:
        """Return whether a text repeats any of the indexed words."""
        if not self._runs or not text:
            return False
        words = _words(text)
        return any(not self._runs.isdisjoint(_runs(words, size)) for size in self._sizes)


def _words(text: str) -> list[str]:
    return ["".join(filter(str.isalnum, word)) for word in normal(text).split()]


def _runs(words: list[str], size: int) -> set[tuple[str, ...]]:
    return (
        set(zip(*(islice(words, start, None) for start in range(size)), strict=False)) if len(words) >= size else set()
    )
