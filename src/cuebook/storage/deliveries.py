"""Deliver items of conversations to long-term memory, withdraw them, and serve the memory API."""

import json
from collections.abc import Iterable, Mapping, Sequence

from cuebook.interfaces.store import (
    CitedPost,
    CorrectionInput,
    DeliveryInput,
    MemoryMatches,
    MemoryQuery,
    PlaceChange,
)
from cuebook.memory.corrections import OWN
from cuebook.memory.owner_memories import FIRST, REPEAT
from cuebook.memory.scopes import BROUGHT, KEPT, SHARED_BY, SHARED_WITH, SPOKEN_WITH, PolicyTerms, read_policy
from cuebook.records.audit import Record
from cuebook.records.conversation import Post
from cuebook.records.key import Key
from cuebook.records.memory import Correction, Item, Memory, Place, Scope, Summary
from cuebook.storage import access, corrections, memories, reads, summaries
from cuebook.storage.access import ConversationRow, corrections_of, current_epoch, keep_corrections, last_correction
from cuebook.storage.audit import chained
from cuebook.storage.database.columns import Row, record
from cuebook.storage.database.transaction import (
    Database,
    Noun,
    Transaction,
    read,
    read_all,
    write,
    write_all,
    write_conversation,
)
from cuebook.storage.keys import settings_of
from cuebook.storage.search import SearchCache
from cuebook.storage.tree import Runs, on_path, runs_to
from cuebook.storage.tree import after as behind

# ---- deliveries -----------------------------------------------------------------------------------------------------


#: Earlier posts that give the context of a short answer.
_CONTEXT = 4
_TERMS = {"kept": KEPT, "shared": SHARED_WITH, "persona": SPOKEN_WITH, "brought": BROUGHT, "by": SHARED_BY}


def _fresh(row: ConversationRow, done: int, version: int) -> tuple[Item, ...]:
    """Return items that passes changed between two summaries, in the lineage of the second."""
    if version in (0, done):
        return ()
    return tuple(summaries.newest_forms(row, summaries.lineage(row, version) - summaries.lineage(row, max(done, 0))))


def _cited(row: ConversationRow, ids: Iterable[str]) -> Mapping[str, CitedPost]:
    """Return the senders of posts, and the sharing terms of their turns."""
    posts = row.rows("posts_cited", ids=json.dumps(sorted(ids)))
    began = _began(row)
    policy_terms: dict[int, tuple[PolicyTerms, ...]] = {}
    citeds: dict[str, CitedPost] = {}
    for post in posts:
        terms: tuple[PolicyTerms, ...] = ()
        if post["role"] == "user":
            if post["round"] not in policy_terms:
                policy_terms[post["round"]] = _terms(row, post["round"])
            terms = policy_terms[post["round"]]
        alone = not any(first <= post["seq"] and (not last or post["seq"] <= last) for first, last in row.company)
        citeds[post["id"]] = CitedPost(post["role"], post["sender"], alone and post["sender"] in ("User", began), terms)
    return citeds


def _began(row: ConversationRow) -> str | None:
    """Return the sender of a conversation's first post if it is a user message on the wire, else None.

    A sender with a custom name may be an agent.
    """
    posts = reads.posts_on(row, [(1, 1)])
    return posts[0].sender if posts and posts[0].role == "user" and posts[0].wire is not None else None


def _terms(row: ConversationRow, round_: int) -> tuple[PolicyTerms, ...]:
    """Return the sharing terms of a round: of its own turns, else of the turn that stored it, else of the last one."""
    answered = row.rows("turns_terms", round=round_, **_TERMS)
    if not answered and (next_ := row.one("turn_round_after", round=round_)):
        later = row.rows("turns_terms", round=next_["round"], **_TERMS)
        answered = [turn for turn in later if turn["brought"] and turn["brought"] <= round_]
    if answered:
        return tuple(_read(turn) for turn in answered)
    last = row.one("turn_round_before", round=round_)
    before = row.rows("turns_terms", round=last["round"], **_TERMS)[-1:] if last else []
    return tuple(PolicyTerms(policy=_read(turn).policy) for turn in before)  # these terms applied to its own text only


def _read(turn: Row) -> PolicyTerms:
    policy = read_policy(json.loads(turn["policy"])) if turn["policy"] else None
    return PolicyTerms(policy=policy, persona=turn["persona"] or "", shared=turn["shared"] or "", by=turn["by"] or "")


