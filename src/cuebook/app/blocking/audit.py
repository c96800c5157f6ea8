"""Made by scripts/blocking.py from `cuebook.app.audit`: `scripts/check --fix` makes it anew."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from cuebook.app.audit import FoundRecords, ReplayedRender
from cuebook.app.blocking.host import Host
from cuebook.records.audit import Checkpoint, Record, Verdict


class BlockingAudit:
    """`Cuebook.audit` without `await`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def records(self, *, after: int = 0, limit: int = 50) -> list[Record]:
        """Give records behind a seq, the oldest first."""
        return self._host.run(lambda book: book.audit.records(after=after, limit=limit))

    def get(self, seq: int) -> Record:
        """Give a record. Raises NotFound."""
        return self._host.run(lambda book: book.audit.get(seq))

    def tail(self, last: int = 10) -> list[Record]:
        """Give the newest records, oldest first."""
        return self._host.run(lambda book: book.audit.tail(last))

    def find(
        self,
        *,
        event: str | None = None,
        prompt: str | None = None,
        conversation: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> FoundRecords:
        """Look for the newest records of an event, a prompt, a conversation, before a seq where one is named.

        One search looks at LOOKED_AT records or fewer. Raises InvalidInput.
        """
        return self._host.run(
            lambda book: book.audit.find(
                event=event, prompt=prompt, conversation=conversation, before=before, limit=limit
            )
        )

    def export(self) -> Iterator[Record]:
        """Give all records, the oldest first."""
        return self._host.iterate(lambda book: book.audit.export())

    def checkpoints(self) -> list[Checkpoint]:
        """Give the signed checkpoints, the smallest first; a copy kept elsewhere shows what this store cannot."""
        return self._host.run(lambda book: book.audit.checkpoints())

    def verify(self, *, kept: Iterable[Checkpoint] = ()) -> Verdict:
        """Check the chain against its hashes and signed checkpoints, and those `kept` elsewhere; then its mirror file.

        The file is brought up to date first: what a crash tore off, or somebody cut off its end, is written anew.
        """
        return self._host.run(lambda book: book.audit.verify(kept=kept))

    def verify_mirror(self, file: Path, *, kept: Iterable[Checkpoint] = ()) -> Verdict:
        """Check a mirror file, or an export, in the same way. Raises OSError."""
        return self._host.run(lambda book: book.audit.verify_mirror(file, kept=kept))

    def replay(self, seq: int) -> ReplayedRender:
        """Render what a record says was rendered, from the same version and values. Raises NotFound, InvalidInput."""
        return self._host.run(lambda book: book.audit.replay(seq))
