"""How a file is written: whole or not at all, with the same bytes on every system."""

import os
import secrets
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, texts: Iterable[str], *, durable: bool = True) -> None:
    """Write a file aside and put it in its place when every byte of it is on the disk; what was there stays till then.

    A pipe or a device is written to as it is. Without `durable` a power cut may take the file again: for what can be
    made anew. Raises OSError naming the path.
    """
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(texts)
        return
    place = path.resolve()  # a link stays one
    aside = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        with aside.open("x", encoding="utf-8", newline="\n") as file:
            file.writelines(texts)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if place.exists():
            aside.chmod(place.stat().st_mode & 0o7777)
        aside.replace(place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        aside.unlink(missing_ok=True)
