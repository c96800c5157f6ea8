"""Which texts say again what an older one said: exact Jaccard similarity of word sets, at least 0.9, without comparing
all pairs (C, "Redundancy Detection"; the algorithm: notes/performance.md 4).

Two sets that are so alike differ in few words: with A the newer, B the older set of m words, at most m/9. B's words are
divided by their hash into one part more than can differ, so at least one part is the same in both, and with it the
exclusive or of its words' hashes. B lies under that of each of its parts. No pair can be missed; a chance meeting only
costs a comparison. The cost of a text depends on its own words, not on how many texts there are.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

#: Shorter texts are ignored (C's own code: notes/seed-origins.md 3.1).
LEAST_CHARACTERS: Final = 50
#: Largest sets of the size classes: within one, at most a ninth of that many words can differ.
_SIZES: Final = [8 + 9 * i for i in range(10)]
while _SIZES[-1] < 10_000_000:
    _SIZES.append(_SIZES[-1] * 11 // 10)
_64_BITS: Final = (1 << 64) - 1
_SPREAD: Final = 0x9E3779B97F4A7C15


class _Kept(NamedTuple):
    """A text in the index: the hashes of its words, and where it lies."""

    words: "array[int]"
    keys: "array[int]"


class Redundancy:
    """The word sets of texts that none newer repeats. Words are told apart by 64 bits of Python's keyed hash."""

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}
        self._places: dict[int, int | list[int]] = {}

    def add(self, number: int, text: str) -> list[int]:
        """Add a text under a new number; answers with the numbers of the older ones it repeats, which leave."""
        if len(text) < LEAST_CHARACTERS:
            return []
        words = frozenset(map(hash, text.lower().split()))
        if not words:
            return []
        repeated = sorted(other for other in self._candidates(words) if alike(words, self._kept[other].words))
        for other in repeated:
            self._remove(other)
        kept = _Kept(array("q", words), array("Q", _keys(words, _class_of(len(words)))))
        self._kept[number] = kept
        for key in kept.keys:
            held = self._places.setdefault(key, number)
            if isinstance(held, list):
                held.append(number)
            elif held != number:
                self._places[key] = [held, number]
        return repeated

    def _candidates(self, words: frozenset[int]) -> set[int]:
        """Return the texts that share a part with these words and are of a size to be alike."""
        least, most = -(-9 * len(words) // 10), 10 * len(words) // 9
        found: set[int] = set()
        for place in range(_class_of(least), _class_of(most) + 1):
            for key in _keys(words, place):
                held = self._places.get(key)
                if held is not None:
                    found.update(held if isinstance(held, list) else (held,))
        return {other for other in found if least <= len(self._kept[other].words) <= most}

    def _remove(self, number: int) -> None:
        for key in self._kept.pop(number).keys:
            held = self._places.get(key)
            if isinstance(held, list):
                held.remove(number)
                if not held:
                    del self._places[key]
            elif held == number:
                del self._places[key]


def alike(words: frozenset[int], others: Collection[int]) -> bool:
    """Tell whether two sets have a Jaccard similarity of at least 0.9, in whole numbers."""
    both = len(words.intersection(others))
    return 10 * both >= 9 * (len(words) + len(others) - both)


def _class_of(size: int) -> int:
    return bisect_left(_SIZES, size)


def _keys(words: frozenset[int], place: int) -> Iterator[int]:
    """Return where a set lies in a class: for each part its number and the exclusive or of its words."""
    parts = _SIZES[place] // 9 + 1
    mixed = [0] * parts
    for word in words:
        mixed[word % parts] ^= word
    first = (place + 1) << 24
    for part, value in enumerate(mixed):
        yield (value ^ (first + part) * _SPREAD) & _64_BITS
