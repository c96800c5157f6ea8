"""A blocking book's receipts and holds."""

from collections.abc import Sequence

from cuebook.app.blocking.parts import Host
from cuebook.app.forgetting import Checked
from cuebook.records.erasure import Hold, Receipt


class BlockingReceipts:
    """`Cuebook.receipts` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get(self, receipt: str, *, user: str | None = None) -> Receipt:
        """Give a receipt, with `user` only one that concerns them; a pending one is finished if possible now."""
        return self._host.run(lambda book: book.receipts.get(receipt, user=user))

    def finish(self) -> int:
        """Leave no byte of what was forgotten, and sign; answers with how many receipts are pending."""
        return self._host.run(lambda book: book.receipts.finish())

    def list(self, *, limit: int = 100) -> Sequence[Receipt]:
        """Give the newest receipts, the newest first."""
        return self._host.run(lambda book: book.receipts.list(limit=limit))

    def verify(self, receipt: Receipt | bytes | str, *, name: str | None = None) -> Checked:
        """Check a receipt against this book's key; with `name` also that it is about that id."""
        return self._host.read(lambda book: book.receipts.verify(receipt, name=name))


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
        id: str | None = None,  # noqa: A002
    ) -> Hold:
        """Hold one thing. Raises InvalidInput, and Conflict where the id is taken."""
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
