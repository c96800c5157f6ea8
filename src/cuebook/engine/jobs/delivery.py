"""Background job that copies items of a conversation into cross-conversation memories, once each (L3, L5, R7).

A conversation is due while it has posts or a summary after its delivery mark. Only items in the user's own words are
delivered. They are merged into each place: a repeat adds a source, a changed fact supersedes the old one, and no
conversation removes another's items. The mark and all places are updated in one transaction.
"""

import asyncio
import logging
from collections.abc import Sequence

from msgspec.structs import replace

from cuebook.engine.core.conversation_items import line_of
from cuebook.engine.core.desk import Desk
from cuebook.errors import CuebookError
from cuebook.interfaces.memories import Cited, Delivered, Delivering, PlaceChange
from cuebook.memory.corrections import corrected
from cuebook.memory.item_keys import normal
from cuebook.memory.knowledge import KNOWLEDGE, PERIOD_S, decayed
from cuebook.memory.owner_memories import memory_id, merge_into_place
from cuebook.memory.personal import matter_of
from cuebook.memory.quotes import LISTED, quotes_of
from cuebook.memory.scopes import KEPT, Policy, PolicyTerms, Whose, effective, told_places
from cuebook.records.conversation import ASSISTANT, Conversation
from cuebook.records.memory import Item, Place, Scope

log = logging.getLogger("cuebook.deliver")

#: Posts loaded by one delivery.
BATCH = 200
#: Retries after another process changed the same place.
RETRIES = 5
#: Sender of posts without a name: the user (INTERFACE, Posts).
_USER = "user"


async def deliver_due(desk: Desk) -> None:
    """Deliver all due conversations of this run. A failed one is retried next time and does not block the others."""
    await _deliver_each(desk, await desk.store.memories.undelivered())


async def _deliver_each(desk: Desk, found: Sequence[tuple[str, str]]) -> None:
    for tenant, conversation in found:
        try:
            await deliver(desk, Scope(tenant), conversation)
        except CuebookError as error:
            log.warning("Memory delivery failed for conversation %s: %s", conversation, desk.writer.clean(str(error)))


async def deliver_all(desk: Desk) -> None:
    """Deliver everything that is due now, each conversation once."""
    tried: set[tuple[str, str]] = set()
    while fresh := set(await desk.store.memories.undelivered(limit=BATCH + len(tried))) - tried:
        await _deliver_each(desk, sorted(fresh))
        tried |= fresh


async def due(desk: Desk) -> int:
    """Count the conversations with undelivered items."""
    return len(await desk.store.memories.undelivered())


async def deliver(desk: Desk, scope: Scope, conversation: str) -> None:
    """Deliver a conversation completely. First withdraw items that left its active branch."""
    store = desk.store.memories
    for _ in range(RETRIES):
        while (read := await store.delivering(scope, conversation, limit=BATCH)) is not None:
            if read.left:
                done = await store.withdraw(scope, read, now=desk.clock.now())
            else:
                done = await store.deliver(scope, await _decided(desk, scope, read))
            if not done:
                break  # another process was first: load again
        else:
            return


async def _decided(desk: Desk, scope: Scope, read: Delivering) -> Delivered:
    known, now = read.conversation, desk.clock.now()
    found = await asyncio.to_thread(_found, read)
    wanted: dict[Place, list[Item]] = {}
    for item in found:
        for place in _places(desk, item, read, now=now):
            wanted.setdefault(place, []).append(item)
    changes = [await _change(desk, scope, place, items, read) for place, items in sorted(wanted.items())]
    return Delivered(
        conversation=known.id,
        no=known.no,
        done=read.done,
        seq=read.seq,
        version=read.version,
        changes=tuple(changes),
        now=now,
        kept=known.metadata.get(KEPT),
        settings=read.settings,
        keys=read.keys,
        more=read.more,
        corrected=read.corrections[-1].no if read.corrections else 0,
    )


def _found(read: Delivering) -> list[Item]:
    """Return items of the user's own words, from posts without a summary and posts summarized since the mark.

    The assistant's question just before a post is context for the user's answer.
    """
    own = {id_ for id_, post in read.cited.items() if _is_own(post, read.conversation)}
    before, posts = list(map(line_of, read.before)), list(map(line_of, read.posts))
    if before and before[-1].role == ASSISTANT:
        posts.insert(0, before.pop())
    said = quotes_of(posts, before=before)
    passed = {item.id for item in read.items}
    found = [*(item for item in said if item.id not in passed), *read.items]
    found = corrected(found, read.corrections, news=True)
    return [each for each in found if each.trust == "user" and each.weight >= LISTED and own.issuperset(each.sources)]


