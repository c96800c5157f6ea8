"""Store outcomes (feedback on turns), and apply each once to the prompts of its turn."""

from collections.abc import Sequence

import msgspec

from cuebook.errors import Conflict, NotFound
from cuebook.memory.redundancy import CopyIndex
from cuebook.records.audit import Record
from cuebook.records.prompt import Observation, Outcome, StoredOutcome, Taught
from cuebook.storage import access
from cuebook.storage.access import ConversationRow
from cuebook.storage.audit import chained
from cuebook.storage.database.columns import Row, decode, encode
from cuebook.storage.database.transaction import Noun, Transaction, read, read_all, write, write_conversation
from cuebook.storage.prompts import observed, revised

#: An observation to store, and its audit record.
Lesson = tuple[Observation, Record | None]


class OutcomeStore(Noun):
    """Stores one outcome per turn. `StepStart.outcome` adds that of the previous turn; an existing one stays."""

    @read
    def get(self, transaction: Transaction, conversation: str, turn: int) -> StoredOutcome | None:
        """Return a turn's outcome, or None. Raises NotFound for another user's conversation."""
        return _known(access.need(transaction, conversation), turn)

    @read
    def lately(self, transaction: Transaction, conversation: str, *, limit: int) -> list[Outcome]:
        """Return the newest outcomes of a conversation, newest first. Raises NotFound."""
        row = access.need(transaction, conversation)
        return [decode(Outcome, body) for (body,) in row.run("outcomes_lately", limit=limit)]

    @write_conversation
    def give(self, transaction: Transaction, conversation: str, turn: int, outcome: Outcome) -> StoredOutcome:
        """Replace an outcome. Its earlier observations become due for correction.

        Raises NotFound for an unknown turn, Conflict while it runs.
        """
        row = access.need(transaction, conversation)
        data = row.one("turn_get", n=turn)
        if data is None:
            msg = f"Unknown turn {turn} of conversation {row.id!r}. Number of turns: {row.turns}."
            raise NotFound(msg)
        if data["state"] == "running":
            msg = f"Turn {turn} of conversation {row.id!r} is still running. Send feedback after it has ended."
            raise Conflict(msg)
        values = {"user": outcome.user, "body": encode(outcome), "taught": b"[]"}
        row.run("outcome_give", turn=turn, **values)
        stored_outcome = _known(row, turn)
        if stored_outcome is None:
            raise access.moved(row.id)
        return stored_outcome

    @read_all
    def due(self, transaction: Transaction, *, limit: int) -> list[tuple[str, str, int]]:
        """Return turns with a due outcome, from tenants in turn, by conversation and number."""
        return transaction.run("outcomes_due", limit=limit).fetchall()

    @write
    def fold(
        self,
        transaction: Transaction,
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
        row = access.find(transaction, conversation)
        if row is None or row.no != stored_outcome.no:
            return None
        stands = _known(row, turn)
        if stands is None or not stands.due or stands.revision != stored_outcome.revision:
            return None
        before = {(each.slug, each.branch, each.number): each for each in stands.taught}
        taught: list[Taught] = []
        for observation, audit in lessons:
            place = (observation.slug, observation.branch, observation.number)
            had = before.get(place)
            if had is not None and revised(transaction, had.observation, observation):
                taught.append(had)
            else:
                number, counted = observed(transaction, observation)
                slug, branch, version = place
                taught.append(Taught(slug=slug, branch=branch, number=version, observation=number, counted=counted))
            chained(transaction, [audit] if audit else [])
        transaction.failpoint("outcome.folded")
        values = {"turn": turn, "revision": stands.revision, "taught": encode(taught)}
        row.run("outcome_taught", **values)
        return msgspec.structs.replace(stands, due=False, taught=tuple(taught))


def note(row: ConversationRow, outcome: Outcome, *, turn: int) -> None:
    """Store the outcome of a turn unless it has one: of two following messages the first counts."""
    values = {"user": outcome.user, "body": encode(outcome), "taught": b"[]"}
    row.run("outcome_note", turn=turn, **values)


def forget(row: ConversationRow, user: str | None, quoted: CopyIndex) -> int:
    """Delete a user's feedback on a conversation's turns, and feedback of others that repeats their text."""
    return sum(row.run("outcome_delete", turn=each["turn"]).rowcount for each in concerning(row, user, quoted))


def concerning(row: ConversationRow, user: str | None, quoted: CopyIndex) -> list[Row]:
    """Return a user's feedback on a conversation's turns, and feedback of others that repeats their text."""
    return [
        each
        for each in row.rows("outcomes_of")
        if (user is not None and each["user_id"] == user) or quoted.stand_in(decode(Outcome, each["body"]).comment)
    ]


def _known(row: ConversationRow, turn: int) -> StoredOutcome | None:
    return row.transaction.record(StoredOutcome, "outcome_get", no=row.no, turn=turn)
