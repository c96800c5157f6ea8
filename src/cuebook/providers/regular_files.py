"""Open regular files only: opening a pipe blocks until another process opens its other end, which may be never."""

import errno
import os
from pathlib import Path
from shutil import SpecialFileError
from stat import S_ISREG


def open_regular(path: str | Path, flags: int) -> int:
    """Open a regular file, as an `opener` of `open()`. A new file is readable by its owner only.

    Raises SpecialFileError, an OSError, for a folder, pipe, socket or device, without waiting for another process.
    """
    try:
        descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), 0o600)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a pipe that no process reads, or a socket
            raise _special(path) from None
        raise
    if S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise _special(path)


def read_regular(path: Path) -> bytes:
    """Return the bytes of a regular file. Raises OSError."""
    with open(path, "rb", opener=open_regular) as file:  # a Path takes no opener
        return file.read()


def _special(path: str | Path) -> SpecialFileError:
    return SpecialFileError(errno.EINVAL, "not a regular file", str(path))
