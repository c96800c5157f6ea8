"""Made by scripts/blocking.py from `cuebook.app.forgetting`: `scripts/check --fix` makes it anew."""

from collections.abc import Sequence

from cuebook.app.blocking.host import Host
from cuebook.app.forgetting import Checked
from cuebook.records.erasure import Receipt


class BlockingReceipts:
    """`Cuebook.receipts` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def get(self, receipt: str, *, user: str | None = None) -> Receipt:
        """Give a receipt; one that was pending is finished if that is possible now.

        With `user` only one that concerns them: something of theirs went, or they asked for it. Raises NotFound.
        """
        return self._host.run(lambda book: book.receipts.get(receipt, user=user))

    def finish(self) -> int:
        """Leave no byte of what was forgotten, however large the file, and sign; answers with how many are pending.

        The work behind the replies does it by itself. Writes wait meanwhile, about 7 s a GB.
        """
        return self._host.run(lambda book: book.receipts.finish())

    def list(self, *, limit: int = 100) -> Sequence[Receipt]:
        """Give the newest receipts, the newest first."""
        return self._host.run(lambda book: book.receipts.list(limit=limit))

    def verify(self, receipt: Receipt | bytes | str, *, name: str | None = None) -> Checked:
        """Check a receipt, a record or its JSON, against this book's key; with `name` also that it is about that id.

        Raises InvalidInput for what is no receipt.
        """
        return self._host.read(lambda book: book.receipts.verify(receipt, name=name))
