"""Append each finished summarization to a JSON lines file, exactly once even after a crash or from many processes."""

import asyncio
import json
import os
from pathlib import Path
from typing import BinaryIO

from cuebook.interfaces import FinishedSummary
from cuebook.providers.regular_files import open_regular

try:
    import fcntl
except ImportError:  # Windows: only one process may write a file
    fcntl = None  # type: ignore[assignment]

#: Bytes from the end of a file that are read to find recent passes and a partial line.
_TAIL = 4 << 20


class FileSink:
    """Append the rows of passes to a file; a pass that is already near its end is not written again."""

    def __init__(self, file: Path) -> None:
        self._file = file

    @property
    def name(self) -> str:
        """Return the name of the sink in the outbox."""
        return f"file:{self._file.name}"

    async def keep(self, passed: FinishedSummary) -> None:
        """Append a pass. Raises OSError."""
        await asyncio.to_thread(self._keep, passed)

    def _keep(self, passed: FinishedSummary) -> None:
        rows = passed.rows()
        lines = [
            json.dumps(row | {"passId": passed.id, "last": row is rows[-1]}, ensure_ascii=False) + "\n" for row in rows
        ]
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with open(self._file, "a+b", opener=open_regular) as file:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed
            if passed.id in _mended(file):
                return
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())


def _mended(file: BinaryIO) -> set[str]:
    """Truncate a partial line that a crash left at a file's end; return the passes that are complete."""
    start = max(0, file.seek(0, os.SEEK_END) - _TAIL)
    file.seek(start)
    known: set[str] = set()
    whole = at = start
    for line in file.read().splitlines(keepends=True):
        at += len(line)
        row = _row(line)
        if row is not None and row.get("last"):
            known.add(str(row["passId"]))
            whole = at
    if (known or start == 0) and whole < at:
        file.truncate(whole)
    return known


def _row(line: bytes) -> dict[str, object] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        result = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return result if isinstance(result, dict) else None
