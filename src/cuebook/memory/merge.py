"""What newly found items do to the held ones: repeat them, end them, or stand beside them."""

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, tzinfo
from typing import Final

import msgspec
from msgspec import Struct

from cuebook.memory.change import Claim, as_held, claim_of
from cuebook.memory.ends import anew, ends, lost, parted, sayings, search_words
from cuebook.memory.patterns import KEPT_NEWS
from cuebook.memory.reasons import Judge
from cuebook.memory.relations import clues, relations
from cuebook.memory.remainder import remainder
from cuebook.memory.slots import WORD, clash, stem
from cuebook.memory.subject import item_id, normal
from cuebook.memory.terms import lapses
from cuebook.records.expression import Expression
from cuebook.records.memory import Item

#: C, confidence: a repeat adds 0.1, at most 1.0 (MISSION T2).
REPEAT: Final = 0.1
#: C's redundancy threshold (MISSION T6) on content words.
SAME: Final = 0.9
#: Evidence from here on ends a fact. Set on an invented conversation of a nurse: below 0.9 unrelated facts of one
#: topic end
#: each other, above 1.1 changes told in other words are missed.
ENDS: Final = 0.9
#: A statement is compared with at most so many held ones, those that share the most weight; bounds the cost of a
#: common word.
CANDIDATES: Final = 8
#: The same for a statement without a word of change: only the very same measure with another number ends then.
QUIET: Final = 6

#: A noun in so many current items or fewer names one thing: "slideshow", but not the name of the largest project.
FEW: Final = 4
#: Of those that hold a word, so many at most are looked at to find what is like a text, the newest.
MANY: Final = 160
#: How a tool says that what it tells replaces what it told before.
UPDATED: Final = Expression(r"\b(?:updated|changed|moved|rescheduled|replaced|renamed|edited)\b", re.IGNORECASE)

#: Forms of so many characters or fewer may have a stem shorter than a key: "tins", "fishes".
SHORT_FORM: Final = 6

_NOWHERE: Final[frozenset[int]] = frozenset()


class Merged(Struct, frozen=True):
    """The outcome of one merge.

    `kept` are the held items that still hold, repeats raised; `added` the new ones that hold, and what is left of an
    item of which one clause ended; `ended` those this merge ended, each with `valid_to`: held ones, and found ones that
    a later one of the same pass ended. Items that were ended before are not returned. `by` says which item ended one,
    by their ids; what lapsed is not in it.
    """

    kept: list[Item]
    added: list[Item]
    ended: list[Item]
    by: Mapping[str, str] = {}


def merge(held: Sequence[Item], found: Sequence[Item], *, zone: tzinfo = UTC) -> Merged:
    """Return what holds after `found`, in the order it was said, is added to `held`; days are those of `zone`. Cost:
    linear in both, by a word index.
    """
    board = _Board(held)
    for item in found:
        if board.known_as_ended(item):
            continue
        repeated = board.repeated(item)
        if repeated is not None:
            board.repeat(repeated, item)
        else:
            board.add(item)
    board.lapse(max((item.valid_from for item in found), default=0.0), zone)
    return board.outcome()


def sought(item: Item) -> str:
    """Return the words by which the held items are found that an item can say again, end, or be ended by."""
    slots = [relation.slot for relation in relations(item.text)] if item.trust == "user" else []
    over = search_words(ends(item.text), sayings(item.text)) if item.trust == "user" else frozenset()
    return " ".join([item.text, item.subject, *sorted(over.union(*map(clues, slots)))])


