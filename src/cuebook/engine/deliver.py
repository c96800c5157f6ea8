"""What was said in a conversation reaches the places its policy names, behind the reply, once (L3, L5, R7).

Level-triggered: a conversation is due while posts or a summary lie behind what was delivered of it. Items of the
user's own words go, no others; they are merged with what a place holds, so that a repeat adds a source, a changed fact
ends the old one, and no conversation takes away what another said. The mark and all places move in one transaction.
"""

import asyncio
import hashlib
import logging
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from cuebook.engine.compact import line_of
from cuebook.engine.desk import Desk
from cuebook.errors import CuebookError
from cuebook.memory.extract import extract
from cuebook.memory.knowledge import KNOWLEDGE, PERIOD_S, decayed
from cuebook.memory.merge import merge
from cuebook.memory.scopes import (
    KEPT,
    Whose,
    categories_for,
    effective,
    personal_places,
    published_place,
)
from cuebook.memory.subject import normal
from cuebook.ports.memories import Cited, Delivered, Delivering, PlaceChange
from cuebook.records.conversation import Conversation
from cuebook.records.memory import CATEGORIES, Category, Item, Memory, Place, Scope, Source

log = logging.getLogger("cuebook.deliver")

#: Posts read by one delivery.
BATCH = 200
#: How often a delivery is decided anew when another was first.
RETRIES = 5
_APART = "\x1f"


async def deliver_due(desk: Desk) -> None:
    """Deliver what is due; a conversation that fails is tried again next time, and holds up no other."""
    await _deliver_each(desk, await desk.store.memories.undelivered())


async def _deliver_each(desk: Desk, found: Sequence[tuple[str, str]]) -> None:
    for tenant, conversation in found:
        try:
            await deliver(desk, Scope(tenant), conversation)
        except CuebookError as error:
            log.warning("delivery of %s: %s", conversation, desk.writer.clean(str(error)))


async def deliver_all(desk: Desk) -> None:
    """Deliver all that is due now, each conversation once, however many there are."""
    tried: set[tuple[str, str]] = set()
    while fresh := set(await desk.store.memories.undelivered(limit=BATCH + len(tried))) - tried:
        await _deliver_each(desk, sorted(fresh))
        tried |= fresh


async def due(desk: Desk) -> int:
    """Count conversations that have something to deliver."""
    return len(await desk.store.memories.undelivered())


async def deliver(desk: Desk, scope: Scope, conversation: str) -> None:
    """Deliver a conversation to its end."""
    for _ in range(RETRIES):
        while (read := await desk.store.memories.delivering(scope, conversation, limit=BATCH)) is not None:
            if not await desk.store.memories.deliver(scope, await _decided(desk, scope, read)):
                break  # somebody was first: read again
        else:
            return


async def _decided(desk: Desk, scope: Scope, read: Delivering) -> Delivered:
    known = read.conversation
    policy = effective({}, known.metadata.get(KEPT), desk.memory_policy)
    whose = Whose(
        user=known.user, persona=known.persona or desk.default_persona, organization=read.organization or None
    )
    places = personal_places(policy, whose)
    published = published_place(policy, whose, read.settings, may_publish=True)  # asked when its turn opened
    if published is not None:
        places = (*places, published)
    found = await asyncio.to_thread(_found, read) if places else []
    changes = []
    for place in places:
        allowed = categories_for(place, policy, read.settings)
        wanted = [item for item in found if item.category in allowed and _may_reach(place, item, read.cited)]
        if not wanted:
            continue
        changes.append(await _change(desk, scope, place, wanted, known.id))
    return Delivered(
        conversation=known.id,
        no=known.no,
        done=read.done,
        seq=read.seq,
        version=read.version,
        changes=tuple(changes),
        now=desk.clock.now(),
        more=read.more,
    )


def _found(read: Delivering) -> list[Item]:
    """Give items of the user's own words: of posts no pass has read yet, and those passes have touched since."""
    own = {id_ for id_, post in read.cited.items() if _is_own(post, read.conversation)}
    said = extract([line_of(post) for post in read.posts], before=[line_of(post) for post in read.before])
    passed = {item.id for item in read.items}
    found = [*(item for item in said if item.id not in passed), *read.items]
    return [each for each in found if each.trust == "user" and own.issuperset(each.sources)]


