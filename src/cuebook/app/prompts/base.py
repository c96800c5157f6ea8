"""What files and graph last agreed about, kept beside the database: it tells which of the two has changed since.

One line a branch: the SHA-256 of what its file says, the file's place and the SHA-256 of its bytes, so that
unchanged files are not parsed again (0.8 ms each). Without it (a new database, one in memory) the graph's history tells
an older text. It is of this machine only and may be deleted at any time.
"""

import hashlib
import json
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from cuebook.app.compose import database_of
from cuebook.app.files import write_whole
from cuebook.backends.sqlite.connect import MEMORY
from cuebook.config import Config
from cuebook.errors import BackendError
from cuebook.prompts.digest import level
from cuebook.prompts.front import written
from cuebook.records.prompt import Version

Place = tuple[str, str]


class Base(Struct, frozen=True):
    """What a branch's file and head both said, and where; `data` is "" for a file that is always read again."""

    text: str
    path: str = ""
    data: str = ""


Agreed = dict[Place, Base]


class BaseFile:
    """The file they are kept in; None: nowhere."""

    def __init__(self, file: Path | None) -> None:
        self._file = file

    def read(self) -> Agreed:
        """Read what was agreed; nothing where the file is missing or broken."""
        if self._file is None or not self._file.is_file():
            return {}
        try:
            rows = msgspec.json.decode(self._file.read_bytes(), type=list[tuple[str, str, str, str, str]])
        except (OSError, msgspec.DecodeError):
            return {}
        return {(slug, branch): Base(text, path, data) for slug, branch, text, path, data in rows}

    def write(self, agreed: Agreed) -> None:
        """Keep what is agreed. Raises BackendError."""
        if self._file is None or self.read() == agreed:
            return
        lines = ",\n".join(json.dumps([*place, *astuple(base)]) for place, base in sorted(agreed.items()))
        try:
            write_whole(self._file, [f"[{lines}]\n"])
        except OSError as error:
            msg = f"{str(self._file)!r} cannot be written ({error.strerror})"
            raise BackendError(msg) from error


def base_file_of(config: Config) -> BaseFile:
    """Give the file of a book."""
    database = database_of(config)
    return BaseFile(None if database == MEMORY else Path(f"{database}.prompts"))


def text_hash(version: Version) -> str:
    """Compute a SHA-256 of all that a version's file holds.

    Not of its bytes, for YAML takes 0.3 ms to write and the style of another PyYAML may differ.
    """
    version = level(version)
    content = (written(version), list(version.sections.items()), list(version.override_sections.items()))
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()
