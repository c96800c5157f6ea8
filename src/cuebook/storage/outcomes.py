"""Store outcomes (feedback on turns) in SQLite, and apply each once to the prompts of its turn."""

from collections.abc import Sequence

import msgspec

from cuebook.errors import Conflict, NotFound
from cuebook.interfaces.prompts import DueOutcome, Lesson, StoredKey
from cuebook.memory.copied_text import CopyIndex
from cuebook.records.memory import Scope
from cuebook.records.outcome import Outcome, StoredOutcome, Taught
from cuebook.storage import access
from cuebook.storage.access import ConversationRow, bound
from cuebook.storage.audit import chained
from cuebook.storage.database.transaction import Noun, Transaction, read, write
from cuebook.storage.prompts import observed, revised

_outcome = msgspec.json.Decoder(Outcome).decode
_taught = msgspec.json.Decoder(tuple[Taught, ...]).decode
_encode = msgspec.json.Encoder().encode


class OutcomeStore(Noun):
    """Stores one outcome per turn. `Opening.outcome` adds that of the previous turn; an existing one stays."""

    @read
    def get(self, transaction: Transaction, scope: Scope, conversation: str, turn: int) -> StoredOutcome | None:
        """Return a turn's outcome, or None. Raises NotFound for another user's conversation."""
        row = access.need(transaction, scope, conversation)
        return _known(transaction, row.tenant, row.no, turn)

    @read
    def lately(self, transaction: Transaction, scope: Scope, conversation: str, *, limit: int) -> list[Outcome]:
        """Return the newest outcomes of a conversation, newest first. Raises NotFound."""
        row = access.need(transaction, scope, conversation)
        found = transaction.run("outcomes_lately", **row.key, limit=limit)
        return [_outcome(body) for (body,) in found]

    @write
    def give(
        self,
        transaction: Transaction,
        scope: Scope,
        conversation: str,
        turn: int,
        outcome: Outcome,
        *,
        once: StoredKey | None,
    ) -> StoredOutcome:
        """Replace an outcome. Its earlier observations become due for correction.

        Raises NotFound for an unknown turn, Conflict while it runs.
        """
        return bound(
            transaction,
            scope,
            once,
            lambda: _give(transaction, access.need(transaction, scope, conversation), turn, outcome),
        )

    @read
    def due(self, transaction: Transaction, *, limit: int) -> list[DueOutcome]:
        """Return turns with a due outcome, in a fixed order."""
        return [DueOutcome(**row) for row in transaction.rows("outcomes_due", limit=limit)]

    @write
    def fold(
        self,
        transaction: Transaction,
        scope: Scope,
        conversation: str,
        turn: int,
        stored_outcome: StoredOutcome,
        *,
        lessons: Sequence[Lesson],
    ) -> StoredOutcome | None:
        """Store an outcome's observations and clear its due mark, in one transaction.

        An earlier observation of the same outcome is corrected. Return None, and do nothing, if the outcome has changed
        since it was loaded, or is gone.
        """
        row = access.find(transaction, scope, conversation)
        if row is None or row.no != stored_outcome.no:
            return None
        return _fold(transaction, row, turn, stored_outcome, lessons)


def note(transaction: Transaction, row: ConversationRow, outcome: Outcome, *, turn: int) -> None:
    """Store the outcome of a turn unless it has one: of two following messages the first counts."""
    values = {"tenant": row.tenant, "no": row.no, "turn": turn, "user": outcome.user, "body": _encode(outcome)}
    transaction.run("outcome_note", **values)


def forget(transaction: Transaction, row: ConversationRow, user: str | None, quoted: CopyIndex) -> int:
    """Delete a user's feedback on a conversation's turns, and feedback of others that repeats their text."""
    place = {"tenant": row.tenant, "no": row.no}
    gone = [
        each["turn"]
        for each in transaction.rows("outcomes_of", **place)
        if (user is not None and each["user_id"] == user) or quoted.stand_in(_outcome(each["body"]).comment)
    ]
    return sum(transaction.run("outcome_delete", **place, turn=turn).rowcount for turn in gone)


def _known(transaction: Transaction, tenant: str, no: int, turn: int) -> StoredOutcome | None:
    row = transaction.one("outcome_get", tenant=tenant, no=no, turn=turn)
    if row is None:
        return None
    return StoredOutcome(
        outcome=_outcome(row["body"]),
        due=bool(row["due"]),
        revision=row["revision"],
        taught=_taught(row["taught"]) if row["taught"] else (),
        no=no,
    )


def _give(transaction: Transaction, row: ConversationRow, turn: int, outcome: Outcome) -> StoredOutcome:
    place = {"tenant": row.tenant, "no": row.no}
    data = transaction.one("turn_get", **place, n=turn)
    if data is None:
        msg = f"Unknown turn {turn} of conversation {row.id!r}. Number of turns: {row.turns}."
        raise NotFound(msg)
    if data["state"] == "running":
        msg = f"Turn {turn} of conversation {row.id!r} is still running. Send feedback after it has ended."
        raise Conflict(msg)
    transaction.run("outcome_give", **place, turn=turn, user=outcome.user, body=_encode(outcome))
    stored_outcome = _known(transaction, row.tenant, row.no, turn)
    if stored_outcome is None:
        raise access.moved(row.id)
    return stored_outcome


def _fold(
    transaction: Transaction, row: ConversationRow, turn: int, stored_outcome: StoredOutcome, lessons: Sequence[Lesson]
) -> StoredOutcome | None:
    tenant, no = row.tenant, row.no
    stands = _known(transaction, tenant, no, turn)
    if stands is None or not stands.due or stands.revision != stored_outcome.revision:
        return None
    before = {(each.slug, each.branch, each.number): each for each in stands.taught}
    taught: list[Taught] = []
    for lesson in lessons:
        observation = lesson.observation
        place = (observation.slug, observation.branch, observation.number)
        had = before.get(place)
        if had is not None and revised(transaction, tenant, had.observation, observation):
            taught.append(had)
        else:
            number, counted = observed(transaction, tenant, observation)
            taught.append(
                Taught(
                    slug=observation.slug,
                    branch=observation.branch,
                    number=observation.number,
                    observation=number,
                    counted=counted,
                )
            )
        chained(transaction, tenant, [lesson.audit] if lesson.audit else [])
    transaction.failpoint("outcome.folded")
    values = {"tenant": tenant, "no": no, "turn": turn, "revision": stands.revision}
    transaction.run("outcome_taught", **values, taught=_encode(taught))
    return msgspec.structs.replace(stands, due=False, taught=tuple(taught))