def _is_own(post: Cited, conversation: Conversation) -> bool:
    """Return whether the user wrote a post: they sent it, it has no name, or it has the name they started with.

    Any other name may belong to an agent that repeats tool output or web pages.
    """
    if post.role == ASSISTANT:
        return True
    theirs = post.own_name or post.sender in (_USER, conversation.user)
    return post.role == "user" and theirs


def _places(desk: Desk, item: Item, read: Delivering, *, now: float) -> frozenset[Place]:
    """Return the places that all turns citing an item allow, and that its conversation still allows."""
    kept = read.conversation.metadata.get(KEPT)
    still = effective({}, kept, desk.memory_policy) if kept is not None else None
    found: list[frozenset[Place]] = []
    for post in (read.cited[each] for each in item.sources if read.cited[each].role == "user"):
        for terms in post.terms or (PolicyTerms(policy=desk.memory_policy),):
            whose = _whose(desk, read, terms, now=now)
            policies = (terms.policy or effective({}, kept, desk.memory_policy), still)
            found += [_told(policy, whose, item, read) for policy in policies if policy is not None]
    return frozenset.intersection(*found) if found else frozenset()


def _told(policy: Policy, whose: Whose, item: Item, read: Delivering) -> frozenset[Place]:
    found = told_places(policy, whose, item.category, read.settings)
    matter = matter_of(item.text)
    # an organization shares knowledge about people
    if matter is None or (matter == "family" and item.category == "people"):
        return found
    return frozenset(place for place in found if place.kind != "organization")  # personal facts stay with the user


def _whose(desk: Desk, read: Delivering, terms: PolicyTerms, *, now: float) -> Whose:
    known, key = read.conversation, read.keys.get(terms.by)
    shares = terms.shared and (not terms.by or (key is not None and key.may_tell(terms.shared, now)))
    persona = terms.persona or known.persona or desk.default_persona
    return Whose(user=known.user, persona=persona, organization=terms.shared if shares else None)


async def _change(desk: Desk, scope: Scope, place: Place, wanted: Sequence[Item], read: Delivering) -> PlaceChange:
    """Compute the changes of a place. A personal place's items do not name their speaker."""
    if place.kind != "organization":
        speakers = sorted({f"@{normal(post.sender)} " for post in read.cited.values()}, key=len, reverse=True)
        wanted = [_unnamed(item, speakers) for item in wanted]
    near, ids = [item.text for item in wanted], [memory_id(place, item.category, item.text) for item in wanted]
    generation, held = await desk.store.memories.place(scope, place, near=near, ids=ids)
    memories = await asyncio.to_thread(
        merge_into_place,
        place,
        held,
        wanted,
        conversation=read.conversation.id,
        now=desk.clock.now(),
        news=() if read.again else [post.id for post in read.posts],
    )
    return PlaceChange(place=place, generation=generation, memories=tuple(memories))


def _unnamed(item: Item, speakers: Sequence[str]) -> Item:
    speaker = next((each for each in speakers if item.subject.startswith(each)), "")
    return replace(item, subject=item.subject.removeprefix(speaker)) if speaker else item


# ---- Decay of unused knowledge --------------------------------------------------------------------------------------


async def decay(desk: Desk, *, now: float | None = None) -> tuple[int, int]:
    """Lower the score of unused knowledge. Return the numbers of weakened and removed memories."""
    at = desk.clock.now() if now is None else now
    lost = gone = 0
    while found := await desk.store.memories.idle(Scope(), before=at - PERIOD_S, categories=KNOWLEDGE):
        for tenant, memory in found:
            scope = Scope(tenant)
            generation, _ = await desk.store.memories.place(scope, memory.place, near=())
            again = await desk.store.memories.get(scope, memory.id, places=[memory.place])
            if again != [memory]:
                continue  # changed meanwhile: the next run handles it
            left = decayed(memory, at)
            after = left or replace(memory, sources=(), written=False)  # removed, because no source is left
            change = PlaceChange(place=memory.place, generation=generation, memories=(after,))
            saved = await desk.store.memories.save(scope, change, now=at)
            lost, gone = lost + (saved and left is not None), gone + (saved and left is None)
    return lost, gone
