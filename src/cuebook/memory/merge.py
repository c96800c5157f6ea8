"""What newly found items do to the held ones: repeat them, end them, or stand beside them."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from cuebook.memory.change import Claim, Frame, claim_of, object_stems, role_of
from cuebook.memory.patterns import KEPT_NEWS
from cuebook.memory.remainder import remainder
from cuebook.memory.slots import WORD, clash
from cuebook.memory.subject import item_id, normal
from cuebook.records.memory import Item

#: C, confidence: a repeat adds 0.1, at most 1.0 (MISSION T2).
REPEAT: Final = 0.1
#: C's redundancy threshold (MISSION T6) on content words.
SAME: Final = 0.9
#: Evidence from here on ends a fact. Set on an invented conversation of a nurse: below 0.9 unrelated facts of one
#: topic end
#: each other, above 1.1 changes told in other words are missed.
ENDS: Final = 1.0
#: A statement is compared with at most so many held ones, those that share the most weight; bounds the cost of a
#: common word.
CANDIDATES: Final = 12
#: The same for a statement without a word of change: only the very same measure with another number ends then.
QUIET: Final = 6


class Merged(Struct, frozen=True):
    """The outcome of one merge.

    `kept` are the held items that still hold, repeats raised; `added` the new ones that hold, and what is left of an
    item of which one clause ended; `ended` those this merge ended, each with `valid_to`: held ones, and found ones that
    a later one of the same pass ended. Items that were ended before are not returned.
    """

    kept: list[Item]
    added: list[Item]
    ended: list[Item]


def merge(held: Sequence[Item], found: Sequence[Item]) -> Merged:
    """Return what holds after `found`, in the order it was said, is added to `held`. Cost: linear in both, by a word
    index.
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
    return board.outcome()


