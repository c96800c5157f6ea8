"""Deduplicate and supersede quotes: a new quote repeats a stored one or marks it as earlier. Nothing is removed.

Two quotes are linked by shared words, weighted by their rarity among the stored quotes, and by values of one type that
differ: another date, number or name. The newer of the two always wins.
"""

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from cuebook.languages import detect, language, words_of
from cuebook.memory.quotes import FULL_SCORE, LISTED, names_of, values_of
from cuebook.memory.tokenizer import normal
from cuebook.records.memory import Item

#: Confidence that a repeat adds, up to 1.0.
REPEAT: Final = 0.1
#: Minimum shared topic if the newer replaces a value, if it has a word of change, and if both.
SAME_WITH_VALUE: Final = 0.42
SAME_WITH_UPDATE: Final = 0.45
SAME_WITH_BOTH: Final = 0.30
#: Minimum shared topic words if no date, time or number differs.
WORDS_IN_COMMON: Final = 2
#: Minimum shared part of the longer quote's topic.
SAME_OF_LONGER: Final = 0.22
#: The same if only a code differs: rules about two kinds of names share most of their words.
SAME_WITH_CODE: Final = 0.55
SAME_OF_LONGER_WITH_CODE: Final = 0.4
#: From this shared part on, the older is never shown without the newer, even if it is not marked.
COMPANION: Final = 0.25
#: Weight of a topic word, and of one that is a sign (`moved`, `allergic`).
TOPIC: Final = 0.8
SIGN: Final = 0.35
#: Leading letters that identify a word in all its forms: "allergy" and "allergic".
LETTERS: Final = 5
#: Maximum stored quotes compared with a new one: those that share the rarest words.
CANDIDATES: Final = 24
#: Maximum stored quotes examined per word, the newest first.
MANY: Final = 200
#: Bonus for a quote that repeats a stored one's rare words: with a value or a word of change, and without.
AGAIN: Final = 1.6
AGAIN_PLAIN: Final = 0.4
#: A word in at most this many stored quotes is rare.
RARE: Final = 2


#: The items after a merge: the stored ones, repeats raised and superseded ones marked, and the new ones.
Merged = tuple[list[Item], list[Item]]


class QuoteWords(Struct, frozen=True):
    """Features to compare two quotes: weights of topic words, values by type, names, and signs of a change."""

    topic: dict[str, float]
    values: dict[str, frozenset[str]]
    names: frozenset[str]
    update: bool
    adds: bool


#: The shared part of two quotes' topics: of the shorter one, and of the longer one.
Shares = tuple[float, float]


def merge(items: Sequence[Item], entries: Iterable[Item]) -> Merged:
    """Return the stored items after merging `entries` (oldest first) into `items`. Linear in both, by a word index."""
    board = _Board(items)
    for item in entries:
        board.add(item)
    return board.merged()


def unmarked(items: Sequence[Item]) -> list[Item]:
    """Return all items of a conversation; those whose newer quote was deleted or corrected are current again."""
    ids = {each.id for each in items if each.valid_to is None}
    return [
        replace(each, superseded_by=None) if each.superseded_by is not None and each.superseded_by not in ids else each
        for each in items
    ]


def companions(items: Sequence[Item]) -> dict[str, list[str]]:
    """Return for each item the ids of newer ones that must be shown with it."""
    board = _Board(())
    results: dict[str, list[str]] = {}
    for item in sorted(items, key=lambda each: (each.valid_from, each.seq)):
        words = read_words(item.text)
        for older, (shorter, _) in board.near(item):
            if (
                older.id != item.id
                and shorter >= COMPANION
                and (_differ(read_words(older.text), words) or words.update)
            ):
                results.setdefault(older.id, []).append(item.id)
        board.place(item)
    for item in items:
        if item.superseded_by:
            results.setdefault(item.id, []).append(item.superseded_by)
    return results


def nearest(sought: Sequence[str], contents: Sequence[str], most: int) -> set[int]:
    """Return the indexes of the stored texts that share the rarest words with a sought text, at most `most` each."""
    index: dict[str, list[int]] = {}
    for place, text in enumerate(contents):
        for key in _keys(text):
            index.setdefault(key, []).append(place)
    results: set[int] = set()
    for text in sought:
        shared: dict[int, float] = {}
        for key in sorted(_keys(text)):
            holding = index.get(key, ())
            weight = math.log((len(contents) + 1) / (len(holding) + 1)) + 0.01
            for place in holding[-MANY:]:
                shared[place] = shared.get(place, 0.0) + weight
        results.update(heapq.nlargest(most, shared, key=lambda place: (shared[place], place)))
    return results


