"""Background jobs that deliver: items into cross-conversation memories (L3, L5, R7), and summaries to sinks.

A conversation is due while it has posts or a summary after its delivery mark. Only items in the user's own words are
delivered. They are merged into each place: a repeat adds a source, a changed fact supersedes the old one, and no
conversation removes another's items. The mark and all places are updated in one transaction.

A finished summary reaches each sink through an outbox: queued with the summary, deleted after. Each sink gets its
summaries in order. If a process dies between the sink's return and the deletion, the summary is delivered again under
the same id.
"""

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from cuebook.engine.core.conversation_items import line_of
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.job import DueQuery, DueWork, Job, of_conversations
from cuebook.errors import NotFound
from cuebook.interfaces import FinishedSummary
from cuebook.interfaces.store import CitedPost, DeliveryInput, PlaceChange
from cuebook.memory.corrections import corrected
from cuebook.memory.owner_memories import PERIOD_S, decayed, memory_id, merge_into_place
from cuebook.memory.quotes import LISTED, quotes_of
from cuebook.memory.scopes import KEPT, Participants, Policy, PolicyTerms, effective, matter_of, told_places
from cuebook.memory.tokenizer import normal
from cuebook.records.conversation import ASSISTANT, Conversation
from cuebook.records.memory import KNOWLEDGE, Item, Place, Scope

#: Posts loaded by one delivery.
BATCH = 200
#: Retries after another process changed the same place.
RETRIES = 5
#: Sender of posts without a name: the user (INTERFACE, Posts).
_USER = "user"


async def _due(services: Services, query: DueQuery) -> list[DueWork[str]]:
    return of_conversations(await services.store.due_pairs("deliveries_due", limit=query.limit))


async def deliver(services: Services, scope: Scope, conversation: str) -> bool:
    """Deliver a conversation completely, and return True. First withdraw items that left its active branch."""
    store = services.store.memories
    for _ in range(RETRIES):
        while (delivering := await store.delivering(scope, conversation, limit=BATCH)) is not None:
            now = services.clock.now()
            if delivering.left:
                done = await store.withdraw(scope, delivering, now=now)
            else:
                changes = await _decided(services, scope, delivering, now=now)
                done = await store.deliver(scope, delivering, changes, now=now)
            if not done:
                break  # another process was first: load again
        else:
            break
    return True


DELIVERY = Job(name="delivery", due=_due, run=deliver)


async def _decided(services: Services, scope: Scope, delivering: DeliveryInput, *, now: float) -> list[PlaceChange]:
    """Return the changes of the places that a delivery reaches."""
    entries = await services.offload.compute(_items_to_deliver, delivering)
    rows: dict[Place, list[Item]] = {}
    for item in entries:
        for place in _places(services, item, delivering, now=now):
            rows.setdefault(place, []).append(item)
    return [await _place_change(services, scope, place, items, delivering) for place, items in sorted(rows.items())]


def _items_to_deliver(delivering: DeliveryInput) -> list[Item]:
    """Return items of the user's own words, from posts without a summary and posts summarized since the mark.

    The assistant's question just before a post is context for the user's answer.
    """
    own = {id_ for id_, post in delivering.cited.items() if _is_own(post, delivering.conversation)}
    before, posts = list(map(line_of, delivering.before)), list(map(line_of, delivering.posts))
    if before and before[-1].role == ASSISTANT:
        posts.insert(0, before.pop())
    items = quotes_of(posts, before=before)
    passed = {item.id for item in delivering.items}
    entries = [*(item for item in items if item.id not in passed), *delivering.items]
    entries = corrected(entries, delivering.corrections, news=True)
    return [each for each in entries if each.trust == "user" and each.weight >= LISTED and own.issuperset(each.sources)]


def _is_own(post: CitedPost, conversation: Conversation) -> bool:
    """Return whether the user wrote a post: they sent it, it has no name, or it has the name they started with.

    Any other name may belong to an agent that repeats tool output or web pages.
    """
    if post.role == ASSISTANT:
        return True
    theirs = post.own_name or post.sender in (_USER, conversation.user)
    return post.role == "user" and theirs


def _places(services: Services, item: Item, delivering: DeliveryInput, *, now: float) -> frozenset[Place]:
    """Return the places that all turns citing an item allow, and that its conversation still allows."""
    kept = delivering.conversation.metadata.get(KEPT)
    still = effective({}, kept, services.settings.memory_policy) if kept is not None else None
    results: list[frozenset[Place]] = []
    for post in (delivering.cited[each] for each in item.sources if delivering.cited[each].role == "user"):
        for terms in post.terms or (PolicyTerms(policy=services.settings.memory_policy),):
            participants = _participants(services, delivering, terms, now=now)
            policies = (terms.policy or effective({}, kept, services.settings.memory_policy), still)
            results += [
                _places_under(policy, participants, item, delivering) for policy in policies if policy is not None
            ]
    return frozenset.intersection(*results) if results else frozenset()


