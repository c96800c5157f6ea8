"""What comes of a conversation to a place: what its items repeat there, end, or add, in the order it all was said.

Conversations are delivered in any order, and a post may be delivered again. What was said earlier than a memory never
ends it; it is ended by it, as if it had come first.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Final

from msgspec.structs import replace

from cuebook.memory.merge import akin, merge
from cuebook.memory.subject import normal
from cuebook.records.memory import CATEGORIES, Category, Item, Memory, Place, Source

_APART: Final = "\x1f"
_CATEGORY: Final[Mapping[str, Category]] = {name: name for name in CATEGORIES}


def memory_id(place: Place, category: str, text: str) -> str:
    """Give a memory's id: 16 hex digits over its place, category and normalised text or key."""
    return hashlib.sha256(f"{place.kind}|{place.id}|{category}|{normal(text)}".encode()).hexdigest()[:16]


def placed(
    place: Place,
    held: Sequence[Memory],
    found: Sequence[Item],
    *,
    conversation: str,
    now: float,
    news: Collection[str] = (),
    zone: tzinfo = UTC,
) -> list[Memory]:
    """Give the memories of a place that are others, or new, after a conversation's items came to it.

    `news` are posts (ids) that nothing came of before: they were said after all else of their conversation. `zone` is
    whose days the conversation speaks of.
    """
    return _Placing(place, held, conversation, now, zone).placed(found, frozenset(news))


