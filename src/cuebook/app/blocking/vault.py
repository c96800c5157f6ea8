"""A blocking book's vault."""

from collections.abc import Sequence
from pathlib import Path

from cuebook.app.blocking.parts import Host
from cuebook.app.vault import Revealed, Rotated
from cuebook.records.vault import Census, Kept


class BlockingVault:
    """`Cuebook.vault` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def census(self) -> Census:
        """Count what is kept."""
        return self._host.run(lambda book: book.vault.census())

    def list(self, *, limit: int = 50) -> Sequence[Kept]:
        """Count what is kept of each conversation, the newest first."""
        return self._host.run(lambda book: book.vault.list(limit=limit))

    def reveal(self, conversation: str, *, user: str | None = None, by: str = "") -> Sequence[Revealed]:
        """Give what was replaced in a conversation's posts; the audit says that it was asked for."""
        return self._host.run(lambda book: book.vault.reveal(conversation, user=user, by=by))

    def clear(self, conversation: str | None = None, *, by: str = "") -> int:
        """Give up what is kept of a conversation, or of all: tokens stay."""
        return self._host.run(lambda book: book.vault.clear(conversation, by=by))

    def rotate(self, key_file: str | Path) -> Rotated:
        """Seal everything with the key in a file; from then on the settings must name it."""
        return self._host.run(lambda book: book.vault.rotate(key_file))
