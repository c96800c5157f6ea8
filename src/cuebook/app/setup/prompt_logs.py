"""Build the prompt logs of a project, and keep a list of their folders, so that a forget erases all of them.

The list is a file next to the database, with one folder per line, as written in the setting `logs.prompts`.
"""

from pathlib import Path

from cuebook.app.setup.compose import file_beside_database
from cuebook.config import Config
from cuebook.engine.core.services import Services
from cuebook.engine.turn.prompt_logs import PromptLogs
from cuebook.errors import BackendError
from cuebook.providers.regular_files import open_regular


def prompt_logs_of(config: Config, services: Services) -> PromptLogs | None:
    """Return the prompt logs of a project, which write to the configured folder and erase in all; None without one.

    Raises BackendError if the folder cannot be recorded: a forget by another process would not find the logs.
    """
    name, file = config.settings.logs.prompts, file_beside_database(config, ".logs")
    folders = file.read_text("utf-8").splitlines() if file and file.is_file() else []
    if name and name not in folders:
        _add(file, name)
    if name:
        folders = list(dict.fromkeys([name, *folders]))
    if not folders:
        return None
    logs = PromptLogs([Path(config.folder) / folder for folder in folders], services)
    services.erase_logs, services.read_logs = logs.erase, logs.read
    if name:
        services.log_prompt = logs.keep
    return logs


def _add(file: Path | None, folder: str) -> None:
    if file is None:
        return
    if "\n" in folder:
        msg = f"logs.prompts: {folder!r} contains a line break. Use a folder name without one."
        raise BackendError(msg)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with open(file, "a", encoding="utf-8", opener=open_regular) as opened:
            opened.write(f"{folder}\n")
    except OSError as error:
        msg = f"{str(file)!r} cannot be written ({error.strerror}): it lists the prompt log folders. Check its folder."
        raise BackendError(msg) from error