def _may_reach(place: Place, item: Item, cited: Mapping[str, Cited]) -> bool:
    """Whether the turns an item was said in allow it: none was to leave nothing, and who is told was named in each."""
    said = [cited[each] for each in item.sources if cited[each].role == "user"]
    if any(each.off for each in said):
        return False
    return place.kind != "organization" or all(place.id in each.shared for each in said)


def _is_own(post: Cited, conversation: Conversation) -> bool:
    alone = len(conversation.participants) <= 1
    return post.role == "assistant" or (post.role == "user" and (alone or post.sender == conversation.user))


async def _change(desk: Desk, scope: Scope, place: Place, wanted: Sequence[Item], conversation: str) -> PlaceChange:
    texts = [item.text for item in wanted]
    generation, held = await desk.store.memories.place(scope, place, near=texts)
    now = desk.clock.now()
    memories = await asyncio.to_thread(merged, place, held, wanted, conversation=conversation, now=now)
    return PlaceChange(place=place, generation=generation, memories=tuple(memories))


def merged(
    place: Place, held: Sequence[Memory], found: Sequence[Item], *, conversation: str, now: float
) -> list[Memory]:
    """Give the memories of a place that are others, or new, after a conversation's items came to it."""
    known = {memory.id: memory for memory in held}
    ended = {memory_id(place, each.category, each.text): each for each in found if each.valid_to is not None}
    items = [_item(each) for each in held if each.category in CATEGORIES]
    items = [_ended(each, ended.get(each.id), conversation) for each in items]
    fresh = [
        replace(each, sources=tuple(f"{conversation}{_APART}{post}" for post in each.sources))
        for each in found
        if each.valid_to is None
    ]
    fresh = _uncorrected(held, fresh)
    names = {each.id: memory_id(place, each.category, each.text) for each in fresh}
    result = merge(items, fresh)
    past = [each for each in items if each.valid_to is not None]
    after, again = dict(known), {}
    for each in (*result.kept, *result.ended, *past, *result.added):
        own = each.id if each.id in known else names.get(each.id) or memory_id(place, each.category, each.text)
        before = after.get(own)
        if before is not None and before.valid_to is not None and each.valid_to is None:
            again[own] = past_id = memory_id(place, before.category, f"{before.text}|{before.valid_to}")
            after[past_id] = replace(before, id=past_id, no=0)  # it holds again; that it held before is history
            before = replace(before, written=False, sources=())
        supersedes = names.get(each.supersedes or "", each.supersedes)
        after[own] = _memory(place, replace(each, id=own, supersedes=supersedes), before, now)
    named = (replace(each, supersedes=again.get(each.supersedes or "", each.supersedes)) for each in after.values())
    return [each for each in named if each != known.get(each.id)]


def memory_id(place: Place, category: str, text: str) -> str:
    """Give a memory's id: 16 hex digits over its place, category and normalised text or key."""
    return hashlib.sha256(f"{place.kind}|{place.id}|{category}|{normal(text)}".encode()).hexdigest()[:16]


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


def _ended(item: Item, last: Item | None, conversation: str) -> Item:
    """End what ended in the conversation, unless another says it too: none takes away what another said."""
    others = any(each.split(_APART, 1)[0] != conversation for each in item.sources)
    if last is None or item.valid_to is not None or others:
        return item
    return replace(item, valid_to=last.valid_to)


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


_CATEGORY: Mapping[str, Category] = {name: name for name in CATEGORIES}


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


# ---- knowledge that lies idle ---------------------------------------------------------------------------------------


async def decay(desk: Desk, *, now: float | None = None) -> tuple[int, int]:
    """Let knowledge lose what it loses by lying idle; answers with how many lost and how many went."""
    at = desk.clock.now() if now is None else now
    lost = gone = 0
    while found := await desk.store.memories.idle(Scope(), before=at - PERIOD_S, categories=KNOWLEDGE):
        for tenant, memory in found:
            scope = Scope(tenant)
            generation, _ = await desk.store.memories.place(scope, memory.place, near=())
            again = await desk.store.memories.get(scope, memory.id, places=[memory.place])
            if again != [memory]:
                continue  # somebody was at it meanwhile: the next look finds it as it is
            left = decayed(memory, at)
            after = left or replace(memory, sources=(), written=False)  # without a reason it goes
            change = PlaceChange(place=memory.place, generation=generation, memories=(after,))
            saved = await desk.store.memories.save(scope, change, now=at)
            lost, gone = lost + (saved and left is not None), gone + (saved and left is None)
    return lost, gone
