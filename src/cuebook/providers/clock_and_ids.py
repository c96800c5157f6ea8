"""The system clock, random ids, and the project's secret key."""

import os
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cuebook.errors import BackendError
from cuebook.providers.regular_files import open_regular, read_regular

#: Bytes of the key for fingerprints and fences.
KEY_BYTES = 32


class SystemClock:
    """The system time, which never runs backwards."""

    def __init__(self, wall: Callable[[], float] = time.time, ticks: Callable[[], float] = time.monotonic) -> None:
        """`wall` is the wall clock, which may be reset; `ticks` is the monotonic clock."""
        self._wall, self._ticks = wall, ticks
        self._last = (0.0, ticks())

    def now(self) -> float:
        """Return the Unix time in seconds. If the clock was set back, time runs at half speed to catch up."""
        (told, when), ticks = self._last, self._ticks()
        now = max(self._wall(), told + max(0.0, ticks - when) / 2)
        self._last = (now, ticks)
        return now


class SystemDice:
    """Generator of ids with 80 random bits."""

    def new_id(self, prefix: str) -> str:
        """Return a new random id."""
        return f"{prefix}-{secrets.token_hex(10)}"


def database_key(path: Path | None, *, new: bytes = b"") -> bytes:
    """Return the project's key from its file, which is created once and readable by its owner only.

    Without a file, return a new key. `new` is the one that a new file gets, by default a random one.
    """
    new = new or secrets.token_bytes(KEY_BYTES)
    if path is None:
        return new
    try:
        return _read_key(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _unreadable(path, error) from error
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(new.hex().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(temporary, path)  # the first of two processes wins
    except OSError as error:
        raise _unreadable(path, error) from error
    finally:
        temporary.unlink(missing_ok=True)
    return _read_key(path)


def read_key(raw: bytes) -> bytes | None:
    """Parse a key from the first line of a text; return None for an invalid one."""
    try:
        key = bytes.fromhex(raw.strip().partition(b"\n")[0].decode("ascii"))
    except ValueError:  # not hexadecimal, or not ASCII
        return None
    return key if len(key) == KEY_BYTES else None


def _read_key(path: Path) -> bytes:
    key = read_key(read_regular(path))
    if key is None:
        msg = f"Key file {str(path)!r} is damaged. Restore it: fingerprints of secrets cannot be compared without it."
        raise BackendError(msg)
    return key


def read_note(path: Path) -> bytes:
    """Return the second line of a key file, empty if it has none or cannot be read."""
    try:
        return read_regular(path).partition(b"\n")[2].strip()
    except OSError:
        return b""


def write_note(path: Path, note: bytes) -> None:
    """Replace the second line of a key file in place: its first line, owner and mode stay. Raises OSError."""
    descriptor = open_regular(path, os.O_RDWR)
    try:
        line = os.read(descriptor, 4 * KEY_BYTES).partition(b"\n")[0]
        data = b"\n" + note + b"\n"
        os.pwrite(descriptor, data, len(line))
        os.ftruncate(descriptor, len(line) + len(data))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unreadable(path: Path, error: OSError) -> BackendError:
    return BackendError(
        f"Key file {str(path)!r} cannot be read or created ({error.strerror}). Check the folder's permissions."
    )
