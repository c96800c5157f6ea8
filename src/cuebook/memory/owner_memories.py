"""Merge a conversation's quotes into a place's memories (repeat, add, or supersede), and compute confidence (C).

Conversations arrive in any order, and a post may arrive again. The time of a statement decides, not its arrival. A
conversation never ends a statement of another one. Repeats raise a memory's confidence, and so do answers that repeat
it. Idle time lowers it.
"""

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from cuebook.memory.compress import visible
from cuebook.memory.quotes import values_of
from cuebook.memory.supersede import merge
from cuebook.memory.tokenizer import normal, words
from cuebook.records.memory import CATEGORIES, KNOWLEDGE, Item, Memory, Place, Source

_APART: Final = "\x1f"
_SHARED: Final = [each for each in Item.__struct_fields__ if each in Memory.__struct_fields__ and each != "sources"]


def memory_id(place: Place, category: str, text: str) -> str:
    """Return a memory's id: 16 hex digits over its place, category and normalized text or key."""
    return hashlib.sha256(f"{place.kind}|{place.id}|{category}|{normal(text)}".encode()).hexdigest()[:16]


def earlier_version(memory: Memory, *, now: float) -> Memory:
    """Return the version of a memory that a correction ends, as a memory of its own. It ends after it began."""
    ended = now if now > memory.valid_from else math.nextafter(memory.valid_from, math.inf)
    own = _version_id(memory, ended)
    return replace(memory, no=0, id=own, valid_to=ended, ended_by=memory.id, written=True)


def is_earlier_version(memory: Memory) -> bool:
    """Return whether a correction ended this memory, which is a version of the corrected one."""
    return memory.valid_to is not None and memory.id == _version_id(memory, memory.valid_to)


def _version_id(memory: Memory, ended: float) -> str:
    return memory_id(memory.place, memory.category, f"{memory.text}|{ended!r}")


def merge_into_place(
    place: Place,
    memories: Sequence[Memory],
    entries: Sequence[Item],
    *,
    conversation: str,
    now: float,
    news: Collection[str] = (),
) -> list[Memory]:
    """Return the changed and new memories of a place after a conversation's items were merged into it.

    `news` are ids of posts that contributed nothing before: they count as later than all else in their conversation,
    whatever its clock says.
    """
    known = {memory.id: memory for memory in memories}
    items = [_item(each) for each in memories if each.category in CATEGORIES and each.valid_to is None]
    ids = _ids_among(place, entries, memories)
    fresh = [_sourced(each, ids, conversation) for each in entries if each.valid_to is None]
    items, fresh, moments = _in_order(known, items, _uncorrected(memories, fresh), conversation, frozenset(news))
    kept, added = merge(items, fresh)
    after = _ended(known, [_sourced(each, ids, conversation) for each in entries if each.valid_to is not None])
    for item in (*kept, *added):
        before = known.get(item.id)
        memory = _memory(place, item, before, now)
        if before is None or before.sources != memory.sources:
            memory = replace(memory, repeated_at=max(memory.valid_from, moments[item.seq]))
        if memory != before:
            after.append(memory)
    return after


def _ended(known: Mapping[str, Memory], ended: Sequence[Item]) -> list[Memory]:
    """Return the current memories that end with an item, because no other post states them."""
    memories = [(known.get(each.id), each) for each in ended]
    return [
        replace(memory, valid_to=item.valid_to, ended_by=item.superseded_by)
        for memory, item in memories
        if memory is not None
        and memory.valid_to is None
        and not memory.written
        and {f"{each.conversation}{_APART}{each.post}" for each in memory.sources} <= set(item.sources)
    ]


def _ids_among(place: Place, entries: Sequence[Item], memories: Sequence[Memory]) -> dict[str, str]:
    """Return the memory ids of items. A corrected memory keeps the id of its old text."""
    texts = {each.id: normal(each.text) for each in memories}
    by_text = {(each.category, normal(each.text)): each.id for each in memories if not is_earlier_version(each)}
    ids: dict[str, str] = {}
    for item in entries:
        own, text = memory_id(place, item.category, item.text), normal(item.text)
        free = own if texts.get(own, text) == text else memory_id(place, item.category, f"{text}|{own}")
        ids[item.id] = by_text.get((item.category, text), free)
    return ids


def _sourced(item: Item, ids: Mapping[str, str], conversation: str) -> Item:
    """Return an item with the place's ids and with its conversation in its sources."""
    return replace(
        item,
        id=ids[item.id],
        sources=tuple(f"{conversation}{_APART}{post}" for post in item.sources),
        supersedes=ids.get(item.supersedes or ""),
        superseded_by=ids.get(item.superseded_by or ""),
    )


