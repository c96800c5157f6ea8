"""Store optimizer parameters (tunings) and snapshots, by compare-and-set on the previous run."""

import json
from collections.abc import Sequence
from itertools import starmap
from typing import Any, Final

from cuebook.records.conversation import Conversation, PathPost
from cuebook.records.memory import Scope
from cuebook.records.tuning import ByType, MemoryStats, Snapshot, TuningState
from cuebook.records.turn import WorkUsage
from cuebook.storage import access
from cuebook.storage.access import ConversationRow
from cuebook.storage.database.columns import Row, columns, decode, encode, encode_json, record
from cuebook.storage.database.transaction import Noun, Transaction, read, read_all, write_conversation
from cuebook.storage.tree import after as behind
from cuebook.storage.tree import on_path, runs_to, with_bodies

#: Snapshots kept per conversation (C: "pruned to the most recent 500").
SNAPSHOTS: Final = 500


class TuningStore(Noun):
    """Stores tunings and the snapshots of their runs, the newest 500 of a conversation."""

    @read
    def entries(
        self, transaction: Transaction, conversation: str, *, after: int, limit: int
    ) -> tuple[Conversation, list[PathPost], bool]:
        """Return a conversation and the posts of its head's path after a seq, oldest first, with their texts.

        The last value is whether that seq is not on the path, so that the posts begin with the first. Raises NotFound.
        """
        row = access.need(transaction, conversation)
        runs = runs_to(row, row.head)
        anew = after > 0 and not on_path(runs, after)
        posts: list[PathPost] = []
        for first, last in reversed(behind(runs, 0 if anew else after)):
            end = min(last, first + limit - len(posts) - 1)
            if end < first:
                break
            newest_first = row.run("path_stretch", first=first, last=end).fetchall()
            posts += starmap(PathPost, reversed(newest_first))
        return row.record(), with_bodies(row, posts), anew

    @read
    def tuned(self, transaction: Transaction, conversation: str) -> tuple[TuningState, float] | None:
        """Return a conversation's tuning and the time of its last run, None before the first. Raises NotFound."""
        row = access.need(transaction, conversation)
        last = row.one("tuning_get")
        return (decode(TuningState, last["tuning"]), last["updated_at"]) if last else None

    @write_conversation
    def keep(
        self,
        transaction: Transaction,
        conversation: Conversation,
        tuning: TuningState,
        snapshot: Snapshot | None = None,
        *,
        before: float,
        now: float,
    ) -> bool:
        """Store a run's result, or only its position without a snapshot.

        `before` is the time of the tuning that the run started from, 0 for none. Return False if another run was first
        or the conversation is gone.
        """
        row = access.unchanged(transaction, conversation)
        if row is None:
            return False
        put = {"tuning": encode_json(tuning), "seen_seq": conversation.last_seq, "now": now, "before": before}
        if row.run("tuning_put", **put).fetchone() is None:
            return False
        if snapshot is not None:
            row.run("optimization_insert", body=encode(snapshot))
            row.run("optimization_prune", most=SNAPSHOTS)
        return True

    @read_all
    def changed(
        self,
        transaction: Transaction,
        *,
        least: int,
        since: float,
        before: float,
        limit: int = 100,
        scope: Scope | None = None,
    ) -> list[tuple[str, str]]:
        """Return conversations with enough posts that changed since a time and since their last run: tenant and id.

        Their last run was at `before` or earlier. Without a scope, search every tenant.
        """
        whose = {"tenant": scope and scope.tenant, "user": scope and scope.user, "proven": bool(scope and scope.proven)}
        values = {"least": least, "since": since, "before": before, "limit": limit, **whose}
        return transaction.run("tuning_changed", **values).fetchall()

    @read
    def history(self, transaction: Transaction, conversation: str | None, *, limit: int) -> list[Snapshot]:
        """Return snapshots, newest first. Raises NotFound."""
        bodies = transaction.run("optimizations", **_whose(transaction, conversation), limit=limit)
        return [decode(Snapshot, body) for (body,) in bodies]

    @read
    def totals(self, transaction: Transaction, conversation: str | None) -> tuple[int, int, TuningState | None]:
        """Return the number of all runs, the tokens that they saved, and the last parameters. Raises NotFound."""
        whose = _whose(transaction, conversation)
        runs, saved = transaction.run("tuning_totals", **whose).fetchone()
        newest = transaction.value("tuning_latest", **whose)
        return runs, saved, decode(TuningState, newest) if newest else None

    @write_conversation
    def add_work(self, transaction: Transaction, conversation: str, usages: Sequence[WorkUsage]) -> None:
        """Add the usage of background model calls to a conversation, unless it is gone."""
        row = access.find(transaction, conversation)
        if row is not None:
            count_work(row, usages)

    @read
    def work(self, transaction: Transaction, conversation: str | None) -> list[WorkUsage]:
        """Return the usage of background model calls by task and model. Raises NotFound."""
        return list(map(_usage, transaction.rows("work_totals", **_whose(transaction, conversation))))

    @read
    def tally(
        self, transaction: Transaction, conversation: str | None, *, organizations: Sequence[str] | None = None
    ) -> MemoryStats:
        """Count posts, items and memories, of organizations only the named ones or all. Raises NotFound."""
        named = None if organizations is None else json.dumps(list(organizations))
        whose = _whose(transaction, conversation)
        posts, compressed = transaction.run("tally_posts", **whose).fetchone()
        items = transaction.value("tally_items", **whose)
        tunings = transaction.run("tally_promoted", **whose).fetchall()
        items += sum(seq > mark for raw, mark in tunings for seq in decode(TuningState, raw).promoted)
        memories = 0
        if conversation is None:
            memories = transaction.value("tally_memories", organizations=named)
        tiers = ByType(short_term=posts, long_term=items, cross_session=memories)
        return MemoryStats(total=posts + items + memories, by_type=tiers, compressed=compressed)


def _whose(transaction: Transaction, conversation: str | None) -> dict[str, Any]:
    if conversation is not None:
        access.need(transaction, conversation)
    return {"id": conversation}


def count_work(row: ConversationRow, usages: Sequence[WorkUsage]) -> None:
    """Add the usage of background model calls to a conversation."""
    for each in usages:
        currency, cost = next(iter(each.costs.items()), ("", 0.0))
        row.run("work_add", **columns(each), currency=currency, cost=cost)


def work_on(row: ConversationRow) -> tuple[WorkUsage, ...]:
    """Return the usage of background model calls for a conversation, for its scene."""
    return tuple(map(_usage, row.rows("work_of")))


def _usage(row: Row) -> WorkUsage:
    costs = {row["currency"]: row["cost"]} if row["currency"] else {}
    return record(WorkUsage, row, costs=costs)


def standing(row: ConversationRow) -> TuningState | None:
    """Return a conversation's tuning for its scene."""
    data = row.value("tuning_get")
    return decode(TuningState, data) if data else None
