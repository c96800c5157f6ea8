"""Store outcomes (feedback on turns) in SQLite, and apply each once to the prompts of its turn."""

import sqlite3
from collections.abc import Sequence

import msgspec

from cuebook.errors import Conflict, NotFound
from cuebook.interfaces.prompts import DueOutcome, Lesson, StoredKey
from cuebook.memory.copied_text import CopyIndex
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
        self, scope: Scope, conversation: str, turn: int, outcome: Outcome, *, once: StoredKey | None
    ) -> StoredOutcome:
        """Replace the outcome of a turn."""
        return await self._write(
            lambda c: bound(c, scope, once, lambda: _give(c, base.need(c, scope, conversation), turn, outcome))
        )

    async def due(self, *, limit: int) -> list[DueOutcome]:
        """Return turns whose outcome was not yet applied."""
        return await self._read(lambda c: [DueOutcome(**row) for row in rows(c, "outcomes_due", limit=limit)])

    async def fold(
        self, scope: Scope, conversation: str, turn: int, stored_outcome: StoredOutcome, lessons: Sequence[Lesson]
    ) -> StoredOutcome | None:
        """Apply an outcome to its prompts, once."""

        def write(connection: sqlite3.Connection) -> StoredOutcome | None:
            row = base.find(connection, scope, conversation)
            if row is None or row["no"] != stored_outcome.no:
                return None
            return _fold(connection, row, turn, stored_outcome, lessons, failpoints=self._failpoints)

        return await self._write(write)


def note(connection: sqlite3.Connection, row: Row, outcome: Outcome, *, turn: int) -> None:
    """Store the outcome of a turn unless it has one: of two following messages the first counts."""
    values = {"tenant": row["tenant"], "no": row["no"], "turn": turn, "user": outcome.user, "body": _encode(outcome)}
    run(connection, "outcome_note", **values)


def forget(connection: sqlite3.Connection, row: Row, user: str | None, quoted: CopyIndex) -> int:
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
    data = one(connection, "turn_get", **place, n=turn)
    if data is None:
        msg = f"Unknown turn {turn} of conversation {row['id']!r}. Number of turns: {row['turns']}."
        raise NotFound(msg)
    if data["state"] == "running":
        msg = f"Turn {turn} of conversation {row['id']!r} is still running. Send feedback after it has ended."
        raise Conflict(msg)
    run(connection, "outcome_give", **place, turn=turn, user=outcome.user, body=_encode(outcome))
    stored_outcome = _known(connection, row["tenant"], row["no"], turn)
    if stored_outcome is None:
        raise base.moved(row["id"])
    return stored_outcome


def _fold(
    connection: sqlite3.Connection,
    row: Row,
    turn: int,
    stored_outcome: StoredOutcome,
    lessons: Sequence[Lesson],
    *,
    failpoints: Failpoints,
) -> StoredOutcome | None:
    tenant, no = row["tenant"], row["no"]
    stands = _known(connection, tenant, no, turn)
    if stands is None or not stands.due or stands.revision != stored_outcome.revision:
        return None
    before = {(each.slug, each.branch, each.number): each for each in stands.taught}
    taught: list[Taught] = []
    for lesson in lessons:
        observation = lesson.observation
        place = (observation.slug, observation.branch, observation.number)
        had = before.get(place)
        if had is not None and revised(connection, tenant, had.observation, observation):
            taught.append(had)
        else:
            number, counted = observed(connection, tenant, observation)
            taught.append(
                Taught(
                    slug=observation.slug,
                    branch=observation.branch,
                    number=observation.number,
                    observation=number,
                    counted=counted,
                )
            )
        chained(connection, tenant, [lesson.audit] if lesson.audit else [])
    failpoints("outcome.folded")
    values = {"tenant": tenant, "no": no, "turn": turn, "revision": stands.revision}
    run(connection, "outcome_taught", **values, taught=_encode(taught))
    return msgspec.structs.replace(stands, due=False, taught=tuple(taught))
