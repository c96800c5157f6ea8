"""Store reflections (background jobs after a turn): requested when a turn opens, saved by compare-and-set."""

import json
import sqlite3
from collections.abc import Sequence
from itertools import islice, takewhile

import msgspec

from cuebook.errors import InvalidInput
from cuebook.interfaces.reflections import DueReflection, MetapromptTask, ReflectionInput
from cuebook.records.audit import Record
from cuebook.records.memory import Scope
from cuebook.records.mind import Reflection
from cuebook.records.turn import TurnOn
from cuebook.storage.sqlite import base
from cuebook.storage.sqlite import rows as records
from cuebook.storage.sqlite.audit import chained
from cuebook.storage.sqlite.base import SnapshotRunner, current_epoch, one, rows, run
from cuebook.storage.sqlite.rows import Row
from cuebook.storage.sqlite.tree import Runs, on_path, runs_to

# ---- the last turn of a path ----------------------------------------------------------------------------------------


#: Turns examined in each run of a path; a round seldom has more than a few.
_AT_ONCE = 16


def turn_on(connection: sqlite3.Connection, tenant: str, no: int, runs: Runs) -> TurnOn | None:
    """Return the turn of a path's newest answered round: the newest whose reply is on the path.

    If no reply is on the path, return the newest turn whose query is. Turns that answer the path's last post count,
    so that a regenerated answer finds them.
    """
    for first, last in runs:
        for row in rows(connection, "turns_on_run", tenant=tenant, no=no, first=first, last=last, limit=_AT_ONCE):
            if on_path(runs, row["query_seq"]):
                return _chosen(connection, row, runs)
    return None


def _chosen(connection: sqlite3.Connection, newest: Row, runs: Runs) -> TurnOn:
    tenant, no, round_ = newest["tenant"], newest["conversation"], newest["round"]
    if newest["reply_seq"] and on_path(runs, newest["reply_seq"]):
        return read_turn(connection, newest)
    same = rows(connection, "turns_on_run", tenant=tenant, no=no, first=round_, last=round_, limit=_AT_ONCE)
    spoke = (row for row in same if row["reply_seq"] and on_path(runs, row["reply_seq"]))
    return read_turn(connection, next(spoke, newest))


def read_turn(connection: sqlite3.Connection, row: Row) -> TurnOn:
    """Parse a turn's row."""
    error = ""
    if row["state"] in ("failed", "interrupted"):
        step = one(connection, "step_last", tenant=row["tenant"], no=row["conversation"], turn=row["n"])
        error = step["error"] if step else ""
    return TurnOn(
        n=row["n"],
        state=row["state"],
        query_seq=row["query_seq"],
        reply_seq=row["reply_seq"],
        error=error,
        metadata=json.loads(row["metadata"]),
    )


_NUMBERS = 1_000_000  # most reflections of one turn
_encode = msgspec.json.Encoder().encode
_reflection = msgspec.json.Decoder(Reflection).decode
_calls = msgspec.json.Decoder(tuple[MetapromptTask, ...]).decode


