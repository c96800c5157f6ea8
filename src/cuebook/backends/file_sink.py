"""Finished passes as lines of JSON in a file, each once also after a crash."""

import asyncio
import json
import os
from pathlib import Path

from cuebook.ports.sink import Passed

#: Bytes from the end of a file that are read to find what a crash left there.
_TAIL = 4 << 20


class FileSink:
    """Appends a pass's rows to a file; a pass that stands there already is not written again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known: set[str] | None = None

    @property
    def name(self) -> str:
        """What the file is noted under."""
        return f"file:{self._file.name}"

    async def keep(self, passed: Passed) -> None:
        """Append a pass. Raises OSError."""
        await asyncio.to_thread(self._keep, passed)

    def _keep(self, passed: Passed) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        if self._known is None:
            self._known = self._mended()
        if passed.id in self._known:
            return
        last = len(passed.rows()) - 1
        lines = [
            json.dumps(row | {"passId": passed.id, "last": number == last}, ensure_ascii=False)
            for number, row in enumerate(passed.rows())
        ]
        with self._file.open("a", encoding="utf-8", newline="\n") as opened:
            opened.write("\n".join(lines) + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        self._known.add(passed.id)

    def _mended(self) -> set[str]:
        """Cut what a crash left half written off the file's end; answers with the passes that stand there whole."""
        if not self._file.exists():
            return set()
        with self._file.open("r+b") as opened:
            start = max(0, opened.seek(0, os.SEEK_END) - _TAIL)
            opened.seek(start)
            tail = opened.read()
            known: set[str] = set()
            whole = at = 0
            for line in tail.splitlines(keepends=True):
                at += len(line)
                row = _row(line)
                if row is not None and row.get("last"):
                    known.add(str(row["passId"]))
                    whole = at
            if known or start == 0:
                opened.truncate(start + whole)
        return known


def _row(line: bytes) -> dict[str, object] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
