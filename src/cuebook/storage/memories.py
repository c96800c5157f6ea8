"""Long-term memories: search by words and vectors per owner (place), and writes by compare-and-set."""

import json
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from secrets import token_bytes

from msgspec import Struct, field
from msgspec.structs import replace

from cuebook.interfaces.store import MemoryLook, MemoryMatches, MemoryQuery, PlaceChange
from cuebook.memory.owner_memories import is_earlier_version
from cuebook.memory.query import Query, match_values, read_query
from cuebook.memory.recall import akin_among
from cuebook.memory.relevance import asks_about_user, standing_reason
from cuebook.memory.scopes import KEPT, SHARING_ALLOWED, Participants, effective, owner_of, read_places
from cuebook.memory.supersede import nearest
from cuebook.memory.tokenizer import memory_key, said_of
from cuebook.records.conversation import PathPost, digest_of
from cuebook.records.erasure import AffectedConversation, Staying
from cuebook.records.memory import Dense, Memory, Place, Source
from cuebook.records.turn import Manifest
from cuebook.storage.access import ConversationRow, bar_epoch, by_id, is_barred, raise_epoch, unuse
from cuebook.storage.database.columns import columns, decode, record
from cuebook.storage.database.transaction import Transaction
from cuebook.storage.keys import settings_of
from cuebook.storage.search import SearchCache, rarest_words, sharing, words_at
from cuebook.storage.vectors import CLOSEST, EVERYWHERE, Close, drop, in_turn, scope_of_place, usual

#: A place with at most so many memories is loaded whole for a delivery; of a larger one,
ALL = 500
#: this many of the most similar to each text.
ALIKE = 24


# ---- in the turn ----------------------------------------------------------------------------------------------------


def memory_context(
    transaction: Transaction,
    memory_look: MemoryLook,
    row: ConversationRow | None,
    search_cache: SearchCache,
    *,
    dense: Dense | None = None,
    keep: Sequence[str] = (),
) -> MemoryMatches:
    """Load the memories of other conversations for a turn. `row` is its conversation, if any.

    `dense` is its query's vector; `keep` are ids of memories that it used before.
    """
    metadata = row.metadata if row else {}
    organization = memory_look.organization
    settings = settings_of(transaction, organization) if organization else SHARING_ALLOWED
    retrieves = memory_look.defaults.organization and settings.default_retrieval_enabled
    defaults = replace(memory_look.defaults, organization=retrieves)
    policy = effective(memory_look.control, metadata.get(KEPT), defaults)
    user = row.user if row else memory_look.user or transaction.scope.user
    others = [each for each in row.participants if each != user] if row else []
    persona = memory_look.persona or (row.persona if row else "") or memory_look.otherwise
    participants = Participants(user=user, persona=persona, organization=organization, alone=not others)
    places = read_places(policy, participants, settings)
    users = json.dumps(others)  # every participant with an own key needs a key of the organization
    if others and transaction.one("outsiders", organization=organization, users=users) is not None:
        places = tuple(each for each in places if each.kind != "organization")
    if not places:
        return MemoryMatches(policy=policy, settings=settings)
    matched = find(transaction, places, MemoryQuery(text=memory_look.text, dense=dense), search_cache)
    memories = list(matched.memories)
    for id_ in set(keep) - {each.id for each in memories}:
        again = with_sources(transaction, transaction.records(Memory, "memory_by_id", id=id_))
        memories += [each for each in again if each.place in places]
    return replace(matched, memories=tuple(memories), policy=policy, places=places, settings=settings)


def used(transaction: Transaction, ids: Sequence[str], *, by: float, now: float) -> None:
    """Count a use of memories that an answer repeated."""
    if ids:
        transaction.update("memory", "memory_used", ids=json.dumps(list(ids)), by=by, now=now)