def _key(transaction: Transaction, id_: str) -> Key | None:
    row = transaction.one("key_by_id", id=id_)
    return record(Key, row) if row is not None and row["tenant"] == transaction.scope.tenant else None


def _stands(row: ConversationRow, read: DeliveryInput, changes: Sequence[PlaceChange]) -> bool:
    """Return whether the input of a delivery is unchanged."""
    mark = row.one("delivery_get")
    if mark is None or (mark["seq"], mark["version"]) != read.done:
        return False
    if read.seq and not on_path(runs_to(row, row.head), read.seq):
        return False
    if row.metadata.get(KEPT) != read.conversation.metadata.get(KEPT):
        return False
    if any(_key(row.transaction, id_) != known for id_, known in read.keys.items()):
        return False
    if last_correction(row) != (read.corrections[-1].no if read.corrections else 0):
        return False
    told = read.settings.items()
    return all(settings_of(row.transaction, each) == known for each, known in told) and all(
        memories.generation(row.transaction, memories.place_values(each.place)) == each.generation for each in changes
    )


# ---- withdrawals ----------------------------------------------------------------------------------------------------


def _fork(runs: Runs, others: Runs) -> int:
    """Return the last common post of two paths, 0 for none."""
    shared = [
        min(last, other_last)
        for first, last in runs
        for other_first, other_last in others
        if max(first, other_first) <= min(last, other_last)
    ]
    return max(shared, default=0)


def _lose(row: ConversationRow, no: int, gone: set[int], *, now: float) -> None:
    """Remove sources from a memory; delete it if none are left."""
    # read again: a memory deleted just before may have changed what this one ends
    memory = row.transaction.record(Memory, "memory_at", no=no)
    if memory is None:
        return
    sources = row.transaction.rows("source_times", memory=memory.no)
    rest = [each for each in sources if each["conversation"] != row.no or each["seq"] not in gone]
    place = memories.place_values(memory.place)
    if rest:
        for each in sources:
            if each not in rest:
                memories.drop_source(row, memory.no, each["post"])
        sure = max(min(memory.confidence, FIRST), memory.confidence - REPEAT * (len(sources) - len(rest)))
        times = [each["created_at"] for each in rest if each["created_at"] is not None]
        since = max(memory.valid_from, min(times, default=memory.valid_from))
        values = {"confidence": round(sure, 6), "valid_from": since, "repeated_at": max(times, default=since)}
        row.transaction.update("memory", "memory_rests", no=memory.no, now=now, **values)
    else:
        values = {"id": memory.id, "now": now}
        ended = {"valid_to": memory.valid_to, "next": memory.ended_by}
        row.transaction.update("memory", "memory_holds_on", **place, **values, **ended)
        row.transaction.update("memory", "memory_follows", **place, **values, before=memory.supersedes)
        memories.remove(row.transaction, memory.no)
    row.transaction.run("place_changed", **place)


