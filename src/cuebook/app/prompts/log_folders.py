"""Where a book's prompt logs lie, and where they ever lay: a forget looks there too, whoever asks for it."""

from contextlib import suppress
from pathlib import Path

from cuebook.app.compose import database_of
from cuebook.backends.sqlite.connect import MEMORY
from cuebook.config import Config
from cuebook.engine.core.desk import Desk
from cuebook.engine.turn.prompt_logs import PromptLogs
from cuebook.errors import BackendError

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