def nearest(sought: Sequence[str], held: Sequence[str], most: int) -> set[int]:
    """Return the places of those held texts that share the rarest words with any of some texts, at most so many each.

    Cost: linear in both. A word that many hold counts for the newest MANY of them.
    """
    index: dict[str, list[int]] = {}
    for place, text in enumerate(held):
        for key in _keys(text):
            index.setdefault(key, []).append(place)
    found: set[int] = set()
    for text in sought:
        shared: dict[int, float] = {}
        for key in sorted(_keys(text)):
            holding = index.get(key, ())
            weight = math.log((len(held) + 1) / (len(holding) + 1)) + 0.01
            for place in holding[-MANY:]:
                shared[place] = shared.get(place, 0.0) + weight
        found.update(heapq.nlargest(most, shared, key=lambda place: (shared[place], place)))
    return found


def akin(item: Item, others: Sequence[Item]) -> list[Item]:
    """Return the others that share the most words with an item, or its subject: those it can say again, end, or be
    ended by. At most CANDIDATES.
    """
    keys = {*_keys(item.text), *_keys(item.subject)}
    shared = [
        (len(keys & {*_keys(each.text), *_keys(each.subject)}) + (each.subject == item.subject), place)
        for place, each in enumerate(others)
    ]
    nearest = sorted((each for each in shared if each[0]), key=lambda each: (-each[0], each[1]))[:CANDIDATES]
    return [others[place] for _, place in sorted(nearest, key=lambda each: each[1])]


