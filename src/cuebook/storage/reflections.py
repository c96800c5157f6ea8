"""Store reflections (background jobs after a turn): requested when a turn opens, saved by compare-and-set."""

from collections.abc import Sequence
from itertools import islice, takewhile

from cuebook.errors import InvalidInput
from cuebook.interfaces.store import DueReflection, MetapromptTask, ReflectionInput
from cuebook.records.audit import Record
from cuebook.records.mind import Reflection
from cuebook.records.turn import TurnOn
from cuebook.storage import access
from cuebook.storage.access import ConversationRow
from cuebook.storage.audit import chained
from cuebook.storage.database.columns import Row, decode, encode_json, record
from cuebook.storage.database.transaction import Cursor, Noun, Transaction, read, read_all, write, write_conversation
from cuebook.storage.tree import Runs, on_path, runs_to

# ---- the last turn of a path ----------------------------------------------------------------------------------------


#: Turns examined in each run of a path; a round seldom has more than a few.
_AT_ONCE = 16


def turn_on(row: ConversationRow, runs: Runs) -> TurnOn | None:
    """Return the turn of a path's newest answered round: the newest whose reply is on the path.

    If no reply is on the path, return the newest turn whose query is. Turns that answer the path's last post count,
    so that a regenerated answer finds them.
    """
    for first, last in runs:
        for turn in row.rows("turns_on_run", first=first, last=last, limit=_AT_ONCE):
            if on_path(runs, turn["query_seq"]):
                return _chosen(row, turn, runs)
    return None


def _chosen(row: ConversationRow, newest: Row, runs: Runs) -> TurnOn:
    if newest["reply_seq"] and on_path(runs, newest["reply_seq"]):
        return read_turn(row, newest)
    span = {"first": newest["round"], "last": newest["round"], "limit": _AT_ONCE}
    same = row.rows("turns_on_run", **span)
    spoke = (turn for turn in same if turn["reply_seq"] and on_path(runs, turn["reply_seq"]))
    return read_turn(row, next(spoke, newest))


def read_turn(row: ConversationRow, turn: Row) -> TurnOn:
    """Parse a turn's row, with the error of its last step if it failed."""
    failed = turn["state"] in ("failed", "interrupted")
    step = row.one("step_last", turn=turn["n"]) if failed else None
    return record(TurnOn, turn, error=step["error"] if step else "")


_NUMBERS = 1_000_000  # most reflections of one turn


class ReflectionStore(Noun):
    """Stores reflections."""

    @read_all
    def due(
        self, transaction: Transaction, *, tenant: str | None = None, conversation: str | None = None, limit: int = 100
    ) -> list[DueReflection]:
        """Return the oldest due reflection of each conversation whose turn has ended, with their number.

        `tenant` and `conversation` select one conversation.
        """
        return [
            DueReflection(tenant=tenant, conversation=id_, turn=place // _NUMBERS, n=place % _NUMBERS, count=count)
            for tenant, id_, place, count in transaction.run(
                "reflections_due", tenant=tenant, id=conversation, limit=limit
            )
        ]

    @write_conversation
    def save(
        self,
        transaction: Transaction,
        reflecting: ReflectionInput,
        reflection: Reflection,
        *,
        audit: Sequence[Record] = (),
    ) -> bool:
        """Store a reflection. Return False, and store nothing, if it exists or its conversation changed meanwhile."""
        row = access.unchanged(transaction, reflecting.conversation, epoch=reflecting.epoch)
        if row is None:
            return False
        place = {"no": row.no, "turn": reflecting.turn.n, "n": reflecting.n}
        if not transaction.run("reflection_done", body=encode_json(reflection), **place).rowcount:
            return False
        chained(transaction, audit)
        return True

    @write
    def ask(self, transaction: Transaction, conversation: str, calls: Sequence[MetapromptTask]) -> int:
        """Request a reflection on the newest turn of the head's path. Return the turn's number.

        Raises NotFound, and InvalidInput if there is no turn.
        """
        row = access.need(transaction, conversation)
        last = turn_on(row, runs_to(row, row.head))
        if last is None:
            msg = f"Conversation {conversation!r} has no turn to reflect on. Send a message first."
            raise InvalidInput(msg, where="conversation")
        ask(row, last.n, calls)
        return last.n

    @read
    def waiting(self, transaction: Transaction, conversation: str) -> int:
        """Count a conversation's due reflections, including those of running turns. Raises NotFound."""
        row = access.need(transaction, conversation)
        return int(row.value("reflections_waiting"))

    @read
    def of(
        self, transaction: Transaction, conversation: str, *, turn: int | None = None, limit: int = 50
    ) -> list[Reflection]:
        """Return reflections of a conversation on all branches, or of one turn, newest first. Raises NotFound."""
        row = access.need(transaction, conversation)
        found = (decode(Reflection, body) for body, *_ in _made(row, turn or row.turns))
        return list(islice(takewhile(lambda each: turn in (None, each.turn), found), limit))

    @read
    def read(self, transaction: Transaction, due: DueReflection) -> ReflectionInput | None:
        """Load the input of a reflection, or None if it is no longer due."""
        row = access.find(transaction, due.conversation)
        if row is None:
            return None
        data = row.one("reflection_get", turn=due.turn, n=due.n)
        fields = row.one("turn_get", n=due.turn)
        if data is None or fields is None or not data["due"]:
            return None
        turn = read_turn(row, fields)
        runs = runs_to(row, turn.reply_seq or turn.query_seq)
        return ReflectionInput(
            conversation=row.record(),
            turn=turn,
            n=due.n,
            calls=decode(tuple[MetapromptTask, ...], data["calls"]),
            before=newest_on(row, runs, upto=due.turn),
            epoch=row.epoch,
        )


def ask(row: ConversationRow, turn: int, calls: Sequence[MetapromptTask]) -> None:
    """Request a reflection on a turn."""
    row.run("reflection_ask", turn=turn, calls=encode_json(tuple(calls)))


def newest_on(row: ConversationRow, runs: Runs, *, upto: int) -> Reflection | None:
    """Return the newest reflection on a turn of a path, up to a turn number."""
    for body, query, reply in _made(row, upto):
        if on_path(runs, query) or (reply and on_path(runs, reply)):
            return decode(Reflection, body)
    return None


def _made(row: ConversationRow, upto: int) -> Cursor:
    return row.run("reflections_made", turn=upto)
