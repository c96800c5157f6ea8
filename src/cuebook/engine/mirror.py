"""The audit kept up behind the reply: its mirror file, and signed checkpoints. Nobody waits for either.

The table is the truth. The file is what it lacks, appended: a line that was torn by a crash is written again.
"""

import asyncio
import hashlib
import logging
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from cuebook.engine.desk import Desk
from cuebook.errors import BackendError, InvalidInput
from cuebook.prompts.chain import mirror_line, parse_mirror, public_key_of, sign
from cuebook.records.audit import Checkpoint, Record
from cuebook.records.memory import Scope

log = logging.getLogger("cuebook.audit")

#: A checkpoint is signed once so many records have come since the last, or so many seconds have gone by.
RECORDS, SECONDS = 1000, 60.0
_PAGE = 1000
_TAIL = 1 << 20


def signing_key(key: bytes) -> bytes:
    """Give the Ed25519 key of a book, derived from its key file."""
    return hashlib.blake2b(key, person=b"cuebook-audit", digest_size=32).digest()


def verifying_key(key: bytes) -> bytes:
    """Give the public half."""
    return public_key_of(signing_key(key))


class Mirror:
    """Keeps a book's mirror file and checkpoints up; `file` None keeps checkpoints alone."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self._written: int | None = None  # seq of the file's last whole line
        self._signed: tuple[int, float] | None = None
        self._lock = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()

    async def keep_up(self, desk: Desk, *, closing: bool = False) -> None:
        """Sign what is due and write what is missing; `closing` signs whatever is not signed yet, and never fails.

        Raises BackendError where the file cannot be written: the table has it all, and the next time it is tried again.
        """
        # Who waits may be cancelled in the middle of a line: it is written to its end all the same, and known of.
        task = asyncio.create_task(self._keep_up(desk, Scope(), closing=closing))
        self._writing.add(task)
        task.add_done_callback(self._written_out)
        try:
            await asyncio.shield(task)
        except BackendError as error:
            if not closing:
                raise
            log.warning("%s", error)

    async def due(self, desk: Desk) -> int:
        """Count the records the file lacks; all of them where it cannot be read."""
        async with self._lock:
            last, _ = await desk.audit.last(Scope())
            if self.file is None or not last:
                return 0
            try:
                written = await asyncio.to_thread(_mended, self.file) if self._written is None else self._written
            except OSError:
                written = 0
            return max(0, last - written)

    def _written_out(self, task: asyncio.Task[None]) -> None:
        self._writing.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited was told

    async def _keep_up(self, desk: Desk, scope: Scope, *, closing: bool) -> None:
        async with self._lock:
            last, root = await desk.audit.last(scope)
            if last:
                await self._sign(desk, scope, last, root, closing=closing)
                await self._write(desk, scope, last)

    async def _write(self, desk: Desk, scope: Scope, last: int) -> None:
        if self.file is None or self._written == last:
            return
        try:
            if self._written is None:
                self._written = await asyncio.to_thread(_mended, self.file)
            while records := await desk.audit.records(scope, after=self._written, limit=_PAGE):
                await asyncio.to_thread(_append, self.file, records)
                self._written = records[-1].seq
        except OSError as error:
            msg = f"the audit's mirror {self.file.name!r} cannot be written ({error.strerror}); the table has it all"
            raise BackendError(msg) from error

    async def _sign(self, desk: Desk, scope: Scope, last: int, root: str, *, closing: bool) -> None:
        now = desk.clock.now()
        if self._signed is None:
            known = await desk.audit.checkpoints(scope)
            self._signed = (known[-1].size if known else 0, now)
        size, at = self._signed
        if last <= size or not (closing or last - size >= RECORDS or now - at >= SECONDS):
            return
        time = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        bare = Checkpoint(origin=verifying_key(desk.key).hex(), size=last, root=root, time=time)
        await desk.audit.keep_checkpoint(scope, sign(bare, signing_key(desk.key)))
        self._signed = (last, now)


def _mended(file: Path) -> int:
    """Cut a torn last line off a mirror; answers with the seq of the last whole line, 0 for none."""
    if not file.exists():
        return 0
    with file.open("r+b") as opened:
        size = opened.seek(0, 2)
        start = max(0, size - _TAIL)
        opened.seek(start)
        tail = opened.read()
        whole = tail.rfind(b"\n") + 1
        if whole < len(tail):
            opened.truncate(start + whole)
        lines = tail[:whole].splitlines()
    try:
        return parse_mirror(lines[-1]).seq if lines else 0
    except (InvalidInput, msgspec.MsgspecError):
        return 0


def _append(file: Path, records: list[Record]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8", newline="\n") as opened:
        opened.writelines(map(mirror_line, records))