def _keys(text: str) -> frozenset[str]:
    return frozenset(word[:LETTERS] for word in language(detect(text)).content(text))


@lru_cache(maxsize=1 << 14)  # each pass compares what is new with all that is stored
def read_words(text: str) -> QuoteWords:
    """Return a quote's topic, values and signs."""
    lists = language(detect(text))
    signs = lists.signs(text)
    values: dict[str, set[str]] = {}
    for kind, value in values_of(text):
        values.setdefault(kind, set()).add(value)
    for word in words_of(text):
        if "date" in lists.kinds(word):
            values.setdefault("date", set()).add(word[:3])
        if "number" in lists.kinds(word):
            values.setdefault("number", set()).add(word)
    fields = {part for results in values.values() for value in results for part in words_of(value)}
    names = frozenset(name.lower()[:LETTERS] for name in names_of(text, lists))
    topic: dict[str, float] = {}
    for word in lists.content(text):
        if word in fields or word.isdigit():
            continue
        kinds = lists.kinds(word)
        if "date" not in kinds and "number" not in kinds and "smalltalk" not in kinds:
            key = word[:LETTERS] if lists.spaced else word
            topic[key] = max(topic.get(key, 0.0), SIGN if kinds else TOPIC)
    frozen = {kind: frozenset(results) for kind, results in values.items()}
    return QuoteWords(topic=topic, values=frozen, names=names, update=signs["update"] > 0, adds=signs["also"] > 0)


