"""Detect redundant texts: word sets with an exact Jaccard similarity of at least 0.9 to an older text, without
comparing all pairs.

Two such similar sets differ in few words: at most m/9, with B the older set of m words. B's words are divided by their
hash into more parts than can differ, so at least one part is the same in both sets, and so is the XOR of its words'
hashes. B is indexed under the XOR of each of its parts. No pair can be missed; a collision only costs a comparison.
The cost per text depends on its own words, and hardly on the number of texts.
"""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable
from functools import reduce
from itertools import combinations, islice
from operator import xor
from typing import Final

from cuebook.memory.tokenizer import normal

#: Minimum length in characters; shorter texts are ignored.
LEAST_CHARACTERS: Final = 50
#: Largest sets of the size classes: within a class, at most a ninth of that many words can differ.
_SIZES: Final = [8 + 9 * i for i in range(10)]
while _SIZES[-1] < 10_000_000:
    _SIZES.append(_SIZES[-1] * 11 // 10)
#: Parts by how many words can differ, if that is one or two. Otherwise one more than can differ, each alone.
_PARTS: Final = {1: 5, 2: 4}
_64_BITS: Final = (1 << 64) - 1
_SPREAD: Final = 0x9E3779B97F4A7C15


class Redundancy:
    """The word sets of texts that no newer text repeats. Words are identified by 64 bits of Python's keyed hash."""

    def __init__(self) -> None:
        self._words: dict[int, array[int]] = {}  # arrays, which the garbage collector does not scan
        self._places: dict[int, int | list[int]] = {}

    def add(self, number: int, text: str) -> list[int]:
        """Add a text under a new number. Return the numbers of the older texts that it repeats, which are removed."""
        if len(text) < LEAST_CHARACTERS:
            return []
        words = frozenset(map(hash, text.lower().split()))
        if not words:
            return []
        size = len(words)
        least, most, own = -(-9 * size // 10), 10 * size // 9, _class_of(size)
        keys = {place: _keys_of(words, place) for place in range(_class_of(least), _class_of(most) + 1)}
        repeated = []
        for other in sorted(self._under(key for results in keys.values() for key in results)):
            held = self._words[other]
            if least <= len(held) <= most and alike(words, held):
                repeated.append(other)
                self._remove(other)
        self._words[number] = array("q", words)
        for key in keys[own]:
            there = self._places.setdefault(key, number)
            if isinstance(there, list):
                there.append(number)
            elif there != number:
                self._places[key] = [there, number]
        return repeated

    def _under(self, keys: Iterable[int]) -> set[int]:
        """Return the texts indexed under any of these keys, which share a part."""
        results: set[int] = set()
        for key in keys:
            there = self._places.get(key)
            if there is not None:
                results.update(there if isinstance(there, list) else (there,))
        return results

    def _remove(self, number: int) -> None:
        words = frozenset(self._words.pop(number))
        for key in _keys_of(words, _class_of(len(words))):
            there = self._places.get(key)
            if isinstance(there, list):
                there.remove(number)
                if not there:
                    del self._places[key]
            elif there == number:
                del self._places[key]


def alike(words: frozenset[int], others: Collection[int]) -> bool:
    """Return whether two sets have a Jaccard similarity of at least 0.9, in integer arithmetic."""
    both = len(words.intersection(others))
    return 10 * both >= 9 * (len(words) + len(others) - both)


def _class_of(size: int) -> int:
    return bisect_left(_SIZES, size)


def _keys_of(words: frozenset[int], place: int) -> list[int]:
    """Return the index keys of a set in a size class: the XOR of its words without some parts, for each choice.

    If one or two words can differ, all other parts are combined: alone they would have few, common words.
    """
    differ = _SIZES[place] // 9
    parts = _PARTS.get(differ, differ + 1)
    mixed = [0] * parts
    for word in words:
        mixed[word % parts] ^= word
    if differ in _PARTS:
        total = reduce(xor, mixed)
        mixed = [reduce(xor, left, total) for left in combinations(mixed, differ)]
    first = (place + 1) << 24
    return [(value ^ (first + part) * _SPREAD) & _64_BITS for part, value in enumerate(mixed)]


# ---- copied text ----------------------------------------------------------------------------------------------------

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