class _Board:
    """The current items while one merge runs, indexed by content word."""

    def __init__(self, held: Sequence[Item]) -> None:
        self._items: dict[int, Item] = {}
        self._words: dict[int, frozenset[str]] = {}
        self._claims: dict[int, Claim] = {}
        self._index: dict[str, set[int]] = {}
        self._by_text: dict[str, int] = {}
        self._df: Counter[str] = Counter()
        self._ended: dict[str, Item] = {}
        self._by: dict[str, str] = {}
        self._past: dict[str, list[Item]] = {}
        self._by_subject: dict[str, set[int]] = {}
        self._numbered: set[int] = set()
        self._new: tuple[Item, Claim] | None = None
        self._rare: dict[str, float] = {}
        self._next = 0
        self._judge = Judge(self._rarity, self._common)
        for item in held:
            if item.valid_to is None:
                self._place(item)
            else:
                self._past.setdefault(normal(item.text), []).append(item)
        self._held = self._next

    def repeated(self, item: Item) -> int | None:
        """Return the place of the current item that `item` says again."""
        place = self._by_text.get(normal(item.text))
        if place is not None:
            return place
        claim = self._read(item)
        words = claim.stems | {value for _, value in claim.values}
        if not words:
            return None
        for place in self._sharing(claim.stems, SAME * len(claim.stems) * 0.9):
            other = self._claim(place)
            others = other.stems | {value for _, value in other.values}
            alike = len(words & others) / len(words | others)
            if alike < SAME or clash(claim.values, other.values) or claim.negative != other.negative:
                continue
            if bool(claim.over) == bool(other.over) and not anew(claim.ends, other.text):
                return place
        return None

    def repeat(self, place: int, item: Item) -> None:
        """Raise the confidence of the item at `place`, once per new source (C: +0.1)."""
        old = self._items[place]
        fresh = tuple(source for source in item.sources if source not in old.sources)
        if fresh:
            self._items[place] = msgspec.structs.replace(
                old,
                sources=old.sources + fresh,
                confidence=min(1.0, round(old.confidence + REPEAT, 6)),
                seq=max(old.seq, item.seq),
                weight=max(old.weight, item.weight),
            )

    def known_as_ended(self, item: Item) -> bool:
        """Tell whether an item is the very one that ended before, read again from the same post."""
        return any(set(item.sources) <= set(past.sources) for past in self._past.get(normal(item.text), []))

    def add(self, item: Item) -> None:
        """Add `item`, and end what it supersedes."""
        if any(past.id == item.id for past in self._past.get(normal(item.text), [])):
            item = msgspec.structs.replace(item, id=item_id(item.category, f"{item.text}|{item.valid_from}"))
        over, claim = self._superseded(item), self._new[1] if self._new and self._new[0] is item else None
        if not over and item.weight < KEPT_NEWS and item.trust == "user":
            return
        if over:
            item = msgspec.structs.replace(item, supersedes=self._items[over[0][0]].id)
        for place, clause in over:
            rest = self._left_of(self._items[place], clause, claim)
            self._by[self._items[place].id] = item.id
            self._end(place, item.valid_from)
            if rest is not None and normal(rest.text) not in self._by_text:
                self._place(rest)
        self._place(item)
        if claim is not None:
            self._claims[self._next - 1] = as_held(claim)

    def _left_of(self, item: Item, clause: str, claim: Claim | None) -> Item | None:
        """Return what of an item still holds where a clause of it is over by the claim of a new one."""
        if claim is None:
            return remainder(item, clause)
        over = lost(claim.ends, claim.said).union(*claim.over)
        return remainder(item, clause, parted=parted(claim.ends, claim.said), over=over)

    def lapse(self, now: float, zone: tzinfo) -> None:
        """End what by its own words held until before `now`."""
        for place, item in list(self._items.items()):
            term = lapses(item.text, item.valid_from, zone=zone)
            if term is not None and term < now:
                self._end(place, term)

    def outcome(self) -> Merged:
        """Return the three lists, each in the order it was given."""
        kept = [item for place, item in self._items.items() if place < self._held]
        added = [item for place, item in self._items.items() if place >= self._held]
        return Merged(kept, added, list(self._ended.values()), self._by)

    def _place(self, item: Item) -> None:
        place, self._next = self._next, self._next + 1
        self._items[place] = item
        self._by_text[normal(item.text)] = place
        self._by_subject.setdefault(item.subject, set()).add(place)
        if any(map(str.isdigit, item.text)):
            self._numbered.add(place)
        keys = frozenset((*_keys(item.text), *_keys(item.subject)))
        self._words[place] = keys
        self._df.update(keys)
        for key in keys:
            self._index.setdefault(key, set()).add(place)

    def _end(self, place: int, when: float) -> None:
        item = self._items.pop(place)
        self._past.setdefault(normal(item.text), []).append(item)
        self._ended[item.id] = msgspec.structs.replace(item, valid_to=max(when, item.valid_from))
        self._by_text.pop(normal(item.text), None)
        self._by_subject[item.subject].discard(place)
        self._numbered.discard(place)
        for key in self._words.pop(place):
            self._index[key].discard(place)

    def _claim(self, place: int) -> Claim:
        claim = self._claims.get(place)
        if claim is None:
            claim = self._claims[place] = claim_of(self._items[place])
        return claim

    def _read(self, item: Item) -> Claim:
        """Return the claim of the item being added, read once."""
        if self._new is None or self._new[0] is not item:
            self._new = (item, claim_of(item, news=True))
        return self._new[1]

    def _sharing(self, stems: Iterable[str], least: float) -> list[int]:
        """Return the places of the items that share so many stems, the most first: CANDIDATES at most.

        Who shares all but a few holds one of the rarest: only those are looked at.
        """
        holding = sorted((self._index.get(_key(found), _NOWHERE) for found in stems), key=len)
        first = len(holding) - math.ceil(least) + 1
        some = set[int]().union(*holding[: max(first, 1)])
        shared = [(sum(place in each for each in holding), -place) for place in some]
        return [-place for count, place in heapq.nlargest(CANDIDATES, shared) if count >= least]

    def _overlaps(self, stems: Iterable[str]) -> Counter[int]:
        shared: Counter[int] = Counter()
        for found in sorted(stems):
            for place in self._index.get(_key(found), ()):
                shared[place] += 1
        return shared

    def _rarity(self, found: str) -> float:
        """Return how rare a stem is among the current items, read once a merge."""
        rarity = self._rare.get(found)
        if rarity is None:
            rarity = self._rare[found] = math.log((len(self._items) + 10) / (self._df[_key(found)] + 1))
        return rarity

    def _common(self) -> float:
        """Return the rarity at which a stem is no longer rare: it stands in more than FEW current items."""
        return math.log((len(self._items) + 10) / (FEW + 1))

    def _superseded(self, item: Item) -> list[tuple[int, str]]:
        """Return the places of the current items that `item` ends, the surest first, each with the clause that is
        over.
        """
        if item.trust != "user":
            return [(place, "") for place in self._updated(item)] if item.trust == "tool" else []
        claim = self._read(item)
        weights: list[tuple[float, AbstractSet[int] | None]]
        weights = [(self._rarity(stem), self._index.get(_key(stem))) for stem in sorted(claim.stems.union(*claim.over))]
        words = frozenset().union(*(clues(relation.slot) for relation in claim.relations))
        weights += [(3.0, self._index.get(_key(word))) for word in sorted(words)]
        same = self._by_subject.get(item.subject, _NOWHERE)
        weights.append((1.0, same if item.subject else None))
        denies = claim.ends or not all(each.holds for each in claim.said)
        news = claim.change or claim.over or claim.gone or claim.reached or claim.answered or denies
        tells = news or any(frame.done for frame in claim.frames)
        bare = not tells and not claim.relations and not any(frame.past for frame in claim.frames)
        # all that a statement without news can correct is a number, or what is said of its very subject
        among = (self._numbered, same) if bare else ()
        nearest = _heaviest(weights, CANDIDATES if tells else QUIET, among)
        told = [
            (self._rarity(word), self._index.get(_key(word))) for word in sorted(search_words(claim.ends, claim.said))
        ]
        nearest += [place for place in _heaviest(told, CANDIDATES, ()) if place not in nearest]
        judged = [(*self._judge.evidence(claim, self._claim(place)), place) for place in nearest]
        return [(place, hit) for evidence, hit, place in sorted(judged, reverse=True) if evidence >= ENDS]

    def _updated(self, item: Item) -> list[int]:
        """Return the places of the tool results that one of a tool says it changed: they name the same code, and
        another value.
        """
        claim = self._read(item)
        marks = {value for value in claim.values if value[0] == "code"}
        if not marks or not (UPDATED.search(item.text) or claim.change):
            return []
        near = (place for place, _ in self._overlaps(claim.stems).most_common(CANDIDATES))
        tools = [place for place in near if self._items[place].trust == "tool"]
        return [
            place
            for place in tools
            if marks & self._claim(place).values and clash(claim.values, self._claim(place).values)
        ]