class _Board:
    """The stored quotes, indexed by topic word, while new ones are added."""

    def __init__(self, held: Sequence[Item]) -> None:
        self.items: dict[str, Item] = {}
        self.held = {item.id for item in held}
        self.texts: dict[tuple[str, str], str] = {}
        self.index: dict[str, list[str]] = {}
        self.df: Counter[str] = Counter()
        for item in held:
            self.place(item)

    def place(self, item: Item) -> None:
        if item.id not in self.items:
            topic = read_words(item.text).topic
            self.df.update(topic.keys())
            for word in topic:
                self.index.setdefault(word, []).append(item.id)
        self.items[item.id] = item
        self.texts[item.voice, normal(item.text)] = item.id

    def add(self, item: Item) -> None:
        near = self.near(item)
        known = self._repeated(item, near)
        if known is not None:
            self._repeat(known, item)
            return
        linked = [other for other, shares in near if item.weight >= LISTED / 2 and _linked(item, other, shares)]
        linked.sort(key=lambda other: other.seq)
        earlier = [other for other in linked if other.seq <= item.seq and not self._replaced_before(other, item)]
        later = [other for other in linked if other.seq > item.seq]
        words = read_words(item.text)
        shared = [read_words(older.text).topic.keys() & words.topic.keys() for older, _ in near]
        again = any(self.df[word] <= RARE for each in shared for word in each)
        if again and item.trust == "user" and item.weight > LISTED / 2:  # a repeated question does not become a fact
            more = AGAIN if words.update or words.values else AGAIN_PLAIN
            item = replace(item, weight=round(min(1.0, item.weight + more / FULL_SCORE), 4))
        if earlier:
            item = replace(item, supersedes=earlier[-1].id)
        if later:  # it arrived late: a later statement is stored already
            item = replace(item, superseded_by=later[0].id)
        for other in earlier:
            self.items[other.id] = replace(other, superseded_by=item.id)
        if later and not self._replaced_after(later[0], item):
            self.items[later[0].id] = replace(later[0], supersedes=item.id)
        self.place(item)

    def _replaced_before(self, other: Item, item: Item) -> bool:
        """Return whether another quote had superseded a quote before an item did."""
        after = self.items.get(other.superseded_by or "")
        return other.superseded_by is not None and (after is None or after.seq <= item.seq)

    def _replaced_after(self, other: Item, item: Item) -> bool:
        """Return whether the quote that it superseded is later than an item."""
        before = self.items.get(other.supersedes or "")
        return before is not None and before.seq > item.seq

    def near(self, item: Item) -> list[tuple[Item, Shares]]:
        """Return the stored quotes that share the most topic words, with the shared part."""
        total = len(self.items) + 1
        weights = {word: own * self._rarity(word, total) for word, own in read_words(item.text).topic.items()}
        shared: dict[str, float] = {}
        for word, weight in sorted(weights.items(), key=lambda each: self.df[each[0]]):
            for id_ in self.index.get(word, ())[-MANY:]:
                shared[id_] = shared.get(id_, 0.0) + weight
        own = sum(weights.values())
        best = sorted(shared, key=lambda id_: (-shared[id_], -self.items[id_].seq))[:CANDIDATES]
        results = []
        for id_ in best:
            other = self.items[id_]
            theirs = sum(weight * self._rarity(word, total) for word, weight in read_words(other.text).topic.items())
            least, most = min(own, theirs), max(own, theirs)
            if least > 0 and shared[id_] / most >= SAME_OF_LONGER:  # a short remark covers little of a long one
                results.append((other, (shared[id_] / least, shared[id_] / most)))
        return results

    def _rarity(self, word: str, total: int) -> float:
        """Return how distinctive a word is: 1 for a new one, near 0 for one in most quotes."""
        return (1.0 - 0.9 * math.log(1 + self.df[word]) / math.log(1 + max(total, 8))) ** 2

    def _repeated(self, item: Item, near: Sequence[tuple[Item, Shares]]) -> str | None:
        """Return the stored quote that states the same, or that contains all of the new one."""
        text = normal(item.text)
        if (item.voice, text) in self.texts:
            return self.texts[item.voice, text]
        for older, _ in near:
            if (
                (older.trust, older.voice) == (item.trust, item.voice)
                and len(text) > LETTERS
                and text in normal(older.text)
            ):
                return older.id
        return None

    def _repeat(self, id_: str, item: Item) -> None:
        old = self.items[id_]
        fresh = tuple(source for source in item.sources if source not in old.sources)
        if fresh:
            if old.superseded_by in self.items and old.superseded_by is not None:
                self.items[old.superseded_by] = replace(self.items[old.superseded_by], superseded_by=id_)
            self.items[id_] = replace(
                old,
                sources=old.sources + fresh,
                confidence=min(1.0, round(old.confidence + REPEAT, 6)),
                valid_from=min(old.valid_from, item.valid_from),
                seq=max(old.seq, item.seq),
                weight=max(old.weight, item.weight),
                valid_to=None,  # the repeat makes it current again
                superseded_by=None,
            )

    def merged(self) -> Merged:
        """Return the merge outcome."""
        items = [item for item in self.items.values() if item.id in self.held]
        return items, [item for item in self.items.values() if item.id not in self.held]


def _linked(item: Item, other: Item, shares: Shares) -> bool:
    """Return whether the newer of two quotes supersedes the older."""
    shorter, longer = shares
    older, newer = (other, item) if other.seq <= item.seq else (item, other)
    old, new = read_words(older.text), read_words(newer.text)
    if (
        (newer.trust, newer.voice) != (older.trust, older.voice)
        or new.adds
        or not set(newer.sources).isdisjoint(older.sources)
    ):  # of the same post
        return False
    if new.names and old.names and not new.names & old.names and not new.update:
        return False
    differ = _differ(old, new)
    # A shared word is enough if a date or number differs: "the exam is on the 4th", "the exam is on the 9th".
    if not (differ - {"code"}) and len(old.topic.keys() & new.topic.keys()) < WORDS_IN_COMMON:
        return False
    least = SAME_WITH_BOTH if differ and new.update else SAME_WITH_VALUE if differ else SAME_WITH_UPDATE
    if differ == {"code"}:
        return shorter >= SAME_WITH_CODE and longer >= SAME_OF_LONGER_WITH_CODE
    return bool(differ or new.update) and shorter >= least


def _differ(old: QuoteWords, new: QuoteWords) -> set[str]:
    """Return the types of values that both quotes have, without a value in common.

    A quote's number may only identify its subject: "plank 3 is 21 cm long" and "plank 5 is 35 cm long".
    """
    kinds = {kind for kind in new.values.keys() & old.values.keys() if not new.values[kind] & old.values[kind]}
    if min(len(old.values.get("number", ())), len(new.values.get("number", ()))) > 1 and not new.update:
        kinds.discard("number")
    return kinds