def _places_under(
    policy: Policy, participants: Participants, item: Item, delivering: DeliveryInput
) -> frozenset[Place]:
    places = told_places(policy, participants, item.category, delivering.settings)
    matter = matter_of(item.text)
    # an organization shares knowledge about people
    if matter is None or (matter == "family" and item.category == "people"):
        return places
    return frozenset(place for place in places if place.kind != "organization")  # personal facts stay with the user


def _participants(services: Services, delivering: DeliveryInput, terms: PolicyTerms, *, now: float) -> Participants:
    conversation, key = delivering.conversation, delivering.keys.get(terms.by)
    shares = terms.shared and (not terms.by or (key is not None and key.may_tell(terms.shared, now)))
    persona = terms.persona or conversation.persona or services.settings.default_persona
    return Participants(user=conversation.user, persona=persona, organization=terms.shared if shares else None)


async def _place_change(
    services: Services, scope: Scope, place: Place, items: Sequence[Item], delivering: DeliveryInput
) -> PlaceChange:
    """Compute the changes of a place. A personal place's items do not name their speaker."""
    if place.kind != "organization":
        speakers = sorted({f"@{normal(post.sender)} " for post in delivering.cited.values()}, key=len, reverse=True)
        items = [_unnamed(item, speakers) for item in items]
    near, ids = [item.text for item in items], [memory_id(place, item.category, item.text) for item in items]
    generation, memories_there = await services.store.memories.place(scope, place, near=near, ids=ids)
    merge = partial(
        merge_into_place,
        place,
        memories_there,
        items,
        conversation=delivering.conversation.id,
        now=services.clock.now(),
        news=() if delivering.again else [post.id for post in delivering.posts],
    )
    memories = await services.offload.compute(merge)
    return PlaceChange(place=place, generation=generation, memories=tuple(memories))


def _unnamed(item: Item, speakers: Sequence[str]) -> Item:
    speaker = next((each for each in speakers if item.subject.startswith(each)), "")
    return replace(item, subject=item.subject.removeprefix(speaker)) if speaker else item


# ---- Decay of unused knowledge --------------------------------------------------------------------------------------


async def decay(services: Services, *, now: float | None = None) -> tuple[int, int]:
    """Lower the score of unused knowledge. Return the numbers of weakened and removed memories."""
    at = services.clock.now() if now is None else now
    lost = gone = 0
    while results := await services.store.memories.idle(Scope(), before=at - PERIOD_S, categories=KNOWLEDGE):
        for tenant, memory in results:
            scope = Scope(tenant)
            generation, _ = await services.store.memories.place(scope, memory.place, near=())
            memories = await services.store.memories.get(scope, memory.id, places=[memory.place])
            if memories != [memory]:
                continue  # changed meanwhile: the next run handles it
            left = decayed(memory, at)
            after = left or replace(memory, sources=(), written=False)  # removed, because no source is left
            change = PlaceChange(place=memory.place, generation=generation, memories=(after,))
            saved = await services.store.memories.save(scope, change, now=at)
            lost, gone = lost + (saved and left is not None), gone + (saved and left is None)
    return lost, gone


# ---- sinks ----------------------------------------------------------------------------------------------------------

#: A queued summary: its number, sink, conversation and version.
Queued = tuple[int, str, str, int]


async def _queued(services: Services, query: DueQuery) -> list[DueWork[Queued]]:
    """Return the oldest queued summary of each sink."""
    results: list[DueWork[Queued]] = []
    for name in services.sinks:
        queued = await services.store.memories.outbox(sinks=[name], limit=query.limit)
        for no, _, tenant, conversation, version in queued[:1]:
            results.append(DueWork(tenant, f"sink {name}", (no, name, conversation, version), len(queued)))
    return results


async def _send(services: Services, scope: Scope, queued: Queued) -> bool:
    """Deliver a summary, unless its conversation was erased meanwhile."""
    no, name, conversation, version = queued
    passed = await _finished(services, scope, conversation, version)
    if passed is not None:
        await services.sinks[name].keep(passed)
    await services.store.memories.crossed_off([no])
    return True


async def _finished(services: Services, scope: Scope, conversation: str, version: int) -> FinishedSummary | None:
    try:
        known = await services.store.conversation(scope, conversation)
        summary = await services.store.summary(scope, conversation, version=version)
        items = await services.store.items(scope, conversation)
    except NotFound:
        return None
    if summary is None:
        return None
    return FinishedSummary(
        tenant=scope.tenant,
        conversation=conversation,
        no=known.no,
        user=known.user,
        persona=known.persona,
        summary=summary,
        items=tuple(items),
    )


SINK = Job(name="sink", due=_queued, run=_send)


# ---- the watched folder ----------------------------------------------------------------------------------------------


async def _folder_due(services: Services, query: DueQuery) -> list[DueWork[bool]]:
    folder = services.memory_folder
    is_due = folder is not None and await folder.is_due(hurry=query.hurry)
    return [DueWork("", "the memory folder", query.hurry)] if is_due else []


async def _sync_folder(services: Services, _: Scope, hurry: bool) -> bool:  # noqa: FBT001  # the work of a job
    return services.memory_folder is not None and await services.memory_folder.sync(hurry=hurry)


MEMORY_FILES = Job(name="files", due=_folder_due, run=_sync_folder, is_local=True)
