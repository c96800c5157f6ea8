"""Cluster prompts by topic: average-linkage groups over a similarity, each with its characteristic words.

The similarity (0 to 1) is an argument; `by_words` computes one without an embedder. Two groups merge while the mean
similarity of their pairs of prompts is at least `least`. The number of groups is not fixed in advance, and a prompt
unlike all others stays alone. The same texts give the same groups in any order.

`near_duplicates` finds almost equal texts: Jaccard similarity of word shingles, exact without comparing all pairs. A
pair of at least `DUPLICATE` similarity shares one of the rarest shingles of each (prefix filtering: Bayardo, Ma,
Srikant, "Scaling up all pairs similarity search", 2007), so only texts that share one are compared.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import ceil, log, sqrt
from typing import Final, TypeAlias

from msgspec import Struct

#: The mean similarity by words from which groups merge: measured, docs/design/007.
LEAST: Final = 0.12
#: Maximum prompts per run: the pairs of this many take some seconds.
MOST: Final = 600
#: Number of words that name a group.
GROUP_WORDS: Final = 5

#: Placeholders of a template; their names say nothing about the topic.
_PLACE: Final = re.compile(r"\$\{?[A-Za-z_]\w*\}?|\{\{[^{}]*\}\}")
_WORD: Final = re.compile("[぀-ヿ㐀-鿿가-힯]{2}|[^\\W\\d_぀-ヿ㐀-鿿가-힯]{3,}")


#: Weighted words of texts, by text name.
Weights: TypeAlias = Mapping[str, Mapping[str, float]]


class Member(Struct, frozen=True):
    """A prompt of a group, with its mean similarity to the others."""

    name: str
    likeness: float


class Group(Struct, frozen=True):
    """Similar prompts, the most central first; `words` are those they share and others do not have."""

    words: tuple[str, ...]
    likeness: float  # mean similarity of all pairs
    members: tuple[Member, ...]


def group(
    chosen: Iterable[str], weights: Weights, likeness: Callable[[str, str], float], *, least: float
) -> tuple[list[Group], list[str]]:
    """Return the groups of two or more, the largest first, and the names of the others.

    `weights` are those of the words of all existing texts, by name: `weigh`.
    """
    names = sorted(chosen)
    like = [[0.0] * len(names) for _ in names]
    for at, name in enumerate(names):
        for other in range(at):
            like[at][other] = like[other][at] = likeness(name, names[other])
    groups = [
        _group([names[at] for at in each], [[like[a][b] for b in each] for a in each], weights)
        for each in _linked(like, least)
        if len(each) > 1
    ]
    grouped = {member.name for each in groups for member in each.members}
    groups.sort(key=lambda each: (-len(each.members), -each.likeness, each.members[0].name))
    return groups, [name for name in names if name not in grouped]


def _linked(like: Sequence[Sequence[float]], least: float) -> list[list[int]]:
    """Merge groups, the most similar first, while the mean similarity between two of them is at least `least`."""
    between = [list(row) for row in like]
    groups: dict[int, list[int]] = {at: [at] for at in range(len(like))}
    heap = [(-row[other], at, other) for at, row in enumerate(between) for other in range(at) if row[other] >= least]
    heapify(heap)
    while heap:
        negative, at, other = heappop(heap)
        if at not in groups or other not in groups or between[at][other] != -negative:
            continue
        kept, gone = min(at, other), max(at, other)
        size, more = len(groups[kept]), len(groups[gone])
        groups[kept] += groups.pop(gone)
        for third in groups:
            if third != kept:
                mean = (size * between[kept][third] + more * between[gone][third]) / (size + more)
                between[kept][third] = between[third][kept] = mean
                if mean >= least:
                    heappush(heap, (-mean, kept, third))
    return list(groups.values())


def _group(names: Sequence[str], like: Sequence[Sequence[float]], weights: Weights) -> Group:
    means = [(sum(row) - row[at]) / (len(names) - 1) for at, row in enumerate(like)]
    members = [Member(name, round(mean, 4)) for name, mean in zip(names, means, strict=True)]
    members.sort(key=lambda each: (-each.likeness, each.name))
    return Group(_words_of(names, weights), round(sum(means) / len(names), 4), tuple(members))


def _words_of(names: Sequence[str], weights: Weights) -> tuple[str, ...]:
    """Return the words in at least two texts of a group, ordered by weight and rarity elsewhere."""
    holders = Counter(word for name in names for word in weights[name])
    everywhere = Counter(word for fields in weights.values() for word in fields)
    elsewhere = max(1, len(weights) - len(names))
    values: dict[str, float] = {}
    for word, held in holders.items():
        own = held / len(names) - (everywhere[word] - held) / elsewhere
        if held > 1 and own > 0:
            values[word] = own * sum(weights[name].get(word, 0.0) for name in names)
    return tuple(sorted(values, key=lambda word: (-values[word], word))[:GROUP_WORDS])


def by_words(weights: Weights, one: str, other: str) -> float:
    """Return the similarity of two texts by shared words; rare words count more."""
    few, many = sorted((weights[one], weights[other]), key=len)
    return sum(weight * many.get(word, 0.0) for word, weight in few.items())


def weigh(texts: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Return each text's words with unit-length weights: frequency in the text times rarity in the others."""
    counts = {name: Counter(_WORD.findall(_PLACE.sub(" ", text).lower())) for name, text in texts.items()}
    holders = Counter(word for each in counts.values() for word in each)
    results: dict[str, dict[str, float]] = {}
    for name, count in counts.items():
        raw = {word: (1 + log(n)) * log((1 + len(texts)) / holders[word]) for word, n in count.items()}
        length = sqrt(sum(weight * weight for weight in raw.values())) or 1.0
        results[name] = {word: weight / length for word, weight in raw.items()}
    return results


