"""Store optimizer parameters (tunings) and snapshots in SQLite, by compare-and-set on the previous run."""

import json
import sqlite3
from collections.abc import Sequence
from itertools import starmap
from typing import Final

import msgspec

from cuebook.interfaces.reflections import ChangedConversation, Entries, LastTuning, TuningRun
from cuebook.records.conversation import PathPost
from cuebook.records.memory import Scope
from cuebook.records.tuning import Snapshot, Tally, TuningState, TuningTotals
from cuebook.storage.sqlite import base
from cuebook.storage.sqlite.base import SQL, one, rows, run
from cuebook.storage.sqlite.rows import Row
from cuebook.storage.sqlite.rows import conversation as conversation_record
from cuebook.storage.sqlite.tree import after as behind
from cuebook.storage.sqlite.tree import on_path, runs_to, with_bodies

#: Snapshots kept per conversation (C: "pruned to the most recent 500").
SNAPSHOTS: Final = 500

_tuning = msgspec.json.Decoder(TuningState).decode
_snapshot = msgspec.json.Decoder(Snapshot).decode
_encode = msgspec.json.Encoder().encode


class SqliteTuning:
    """The tunings of a SQLite store."""

    def __init__(self, read: base.SnapshotRunner, write: base.SnapshotRunner) -> None:
        self._read = read
        self._write = write

    async def entries(self, scope: Scope, conversation: str, *, after: int, limit: int) -> Entries:
        """Return posts of the head's path after a seq, with their texts. Raises NotFound."""
        return await self._read(lambda c: _entries(c, base.need(c, scope, conversation), after=after, limit=limit))

    async def tuned(self, scope: Scope, conversation: str) -> LastTuning | None:
        """Return a conversation's tuning, None before its first run. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> LastTuning | None:
            row = base.need(connection, scope, conversation)
            data = one(connection, "tuning_get", tenant=row["tenant"], no=row["no"])
            if data is None:
                return None
            tuning = _tuning(data["parameters"])
            return LastTuning(tuning=tuning, seen_seq=data["seen_seq"], updated_at=data["updated_at"])

        return await self._read(read)

    async def keep(self, scope: Scope, conversation: str, run: TuningRun) -> bool:
        """Store a run's result; return False if another run was first or the conversation is gone."""
        return await self._write(lambda c: _keep(c, scope, conversation, run))

    async def changed(
        self, *, least: int, since: float, before: float, limit: int = 100, scope: Scope | None = None
    ) -> list[ChangedConversation]:
        """Return conversations with enough posts that changed since a time and since their last run.

        Their last run was at `before` or earlier. Without a scope, search every tenant.
        """
        whose = {"tenant": scope and scope.tenant, "user": scope and scope.user, "proven": bool(scope and scope.proven)}
        values = {"least": least, "since": since, "before": before, "limit": limit, **whose}
        return await self._read(lambda c: list(starmap(ChangedConversation, c.execute(SQL["tuning_changed"], values))))

    async def history(self, scope: Scope, conversation: str | None, *, limit: int) -> list[Snapshot]:
        """Return snapshots, newest first. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> list[Snapshot]:
            items = rows(connection, "optimizations", **_whose(connection, scope, conversation), limit=limit)
            return [_snapshot(each["body"]) for each in items]

        return await self._read(read)

    async def totals(self, scope: Scope, conversation: str | None) -> TuningTotals:
        """Return the totals of all runs. Raises NotFound."""

        def read(connection: sqlite3.Connection) -> TuningTotals:
            whose = _whose(connection, scope, conversation)
            sums = rows(connection, "tuning_totals", **whose)[0]
            newest = one(connection, "tuning_latest", **whose)
            current = _tuning(newest["parameters"]) if newest else None
            return TuningTotals(runs=sums["runs"], tokens_saved=sums["saved"], current=current)

        return await self._read(read)

    async def tally(
        self, scope: Scope, conversation: str | None, *, organizations: Sequence[str] | None = None
    ) -> Tally:
        """Count posts, items and memories, of organizations only the named ones or all. Raises NotFound."""
        named = None if organizations is None else json.dumps(list(organizations))

        def read(connection: sqlite3.Connection) -> Tally:
            whose = _whose(connection, scope, conversation)
            posts = rows(connection, "tally_posts", **whose)[0]
            items = rows(connection, "tally_items", **whose)[0]["items"]
            values = {"tenant": scope.tenant, "user": scope.user, "organizations": named}
            across = rows(connection, "tally_memories", **values)[0]["memories"]
            return Tally(
                short_term=posts["posts"],
                long_term=items,
                cross_session=0 if conversation is not None else across,
                compressed=posts["compressed"],
            )

        return await self._read(read)


def _whose(connection: sqlite3.Connection, scope: Scope, conversation: str | None) -> dict[str, str | bool | None]:
    if conversation is not None:
        base.need(connection, scope, conversation)
    return {"tenant": scope.tenant, "user": scope.user, "proven": scope.proven, "id": conversation}


def _entries(connection: sqlite3.Connection, row: Row, *, after: int, limit: int) -> Entries:
    tenant, no = row["tenant"], row["no"]
    runs = runs_to(connection, tenant, no, row["head"])
    anew = after > 0 and not on_path(runs, after)
    posts: list[PathPost] = []
    for first, last in reversed(behind(runs, 0 if anew else after)):
        room = limit - len(posts)
        if room <= 0:
            break
        values = {"tenant": tenant, "no": no, "first": first, "last": min(last, first + room - 1)}
        posts += reversed(list(starmap(PathPost, connection.execute(SQL["path_stretch"], values))))
    path_posts = with_bodies(connection, tenant, posts)
    return Entries(conversation=conversation_record(row), posts=tuple(path_posts), anew=anew)


def _keep(connection: sqlite3.Connection, scope: Scope, conversation: str, tuning_run: TuningRun) -> bool:
    row = base.find(connection, scope, conversation)
    if row is None or row["no"] != tuning_run.no:
        return False
    values = {"tenant": row["tenant"], "no": row["no"]}
    put = {**values, "parameters": _encode(tuning_run.tuning).decode(), "seen_seq": tuning_run.seen_seq}
    if run(connection, "tuning_put", **put, now=tuning_run.now, before=tuning_run.before).fetchone() is None:
        return False
    if tuning_run.snapshot is not None:
        run(connection, "optimization_insert", **values, body=_encode(tuning_run.snapshot))
        run(connection, "optimization_prune", **values, most=SNAPSHOTS)
    return True


def standing(connection: sqlite3.Connection, row: Row) -> TuningState | None:
    """Return a conversation's tuning for its scene."""
    data = one(connection, "tuning_get", tenant=row["tenant"], no=row["no"])
    return _tuning(data["parameters"]) if data else None