def _in_order(
    memories: Mapping[str, Memory],
    items: Sequence[Item],
    fresh: Sequence[Item],
    conversation: str,
    news: frozenset[str],
) -> tuple[list[Item], list[Item], list[float]]:
    """Return stored and fresh items with their rank by time as `seq`, the fresh ones in that order, and the times."""
    own = f"{conversation}{_APART}"
    last = max((each.valid_from for each in items if any(s.startswith(own) for s in each.sources)), default=0.0)
    new = frozenset(f"{own}{post}" for post in news)
    times: list[float] = []
    for each in fresh:
        said = each.valid_from
        if not new.isdisjoint(each.sources):
            said = last = max(last, said)
        times.append(said)
    last_times = [max(each.valid_from, memories[each.id].repeated_at) for each in items]
    moments = sorted({*times, *last_times})
    rank = {said: number for number, said in enumerate(moments)}
    ranked = [replace(each, seq=rank[said]) for each, said in zip(fresh, times, strict=True)]
    stored = [replace(each, seq=rank[said]) for each, said in zip(items, last_times, strict=True)]
    return stored, sorted(ranked, key=lambda each: each.seq), moments


def _uncorrected(memories: Sequence[Memory], fresh: Sequence[Item]) -> list[Item]:
    """Return the fresh items without those that a user has corrected: no later reading restores them."""
    corrected: dict[str, set[str]] = {}
    for memory in memories:
        if memory.written:
            posts = (f"{each.conversation}{_APART}{each.post}" for each in memory.sources)
            corrected.setdefault(memory.category, set()).update(posts)
    known = {(each.category, normal(each.text)) for each in memories if not is_earlier_version(each)}
    return [
        each
        for each in fresh
        if (each.category, normal(each.text)) in known
        or not corrected.get(each.category, set()).issuperset(each.sources)
    ]


def _item(memory: Memory) -> Item:
    sources = tuple(f"{each.conversation}{_APART}{each.post}" for each in memory.sources)
    return Item(**shared_fields(memory), sources=sources, superseded_by=memory.ended_by)


def _memory(place: Place, item: Item, before: Memory | None, now: float) -> Memory:
    sources = tuple(Source(*each.split(_APART, 1)) for each in item.sources)
    repeated = before is None or set(sources) - set(before.sources)
    base = before or Memory(
        id=item.id, kind=place.kind, owner=place.id, category=item.category, text=item.text, created_at=now
    )
    used_at = now if repeated else base.used_at
    return replace(
        base, **shared_fields(item), sources=tuple(sorted(sources)), ended_by=item.superseded_by, used_at=used_at
    )


def shared_fields(value: Item | Memory) -> dict[str, Any]:
    """Return the fields that items and memories have in common, except the sources."""
    return {name: getattr(value, name) for name in _SHARED}


# ---- confidence -----------------------------------------------------------------------------------------------------

FIRST: Final = 0.5
REPEAT: Final = 0.1
USE: Final = 0.05
#: Loss per 30 days without a use or a repeat. A memory below LEAST is deleted.
LOSS: Final = 0.1
PERIOD_S: Final = 30 * 86_400.0
LEAST: Final = 0.1


def raised(confidence: float, by: float) -> float:
    """Return the raised confidence, at most 1."""
    return min(1.0, round(confidence + by, 6))


def decayed(memory: Memory, now: float) -> Memory | None:
    """Return a memory with its current confidence: minus LOSS per whole idle period. None if it is to be deleted.

    Repeated calls within a period return the same: the loss is counted from `decayed_at`.
    """
    since = max(memory.used_at, memory.decayed_at)
    periods = math.floor(max(0.0, now - since) / PERIOD_S)
    if periods == 0:
        return memory
    left = round(memory.confidence - LOSS * periods, 6)
    return None if left < LEAST else replace(memory, confidence=left, decayed_at=since + periods * PERIOD_S)


def priority(memory: Memory) -> float:
    """Return a memory's priority among standing memories, in [0, 1]."""
    return memory.confidence * (0.5 + 0.5 * max(memory.weight, 0.5 if memory.category in KNOWLEDGE else 0.0))


def repeats(answer: str, text: str) -> bool:
    """Return whether an answer repeats a memory: half of its words, or one of its values (INTERFACE, Knowledge)."""
    own, spoken = set(words(text)), set(words(answer))
    values = [value for _, value in values_of(text)]
    return bool(own) and (
        2 * len(own & spoken) >= len(own) or any(visible(each, answer.lower()) for each in values if each)
    )


def same(one: str, other: str) -> bool:
    """Return whether two values are equal, ignoring case and whitespace."""
    return normal(one) == normal(other)
