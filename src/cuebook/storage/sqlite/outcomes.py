"""Store outcomes (feedback on turns) in SQLite, and apply each once to the prompts of its turn."""

import sqlite3
from collections.abc import Sequence

import msgspec

from cuebook.errors import Conflict, NotFound
from cuebook.interfaces.prompts import DueOutcome, Lesson, Once
from cuebook.memory.copied_text import Quoted
from cuebook.records.memory import Scope
from cuebook.records.outcome import Outcome, StoredOutcome, Taught
from cuebook.storage.failpoints import Failpoints
from cuebook.storage.sqlite import base
from cuebook.storage.sqlite.audit import chained
from cuebook.storage.sqlite.base import SnapshotRunner, bound, one, rows, run
from cuebook.storage.sqlite.prompts import observed, revised
from cuebook.storage.sqlite.rows import Row

_outcome = msgspec.json.Decoder(Outcome).decode
_taught = msgspec.json.Decoder(tuple[Taught, ...]).decode
_encode = msgspec.json.Encoder().encode


class SqliteOutcomes:
    """The outcomes of a SQLite store."""

    def __init__(self, read: SnapshotRunner, write: SnapshotRunner, failpoints: Failpoints) -> None:
        self._read = read
        self._write = write
        self._failpoints = failpoints

    async def get(self, scope: Scope, conversation: str, turn: int) -> StoredOutcome | None:
        """Return a turn's outcome."""

        def read(connection: sqlite3.Connection) -> StoredOutcome | None:
            row = base.need(connection, scope, conversation)
            return _known(connection, row["tenant"], row["no"], turn)

        return await self._read(read)

    async def lately(self, scope: Scope, conversation: str, *, limit: int) -> list[Outcome]:
        """Return a conversation's newest outcomes."""

        def read(connection: sqlite3.Connection) -> list[Outcome]:
            row = base.need(connection, scope, conversation)
            found = run(connection, "outcomes_lately", tenant=row["tenant"], no=row["no"], limit=limit)
            return [_outcome(body) for (body,) in found]

        return await self._read(read)

    async def give(
        self, scope: Scope, conversation: str, turn: int, outcome: Outcome, *, once: Once | None
    ) -> StoredOutcome:
        """Replace the outcome of a turn."""
        return await self._write(
            lambda c: bound(c, scope, once, lambda: _give(c, base.need(c, scope, conversation), turn, outcome))
        )

    async def due(self, *, limit: int) -> list[DueOutcome]:
        """Return turns whose outcome was not yet applied."""
        return await self._read(lambda c: [DueOutcome(**row) for row in rows(c, "outcomes_due", limit=limit)])

    async def fold(
        self, scope: Scope, conversation: str, turn: int, known: StoredOutcome, lessons: Sequence[Lesson]
    ) -> StoredOutcome | None:
        """Apply an outcome to its prompts, once."""

        def write(connection: sqlite3.Connection) -> StoredOutcome | None:
            row = base.find(connection, scope, conversation)
            if row is None or row["no"] != known.no:
                return None
            return _fold(connection, row, turn, known, lessons, failpoints=self._failpoints)

        return await self._write(write)


def note(connection: sqlite3.Connection, row: Row, outcome: Outcome, *, turn: int) -> None:
    """Store the outcome of a turn unless it has one: of two following messages the first counts."""
    values = {"tenant": row["tenant"], "no": row["no"], "turn": turn, "user": outcome.user, "body": _encode(outcome)}
    run(connection, "outcome_note", **values)


def forget(connection: sqlite3.Connection, row: Row, user: str | None, quoted: Quoted) -> int:
    """Delete a user's feedback on a conversation's turns, and feedback of others that repeats their text."""
    place = {"tenant": row["tenant"], "no": row["no"]}
    gone = [
        each["turn"]
        for each in rows(connection, "outcomes_of", **place)
        if (user is not None and each["user_id"] == user) or quoted.stand_in(_outcome(each["body"]).comment)
    ]
    return sum(run(connection, "outcome_delete", **place, turn=turn).rowcount for turn in gone)


def _known(connection: sqlite3.Connection, tenant: str, no: int, turn: int) -> StoredOutcome | None:
    row = one(connection, "outcome_get", tenant=tenant, no=no, turn=turn)
    if row is None:
        return None
    return StoredOutcome(
        outcome=_outcome(row["body"]),
        due=bool(row["due"]),
        revision=row["revision"],
        taught=_taught(row["taught"]) if row["taught"] else (),
        no=no,
    )


def _give(connection: sqlite3.Connection, row: Row, turn: int, outcome: Outcome) -> StoredOutcome:
    place = {"tenant": row["tenant"], "no": row["no"]}
    found = one(connection, "turn_get", **place, n=turn)
    if found is None:
        msg = f"Unknown turn {turn} in conversation {row['id']!r}. It has {row['turns']} turns."
        raise NotFound(msg)
    if found["state"] == "running":
        msg = f"turn {turn} of conversation {row['id']!r} is still running. Send feedback after it has ended."
        raise Conflict(msg)
    run(connection, "outcome_give", **place, turn=turn, user=outcome.user, body=_encode(outcome))
    known = _known(connection, row["tenant"], row["no"], turn)
    if known is None:
        raise base.moved(row["id"])
    return known


def _fold(
    connection: sqlite3.Connection,
    row: Row,
    turn: int,
    known: StoredOutcome,
    lessons: Sequence[Lesson],
    *,
    failpoints: Failpoints,
) -> StoredOutcome | None:
    tenant, no = row["tenant"], row["no"]
    stands = _known(connection, tenant, no, turn)
    if stands is None or not stands.due or stands.revision != known.revision:
        return None
    before = {(each.slug, each.branch, each.number): each for each in stands.taught}
    taught: list[Taught] = []
    for lesson in lessons:
        seen = lesson.observation
        place = (seen.slug, seen.branch, seen.number)
        had = before.get(place)
        if had is not None and revised(connection, tenant, had.observation, seen):
            taught.append(had)
        else:
            number, counted = observed(connection, tenant, seen)
            taught.append(
                Taught(slug=seen.slug, branch=seen.branch, number=seen.number, observation=number, counted=counted)
            )
        chained(connection, tenant, [lesson.audit] if lesson.audit else [])
    failpoints("outcome.folded")
    values = {"tenant": tenant, "no": no, "turn": turn, "revision": stands.revision}
    run(connection, "outcome_taught", **values, taught=_encode(taught))
    return msgspec.structs.replace(stands, due=False, taught=tuple(taught))