#: How sure, and the clause of the old statement that is over ("" for all of it).
Verdict = tuple[float, str]
NOTHING: Final[Verdict] = (0.0, "")


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
        self._past: dict[str, list[Item]] = {}
        self._by_subject: dict[str, set[int]] = {}
        self._new: tuple[Item, Claim] | None = None
        self._rare: dict[str, float] = {}
        self._next = 0
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
        for place, shared in self._overlaps(claim.stems).most_common(CANDIDATES):
            if shared < SAME * len(claim.stems) * 0.9:
                continue
            other = self._claim(place)
            others = other.stems | {value for _, value in other.values}
            alike = len(words & others) / len(words | others)
            if alike >= SAME and not clash(claim.values, other.values) and claim.negative == other.negative:
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
        over = self._superseded(item)
        if not over and item.weight < KEPT_NEWS and item.trust == "user":
            return
        if over:
            item = msgspec.structs.replace(item, supersedes=self._items[over[0][0]].id)
        for place, clause in over:
            rest = remainder(self._items[place], clause)
            self._end(place, item.valid_from)
            if rest is not None and normal(rest.text) not in self._by_text:
                self._place(rest)
        self._place(item)

    def outcome(self) -> Merged:
        """Return the three lists, each in the order it was given."""
        kept = [item for place, item in self._items.items() if place < self._held]
        added = [item for place, item in self._items.items() if place >= self._held]
        return Merged(kept, added, list(self._ended.values()))

    def _place(self, item: Item) -> None:
        place, self._next = self._next, self._next + 1
        self._items[place] = item
        self._by_text[normal(item.text)] = place
        self._by_subject.setdefault(item.subject, set()).add(place)
        keys = frozenset(_keys(item.text))
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
            self._new = (item, claim_of(item))
        return self._new[1]

    def _overlaps(self, stems: Iterable[str]) -> Counter[int]:
        shared: Counter[int] = Counter()
        for found in stems:
            for place in self._index.get(_key(found), ()):
                shared[place] += 1
        return shared

    def _rarity(self, found: str) -> float:
        """Return how rare a stem is among the current items, read once a merge."""
        rarity = self._rare.get(found)
        if rarity is None:
            rarity = self._rare[found] = math.log((len(self._items) + 10) / (self._df[_key(found)] + 1))
        return rarity

    def _superseded(self, item: Item) -> list[tuple[int, str]]:
        """Return the places of the current items that `item` ends, the surest first, each with the clause that is
        over.
        """
        if item.trust != "user":
            return []
        claim = self._read(item)
        shared: dict[int, float] = {}
        for found in claim.stems:
            rarity = self._rarity(found)
            for place in self._index.get(_key(found), ()):
                shared[place] = shared.get(place, 0.0) + rarity
        for place in self._by_subject.get(item.subject, ()) if item.subject else ():
            shared[place] = shared.get(place, 0.0) + 1.0
        tells = claim.change or claim.over or any(frame.done for frame in claim.frames)
        nearest = sorted(shared, key=lambda place: (-shared[place], -place))[: CANDIDATES if tells else QUIET]
        judged = [(*self._evidence(claim, self._claim(place)), place) for place in nearest]
        return [(place, hit) for evidence, hit, place in sorted(judged, reverse=True) if evidence >= ENDS]

    def _evidence(self, new: Claim, old: Claim) -> Verdict:
        """Return how surely `new` ends `old` by the strongest of six reasons, and the clause it ends; 0: it cannot."""
        if new.speaker != old.speaker or new.seq < old.seq:
            return NOTHING
        done = self._done(new, old)
        if done > NOTHING or (new.owners and old.owners and not new.owners & old.owners):
            return done
        reasons = (self._moved, self._over, self._exclusive, self._denied, self._restated)
        return max(reason(new, old) for reason in reasons)

    def _done(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: a clause that reports something done, against a task: "ordered the layers" and "I have to order the
        layers".

        What is no task but has a date ends by the very verb: "the submission is on the 19th" by "we submitted".
        """
        best = NOTHING
        tasks = [frame for frame in old.frames if frame.task] or [frame for frame in old.frames if old.task]
        dated = [
            frame
            for frame in old.frames
            if not old.task and any(kind in {"date", "weekday"} for kind, _ in frame.values)
        ]
        names = new.named | old.named
        for frame in new.frames:
            common = frame.stems & old.stems
            enough = (
                len(common) >= 2
                and object_stems(common) - names
                and self._mass(common) >= 0.6 * self._mass(frame.stems)
            )
            if old.task and enough and not frame.task and (frame.done or old.asks):
                best = max(best, (1.05, ""))
            if not frame.done:
                continue
            for task in (*tasks, *dated):
                common = frame.stems & task.stems
                things = object_stems(common) - names
                if (task in tasks and things) or (task in dated and common - object_stems(common)):
                    share = self._share(
                        common, frame.stems - (frame.named - common), task.stems - (task.named - common)
                    )
                    best = max(best, (share + 0.45, task.text) if share >= 0.5 else NOTHING)
        return best

    def _moved(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: clauses about one thing that give other values of one type, in a statement that reports a change."""
        best = NOTHING
        for one in new.frames:
            roles = role_of(one) if one.change else frozenset()
            for two in old.frames:
                if roles & two.stems and old.named and not one.named & old.named:
                    best = max(best, (1.1, two.text))
                best = max(best, self._revalued(new, old, one, two))
        return best

    def _revalued(self, new: Claim, old: Claim, one: Frame, two: Frame) -> Verdict:
        common = one.stems & two.stems
        clashes = clash(one.values, two.values) - {"name"}
        if not common or not clashes or (new.more and not one.change):
            return NOTHING
        share = self._share(common, one.stems - (one.named - common), two.stems - (two.named - common))
        amounts = {kind for kind in clashes if kind == "money" or kind.startswith("number")}
        headed = bool(amounts and one.heads & two.heads)
        if headed:
            share = max(share, 0.7) if _same_thing(one, two, new, old) else 0.0
        if "place" in clashes and common & (new.named | old.named):
            share = max(share, 0.6)
        same_subject = bool(new.subject) and new.subject == old.subject and new.states and old.states
        changed = one.change or (new.change and share >= 0.7 and len(common) >= 2)
        measured = headed and share >= 0.9 and not new.more
        if share < 0.5 or not (changed or same_subject or measured) or (clashes == {"number"} and not headed):
            return NOTHING
        return (share + 0.5 + 0.1 * changed + 0.15 * same_subject, two.text)

    def _over(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: "quit the choir", "no longer X", "X is off": the phrase's words in the old statement, and how much of
        it they are.
        """
        best = NOTHING
        for phrase in new.over:
            things = object_stems(phrase) or phrase
            for frame in old.frames:
                common = things & frame.stems
                if common and self._mass(common) >= 0.6 * self._mass(things) and not (frame.negative and new.negative):
                    share = self._mass(common) / self._mass(frame.stems)
                    if share >= (0.5 if frame.task else 0.2):
                        best = max(best, (0.8 + share, frame.text))
        return best

    def _exclusive(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: home, job, diet, name, favourites have one value at a time."""
        if not (new.exclusive and new.subject == old.subject) or new.more or bool(new.owners) != bool(old.owners):
            return NOTHING
        if "place" in clash(new.values, old.values) or (new.change and not new.values & old.values):
            return (1.1, "")
        return (1.1, "") if clash(new.values, old.values) and not new.values & old.values else NOTHING

    def _denied(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: the same said with the opposite sign, after a change."""
        best = NOTHING
        for one in new.frames:
            for two in old.frames:
                common = one.stems & two.stems
                if one.negative != two.negative and (one.change or one.negative) and new.change and len(common) >= 2:
                    best = max(best, (0.5 + self._share(common, one.stems, two.stems), two.text))
        return best

    def _restated(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: after a change, what a thing will be now, against the decision about that thing."""
        if not (new.change and old.decided) or new.more:
            return NOTHING
        things = object_stems(new.restated)
        for frame in old.frames:
            common = things & frame.stems
            if (
                common
                and self._mass(common) >= 0.5 * self._mass(frame.stems)
                and self._mass(common) >= 0.5 * self._mass(things)
            ):
                return (1.05, "")
        return NOTHING

    def _share(self, common: frozenset[str], one: frozenset[str], two: frozenset[str]) -> float:
        """Return the weighted share of `common` in the smaller of two statements, damped where both say much more."""
        if not common:
            return 0.0
        mass, left, right = self._mass(common), self._mass(one), self._mass(two)
        return 0.7 * mass / (min(left, right) or 1.0) + 0.3 * mass / (max(left, right) or 1.0)

    def _mass(self, stems: frozenset[str]) -> float:
        return sum(map(self._rarity, stems))


def _same_thing(one: Frame, two: Frame, new: Claim, old: Claim) -> bool:
    """Tell whether two amounts of one head are of one thing: the budget, but not the kitchen's and the terrace's."""
    mine, theirs = one.heads - two.heads, two.heads - one.heads
    return not mine or not theirs or bool(mine & old.stems) or bool(theirs & new.stems)


def _keys(text: str) -> Iterable[str]:
    """Return the index keys of a text: its longer words cut to the first characters that all their forms share."""
    return {_key(word.lower()) for word in WORD.findall(text) if len(word) > 2 or not word.isascii()}


def _key(word: str) -> str:
    return re.sub(r"['’].*", "", word)[:4]
