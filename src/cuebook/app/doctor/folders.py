"""Whether the folders are well that people write experiences to, and that get the prompts as they were sent."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from msgspec import Struct

from cuebook.app.compose import experience_files, experience_model_of, models_of
from cuebook.app.experience_files import strangers
from cuebook.app.load import load_personas
from cuebook.config import Config, Settings
from cuebook.errors import InvalidInput

State = Literal["ok", "warn", "fail"]

#: Prompts and files that are named of all that are odd.
NAMED: Final = 3


class Check(Struct, frozen=True, kw_only=True):
    """One thing looked at. `advice` says what to do about a warning or a failure."""

    name: str
    state: State
    found: str
    advice: str = ""


def experiences(config: Config) -> Check:
    """Read the experiences' files, and say which are left out and which are for nobody."""
    if config.settings.experience.selection == "off":
        return Check(name="experiences", state="ok", found="off")
    files, by = experience_files(config), None
    shelf = files.read(quiet=True)
    problems = [*shelf.problems, *files.unread()]
    with suppress(InvalidInput):  # told as the model's own
        model, work_model, upstream = models_of(config)
        try:
            by = experience_model_of(config, model=model, work_model=work_model, upstream=upstream)
        except InvalidInput as error:
            return Check(name="experiences", state="fail", found=str(error))
    with suppress(InvalidInput):  # told as the personas' own
        problems += strangers(shelf, [name for one in load_personas(config)[0].values() for name in (one.id, one.role)])
    folder = config.settings.experience.folder
    if folder != Settings().experience.folder and not (Path(config.folder) / folder).is_dir():
        problems.append(f"there is no folder {folder!r}")
    if problems:
        advice = "mend it; `cuebook experience list` tells all"
        return Check(name="experiences", state="warn", found="; ".join(problems[:NAMED]), advice=advice)
    chosen = f", chosen by {by.name}" if by else ""
    return Check(name="experiences", state="ok", found=f"{len(shelf.kept):,} in {folder}{chosen}")


def prompt_logs(config: Config) -> Iterator[Check]:
    """Look whether the folder of the prompt logs can be written, where one is named."""
    named = config.settings.logs.prompts
    if not named:
        return
    folder = Path(config.folder, named).absolute()
    place = next(each for each in (folder, *folder.parents) if each.exists())
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        yield Check(name="logs", state="ok", found=f"each prompt is kept in {named}")
    else:
        advice = "no prompt is kept meanwhile; change its permissions, or logs.prompts"
        yield Check(
            name="logs", state="fail", found=f"{str(place)!r} cannot be written, or is no folder", advice=advice
        )
