"""Find near-duplicate texts: Jaccard similarity of word shingles, without comparing all pairs.

A pair of at least `LEAST` similarity shares one of the rarest shingles of each (prefix filtering: Bayardo, Ma, Srikant,
"Scaling up all pairs similarity search", 2007), so only texts that share one are compared. The measure is exact.
"""

import re
from collections import Counter
from collections.abc import Mapping
from math import ceil
from typing import Final

#: Words per shingle.
WIDTH: Final = 4
#: Minimum shingles of a text for a comparison: shorter ones are similar by chance.
SHORTEST: Final = 12
#: Minimum reported similarity. At 0.8, one word in 36 differs if changes are isolated: (1 - 4x)/(1 + 4x).
LEAST: Final = 0.8
#: Maximum texts per shingle. With more copies, each is still compared with the first ones.
_MOST: Final = 50

#: A word; in scripts without spaces, each character is a word.
_WORD = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def near_duplicates(texts: Mapping[str, str], *, least: float = LEAST) -> list[tuple[str, str, float]]:
    """Return for each text its most similar predecessor with their similarity, if it is at least `least`."""
    sets = {name: shingles(text) for name, text in texts.items()}
    sets = {name: results for name, results in sets.items() if len(results) >= SHORTEST}
    frequency = Counter(shingle for results in sets.values() for shingle in results)
    index: dict[tuple[str, ...], list[str]] = {}
    pairs: list[tuple[str, str, float]] = []
    for name, results in sets.items():
        ordered = sorted(results, key=lambda shingle: (frequency[shingle], shingle))
        prefix = ordered[: len(results) - ceil(least * len(results) - 1e-9) + 1]
        near: dict[str, float] = {}
        for other in {other for shingle in prefix for other in index.get(shingle, ())}:
            shared = len(results & sets[other])
            near[other] = shared / (len(results) + len(sets[other]) - shared)
        best = max(near, key=lambda other: (near[other], other), default="")
        if best and near[best] >= least:
            pairs.append((best, name, near[best]))
        for shingle in prefix:
            places = index.setdefault(shingle, [])
            if len(places) < _MOST:
                places.append(name)
    return pairs


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Return all runs of `WIDTH` words."""
    words = _WORD.findall(text.lower())
    return frozenset(zip(*(words[start:] for start in range(WIDTH)), strict=False))
