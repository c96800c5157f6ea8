"""Deliver items of conversations to long-term memory, withdraw them, and serve the memory API of a SQLite store."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cuebook.interfaces.memories import (
    CitedPost,
    DeliveryInput,
    DeliveryResult,
    MemoryMatches,
    MemoryQuery,
    PlaceChange,
)
from cuebook.memory.knowledge import FIRST, REPEAT
from cuebook.memory.scopes import BROUGHT, KEPT, SHARED_BY, SHARED_WITH, SPOKEN_WITH, Policy, PolicyTerms, read_policy
from cuebook.records.conversation import Post
from cuebook.records.key import Key
from cuebook.records.memory import Item, Memory, Place, Scope
from cuebook.storage.sqlite import base, derived, memories, reads
from cuebook.storage.sqlite import rows as records
from cuebook.storage.sqlite.base import (
    SQL,
    SnapshotRunner,
    corrections_of,
    current_epoch,
    keep_corrections,
    last_correction,
    one,
    rows,
    run,
)
from cuebook.storage.sqlite.correction_store import SqliteCorrections
from cuebook.storage.sqlite.keys import key_record
from cuebook.storage.sqlite.rows import Row
from cuebook.storage.sqlite.search import SearchCache
from cuebook.storage.sqlite.tree import Runs, after, on_path, runs_to

# ---- deliveries -----------------------------------------------------------------------------------------------------


#: Earlier posts that give the context of a short answer.
_CONTEXT = 4
_TERMS = {"kept": KEPT, "shared": SHARED_WITH, "persona": SPOKEN_WITH, "brought": BROUGHT, "by": SHARED_BY}


def delivering(connection: sqlite3.Connection, scope: Scope, conversation: str, limit: int) -> DeliveryInput | None:
    """Load the input of a delivery, at most `limit` posts; None if nothing is due."""
    row = base.find(connection, scope, conversation)
    if row is None:
        return None
    tenant, no = row["tenant"], row["no"]
    mark = one(connection, "delivery_get", tenant=tenant, no=no)
    if mark is None or not mark["due"]:
        return None
    known, done = records.conversation(row), (mark["seq"], mark["version"])
    runs = runs_to(connection, tenant, no, row["head"])
    if mark["seq"] and not on_path(runs, mark["seq"]):
        return DeliveryInput(conversation=known, seq=mark["seq"], version=mark["version"], done=done, left=True)
    posts = _stretch(connection, tenant, no, after(runs, mark["seq"]), limit)
    before: Sequence[Post] = ()
    if mark["seq"]:
        before = reads.posts(connection, scope, conversation, path=True, last=_CONTEXT, head=mark["seq"])
    version = derived.head_summary(connection, row)
    items = _fresh(connection, row, mark["version"], version)
    ids = {post.id for post in (*before, *posts)}.union(*(item.sources for item in items))
    cited = _cited(connection, row, ids)
    under = [terms for post in cited.values() for terms in post.terms]
    values, keys = ({terms.shared for terms in under} - {""}, {terms.by for terms in under} - {""})
    last = posts[-1].seq if posts else row["head"]
    return DeliveryInput(
        conversation=known,
        seq=last,
        version=version,
        done=done,
        again=current_epoch(connection, tenant, "delivery", str(no)) > 0,
        settings={each: memories.settings_of(connection, tenant, each) for each in sorted(values)},
        keys={each: _key(connection, tenant, each) for each in sorted(keys)},
        before=tuple(before),
        posts=tuple(posts),
        items=items,
        cited=cited,
        more=last != row["head"],
        corrections=corrections_of(connection, tenant, no, conversation),
    )


def _fresh(connection: sqlite3.Connection, row: Row, done: int, version: int) -> tuple[Item, ...]:
    """Return items that passes changed between two summaries, in the lineage of the second."""
    if version in (0, done):
        return ()
    line = derived.lineage(connection, row, version) - derived.lineage(connection, row, max(done, 0))
    forms = rows(connection, "items_of", tenant=row["tenant"], no=row["no"])
    newest = {each["id"]: each for each in forms if each["made_in"] in line}
    return tuple(records.item(each) for each in newest.values() if each["text"])


def _cited(connection: sqlite3.Connection, row: Row, ids: Iterable[str]) -> Mapping[str, CitedPost]:
    """Return the senders of posts, and the sharing terms of their turns."""
    tenant, no = row["tenant"], row["no"]
    posts = rows(connection, "posts_cited", tenant=tenant, no=no, ids=json.dumps(sorted(ids)))
    company: list[tuple[int, int]] = json.loads(row["company"])
    began = _began(connection, row)
    policy_terms: dict[int, tuple[PolicyTerms, ...]] = {}
    citeds: dict[str, CitedPost] = {}
    for post in posts:
        terms: tuple[PolicyTerms, ...] = ()
        if post["role"] == "user":
            if post["round"] not in policy_terms:
                policy_terms[post["round"]] = _terms(connection, tenant, no, post["round"])
            terms = policy_terms[post["round"]]
        alone = not any(first <= post["seq"] and (not last or post["seq"] <= last) for first, last in company)
        citeds[post["id"]] = CitedPost(post["role"], post["sender"], alone and post["sender"] in ("User", began), terms)
    return citeds


def _began(connection: sqlite3.Connection, row: Row) -> str | None:
    """Return the sender of a conversation's first post if it is a user message on the wire, else None.

    A sender with a custom name may be an agent.
    """
    posts = _stretch(connection, row["tenant"], row["no"], [(1, 1)], 1)
    return posts[0].sender if posts and posts[0].role == "user" and posts[0].wire is not None else None


def _terms(connection: sqlite3.Connection, tenant: str, no: int, round_: int) -> tuple[PolicyTerms, ...]:
    """Return the sharing terms of a round: of its own turns, else of the turn that stored it, else of the last one."""
    place: dict[str, Any] = {"tenant": tenant, "no": no}
    answered = rows(connection, "turns_terms", round=round_, **place, **_TERMS)
    if not answered and (next_ := one(connection, "turn_round_after", round=round_, **place)):
        later = rows(connection, "turns_terms", round=next_["round"], **place, **_TERMS)
        answered = [turn for turn in later if turn["brought"] and turn["brought"] <= round_]
    if answered:
        return tuple(_read(turn) for turn in answered)
    last = one(connection, "turn_round_before", round=round_, **place)
    before = rows(connection, "turns_terms", round=last["round"], **place, **_TERMS)[-1:] if last else []
    return tuple(PolicyTerms(policy=_read(turn).policy) for turn in before)  # these terms applied to its own text only


def _read(turn: Row) -> PolicyTerms:
    policy = Policy(**read_policy(json.loads(turn["policy"]))) if turn["policy"] else None
    return PolicyTerms(policy=policy, persona=turn["persona"] or "", shared=turn["shared"] or "", by=turn["by"] or "")


def _key(connection: sqlite3.Connection, tenant: str, id_: str) -> Key | None:
    row = one(connection, "key_by_id", id=id_)
    return key_record(row) if row is not None and row["tenant"] == tenant else None


def _stretch(
    connection: sqlite3.Connection, tenant: str, no: int, runs: Sequence[tuple[int, int]], limit: int
) -> list[Post]:
    """Return the oldest posts of a path, up to a limit."""
    posts: list[Post] = []
    for first, last in reversed(runs):
        room = limit - len(posts)
        if room <= 0:
            break
        values = {"tenant": tenant, "no": no, "first": first, "last": min(last, first + room - 1)}
        posts += reads.whole_posts(connection, tenant, connection.execute(SQL["posts_stretch"], values).fetchall())
    return posts


def deliver(connection: sqlite3.Connection, scope: Scope, delivered: DeliveryResult) -> bool:
    """Store a delivery; return False and store nothing if its input has changed.

    The input is the mark, the path, the places, the permissions, and the keys used for an organization.
    """
    row = base.find(connection, scope, delivered.conversation)
    if row is None or row["no"] != delivered.no:
        return False
    if not _stands(connection, row, delivered):
        return False
    tenant, no = row["tenant"], row["no"]
    for change in delivered.changes:
        memories.change_place(connection, tenant, change, now=delivered.now)
    due = row["head"] != delivered.seq or derived.head_summary(connection, row) != delivered.version
    seq, version = delivered.done
    values = {"seq": delivered.seq, "version": delivered.version, "due": int(due)}
    run(connection, "delivery_done", tenant=tenant, no=no, done_seq=seq, done_version=version, **values)
    return True


def _stands(connection: sqlite3.Connection, row: Row, delivered: DeliveryResult) -> bool:
    """Return whether the input of a delivery is unchanged."""
    tenant, no = row["tenant"], row["no"]
    mark = one(connection, "delivery_get", tenant=tenant, no=no)
    if mark is None or (mark["seq"], mark["version"]) != delivered.done:
        return False
    if delivered.seq and not on_path(runs_to(connection, tenant, no, row["head"]), delivered.seq):
        return False
    if json.loads(row["metadata"]).get(KEPT) != delivered.kept:
        return False
    if any(_key(connection, tenant, id_) != known for id_, known in delivered.keys.items()):
        return False
    if last_correction(connection, tenant, no) != delivered.corrected:
        return False
    told = delivered.settings.items()
    return all(memories.settings_of(connection, tenant, each) == known for each, known in told) and all(
        memories.generation(connection, memories.place_values(tenant, each.place)) == each.generation
        for each in delivered.changes
    )


# ---- withdrawals ----------------------------------------------------------------------------------------------------


def withdraw(connection: sqlite3.Connection, scope: Scope, left: DeliveryInput, *, now: float) -> bool:
    """Remove memories of posts that are no longer on the head's path, and restart delivery at the fork.

    Return False and change nothing if the mark has moved.
    """
    row = base.find(connection, scope, left.conversation.id)
    if row is None or row["no"] != left.conversation.no:
        return False
    tenant, no = row["tenant"], row["no"]
    mark = one(connection, "delivery_get", tenant=tenant, no=no)
    if mark is None or (mark["seq"], mark["version"]) != left.done:
        return False
    runs = runs_to(connection, tenant, no, row["head"])
    results: dict[int, list[Row]] = {}
    for each in rows(connection, "sources_in", tenant=tenant, no=no):
        if not on_path(runs, each["seq"]):
            results.setdefault(each["no"], []).append(each)
    for lost in results.values():
        _lose(connection, tenant, no, lost, now=now)
    seq, version = left.done
    fork = _fork(runs, runs_to(connection, tenant, no, seq))
    line = derived.lineage(connection, row, derived.head_summary(connection, row))
    shared = max(line & derived.lineage(connection, row, version), default=0) if version > 0 else version
    values = {"seq": fork, "version": shared, "done_seq": seq, "done_version": version}
    run(connection, "delivery_back", tenant=tenant, no=no, **values)
    return True


def _fork(runs: Runs, others: Runs) -> int:
    """Return the last common post of two paths, 0 for none."""
    shared = [
        min(last, other_last)
        for first, last in runs
        for other_first, other_last in others
        if max(first, other_first) <= min(last, other_last)
    ]
    return max(shared, default=0)


def _lose(connection: sqlite3.Connection, tenant: str, no: int, lost: Sequence[Row], *, now: float) -> None:
    """Remove sources from a memory; delete it if none are left."""
    # read again: a memory deleted just before may have changed what this one ends
    memory = one(connection, "memory_at", tenant=tenant, no=lost[0]["no"])
    if memory is None:
        return
    gone = {each["seq"] for each in lost}
    sources = rows(connection, "source_times", tenant=tenant, memory=memory["no"])
    rest = [each for each in sources if each["conversation"] != no or each["seq"] not in gone]
    place = memories.place_values(tenant, Place(memory["kind"], memory["owner"]))
    if rest:
        for each in sources:
            if each not in rest:
                run(connection, "memory_source_drop", tenant=tenant, memory=memory["no"], no=no, post=each["post"])
        sure = max(min(memory["confidence"], FIRST), memory["confidence"] - REPEAT * (len(sources) - len(rest)))
        times = [each["created_at"] for each in rest if each["created_at"] is not None]
        since = max(memory["valid_from"], min(times, default=memory["valid_from"]))
        data = {"valid_from": since, "repeated_at": max(times, default=since)}
        values = {"confidence": round(sure, 6), "now": now} | data
        run(connection, "memory_rests", no=memory["no"], **values)
    else:
        values = {"id": memory["id"], "now": now}
        ended = {"valid_to": memory["valid_to"], "next": memory["ended_by"]}
        run(connection, "memory_holds_on", **place, **values, **ended)
        run(connection, "memory_follows", **place, **values, before=memory["supersedes"])
        memories.remove(connection, tenant, memory["no"])
    run(connection, "place_changed", **place)


class SqliteMemories:
    """The memories of a SQLite store."""

    def __init__(self, read: SnapshotRunner, write: SnapshotRunner, kept: SearchCache) -> None:
        self._read = read
        self._write = write
        self._kept = kept
        self.corrections = SqliteCorrections(read, write)

    async def undelivered(self, *, limit: int = 100) -> list[tuple[str, str]]:
        """Return conversations due for delivery: tenant and id."""
        return await self._read(lambda c: c.execute(SQL["deliveries_due"], {"limit": limit}).fetchall())

    async def delivering(self, scope: Scope, conversation: str, *, limit: int) -> DeliveryInput | None:
        """Load the input of a delivery, at most `limit` posts; None if nothing is due."""
        return await self._read(lambda c: delivering(c, scope, conversation, limit))

    async def deliver(self, scope: Scope, delivered: DeliveryResult) -> bool:
        """Store a delivery; return False and store nothing if the mark or a place has changed."""
        return await self._write(lambda c: deliver(c, scope, delivered))

    async def withdraw(self, scope: Scope, left: DeliveryInput, *, now: float) -> bool:
        """Remove memories of abandoned branches; return False and change nothing if the mark has moved."""
        return await self._write(lambda c: withdraw(c, scope, left, now=now))

    async def outbox(self, *, sinks: Sequence[str], limit: int = 100) -> list[tuple[int, str, str, str, int]]:
        """Return outbox entries for sinks: number, sink, tenant, conversation, version."""
        values = {"sinks": json.dumps(list(sinks)), "limit": limit}
        return await self._read(lambda c: c.execute(SQL["outbox_of"], values).fetchall())

    async def crossed_off(self, nos: Sequence[int]) -> None:
        """Delete outbox entries."""

        def write(connection: sqlite3.Connection) -> None:
            for no in nos:
                run(connection, "outbox_delete", no=no)

        await self._write(write)

    async def idle(
        self, scope: Scope, *, before: float, categories: Sequence[str], limit: int = 500
    ) -> list[tuple[str, Memory]]:
        """Return memories unchanged since a time, each with its tenant: of all tenants, or of an authenticated one."""
        values = {"tenant": scope.tenant if scope.proven else None, "before": before, "limit": limit}

        def read(connection: sqlite3.Connection) -> list[tuple[str, Memory]]:
            items = rows(connection, "memory_idle", categories=json.dumps(list(categories)), **values)
            return [(row["tenant"], memory) for row in items for memory in memories.memories_of(connection, [row])]

        return await self._read(read)

    async def places(self, scope: Scope, user: str) -> list[Place]:
        """Return the places of a user: their own, and those of each persona about them."""
        values = {"tenant": scope.tenant, "user": user}
        return await self._read(lambda c: [Place(*each) for each in c.execute(SQL["places_with"], values)])

    async def place(
        self, scope: Scope, place: Place, *, near: Sequence[str] | None = None, ids: Sequence[str] = ()
    ) -> tuple[int, list[Memory]]:
        """Return a place's generation and its memories, including ended ones.

        Of a large place, return those similar to the texts and those with the given ids.
        """

        def read(connection: sqlite3.Connection) -> tuple[int, list[Memory]]:
            values = memories.place_values(scope.tenant, place)
            return memories.generation(connection, values), memories.like(connection, scope.tenant, place, near, ids)

        return await self._read(read)

    async def find(self, scope: Scope, places: Sequence[Place], memory_query: MemoryQuery) -> MemoryMatches:
        """Return memories of places that match a query by words and vectors, and standing memories."""
        return await self._read(lambda c: memories.find(c, scope.tenant, places, memory_query, self._kept))

    async def page(
        self,
        scope: Scope,
        places: Sequence[Place] | None,
        *,
        ended: bool = False,
        category: str | None = None,
        after: int = 0,
        limit: int = 50,
    ) -> list[Memory]:
        """List memories of places, by default of all, in order of creation, after a number."""

        def read(connection: sqlite3.Connection) -> list[Memory]:
            values = {"tenant": scope.tenant, "after": after, "ended": ended, "category": category, "limit": limit}
            if places is None:
                return memories.memories_of(connection, rows(connection, "memory_page_of_all", **values))
            items: list[Row] = []
            for place in places:
                items += rows(connection, "memory_page", kind=place.kind, owner=place.id, **values)
            items.sort(key=lambda each: each["no"])
            return memories.memories_of(connection, items[:limit])

        return await self._read(read)

    async def get(
        self,
        scope: Scope,
        id: str,  # noqa: A002  # the name on the wire
        *,
        places: Sequence[Place] | None = None,
    ) -> list[Memory]:
        """Return the memories with an id, one per place."""

        def read(connection: sqlite3.Connection) -> list[Memory]:
            known = rows(connection, "memory_by_id", tenant=scope.tenant, id=id)
            found = memories.memories_of(connection, known)
            return [each for each in found if places is None or each.place in places]

        return await self._read(read)

    async def settings(self, scope: Scope, organization: str) -> Mapping[str, Any]:
        """Return an organization's settings, empty if none are stored."""
        return await self._read(lambda c: memories.settings_of(c, scope.tenant, organization))

    async def save(self, scope: Scope, change: PlaceChange, *, now: float) -> bool:
        """Store the new state of memories; return False and store nothing if the place has changed."""
        return await self._write(lambda c: _save(c, scope, change, now=now))

    async def remove(self, scope: Scope, gone: Sequence[Memory]) -> int:
        """Delete memories with their index entries and sources; return their number."""

        def write(connection: sqlite3.Connection) -> int:
            count = 0
            for each in gone:
                count += memories.remove(connection, scope.tenant, each.no)
                run(connection, "place_changed", **memories.place_values(scope.tenant, each.place))
            return count

        return await self._write(write)


def _save(connection: sqlite3.Connection, scope: Scope, change: PlaceChange, *, now: float) -> bool:
    if not memories.change_place(connection, scope.tenant, change, now=now):
        return False
    for each in change.corrections:
        keep_corrections(connection, scope, each)
    return True
