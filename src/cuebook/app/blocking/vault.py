"""Made by scripts/blocking.py from `cuebook.app.vault`: `scripts/check --fix` makes it anew."""

from collections.abc import Sequence
from pathlib import Path

from cuebook.app.blocking.host import Host
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
        """Count what is kept of each conversation, the newest first. Raises InvalidInput."""
        return self._host.run(lambda book: book.vault.list(limit=limit))

    def reveal(self, conversation: str, *, user: str | None = None, by: str = "") -> Sequence[Revealed]:
        """Give what was replaced in a conversation's posts, oldest first; the audit says that it was asked for.

        Raises NotFound, and InvalidInput where the vault is off.
        """
        return self._host.run(lambda book: book.vault.reveal(conversation, user=user, by=by))

    def clear(self, conversation: str | None = None, *, by: str = "") -> int:
        """Give up what is kept of a conversation, or of all: tokens stay. Answers with rows. Raises NotFound."""
        return self._host.run(lambda book: book.vault.clear(conversation, by=by))

    def rotate(self, key_file: str | Path) -> Rotated:
        """Seal everything, of all tenants, with the key in a file; from then on the settings must name it.

        Raises InvalidInput where the vault is off, the file holds no key, or lies in the store's folder.
        """
        return self._host.run(lambda book: book.vault.rotate(key_file))