class _Placing:
    """A place while what one delivery brings comes to it."""

    def __init__(self, place: Place, held: Sequence[Memory], conversation: str, now: float, zone: tzinfo) -> None:
        self._place = place
        self._zone = zone
        self._known = {memory.id: memory for memory in held}
        self._held = held
        self._conversation = conversation
        self._now = now
        self._after = dict(self._known)
        self._again: dict[str, str] = {}
        self._pointed: set[str] = set()  # whose `ended_by` was decided before it was known what becomes of that
        self._moments: list[float] = []  # when what has that `seq` was said last

    def placed(self, found: Sequence[Item], news: frozenset[str]) -> list[Memory]:
        """Give what is other than it was."""
        items = self._over([_item(each) for each in self._held if each.category in CATEGORIES], found)
        fresh = _uncorrected(self._held, [self._sourced(each) for each in found if each.valid_to is None])
        items, fresh = self._in_order(items, fresh, frozenset(f"{self._conversation}{_APART}{each}" for each in news))
        names = {each.id: self._id(each) for each in found}
        past, fresh = self._belated(items, fresh)
        items = [past.pop(each.id, each) for each in items]
        result = merge(items, fresh, zone=self._zone)
        for each in (*result.added, *result.ended, *past.values()):
            names.setdefault(each.id, self._id(each))
        history = [each for each in items if each.valid_to is not None]
        for each in (*result.kept, *result.ended, *history, *past.values(), *result.added):
            by = result.by.get(each.id) if each.valid_to is not None else None
            self._keep(each, supersedes=names.get(each.supersedes or "", each.supersedes), by=names.get(by or "", by))
        return [each for each in map(self._renamed, self._after.values()) if each != self._known.get(each.id)]

    def _id(self, item: Item) -> str:
        return item.id if item.id in self._after else memory_id(self._place, item.category, item.text)

    def _sourced(self, item: Item) -> Item:
        return replace(item, sources=tuple(f"{self._conversation}{_APART}{post}" for post in item.sources))

    def _over(self, items: Sequence[Item], found: Sequence[Item]) -> list[Item]:
        """End what a pass ended in the conversation, unless another says it too: none takes away what another said."""
        over = {memory_id(self._place, each.category, each.text): each for each in found if each.valid_to is not None}
        left = []
        for each in items:
            last = over.get(each.id)
            own = all(source.split(_APART, 1)[0] == self._conversation for source in each.sources)
            if last is not None and each.valid_to is None and own:
                by = next((new for new in found if last.id == new.supersedes or new.valid_from == last.valid_to), None)
                ender = memory_id(self._place, by.category, by.text) if by is not None and by.id != last.id else None
                self._after[each.id] = replace(self._after[each.id], ended_by=ender)
                left.append(replace(each, valid_to=last.valid_to))
            else:
                left.append(each)
        return left

    def _in_order(
        self, items: Sequence[Item], fresh: Sequence[Item], news: frozenset[str]
    ) -> tuple[list[Item], list[Item]]:
        """Give both with the ranks of when they were said last as `seq`, the fresh ones in that order.

        Within a conversation its own order counts, not its clock.
        """
        own = f"{self._conversation}{_APART}"
        last = max((e.valid_from for e in items if any(s.startswith(own) for s in e.sources)), default=float("-inf"))
        times: list[float] = []
        for each in fresh:
            said = each.valid_from
            if not news.isdisjoint(each.sources):
                said = last = max(last, said)
            times.append(said)
        held = [max(each.valid_from, self._known[each.id].repeated_at) for each in items]
        self._moments = sorted({*times, *held})
        rank = {said: n for n, said in enumerate(self._moments)}
        ranked = [replace(each, seq=rank[said]) for each, said in zip(fresh, times, strict=True)]
        items = [replace(each, seq=rank[said]) for each, said in zip(items, held, strict=True)]
        return items, sorted(ranked, key=lambda each: each.seq)

    def _belated(self, items: Sequence[Item], fresh: Sequence[Item]) -> tuple[dict[str, Item], list[Item]]:
        """Give what was said before some that is known already, as it stands between that, by ids; and the others.

        Held items are among the first where one of those ended them earlier, or says them too.
        """
        newest = max((each.seq for each in items), default=-1)
        past: dict[str, Item] = {}
        left: list[Item] = []
        for each in fresh:
            if each.seq >= newest or self._read_before(each):
                left.append(each)
                continue
            near = akin(each, [past.get(one.id, one) for one in items])
            over = self._over_by(each, [one for one in near if one.seq <= each.seq])
            item = replace(each, supersedes=over[-1].id) if over else each
            own, rests = self._before_those(item, [one for one in near if one.seq > each.seq], past)
            left.extend(rests if own else [item])
            for one in over:
                past[one.id] = replace(one, valid_to=max(one.valid_from, each.valid_from))
                by = own or memory_id(self._place, each.category, each.text)
                self._after[one.id] = replace(self._after[one.id], ended_by=by)
                self._pointed.add(one.id)
        return past, left

    def _read_before(self, item: Item) -> bool:
        """Tell whether an item is one that ended, read again from the same post."""
        sources = set(item.sources)
        return any(
            sources <= {f"{each.conversation}{_APART}{each.post}" for each in memory.sources}
            for memory in self._held
            if memory.valid_to is not None and normal(memory.text) == normal(item.text)
        )

    def _over_by(self, item: Item, before: Sequence[Item]) -> list[Item]:
        """Give what had not ended yet when an item was said, and ends with it.

        What holds still is ended by the merge; what had ended by then is history.
        """
        held = [each for each in before if each.valid_to is not None and each.valid_to > item.valid_from]
        return [each for each in held if merge([replace(each, valid_to=None)], [item]).by]

    def _before_those(self, item: Item, later: Sequence[Item], past: dict[str, Item]) -> tuple[str | None, list[Item]]:
        """Place an item before what was said later: ended by it, or said again by it; gives the id of the memory it is,
        None where it holds still, and what is left of it where one of its statements ended.
        """
        for each in sorted(later, key=lambda one: one.seq):
            said = replace(each, valid_from=self._moments[each.seq], valid_to=None, supersedes=None)
            done = merge([item], [said])
            if done.ended:
                ended = replace(done.ended[0], id=self._own_id(item), supersedes=item.supersedes)
                past[ended.id] = ended
                if done.by:
                    last = past.get(each.id, each)
                    before = self._known.get(last.supersedes or "")
                    if before is None or before.valid_from <= item.valid_from:
                        past[each.id] = replace(last, supersedes=ended.id)
                    self._ended_by(ended, each.id)
                return ended.id, [one for one in done.added if one.id != said.id]
            if not done.added and done.kept and set(done.kept[0].sources) > set(item.sources):
                again = past.get(each.id, each)
                both = merge([replace(again, valid_to=None)], [replace(item, text=again.text, seq=again.seq)]).kept
                past[each.id] = replace(
                    both[0] if both else again,
                    valid_from=min(item.valid_from, again.valid_from),
                    valid_to=again.valid_to,
                    seq=again.seq,
                )
                return each.id, []
        return None, []

    def _own_id(self, item: Item) -> str:
        """Give the id an item has in the place; of one whose text holds already, that of its history."""
        own = memory_id(self._place, item.category, item.text)
        return (
            own if own not in self._known else memory_id(self._place, item.category, f"{item.text}|{item.valid_from}")
        )

    def _ended_by(self, ended: Item, by: str) -> None:
        before = self._after.get(ended.id)
        base = before or _memory(self._place, ended, None, self._now)
        self._after[ended.id] = replace(base, ended_by=by)

    def _keep(self, item: Item, *, supersedes: str | None, by: str | None) -> None:
        own = self._id(item)
        before = self._after.get(own)
        if before is not None and before.valid_to is not None and item.valid_to is None:
            name = f"{before.text}|{before.valid_to}"
            self._again[own] = past = memory_id(self._place, before.category, name)
            known = self._known.get(past)
            self._after[past] = replace(before, id=past, no=known.no if known else 0)  # that it held before is history
            before = replace(before, written=False, sources=(), ended_by=None)
        kept = _memory(self._place, replace(item, id=own, supersedes=supersedes), before, self._now)
        known = self._known.get(own)
        if known is None or known.sources != kept.sources:
            kept = replace(kept, repeated_at=max(kept.valid_from, self._moments[item.seq]))
        self._after[own] = replace(kept, ended_by=by) if by is not None else kept

    def _renamed(self, memory: Memory) -> Memory:
        """Let what named a memory that holds again name what it was."""
        if memory.id in self._pointed and memory.ended_by not in self._after:
            memory = replace(memory, ended_by=None)  # it was nothing of its own
        known = self._known.get(memory.id)
        if known is None:
            return memory
        if memory.supersedes == known.supersedes and memory.supersedes in self._again:
            memory = replace(memory, supersedes=self._again[memory.supersedes])
        if memory.ended_by == known.ended_by and memory.ended_by in self._again:
            memory = replace(memory, ended_by=self._again[memory.ended_by])
        return memory