def find(
    transaction: Transaction, places: Sequence[Place], memory_query: MemoryQuery, search_cache: SearchCache
) -> MemoryMatches:
    """Return memories of places that match a query by words and vectors, and standing memories.

    Each place is searched by itself: other places do not affect the cost or the ranking.
    """
    query, dense = read_query(memory_query.text) if memory_query.text else None, memory_query.dense
    results: list[int] = []
    held, unread, frequencies = 0, 0, Counter[str]()
    keys: dict[int, str] = {}
    known: dict[int, Memory] = {}
    close: dict[Place, Close] = {}
    for place in places:
        owner_matches = MemoryMatches()
        if query:
            owner_matches = matching(transaction, place, memory_query, search_cache, query=query)
        held, frequencies = held + owner_matches.held, frequencies + Counter(owner_matches.frequencies)
        keys |= owner_matches.keys
        near = search_cache.matrices.close(transaction, scope_of_place(place), dense) if dense else None
        if near is not None:
            close[place] = near
        closest = _closest(transaction, place, memory_query, near)
        known |= {each.no: each for each in closest}
        results += in_turn(owner_matches.found, [each.no for each in closest])
        values = place_values(place)
        standing = transaction.records(Memory, "memory_standing", limit=memory_query.standing, **values)
        known |= {each.no: each for each in standing}
        if len(standing) == memory_query.standing > 0:
            unread += transaction.value("memory_standing_count", **values) - len(standing)
        if asks_about_user(memory_query.text):
            foremost = transaction.records(Memory, "memory_foremost", limit=memory_query.limit, **values)
            known |= {each.no: each for each in foremost}
    if left := [no for no in results if no not in known]:
        rest = transaction.records(Memory, "memories_by_no", nos=json.dumps(left))
        known |= {each.no: each for each in rest}
    _add_newer(transaction, known, memory_query.at)
    mean, deviation = usual(close.values()) if close else (0.0, 0.0)
    return MemoryMatches(
        memories=tuple(with_sources(transaction, list(known.values()))),
        found=tuple(no for no in results if no in known),
        cosines=_cosines(known.values(), close),
        held=max(held, len(known)),
        unread=unread,
        frequencies=dict(frequencies),
        keys=keys,
        mean_cosine=mean,
        cosine_deviation=deviation,
        akin=akin_among(memory_query.dense.akin, sum(len(each.seqs) for each in close.values()))
        if memory_query.dense
        else 1.0,
    )


def _add_newer(transaction: Transaction, known: dict[int, Memory], at: float | None) -> None:
    """Add the quotes that superseded the hits, if they were stated by the time `at`."""
    ids = {row.id for row in known.values()}
    todo = [row.ended_by for row in known.values() if row.ended_by is not None]
    while todo:
        id_ = todo.pop()
        if id_ not in ids:
            ids.add(id_)
            for row in transaction.records(Memory, "memory_by_id", id=id_):
                if at is None or row.valid_from <= at:
                    known[row.no] = row
                    todo += [row.ended_by] if row.ended_by is not None else []


def matching(
    transaction: Transaction, place: Place, memory_query: MemoryQuery, search_cache: SearchCache, *, query: Query
) -> MemoryMatches:
    """Find a place's memories that share words with a query, among those valid now or at a time.

    A small place is scanned: full-text search would have to walk over the words of all other memories.
    """
    values = place_values(place)
    here = (
        search_cache.words.of(transaction, values)
        if memory_query.at is None
        else words_at(transaction, values, memory_query.at)
    )
    if here.holding is not None:
        return sharing(here, query, memory_query.limit)
    token = place_token(transaction.scope.tenant, place)
    query, counts, among = rarest_words(transaction, here, query, token)
    match = match_values(query, token)
    if match is None:
        return MemoryMatches(held=here.held, frequencies=counts)
    name, rows = ("memory_find", {}) if among is None else ("memory_find_among", {"nos": json.dumps(among)})
    results = transaction.run(name, **match, **rows, token=token, at=memory_query.at, limit=memory_query.limit)
    return MemoryMatches(found=tuple(no for (no,) in results), held=here.held, frequencies=counts)


def _closest(transaction: Transaction, place: Place, memory_query: MemoryQuery, close: Close | None) -> list[Memory]:
    """Return the rows of a place's memories with the highest cosine similarity to the query, closest first."""
    if close is None:
        return []
    values, most = place_values(place), min(memory_query.limit, CLOSEST)
    count, items = most, list[Memory]()
    while True:
        best = close.best(count, EVERYWHERE)
        here = transaction.records(Memory, "memories_by_said", said=json.dumps(best), **values)
        by_said = {each.said: each for each in here}
        items = [by_said[said] for said in best if said in by_said and _held(by_said[said], memory_query.at)]
        if len(items) >= most or count >= len(close.seqs):
            return items[:most]
        count *= 4  # the closest are no longer valid


def _held(row: Memory, at: float | None) -> bool:
    """Return whether a memory is valid now or was at a time."""
    if at is None:
        return row.valid_to is None
    return bool(row.valid_from <= at and (row.valid_to is None or row.valid_to > at))


def _cosines(results: Iterable[Memory], close: Mapping[Place, Close]) -> dict[int, float]:
    """Return the cosines of memories with the query by number; memories without a vector are omitted."""
    by_place: dict[Place, dict[int, int]] = {}
    for row in results:
        by_place.setdefault(row.place, {})[row.said] = row.no
    return {
        nos[said]: cosine
        for place, nos in by_place.items()
        if place in close
        for said, cosine in close[place].of(list(nos)).items()
    }