def _heaviest(
    weights: Iterable[tuple[float, AbstractSet[int] | None]], most: int, among: Sequence[AbstractSet[int]]
) -> list[int]:
    """Return the places that hold the most weight, the newer first of two alike; only such as one of `among` has, where
    there are any.

    The heaviest words are looked at first, and no place is begun with that could not come so far any more.
    """
    left = sorted(((weight, held) for weight, held in weights if held), key=lambda each: -each[0])
    mass: dict[int, float] = {}
    rest = sum(weight for weight, _ in left)
    for weight, held in left:
        enough = len(held) > most < len(mass) and heapq.nlargest(most, mass.values())[-1] > rest
        rest -= weight
        for place in [place for place in mass if place in held] if enough else held:
            if place in mass:
                mass[place] += weight
            elif not among or any(place in some for some in among):
                mass[place] = weight
    return heapq.nsmallest(most, mass, key=lambda place: (-mass[place], -place))


def _keys(text: str) -> Iterable[str]:
    """Return the index keys of a text: its longer words cut to the first characters that all their forms share, and
    those of their stems, which are shorter where the word is: "tins" and "tin".
    """
    found = {word.lower() for word in WORD.findall(text) if len(word) > 2 or not word.isascii()}
    return {*map(_key, found), *(_key(stem(word)) for word in found if len(word) <= SHORT_FORM)}


def _key(word: str) -> str:
    return word.partition("'")[0].partition("’")[0][:4]