def _uncorrected(held: Sequence[Memory], fresh: Sequence[Item]) -> list[Item]:
    """Leave out what posts said of which somebody wrote what they should have said: it comes back by no reading."""
    corrected: dict[str, set[str]] = {}
    for memory in held:
        if memory.written:
            posts = (f"{each.conversation}{_APART}{each.post}" for each in memory.sources)
            corrected.setdefault(memory.category, set()).update(posts)
    known = {(each.category, normal(each.text)) for each in held}
    return [
        each
        for each in fresh
        if (each.category, normal(each.text)) in known
        or not corrected.get(each.category, set()).issuperset(each.sources)
    ]


def _item(memory: Memory) -> Item:
    return Item(
        id=memory.id,
        category=_CATEGORY[memory.category],
        text=memory.text,
        sources=tuple(f"{each.conversation}{_APART}{each.post}" for each in memory.sources),
        subject=memory.subject,
        trust=memory.trust,
        confidence=memory.confidence,
        valid_from=memory.valid_from,
        valid_to=memory.valid_to,
        supersedes=memory.supersedes,
        name=memory.name,
        status=memory.status,
        weight=memory.weight,
    )


def _memory(place: Place, item: Item, before: Memory | None, now: float) -> Memory:
    sources = tuple(Source(*each.split(_APART, 1)) for each in item.sources)
    repeated = before is not None and set(sources) - set(before.sources)
    base = before or Memory(id=item.id, place=place, category=item.category, text=item.text, created_at=now)
    return replace(
        base,
        text=item.text,
        sources=tuple(sorted(sources)),
        subject=item.subject,
        trust=item.trust,
        confidence=item.confidence,
        valid_from=item.valid_from,
        valid_to=item.valid_to,
        supersedes=item.supersedes,
        name=item.name,
        status=item.status,
        weight=item.weight,
        used_at=now if repeated or before is None else base.used_at,
    )