def like(transaction: Transaction, place: Place, near: Sequence[str] | None, ids: Sequence[str] = ()) -> list[Memory]:
    """Return a place's memories: all, or for more than ALL those that share the rarest words with the texts.

    Corrected memories and those with the given ids are included. Without texts the result is empty.
    """
    values = place_values(place)
    if near is not None and not near:
        return []
    if near is not None and transaction.value("memory_count", **values) > ALL:
        wanted = {no for (no,) in transaction.run("memory_corrected", **values)}
        wanted |= {no for (no,) in transaction.run("memories_named", **values | {"ids": json.dumps(list(ids))})}
        fields = transaction.run("memory_words", **values).fetchall()
        for over in (False, True):  # ended memories take no slots from valid ones
            some = [(no, f"{text} {subject}") for no, text, subject, ended in fields if bool(ended) == over]
            results = nearest(near, [text for _, text in some], ALIKE)
            wanted |= {some[at][0] for at in results}
        nos = json.dumps(sorted(wanted))
        return with_sources(transaction, transaction.records(Memory, "memories_by_no", nos=nos))
    return with_sources(transaction, transaction.records(Memory, "memory_of_place", **values))


def place_token(tenant: str, place: Place) -> str:
    """Return the full-text token of a place."""
    return "p" + digest_of(f"{tenant}\x00{place.kind}\x00{place.id}".encode())[:10].hex()


# ---- rows -----------------------------------------------------------------------------------------------------------


def change_place(transaction: Transaction, change: PlaceChange, *, now: float) -> bool:
    """Store the new state of memories; return False and store nothing if the place has changed."""
    values = place_values(change.place)
    if generation(transaction, values) != change.generation:
        return False
    if not change.memories:
        return True
    before: int = transaction.value("place_changed", **values)
    said = before
    for memory in change.memories:
        said = max(said, _keep(transaction, memory, number=said + 1, now=now))
    if said > before:
        transaction.run("place_said", said=said, now=now, **values)
    return True


def _keep(transaction: Transaction, memory: Memory, *, number: int, now: float) -> int:
    """Store a memory; return the number of its text, which is new for a new text."""
    if memory.no and not memory.sources and not memory.written:
        remove(transaction, memory.no)
        return 0
    if is_barred(transaction, memory):
        return 0
    before = transaction.record(Memory, "memory_at", no=memory.no) if memory.no else None
    if before is not None:
        if (memory.name, memory.text) == (before.name, before.text):
            number = before.said
        else:
            drop(transaction, memory.place, before.said)
    values = columns(memory) | {
        "said": number,
        "updated_at": now,
        "standing": int(bool(standing_reason(said_of(memory)))),
    }
    key, stored = memory_key(memory), frozenset[Source]()
    if memory.no:
        no = memory.no
        transaction.update("memory", "memory_update", **values)
        stored = frozenset(with_sources(transaction, [memory])[0].sources)
        if not stored.issubset(memory.sources):
            transaction.delete("memory_source", "memory_sources_delete", no=no)
            stored = frozenset()
    else:
        no = transaction.change("memory", "memory_insert", **(values | {"created_at": now}))[0]["no"]
    for source in memory.sources:
        if source not in stored:
            conversation = by_id(transaction, source.conversation)
            at = conversation.no if conversation else 0
            transaction.change("memory_source", "memory_source_insert", no=no, conversation=at, post=source.post)
    if before is None or memory_key(before) != key:
        transaction.run("memory_text_delete", no=no)
        transaction.run("memory_text_insert", no=no, token=place_token(transaction.scope.tenant, memory.place), key=key)
    return number


def remove(transaction: Transaction, no: int) -> int:
    """Delete a memory with its index entry, vectors and sources."""
    row = transaction.record(Memory, "memory_at", no=no)
    if row is not None:
        drop(transaction, row.place, row.said)
    transaction.delete("memory_source", "memory_sources_delete", no=no)
    transaction.run("memory_text_delete", no=no)
    return transaction.delete("memory", "memory_delete", no=no)


def drop_source(row: ConversationRow, memory: int, post: str) -> int:
    """Delete a post of a conversation from the sources of a memory. Return how many rows it had."""
    values = {"memory": memory, "no": row.no, "post": post}
    return row.transaction.delete("memory_source", "memory_source_drop", **values)


def with_sources(transaction: Transaction, results: Sequence[Memory]) -> list[Memory]:
    """Return memories with their sources, which are rows of their own."""
    if not results:
        return []
    sources: dict[int, list[Source]] = {}
    nos = json.dumps([each.no for each in results])
    for no, post, conversation in transaction.run("memory_sources", nos=nos):
        sources.setdefault(no, []).append(Source(conversation, post))
    return [replace(each, sources=tuple(sources.get(each.no, ()))) for each in results]


