"""Which processes hold leases: each has a locked file beside the database, and a lock ends with its process.

So a turn of a process that was killed on this machine, in whatever container, is known at once to be over. Where files
cannot be locked (Windows, some network file systems) a lease names no holder, and runs out by itself.
"""

import os
import secrets
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl


class Holders:
    """The holders of one database's leases, and this store among them once it gives its first."""

    def __init__(self, database: Path | None) -> None:
        """Without a file, or a file system that locks, no lease names its holder."""
        self._database = database if sys.platform != "win32" else None
        self._own: tuple[str, int] | None = None  # its name, and the locked file
        self._swept = False

    def own(self) -> str | None:
        """Give the name under which this store holds leases; None where it cannot have one."""
        if self._own is None and self._database is not None:
            name = secrets.token_hex(8)
            with suppress(OSError):  # a lease without a holder runs out by itself
                file = os.open(self._file(name), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                try:
                    _lock(file)
                    self._own = (name, file)
                except OSError:
                    os.close(file)
                    self._file(name).unlink()
        return self._own[0] if self._own else None

    def gone(self, name: str | None) -> bool:
        """Say whether a holder's process is known to have ended."""
        if name is None or self._database is None or (self._own and name == self._own[0]):
            return False
        try:
            file = os.open(self._file(name), os.O_RDWR)
        except OSError:  # it closed well, or this is a copy of its database
            return False
        try:
            _lock(file)
        except OSError:
            return False
        else:
            return True
        finally:
            os.close(file)

    def sweep(self, holding: Collection[str | None]) -> None:
        """Remove what holders that are gone have left, but for those that still hold leases."""
        if self._database is None or self._swept:
            return
        self._swept = True
        prefix = self._file("").name
        with suppress(OSError):
            for file in self._database.parent.iterdir():
                name = file.name.removeprefix(prefix)
                if file.name.startswith(prefix) and name not in holding and self.gone(name):
                    file.unlink()

    def close(self) -> None:
        """Hold no leases any more."""
        if self._own is not None:
            (name, file), self._own = self._own, None
            with suppress(OSError):
                self._file(name).unlink()
            os.close(file)

    def _file(self, name: str) -> Path:
        return Path(f"{self._database}-holder-{name}")


def _lock(file: int) -> None:
    """Lock a file at once. Raises OSError where another has it, or it cannot be locked."""
    if sys.platform != "win32":
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