# ---- near duplicates ------------------------------------------------------------------------------------------------

#: Words per shingle.
WIDTH: Final = 4
#: Minimum shingles of a text for a comparison: shorter ones are similar by chance.
SHORTEST: Final = 12
#: Minimum reported similarity. At 0.8, one word in 36 differs if changes are isolated: (1 - 4x)/(1 + 4x).
DUPLICATE: Final = 0.8
#: Maximum texts per shingle. With more copies, each is still compared with the first ones.
_MOST: Final = 50

#: A word; in scripts without spaces, each character is a word.
_ANY_WORD = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\\W_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def near_duplicates(texts: Mapping[str, str]) -> list[tuple[str, str, float]]:
    """Return for each text its most similar predecessor with their similarity, if it is at least DUPLICATE."""
    sets = {name: shingles(text) for name, text in texts.items()}
    sets = {name: results for name, results in sets.items() if len(results) >= SHORTEST}
    frequency = Counter(shingle for results in sets.values() for shingle in results)
    index: dict[tuple[str, ...], list[str]] = {}
    pairs: list[tuple[str, str, float]] = []
    for name, results in sets.items():
        ordered = sorted(results, key=lambda shingle: (frequency[shingle], shingle))
        prefix = ordered[: len(results) - ceil(DUPLICATE * len(results) - 1e-9) + 1]
        near: dict[str, float] = {}
        for other in {other for shingle in prefix for other in index.get(shingle, ())}:
            shared = len(results & sets[other])
            near[other] = shared / (len(results) + len(sets[other]) - shared)
        best = max(near, key=lambda other: (near[other], other), default="")
        if best and near[best] >= DUPLICATE:
            pairs.append((best, name, near[best]))
        for shingle in prefix:
            places = index.setdefault(shingle, [])
            if len(places) < _MOST:
                places.append(name)
    return pairs


def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Return all runs of `WIDTH` words."""
    words = _ANY_WORD.findall(text.lower())
    return frozenset(zip(*(words[start:] for start in range(WIDTH)), strict=False))
