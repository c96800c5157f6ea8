"""Made by scripts/blocking.py from `cuebook.app.forgetting`: `scripts/check --fix` makes it anew."""

from collections.abc import Sequence

from cuebook.app.blocking.host import Host
from cuebook.records.erasure import Hold


class BlockingHolds:
    """`Cuebook.holds` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def add(
        self,
        *,
        user: str | None = None,
        conversation: str | None = None,
        persona: str | None = None,
        organization: str | None = None,
        memory: str | None = None,
        reason: str = "",
        id: str | None = None,
    ) -> Hold:
        """Hold one thing; the same again under its id is the same hold. Raises InvalidInput, Conflict for another."""
        return self._host.run(
            lambda book: book.holds.add(
                user=user,
                conversation=conversation,
                persona=persona,
                organization=organization,
                memory=memory,
                reason=reason,
                id=id,
            )
        )

    def list(self) -> Sequence[Hold]:
        """Give the holds, by id."""
        return self._host.run(lambda book: book.holds.list())

    def release(self, hold: str) -> None:
        """End a hold. Raises NotFound."""
        self._host.run(lambda book: book.holds.release(hold))
