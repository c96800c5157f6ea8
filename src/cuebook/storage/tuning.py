"""Store optimizer parameters (tunings) and snapshots in SQLite, by compare-and-set on the previous run."""

import json
from collections.abc import Sequence
from itertools import starmap
from typing import Final

import msgspec

from cuebook.interfaces.reflections import ChangedConversation, Entries, LastTuning, TuningRun
from cuebook.records.conversation import PathPost
from cuebook.records.memory import Scope
from cuebook.records.tuning import Snapshot, Tally, TuningState, TuningTotals
from cuebook.storage import access
from cuebook.storage.access import ConversationRow
from cuebook.storage.database.transaction import Noun, Transaction, read, write
from cuebook.storage.tree import after as behind
from cuebook.storage.tree import on_path, runs_to, with_bodies

#: Snapshots kept per conversation (C: "pruned to the most recent 500").
SNAPSHOTS: Final = 500

_tuning = msgspec.json.Decoder(TuningState).decode
_snapshot = msgspec.json.Decoder(Snapshot).decode
_encode = msgspec.json.Encoder().encode


class TuningStore(Noun):
    """Stores tunings and the snapshots of their runs, the newest 500 of a conversation."""

    @read
    def entries(self, transaction: Transaction, scope: Scope, conversation: str, *, after: int, limit: int) -> Entries:
        """Return posts of the head's path after a seq, with their texts. Raises NotFound."""
        return _entries(transaction, access.need(transaction, scope, conversation), after=after, limit=limit)

    @read
    def tuned(self, transaction: Transaction, scope: Scope, conversation: str) -> LastTuning | None:
        """Return a conversation's tuning, None before its first run. Raises NotFound."""
        row = access.need(transaction, scope, conversation)
        data = transaction.one("tuning_get", **row.key)
        if data is None:
            return None
        tuning = _tuning(data["parameters"])
        return LastTuning(tuning=tuning, seen_seq=data["seen_seq"], updated_at=data["updated_at"])

    @write
    def keep(self, transaction: Transaction, scope: Scope, conversation: str, run: TuningRun) -> bool:
        """Store a run's result; return False if another run was first or the conversation is gone."""
        return _keep(transaction, scope, conversation, run)

    @read
    def changed(
        self,
        transaction: Transaction,
        *,
        least: int,
        since: float,
        before: float,
        limit: int = 100,
        scope: Scope | None = None,
    ) -> list[ChangedConversation]:
        """Return conversations with enough posts that changed since a time and since their last run.

        Their last run was at `before` or earlier. Without a scope, search every tenant.
        """
        whose = {"tenant": scope and scope.tenant, "user": scope and scope.user, "proven": bool(scope and scope.proven)}
        values = {"least": least, "since": since, "before": before, "limit": limit, **whose}
        return list(starmap(ChangedConversation, transaction.run("tuning_changed", **values)))

    @read
    def history(
        self, transaction: Transaction, scope: Scope, conversation: str | None, *, limit: int
    ) -> list[Snapshot]:
        """Return snapshots, newest first. Raises NotFound."""
        items = transaction.rows("optimizations", **_whose(transaction, scope, conversation), limit=limit)
        return [_snapshot(each["body"]) for each in items]

    @read
    def totals(self, transaction: Transaction, scope: Scope, conversation: str | None) -> TuningTotals:
        """Return the totals of all runs. Raises NotFound."""
        whose = _whose(transaction, scope, conversation)
        sums = transaction.rows("tuning_totals", **whose)[0]
        newest = transaction.one("tuning_latest", **whose)
        current = _tuning(newest["parameters"]) if newest else None
        return TuningTotals(runs=sums["runs"], tokens_saved=sums["saved"], current=current)

    @read
    def tally(
        self,
        transaction: Transaction,
        scope: Scope,
        conversation: str | None,
        *,
        organizations: Sequence[str] | None = None,
    ) -> Tally:
        """Count posts, items and memories, of organizations only the named ones or all. Raises NotFound."""
        named = None if organizations is None else json.dumps(list(organizations))
        whose = _whose(transaction, scope, conversation)
        posts = transaction.rows("tally_posts", **whose)[0]
        items = transaction.rows("tally_items", **whose)[0]["items"]
        values = {"tenant": scope.tenant, "user": scope.user, "organizations": named}
        across = transaction.rows("tally_memories", **values)[0]["memories"]
        return Tally(
            short_term=posts["posts"],
            long_term=items,
            cross_session=0 if conversation is not None else across,
            compressed=posts["compressed"],
        )


def _whose(transaction: Transaction, scope: Scope, conversation: str | None) -> dict[str, str | bool | None]:
    if conversation is not None:
        access.need(transaction, scope, conversation)
    return {"tenant": scope.tenant, "user": scope.user, "proven": scope.proven, "id": conversation}


def _entries(transaction: Transaction, row: ConversationRow, *, after: int, limit: int) -> Entries:
    tenant, no = row.tenant, row.no
    runs = runs_to(transaction, row, row.head)
    anew = after > 0 and not on_path(runs, after)
    posts: list[PathPost] = []
    for first, last in reversed(behind(runs, 0 if anew else after)):
        room = limit - len(posts)
        if room <= 0:
            break
        values = {"tenant": tenant, "no": no, "first": first, "last": min(last, first + room - 1)}
        posts += reversed(list(starmap(PathPost, transaction.run("path_stretch", **values))))
    path_posts = with_bodies(transaction, tenant, posts)
    return Entries(conversation=row.record(), posts=tuple(path_posts), anew=anew)


def _keep(transaction: Transaction, scope: Scope, conversation: str, tuning_run: TuningRun) -> bool:
    row = access.find(transaction, scope, conversation)
    if row is None or row.no != tuning_run.no:
        return False
    values = {"tenant": row.tenant, "no": row.no}
    put = {**values, "parameters": _encode(tuning_run.tuning).decode(), "seen_seq": tuning_run.seen_seq}
    if transaction.run("tuning_put", **put, now=tuning_run.now, before=tuning_run.before).fetchone() is None:
        return False
    if tuning_run.snapshot is not None:
        transaction.run("optimization_insert", **values, body=_encode(tuning_run.snapshot))
        transaction.run("optimization_prune", **values, most=SNAPSHOTS)
    return True


def standing(transaction: Transaction, row: ConversationRow) -> TuningState | None:
    """Return a conversation's tuning for its scene."""
    data = transaction.one("tuning_get", **row.key)
    return _tuning(data["parameters"]) if data else None
