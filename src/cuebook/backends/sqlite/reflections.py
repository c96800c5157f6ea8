"""The reflections of a SQLite store: asked for in the transaction that opens a turn, kept by compare-and-set."""

import sqlite3
from collections.abc import Sequence
from itertools import islice, takewhile

import msgspec

from cuebook.backends.sqlite import base, epochs
from cuebook.backends.sqlite import rows as records
from cuebook.backends.sqlite.audit import chained
from cuebook.backends.sqlite.base import Run, one, run
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.tree import Runs, on_path, runs_to
from cuebook.backends.sqlite.turn_on import read_turn, turn_on
from cuebook.errors import InvalidInput
from cuebook.ports.reflections import Call, DueReflection, Reflecting
from cuebook.records.audit import Record
from cuebook.records.memory import Scope
from cuebook.records.mind import Reflection

_NUMBERS = 1_000_000  # reflections of one turn that can be told apart in a place
_encode = msgspec.json.Encoder().encode
_reflection = msgspec.json.Decoder(Reflection).decode
_calls = msgspec.json.Decoder(tuple[Call, ...]).decode


class SqliteReflections:
    """The reflections of a SQLite store."""

    def __init__(self, read: Run, write: Run) -> None:
        self._read = read
        self._write = write

    async def due(self, *, limit: int = 100) -> list[DueReflection]:
        """Name what is due, one of each conversation."""
        found = await self._read(lambda c: run(c, "reflections_due", limit=limit).fetchall())
        return [
            DueReflection(tenant=tenant, conversation=id_, turn=place // _NUMBERS, n=place % _NUMBERS)
            for tenant, id_, place in found
        ]

    async def due_in(self, scope: Scope, conversation: str, *, limit: int) -> list[DueReflection]:
        """Name what is due of a conversation."""

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
        """Count what is due."""
        return await self._read(lambda c: int(run(c, "reflections_left").fetchone()[0]))

    async def read(self, scope: Scope, due: DueReflection) -> Reflecting | None:
        """Read what a reflection is made from."""
        return await self._read(lambda c: _reflecting(c, scope, due))

    async def save(self, scope: Scope, read: Reflecting, made: Reflection, *, audit: Sequence[Record] = ()) -> bool:
        """Keep a reflection, with the audit's records of it."""

        def write(connection: sqlite3.Connection) -> bool:
            row = base.find(connection, scope, read.conversation.id)
            if row is None or row["no"] != read.conversation.no or read.epoch != _epoch(connection, row):
                return False
            place = {"tenant": row["tenant"], "no": row["no"], "turn": read.turn.n, "n": read.n}
            if not run(connection, "reflection_done", body=_encode(made).decode(), **place).rowcount:
                return False
            chained(connection, row["tenant"], audit)
            return True

        return await self._write(write)

    async def ask(self, scope: Scope, conversation: str, calls: Sequence[Call]) -> int:
        """Ask for a reflection by hand."""

        def write(connection: sqlite3.Connection) -> int:
            row = base.need(connection, scope, conversation)
            tenant, no = row["tenant"], row["no"]
            last = turn_on(connection, tenant, no, runs_to(connection, tenant, no, row["head"]))
            if last is None:
                msg = f"conversation {conversation!r} has no turn to reflect on; ask something in it first"
                raise InvalidInput(msg, where="conversation")
            ask(connection, row, last.n, calls)
            return last.n

        return await self._write(write)

    async def waiting(self, scope: Scope, conversation: str) -> int:
        """Count a conversation's due reflections."""

        def read(connection: sqlite3.Connection) -> int:
            row = base.need(connection, scope, conversation)
            found = run(connection, "reflections_waiting", tenant=row["tenant"], no=row["no"]).fetchone()
            return int(found[0])

        return await self._read(read)

    async def of(
        self, scope: Scope, conversation: str, *, turn: int | None = None, limit: int = 50
    ) -> list[Reflection]:
        """Give a conversation's reflections."""

        def read(connection: sqlite3.Connection) -> list[Reflection]:
            row = base.need(connection, scope, conversation)
            found = (_reflection(body) for body, *_ in _made(connection, row, turn or row["turns"]))
            return list(islice(takewhile(lambda each: turn in (None, each.turn), found), limit))

        return await self._read(read)


def ask(connection: sqlite3.Connection, row: Row, turn: int, calls: Sequence[Call]) -> None:
    """Ask for a reflection on a turn; with no calls nothing is asked."""
    if calls:
        said = _encode(tuple(calls)).decode()
        run(connection, "reflection_ask", tenant=row["tenant"], no=row["no"], turn=turn, calls=said)


def newest_on(connection: sqlite3.Connection, row: Row, runs: Runs, *, upto: int) -> Reflection | None:
    """Give the newest reflection on a turn of a path, up to a turn by its number."""
    for body, query, reply in _made(connection, row, upto):
        if on_path(runs, query) or (reply and on_path(runs, reply)):
            return _reflection(body)
    return None


def _made(connection: sqlite3.Connection, row: Row, upto: int) -> sqlite3.Cursor:
    return run(connection, "reflections_made", tenant=row["tenant"], no=row["no"], turn=upto)


def _epoch(connection: sqlite3.Connection, row: Row) -> int:
    return epochs.current(connection, row["tenant"], "conversation", str(row["no"]))


def _reflecting(connection: sqlite3.Connection, scope: Scope, due: DueReflection) -> Reflecting | None:
    row = base.find(connection, scope, due.conversation)
    if row is None:
        return None
    tenant, no = row["tenant"], row["no"]
    found = one(connection, "reflection_get", tenant=tenant, no=no, turn=due.turn, n=due.n)
    said = one(connection, "turn_get", tenant=tenant, no=no, n=due.turn)
    if found is None or said is None or not found["due"]:
        return None
    turn = read_turn(connection, said)
    runs = runs_to(connection, tenant, no, turn.reply_seq or turn.query_seq)
    return Reflecting(
        conversation=records.conversation(row),
        turn=turn,
        n=due.n,
        calls=_calls(found["calls"]),
        before=newest_on(connection, row, runs, upto=due.turn),
        epoch=_epoch(connection, row),
    )
