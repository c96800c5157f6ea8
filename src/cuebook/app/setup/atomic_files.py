"""Write files atomically, with the same bytes on every operating system."""

import os
import secrets
from collections.abc import Iterable
from pathlib import Path


def write_whole(path: Path, texts: Iterable[str], *, durable: bool = True) -> None:
    """Write a temporary file, flush it to disk and rename it over `path`. The old file stays until then.

    Pipes and devices are written directly. Without `durable` a power failure may lose the file: use it for files that
    can be recreated. Raises OSError naming the path.
    """
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(texts)
        return
    place = path.resolve()  # keep symbolic links
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
