"""Made by scripts/blocking.py from `cuebook.app.turns`: `scripts/check --fix` makes it anew."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cuebook.app import feedback
from cuebook.app.blocking.host import Host
from cuebook.app.paging import LIMIT, Paged
from cuebook.app.turns import Replay
from cuebook.records.outcome import Known
from cuebook.records.prompt import TaskOutcome
from cuebook.records.turn import Turn


class BlockingTurns:
    """`Cuebook.turns` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get(self, conversation: str, n: int, *, user: str | None = None) -> Turn:
        """One turn. Raises NotFound."""
        return self._host.run(lambda book: book.turns.get(conversation, n, user=user))

    def last(self, conversation: str, *, user: str | None = None, last: int = 20) -> list[Turn]:
        """Give the newest turns, oldest first."""
        return self._host.run(lambda book: book.turns.last(conversation, user=user, last=last))

    def page(
        self, conversation: str, *, user: str | None = None, limit: int = LIMIT, cursor: str | None = None
    ) -> Paged[Turn]:
        """Give a page of all turns, oldest first."""
        return self._host.run(lambda book: book.turns.page(conversation, user=user, limit=limit, cursor=cursor))

    def show(self, conversation: str, n: int, *, step: int | None = None, user: str | None = None) -> dict[str, Any]:
        """Give a turn in INTERFACE's shape: query, reply, and every block of its window with its source and tokens."""
        return self._host.run(lambda book: book.turns.show(conversation, n, step=step, user=user))

    def replay(
        self,
        conversation: str,
        n: int,
        *,
        step: int | None = None,
        user: str | None = None,
        with_prompt: Sequence[str] = (),
        as_of: datetime | str | int | None = None,
        without: Sequence[str] = (),
        ask: bool = False,
    ) -> Replay:
        """Render a turn's window again from what is stored, and hold it against the digest of what was sent.

        With any of the last four also what its first step's window would have been (`counterfactual`): with these
        versions of prompts (`SLUG`, `SLUG@BRANCH`, `SLUG@BRANCH:NUMBER`), with what memory held at a time (a datetime,
        ISO 8601, or the number of a turn of the conversation), without these memories; with `ask` the book's model
        answers it. Nothing is stored but the audit's record of that question. Raises InvalidInput, NotFound, and Denied
        for who was let into the conversation.
        """
        return self._host.run(
            lambda book: book.turns.replay(
                conversation, n, step=step, user=user, with_prompt=with_prompt, as_of=as_of, without=without, ask=ask
            )
        )

    def feedback(
        self,
        conversation: str,
        n: int,
        *,
        score: float | None = None,
        thumb: feedback.Thumb | None = None,
        outcome: TaskOutcome | None = None,
        corrections: int | None = None,
        comment: str = "",
        user: str | None = None,
        idempotency_key: str | None = None,
    ) -> Known:
        """Say how a turn was, in the place of what its user's next message says; the newest word stands.

        `score` from 0 to 1, or `thumb` for 1 and 0, is the sentiment of the observation made of it. The prompts that
        spoke have learnt it when this returns; what they had learnt of the turn is corrected. Raises InvalidInput,
        NotFound, and Conflict while the turn is being answered.
        """
        return self._host.run(
            lambda book: book.turns.feedback(
                conversation,
                n,
                score=score,
                thumb=thumb,
                outcome=outcome,
                corrections=corrections,
                comment=comment,
                user=user,
                idempotency_key=idempotency_key,
            )
        )