def place_values(place: Place) -> dict[str, str]:
    """Return a place as its columns."""
    return {"kind": place.kind, "owner": place.id}


def generation(transaction: Transaction, values: Mapping[str, str]) -> int:
    """Return the change counter of a place."""
    return int(transaction.value("place_generation", **values) or 0)


# ---- erasure --------------------------------------------------------------------------------------------------------


class ErasureTally(Struct):
    """An erasure at a time: counts of what it has deleted so far, and of what remains."""

    now: float
    weigh: Callable[[PathPost], int] = lambda post: post.tokens  # counts the tokens of a redacted post
    salt: bytes = field(default_factory=lambda: token_bytes(16))  # of the pseudonyms; never stored
    rows: Counter[str] = field(default_factory=Counter)  # by table of a conversation
    counts: Counter[str] = field(default_factory=Counter)  # of other objects, by kind as in a receipt
    gone: list[Memory] = []  # memories
    running: set[int] = set()  # conversations with a running turn that uses erased data
    others: list[set[int]] = []  # by erased memory: the conversations of its further sources
    by_hand: int = 0  # memories that lost a source and remain
    touched: list[AffectedConversation] = []
    audit: set[int] = set()  # audit records that lost their texts
    stays: Counter[Staying] = field(default_factory=Counter)
    whole: set[int] = set()  # erased conversations


def unlearn(row: ConversationRow, tally: ErasureTally, posts: Collection[str] | None = None) -> None:
    """Erase memories from a conversation, or from some of its posts (ids)."""
    memories: dict[int, Memory] = {}
    for found in row.rows("memories_from"):
        if posts is None or found["post"] in posts:
            memories[found["no"]] = record(Memory, found)
            tally.counts["memorySources"] += drop_source(row, found["no"], found["post"])
    by_hand = [each for each in memories.values() if each.written and not is_earlier_version(each)]
    for each in by_hand:
        row.transaction.run("place_changed", **place_values(each.place))
    tally.by_hand += len(by_hand)
    derived = [each for each in memories.values() if not each.written or is_earlier_version(each)]
    take(row.transaction, derived, tally, anew=True)


def take(transaction: Transaction, results: Iterable[Memory], tally: ErasureTally, *, anew: bool) -> int:
    """Delete memories, and their text from windows that showed them.

    `anew`: deliver their remaining sources again. Otherwise their sources never restore them; return their number.
    """
    waiting = deque(results)
    gone: dict[int, Memory] = {}
    again: set[int] = set()
    barred = 0
    while waiting:
        row = waiting.popleft()
        if row.no in gone:
            continue
        gone[row.no] = row
        sources = transaction.run("sources_of", no=row.no).fetchall()
        if anew:
            conversations = {no for no, _ in sources}
            again |= conversations
            tally.others += [conversations] if conversations else []
            ended = {"before": row.supersedes, "id": row.id}  # their validity is derived again
            waiting += transaction.records(Memory, "memories_superseded", **place_values(row.place), **ended)
        else:
            barred += len(sources)
            for no, post in sources:
                bar_epoch(transaction, row.place, row.category, no=no, post=post)
    ids: dict[Place, list[str]] = {}
    for row in gone.values():
        remove(transaction, row.no)
        ids.setdefault(row.place, []).append(row.id)
    for place, of_place in ids.items():
        transaction.update("memory", "memory_forgets", **place_values(place), ids=json.dumps(of_place))
        transaction.run("place_changed", **place_values(place))
    for no in sorted(again):
        deliver_anew(transaction, no)
    tally.counts["memories"] += len(gone)
    tally.gone += gone.values()
    if gone:
        _from_windows(transaction, gone.values(), tally)
        transaction.run("optimize_memory_text")
    return barred


def deliver_anew(transaction: Transaction, no: int) -> None:
    """Restart the delivery of a conversation from its first post."""
    epoch = raise_epoch(transaction, "delivery", str(no))
    transaction.run("delivery_anew", no=no, epoch=epoch)


def _from_windows(transaction: Transaction, gone: Collection[Memory], tally: ErasureTally) -> None:
    """Remove the text of memories from the windows that showed them."""
    names = {f"memory:{row.id}" for row in gone}
    owners = {owner_of(row.place) for row in gone}
    user = owners.pop() if len(owners) == 1 else None
    for step in transaction.rows("windows_naming", user=user):
        texts = [text for text in decode(Manifest, step["manifest"]).volatile if text.source in names]
        for text in texts:
            tally.counts["texts"] += unuse(transaction, step["no"], bytes.fromhex(text.digest))
        if texts and step["state"] == "running":
            tally.running.add(step["no"])
