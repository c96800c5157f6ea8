"""Commands `cuebook memory pull|push|status`: keep memories as Markdown files."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.memories.file_text import FileChange
from cuebook.cli.group import User, command
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.expression import counted

MemoryFolder = Annotated[
    Path | None,
    typer.Argument(metavar="[DIR]", help="Folder of the files. Default: memory.folder.", show_default=False),
]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    command(app, "cuebook memory pull memories", "cuebook memory pull memories --user ann", name="pull")(pull_)
    command(app, "cuebook memory push memories", "cuebook memory push memories --json", name="push")(push_)
    command(app, "cuebook memory status memories", name="status")(status_)


def pull_(state: State, folder: MemoryFolder = None, *, user: User = None) -> None:
    """Write memories into Markdown files: one file per owner and category. Edits in the files are kept.

    A memory that was edited in a file and in the database gets conflict markers. Exits with 1 if there is a conflict or
    an invalid file.
    """
    with state.open() as cue:
        taken = cue.memory.pull(folder, user=user)
    failed = any(each.state in ("conflict", "invalid") for each in taken)
    state.report({"items": taken}, render=partial(_print, taken, "up to date"), failed=failed)


def push_(state: State, folder: MemoryFolder = None, *, user: User = None) -> None:
    """Store edits of the Markdown files as corrections, and new texts as memories. Exits with 1 if one was refused."""
    with state.open() as cue:
        done, refused = cue.memory.push(folder, user=user)
    answer = {"items": done, "refused": refused}
    state.report(answer, render=partial(_print_push, done, refused), failed=bool(refused))


def status_(state: State, folder: MemoryFolder = None, *, user: User = None) -> None:
    """Show the differences between the Markdown files and the database.

    edited, new and removed are changes in the files; changed, added and ended are changes in the database. Exits with 1
    if a file is invalid.
    """
    with state.open() as cue:
        found = cue.memory.status(folder, user=user)
    failed = any(each.state == "invalid" for each in found)
    state.report({"items": found}, render=partial(_print, found, "up to date"), failed=failed)


def _print(changes: Sequence[FileChange], none: str) -> None:
    for each in changes:
        what = each.text if each.state == "invalid" else f"{each.file} {each.memory}: {screen.line_of(each.text, 80)}"
        screen.say(f"{each.state:<9} {what}")
    if not changes:
        screen.say(none)
    if any(each.state == "removed" for each in changes):
        screen.say("A text removed from a file stays in the database. Run `cuebook memory forget --id ID` to erase it.")


def _print_push(done: Sequence[FileChange], refused: Sequence[str]) -> None:
    _print(done, "nothing to push")
    for each in refused:
        screen.say(f"refused   {each}")
    if refused:
        screen.say(f"{counted(len(refused), 'change')} not stored; the files keep them.")
