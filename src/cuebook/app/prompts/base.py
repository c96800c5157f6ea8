"""Store the last synchronized state of prompt files and database, so that push and pull know which side changed.

One line per branch: the SHA-256 of the file's content, and its path. Without it (a new or in-memory database) the
version history identifies older texts. The file is specific to this machine and may be deleted at any time.
"""

import hashlib
import json
from contextlib import suppress
from pathlib import Path

import msgspec

from cuebook.app.files import write_whole
from cuebook.app.setup.compose import database_of
from cuebook.config import Config
from cuebook.engine.core.services import Services
from cuebook.engine.turn.prompt_logs import PromptLogs
from cuebook.errors import BackendError
from cuebook.prompts.digest import level
from cuebook.prompts.files import written
from cuebook.records.prompt import Version
from cuebook.storage.database.sqlite_files import MEMORY

#: Suffix of the file next to the database that lists its log folders, one per line, as written in the setting.
ENDING = ".logs"


def prompt_logs_of(config: Config, services: Services) -> PromptLogs | None:
    """Return the prompt logs of a project, which write to the configured folder and erase in all; None without one.

    Raises BackendError if the folder cannot be recorded: a forget by another process would not find the logs.
    """
    name = config.settings.logs.prompts
    folders = list(dict.fromkeys([*([name] if name else []), *_noted(config)]))
    if not folders:
        return None
    if name and name not in _noted(config):
        _note(config, name)
    logs = PromptLogs([Path(config.folder) / folder for folder in folders], services)
    services.erase_logs = logs.erase
    if name:
        services.log_prompt = logs.keep
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
        msg = f"logs.prompts: {folder!r} contains a line break. Use a folder name without one."
        raise BackendError(msg)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as opened:
            opened.write(f"{folder}\n")
    except OSError as error:
        msg = f"{str(file)!r} cannot be written ({error.strerror}): it lists the prompt log folders. Check its folder."
        raise BackendError(msg) from error


Place = tuple[str, str]


#: By branch: the SHA-256 of the content that its file and head last shared, and the file's path.
Agreed = dict[Place, tuple[str, str]]


def read_base(file: Path | None) -> Agreed:
    """Return the stored state; empty if the file is missing or invalid, or None."""
    if file is None or not file.is_file():
        return {}
    try:
        rows = msgspec.json.decode(file.read_bytes(), type=list[tuple[str, str, str, str]])
    except (OSError, msgspec.DecodeError):
        return {}
    return {(slug, branch): (text, path) for slug, branch, text, path in rows}


def write_base(file: Path | None, agreed: Agreed) -> None:
    """Write the state; None: not stored. Raises BackendError."""
    if file is None or read_base(file) == agreed:
        return
    lines = ",\n".join(json.dumps([*place, *base]) for place, base in sorted(agreed.items()))
    try:
        write_whole(file, [f"[{lines}]\n"])
    except OSError as error:
        msg = f"{str(file)!r} cannot be written ({error.strerror})"
        raise BackendError(msg) from error


def base_file_of(config: Config) -> Path | None:
    """Return the state file of a project, None for a database in memory."""
    database = database_of(config)
    return None if database == MEMORY else Path(f"{database}.prompts")


def text_hash(version: Version) -> str:
    """Compute a SHA-256 of a version's file content.

    It does not hash the bytes: YAML takes 0.3 ms to write, and the style may differ between PyYAML versions.
    """
    version = level(version)
    content = (written(version), list(version.sections.items()), list(version.override_sections.items()))
    return hashlib.sha256(msgspec.json.encode(content)).hexdigest()