class MemoryStore(Noun):
    """Stores memories of places."""

    def __init__(self, database: Database, cache: SearchCache) -> None:
        super().__init__(database)
        self._cache = cache

    @read
    def delivering(self, transaction: Transaction, conversation: str, *, limit: int) -> DeliveryInput | None:
        """Load the input of a delivery, at most `limit` posts; None if nothing is due."""
        row = access.find(transaction, conversation)
        if row is None:
            return None
        mark = row.one("delivery_get")
        if mark is None or not mark["due"]:
            return None
        known, done = row.record(), (mark["seq"], mark["version"])
        runs = runs_to(row, row.head)
        if mark["seq"] and not on_path(runs, mark["seq"]):
            return DeliveryInput(conversation=known, seq=mark["seq"], version=mark["version"], done=done, left=True)
        posts = reads.posts_on(row, behind(runs, mark["seq"]), limit)
        before: Sequence[Post] = ()
        if mark["seq"]:
            earlier = runs_to(row, mark["seq"])
            before = reads.posts_on(row, reads.newest(earlier, _CONTEXT))
        version = summaries.head_summary(row)
        items = _fresh(row, mark["version"], version)
        ids = {post.id for post in (*before, *posts)}.union(*(item.sources for item in items))
        cited = _cited(row, ids)
        under = [terms for post in cited.values() for terms in post.terms]
        values, keys = ({terms.shared for terms in under} - {""}, {terms.by for terms in under} - {""})
        last = posts[-1].seq if posts else row.head
        return DeliveryInput(
            conversation=known,
            seq=last,
            version=version,
            done=done,
            again=current_epoch(transaction, "delivery", str(row.no)) > 0,
            settings={each: settings_of(transaction, each) for each in sorted(values)},
            keys={each: _key(transaction, each) for each in sorted(keys)},
            before=tuple(before),
            posts=tuple(posts),
            items=items,
            cited=cited,
            corrections=corrections_of(row),
        )

    @write_conversation
    def deliver(
        self, transaction: Transaction, read: DeliveryInput, changes: Sequence[PlaceChange], *, now: float
    ) -> bool:
        """Store a delivery: all places and the mark. Return False and store nothing if its input has changed."""
        row = access.unchanged(transaction, read.conversation)
        if row is None or not _stands(row, read, changes):
            return False
        for place in sorted(f"{change.place.kind} {change.place.id}" for change in changes):
            transaction.lock(place)
        for change in changes:
            memories.change_place(transaction, change, now=now)
        due = row.head != read.seq or summaries.head_summary(row) != read.version
        seq, version = read.done
        values = {"seq": read.seq, "version": read.version, "due": int(due)}
        row.run("delivery_done", done_seq=seq, done_version=version, **values)
        return True

    @write
    def withdraw(self, transaction: Transaction, left: DeliveryInput, *, now: float) -> bool:
        """Remove memories of abandoned branches; return False and change nothing if the mark has moved."""
        row = access.unchanged(transaction, left.conversation)
        if row is None:
            return False
        mark = row.one("delivery_get")
        if mark is None or (mark["seq"], mark["version"]) != left.done:
            return False
        runs = runs_to(row, row.head)
        lost: dict[int, set[int]] = {}
        for each in row.rows("sources_in"):
            if not on_path(runs, each["seq"]):
                lost.setdefault(each["no"], set()).add(each["seq"])
        for memory, seqs in lost.items():
            _lose(row, memory, seqs, now=now)
        seq, version = left.done
        fork = _fork(runs, runs_to(row, seq))
        line = summaries.lineage(row, summaries.head_summary(row))
        shared = max(line & summaries.lineage(row, version), default=0) if version > 0 else version
        values = {"seq": fork, "version": shared, "done_seq": seq, "done_version": version}
        row.run("delivery_back", **values)
        return True

    @read_all
    def outbox(
        self, transaction: Transaction, *, sinks: Sequence[str], limit: int = 100
    ) -> list[tuple[int, str, str, str, int]]:
        """Return outbox entries for sinks: number, sink, tenant, conversation, version."""
        return transaction.run("outbox_of", sinks=json.dumps(list(sinks)), limit=limit).fetchall()

    @write_all
    def crossed_off(self, transaction: Transaction, nos: Sequence[int]) -> None:
        """Delete outbox entries."""
        for no in nos:
            transaction.run("outbox_delete", no=no)

    @read
    def idle(
        self, transaction: Transaction, *, before: float, categories: Sequence[str], limit: int = 500
    ) -> list[tuple[str, Memory]]:
        """Return memories unchanged since a time, each with its tenant: of all tenants, or of an authenticated one."""
        values = {
            "tenant": transaction.scope.tenant if transaction.scope.proven else None,
            "before": before,
            "limit": limit,
        }
        rows = transaction.rows("memory_idle", categories=json.dumps(list(categories)), **values)
        return [
            (row["tenant"], memory)
            for row in rows
            for memory in memories.with_sources(transaction.within(Scope(row["tenant"])), [record(Memory, row)])
        ]

    @read
    def places(self, transaction: Transaction, user: str) -> list[Place]:
        """Return the places of a user: their own, and those of each persona about them."""
        return [Place(*each) for each in transaction.run("places_with", user=user)]

    @read
    def changes(self, transaction: Transaction) -> tuple[int, int]:
        """Return the number of places and of their changes: another pair after each change."""
        [(count, changes)] = transaction.run("place_changes").fetchall()
        return count, int(changes)

    @read
    def generations(self, transaction: Transaction) -> dict[Place, int]:
        """Return the change counter of each place."""
        return {Place(kind, owner): number for kind, owner, number in transaction.run("place_generations")}

    @read
    def known(self, transaction: Transaction, ids: Sequence[str]) -> set[str]:
        """Return which ids are those of memories, also ended ones."""
        return {id_ for (id_,) in transaction.run("memory_known", ids=json.dumps(ids))}

    @read
    def place(
        self, transaction: Transaction, place: Place, *, near: Sequence[str] | None = None, ids: Sequence[str] = ()
    ) -> tuple[int, list[Memory]]:
        """Return a place's generation and its memories, including ended ones.

        Of a large place, return those similar to the texts and those with the given ids.
        """
        values = memories.place_values(place)
        return memories.generation(transaction, values), memories.like(transaction, place, near, ids)

    @read
    def find(self, transaction: Transaction, places: Sequence[Place], memory_query: MemoryQuery) -> MemoryMatches:
        """Return memories of places that match a query by words and vectors, and standing memories."""
        return memories.find(transaction, places, memory_query, self._cache)

    @read
    def page(
        self,
        transaction: Transaction,
        places: Sequence[Place] | None,
        *,
        ended: bool = False,
        category: str | None = None,
        after: int = 0,
        limit: int = 50,
    ) -> list[Memory]:
        """List memories of places, by default of all, in order of creation, after a number."""
        values = {"after": after, "ended": ended, "category": category, "limit": limit}
        items: list[Memory] = transaction.records(Memory, "memory_page_of_all", **values) if places is None else []
        for place in places or ():
            items += transaction.records(Memory, "memory_page", kind=place.kind, owner=place.id, **values)
        items.sort(key=lambda each: each.no)
        return memories.with_sources(transaction, items[:limit])

    @read
    def get(
        self,
        transaction: Transaction,
        id: str,  # noqa: A002  # the name on the wire
        *,
        places: Sequence[Place] | None = None,
    ) -> list[Memory]:
        """Return the memories with an id, one per place."""
        found = memories.with_sources(transaction, transaction.records(Memory, "memory_by_id", id=id))
        return [each for each in found if places is None or each.place in places]

    @write
    def save(self, transaction: Transaction, change: PlaceChange, *, now: float) -> bool:
        """Store the new state of memories; return False and store nothing if the place has changed."""
        if not memories.change_place(transaction, change, now=now):
            return False
        for each in change.corrections:
            keep_corrections(transaction, each)
        return True

    @write
    def remove(self, transaction: Transaction, gone: Sequence[Memory]) -> int:
        """Delete memories with their index entries and sources; return their number."""
        count = 0
        for each in gone:
            count += memories.remove(transaction, each.no)
            transaction.run("place_changed", **memories.place_values(each.place))
        return count

    # ---- corrections

    @read
    def corrections(self, transaction: Transaction, conversation: str) -> tuple[Correction, ...]:
        """Return a conversation's corrections in order of creation. Raises NotFound."""
        return corrections_of(access.need(transaction, conversation))

    @write
    def keep_correction(
        self, transaction: Transaction, correction: Correction, *, audit: Sequence[Record] = ()
    ) -> None:
        """Store a correction. Raises NotFound."""
        access.need(transaction, correction.conversation)
        keep_corrections(transaction, correction)
        chained(transaction, audit)

    @read
    def said_in(self, transaction: Transaction, conversation: str, posts: Sequence[str]) -> list[Memory]:
        """Return memories of users and personas that come from some of a conversation's posts."""
        row = access.need(transaction, conversation)
        rows = {
            each["no"]: record(Memory, each)
            for each in row.rows("memories_from")
            if each["post"] in posts and each["kind"] in OWN
        }
        return memories.with_sources(transaction, list(rows.values()))

    @write
    def save_corrected(
        self,
        transaction: Transaction,
        correcting: CorrectionInput,
        summary: Summary,
        items: Sequence[Item],
        *,
        sinks: Sequence[str] = (),
    ) -> bool:
        """Store a corrected summary and changed items. Return False, and store nothing, after a concurrent change."""
        row = access.unchanged(transaction, correcting.conversation, epoch=correcting.epoch)
        if row is None or corrections.standing(row, summary.upto_seq) != correcting.summary.version:
            return False
        if last_correction(row) != summary.corrected:
            return False
        previous = correcting.summary.version
        summaries.insert_summary(row, summary, items, previous=previous, sinks=sinks)
        if summary.upto_seq == row.mark:
            row.run("corrections_done", corrected=summary.corrected)
        return True

    @read
    def correcting(
        self, transaction: Transaction, conversation: str, *, upto: int | None = None
    ) -> CorrectionInput | None:
        """Load the summary that ends at a post, by default the current one, or None if it includes all corrections."""
        row = access.need(transaction, conversation)
        version = corrections.standing(row, row.mark if upto is None else upto)
        summary = reads.summary(row, version) if version else None
        if summary is None or summary.corrected >= last_correction(row):
            return None
        return CorrectionInput(
            conversation=row.record(),
            summary=summary,
            items=tuple(summaries.items_at(row, version, ended=True)),
            corrections=corrections_of(row),
            epoch=row.epoch,
        )
