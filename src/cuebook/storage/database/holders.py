"""Lease holders: each process of a database locks a file, so that others see when it has ended.

A holder's file can contain a text for other processes, such as the profile that a server uses.
"""

import os
import secrets
import sys
import threading
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

if sys.platform != "win32":
    import fcntl


class Holders:
    """The lease holders of a database: processes with a locked file each. This store joins with its first lease."""

    def __init__(self, database: Path | None) -> None:
        """Without a file, or without file locks, leases name no holder."""
        self._database = database if sys.platform != "win32" else None
        self._own: tuple[str, int] | None = None  # its name, and the locked file
        self._swept = False
        self._joining = threading.Lock()
        self.announces = False

    def own_name(self) -> str | None:
        """Return this store's holder name for leases; None if it cannot have one."""
        with self._joining:
            if self._own is None and self._database is not None:
                name = secrets.token_hex(8)
                with suppress(OSError):  # a lease without a holder expires by itself
                    file = os.open(self._file(name), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                    try:
                        lock(file)
                        self._own = (name, file)
                    except OSError:
                        os.close(file)
                        self._file(name).unlink()
            return self._own[0] if self._own else None

    def gone(self, name: str | None) -> bool:
        """Return whether a holder's process has certainly ended."""
        if name is None or self._database is None or (self._own and name == self._own[0]):
            return False
        try:
            file = os.open(self._file(name), os.O_RDWR)
        except OSError:  # it closed cleanly, or this is a copy of its database
            return False
        try:
            lock(file)
        except OSError:
            return False
        else:
            return True
        finally:
            os.close(file)

    def has_others(self) -> bool:
        """Return whether other processes use the database, and let them know of this one."""
        own = self.own_name()
        return any(name != own and not self.gone(name) for _, name in self._files())

    def announce(self, text: str) -> None:
        """Write a line for other processes into this store's holder file."""
        self.announces = True
        if self.own_name() is not None and self._own is not None:
            line = text.encode() + b"\n"
            with suppress(OSError):
                os.pwrite(self._own[1], line, 0)
                os.ftruncate(self._own[1], len(line))

    def announced(self) -> list[str]:
        """Return the lines of other running processes, the newest first."""
        lines: list[tuple[float, str]] = []
        for file, name in self._files():
            with suppress(OSError, UnicodeDecodeError):  # it has just ended
                if (self._own is None or name != self._own[0]) and not self.gone(name):
                    lines += [(file.stat().st_mtime, line) for line in file.read_text().splitlines()[:1]]
        return [line for _, line in sorted(lines, reverse=True)]

    def sweep(self, holding: Collection[str | None]) -> None:
        """Delete the files of holders that are gone, except those that still hold leases."""
        if self._database is None or self._swept:
            return
        self._swept = True
        for file, name in self._files():
            if name not in holding and self.gone(name):
                with suppress(OSError):
                    file.unlink()

    def close(self) -> None:
        """Release this store's holder file."""
        if self._own is not None:
            (name, file), self._own = self._own, None
            with suppress(OSError):
                self._file(name).unlink()
            os.close(file)

    def _files(self) -> list[tuple[Path, str]]:
        """Return the files of all holders, with their names."""
        if self._database is None:
            return []
        prefix = self._file("").name
        with suppress(OSError):
            files = [file for file in self._database.parent.iterdir() if file.name.startswith(prefix)]
            # reading a pipe would wait for another process
            return [(file, file.name.removeprefix(prefix)) for file in files if file.is_file()]
        return []

    def _file(self, name: str) -> Path:
        return Path(f"{self._database}-holder-{name}")


def lock(file: int) -> None:
    """Lock a file without waiting. Raises OSError if it is locked or cannot be locked."""
    if sys.platform != "win32":
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