class SqliteReflections:
    """The reflections of a SQLite store."""

    def __init__(self, read: SnapshotRunner, write: SnapshotRunner) -> None:
        self._read = read
        self._write = write

    async def due(self, *, limit: int = 100) -> list[DueReflection]:
        """Return due reflections, one per conversation."""
        results = await self._read(lambda c: run(c, "reflections_due", limit=limit).fetchall())
        return [
            DueReflection(tenant=tenant, conversation=id_, turn=place // _NUMBERS, n=place % _NUMBERS)
            for tenant, id_, place in results
        ]

    async def due_in(self, scope: Scope, conversation: str, *, limit: int) -> list[DueReflection]:
        """Return the due reflections of a conversation."""

        def read(connection: sqlite3.Connection) -> list[DueReflection]:
            row = base.find(connection, scope, conversation)
            if row is None:
                return []
            place = {"tenant": row["tenant"], "no": row["no"]}
            return [
                DueReflection(tenant=row["tenant"], conversation=row["id"], turn=turn, n=n)
                for turn, n in run(connection, "reflections_due_in", **place, limit=limit)
            ]

        return await self._read(read)

    async def left(self) -> int:
        """Count due reflections."""
        return await self._read(lambda c: int(run(c, "reflections_left").fetchone()[0]))

    async def read(self, scope: Scope, due: DueReflection) -> ReflectionInput | None:
        """Load the input of a reflection."""
        return await self._read(lambda c: _reflecting(c, scope, due))

    async def save(
        self, scope: Scope, reflecting: ReflectionInput, reflection: Reflection, *, audit: Sequence[Record] = ()
    ) -> bool:
        """Store a reflection and its audit records."""

        def write(connection: sqlite3.Connection) -> bool:
            row = base.find(connection, scope, reflecting.conversation.id)
            if row is None or row["no"] != reflecting.conversation.no or reflecting.epoch != _epoch(connection, row):
                return False
            place = {"tenant": row["tenant"], "no": row["no"], "turn": reflecting.turn.n, "n": reflecting.n}
            if not run(connection, "reflection_done", body=_encode(reflection).decode(), **place).rowcount:
                return False
            chained(connection, row["tenant"], audit)
            return True

        return await self._write(write)

    async def ask(self, scope: Scope, conversation: str, calls: Sequence[MetapromptTask]) -> int:
        """Request a reflection manually."""

        def write(connection: sqlite3.Connection) -> int:
            row = base.need(connection, scope, conversation)
            tenant, no = row["tenant"], row["no"]
            last = turn_on(connection, tenant, no, runs_to(connection, tenant, no, row["head"]))
            if last is None:
                msg = f"Conversation {conversation!r} has no turn to reflect on. Send a message first."
                raise InvalidInput(msg, where="conversation")
            ask(connection, row, last.n, calls)
            return last.n

        return await self._write(write)

    async def waiting(self, scope: Scope, conversation: str) -> int:
        """Count a conversation's due reflections."""

        def read(connection: sqlite3.Connection) -> int:
            row = base.need(connection, scope, conversation)
            result = run(connection, "reflections_waiting", tenant=row["tenant"], no=row["no"]).fetchone()
            return int(result[0])

        return await self._read(read)

    async def of(
        self, scope: Scope, conversation: str, *, turn: int | None = None, limit: int = 50
    ) -> list[Reflection]:
        """Return a conversation's reflections."""

        def read(connection: sqlite3.Connection) -> list[Reflection]:
            row = base.need(connection, scope, conversation)
            found = (_reflection(body) for body, *_ in _made(connection, row, turn or row["turns"]))
            return list(islice(takewhile(lambda each: turn in (None, each.turn), found), limit))

        return await self._read(read)


def ask(connection: sqlite3.Connection, row: Row, turn: int, calls: Sequence[MetapromptTask]) -> None:
    """Request a reflection on a turn; do nothing without calls."""
    if calls:
        text = _encode(tuple(calls)).decode()
        run(connection, "reflection_ask", tenant=row["tenant"], no=row["no"], turn=turn, calls=text)


def newest_on(connection: sqlite3.Connection, row: Row, runs: Runs, *, upto: int) -> Reflection | None:
    """Return the newest reflection on a turn of a path, up to a turn number."""
    for body, query, reply in _made(connection, row, upto):
        if on_path(runs, query) or (reply and on_path(runs, reply)):
            return _reflection(body)
    return None


def _made(connection: sqlite3.Connection, row: Row, upto: int) -> sqlite3.Cursor:
    return run(connection, "reflections_made", tenant=row["tenant"], no=row["no"], turn=upto)


def _epoch(connection: sqlite3.Connection, row: Row) -> int:
    return current_epoch(connection, row["tenant"], "conversation", str(row["no"]))


def _reflecting(connection: sqlite3.Connection, scope: Scope, due: DueReflection) -> ReflectionInput | None:
    row = base.find(connection, scope, due.conversation)
    if row is None:
        return None
    tenant, no = row["tenant"], row["no"]
    data = one(connection, "reflection_get", tenant=tenant, no=no, turn=due.turn, n=due.n)
    fields = one(connection, "turn_get", tenant=tenant, no=no, n=due.turn)
    if data is None or fields is None or not data["due"]:
        return None
    turn = read_turn(connection, fields)
    runs = runs_to(connection, tenant, no, turn.reply_seq or turn.query_seq)
    return ReflectionInput(
        conversation=records.conversation(row),
        turn=turn,
        n=due.n,
        calls=_calls(data["calls"]),
        before=newest_on(connection, row, runs, upto=due.turn),
        epoch=_epoch(connection, row),
    )
