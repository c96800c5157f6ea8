"""Read files with errors that name them, and write files atomically, with the same bytes on every operating system."""

import lzma
import os
import secrets
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from shutil import SpecialFileError
from typing import IO, Any

from cuebook.errors import InvalidInput, TooLarge
from cuebook.providers.regular_files import open_regular

#: Modification time in ns, size in bytes, inode: at least one differs after a write or a replacement.
Sign = tuple[int, int, int]
#: Errors of `zipfile` for a damaged or encrypted archive. ValueError is a wrong offset, or a name that is not UTF-8.
ZIP_ERRORS = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError, OSError, ValueError,
)  # fmt: skip


#: Most bytes of the list of files in a zip archive, which `zipfile` reads at once: at least 40,000 files.
_ZIP_DIRECTORY = 4 << 20
#: Levels of nesting in YAML. PyYAML's time grows with their square.
YAML_DEPTH = 64


def sign_of(file: Path | os.DirEntry[str]) -> Sign | None:
    """Return the signature that detects a changed file, None if there is no file."""
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def signs_in(folder: Path, matches: Callable[[str], bool]) -> dict[str, Sign | None]:
    """Return the signatures of a folder's files whose names match, by name, sorted. Raises OSError."""
    with os.scandir(folder) as entries:
        return dict(sorted((each.name, sign_of(each)) for each in entries if matches(each.name)))


def read_bytes(file: Path, name: str = "", *, most: int = 0, advice: str = "Shorten it.") -> bytes:
    """Return a regular file's bytes; `name` is its name in errors. Raises InvalidInput if it cannot be read.

    If it has more than `most` bytes, TooLarge is raised with the `advice`.
    """
    where = name or str(file)
    try:
        with open(file, "rb", opener=open_regular) as stream:  # a Path takes no opener
            if most and os.fstat(stream.fileno()).st_size > most:
                raise _too_large(where, most, advice)
            data = stream.read(most + 1 if most else -1)
    except SpecialFileError as error:
        msg = f"{where}: not a regular file. Remove it, or choose another file."
        raise InvalidInput(msg, where=where) from error
    except OSError as error:
        label = f"{name}:" if name else repr(where)
        msg = f"{label} cannot be read ({error.strerror}). Check the path and its permissions."
        raise InvalidInput(msg, where=where) from error
    if most and len(data) > most:  # it has grown
        raise _too_large(where, most, advice)
    return data


def _too_large(where: str, most: int, advice: str) -> TooLarge:
    return TooLarge(f"{where}: exceeds {most:,} bytes. {advice}", where=where)


class _ZipStream:
    """The stream of a zip archive, which refuses to read more than `most` bytes at once."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.most = _ZIP_DIRECTORY

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def read(self, size: int = -1, /) -> bytes:
        """Read bytes. Raises BadZipFile."""
        if size > self.most:
            msg = f"its list of files has {size:,} bytes"
            raise zipfile.BadZipFile(msg)
        return self._stream.read(size)


def open_zip(stream: IO[bytes]) -> zipfile.ZipFile:
    """Open a zip archive whose list of files has a limit. Raises one of ZIP_ERRORS."""
    bounded: Any = _ZipStream(stream)
    archive = zipfile.ZipFile(bounded)
    bounded.most = sys.maxsize
    return archive


def decode(data: bytes, name: str) -> str:
    """Return the text of a file without a byte order mark. Raises InvalidInput naming the line that is not UTF-8."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        msg = f"{name}: line {line}: not UTF-8 (byte 0x{data[error.start]:02x}). Save the file as UTF-8."
        raise InvalidInput(msg, where=name) from error


def load_yaml(text: str, name: str, *, what: str = "YAML", first_line: int = 1) -> Any:
    """Return a YAML document as plain values. Raises InvalidInput naming file and line, without the text around it.

    Aliases are refused: nine lines of them stand for a billion values. Lines count from `first_line`.
    """
    import yaml

    def get_event(loader: Any) -> Any:
        event = yaml.SafeLoader.get_event(loader)
        loader.depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or loader.depth > YAML_DEPTH:
            problem = f"aliases and more than {YAML_DEPTH} levels are not supported"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return event

    try:
        return yaml.load(text, type("Loader", (yaml.SafeLoader,), {"get_event": get_event, "depth": 0}))  # noqa: S506
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2026-02-31
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        reason = (
            f"line {mark.line + first_line}: {problem}" if mark and problem else "a character or value is not valid"
        )
        msg = f"{name}: invalid {what} ({reason}). Correct it."
        raise InvalidInput(msg, where=name) from error


def write_whole(path: Path, pieces: Iterable[str | bytes], *, durable: bool = True, private: bool = True) -> None:
    """Write texts or bytes to a temporary file, flush it to disk and rename it over `path`.

    The old file stays until then, and its mode is kept. A new file is readable by its owner only, because most have
    texts of users. With `private=False`, for files of the project, the umask determines its mode.

    Pipes and devices are written directly; a pipe needs a reader. Without `durable` a power failure may lose the file:
    use it for files that can be recreated. Raises OSError naming the path.
    """
    data = (each.encode() if isinstance(each, str) else each for each in pieces)
    if path.exists() and not path.is_file():
        with open(path, "wb", opener=_opened_at_once) as stream:
            os.set_blocking(stream.fileno(), True)
            stream.writelines(data)
        return
    place = path.resolve()  # keep symbolic links
    aside = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
    try:
        mode = place.stat().st_mode & 0o7777 if place.exists() else None
        descriptor = os.open(
            aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private or mode is not None else 0o666
        )
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if mode is not None:
            aside.chmod(mode)
        aside.replace(place)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        aside.unlink(missing_ok=True)


def _opened_at_once(path: str, flags: int) -> int:
    """Open a pipe or a device without waiting for a reader. Raises OSError if a pipe has none."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
