"""What files and graph last agreed about, kept beside the database: it tells which of the two has changed since.

One line a branch: the SHA-256 of what its file says, the file's place and the SHA-256 of its bytes, so that
unchanged files are not parsed again (0.8 ms each). Without it (a new database, one in memory) the graph's history tells
an older text. It is of this machine only and may be deleted at any time.
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from cuebook.app.setup.atomic_files import write_whole
from cuebook.app.setup.compose import database_of
from cuebook.config import Config
from cuebook.engine.core.desk import Desk
from cuebook.engine.turn.prompt_logs import PromptLogs
from cuebook.errors import BackendError
from cuebook.prompts.digest import level
from cuebook.prompts.front import written
from cuebook.records.prompt import Version
from cuebook.storage.sqlite.connect import MEMORY

#: Behind the database's name: the folders of its logs, one a line, as their setting named them.
ENDING = ".logs"


def prompt_logs_of(config: Config, desk: Desk) -> PromptLogs | None:
    """Let a desk write its prompts where the setting says, and erase them wherever they lie; None for no folder at all.

    Raises BackendError where it cannot be noted where they lie: a forget of another process would not find them.
    """
    named = config.settings.logs.prompts
    folders = list(dict.fromkeys([*([named] if named else []), *_noted(config)]))
    if not folders:
        return None
    if named and named not in _noted(config):
        _note(config, named)
    logs = PromptLogs([Path(config.folder) / folder for folder in folders], desk)
    desk.erase_logs = logs.erase
    if named:
        desk.log_prompt = logs.keep
        desk.chores.append(logs.chore)
    return logs


def _file(config: Config) -> Path | None:
    database = database_of(config)
    return None if database == MEMORY else Path(f"{database}{ENDING}")


def _noted(config: Config) -> list[str]:
    file = _file(config)
    with suppress(FileNotFoundError):
        return file.read_text("utf-8").splitlines() if file else []
    return []


def _note(config: Config, folder: str) -> None:
    file = _file(config)
    if file is None:
        return
    if "\n" in folder:
        msg = f"logs.prompts: {folder!r} has more than one line; name a folder on one"
        raise BackendError(msg)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as opened:
            opened.write(f"{folder}\n")
    except OSError as error:
        msg = f"{str(file)!r} cannot be written ({error.strerror}): it says where the prompt logs lie; check its folder"
        raise BackendError(msg) from error


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
    """Return the file of a book."""
    database = database_of(config)
    return BaseFile(None if database == MEMORY else Path(f"{database}.prompts"))


def text_hash(version: Version) -> str:
    """Compute a SHA-256 of all that a version's file holds.

    Not of its bytes, for YAML takes 0.3 ms to write and the style of another PyYAML may differ.
    """
    version = level(version)
    content = (written(version), list(version.sections.items()), list(version.override_sections.items()))
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()
