"""Commands `cuebook prompt new|edit`: write a prompt version from a file, options or an editor."""

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from cuebook.app.cuebook import Cuebook
from cuebook.app.prompts import draft as drafts
from cuebook.app.prompts import write_file
from cuebook.app.prompts.answers import VersionIdentity
from cuebook.cli.group import command, read_input
from cuebook.cli.operations import numbers, pairs
from cuebook.cli.output import screen
from cuebook.cli.prompt.group import Branch, Force, Prompt, app, write_through
from cuebook.cli.state import State
from cuebook.errors import Conflict, CuebookError, InvalidInput
from cuebook.records.prompt import BODY, MAIN, Engine

#: The editor if neither VISUAL nor EDITOR is set.
_EDITOR = "notepad" if os.name == "nt" else "vi"

_Texts = list[str] | None

FileArgument = Annotated[
    str | None, typer.Argument(metavar="FILE", help="Prompt file or plain text; - reads standard input.")
]
Text = Annotated[str | None, typer.Option("--text", metavar="TEXT", help="Prompt text.")]
Section = Annotated[
    _Texts,
    typer.Option("--section", metavar="NAME=TEXT", help="Section; @FILE reads the text from a file; repeatable."),
]
Override = Annotated[
    _Texts, typer.Option("--override", metavar="NAME=TEXT", help="Section that replaces the parent's; repeatable.")
]
ParamOption = Annotated[
    _Texts, typer.Option("--param", metavar="NAME[=DEFAULT]", help="Template parameter; repeatable.")
]
Weight = Annotated[
    _Texts, typer.Option("--weight", metavar="SIGNAL=W", help="Weight of a signal for `select`; repeatable.")
]
Inherits = Annotated[str | None, typer.Option("--inherits", metavar="ID", help='Parent prompt; "" for none.')]
Type = Annotated[str | None, typer.Option("--type", metavar="TYPE", help="Prompt type, such as persona or addon.")]
EngineOption = Annotated[Engine | None, typer.Option("--engine", help="Template syntax: $name (dollar) or {{name}}.")]
Description = Annotated[str | None, typer.Option("--description", metavar="TEXT", help="Purpose of the prompt.")]
Tag = Annotated[_Texts, typer.Option("--tag", metavar="TAG", help="Tag; repeatable.")]
Semver = Annotated[
    str | None, typer.Option("--semver", metavar="X.Y.Z", help="Semantic version. Default: suggested from the change.")
]
Base = Annotated[
    int | None, typer.Option("--base", metavar="N", min=0, help="Expected head version; fail if it has changed.")
]
Author = Annotated[str, typer.Option("--author", metavar="NAME", help="Author of the version.")]


@command(
    app,
    "cuebook prompt new persona/kind kind.md",
    "cuebook prompt new persona/kind --text 'Welcome $user_name.' --param user_name --description 'A kind helper'",
    "cuebook prompt new persona/kind@trial --text 'Hi $user_name.' --weight task_casual=1",
    name="new",
)
async def new(
    state: State,
    prompt: Prompt,
    file: FileArgument = None,
    *,
    text: Text = None,
    section: Section = None,
    override: Override = None,
    param: ParamOption = None,
    weight: Weight = None,
    branch: Branch = None,
    inherits: Inherits = None,
    type_: Type = None,
    engine: EngineOption = None,
    description: Description = None,
    tag: Tag = None,
    semver: Semver = None,
    base: Base = None,
    author: Author = "",
    sync: Annotated[bool | None, typer.Option("--sync/--no-sync", help="Share it with `prompt sync`, or not.")] = None,
    force: Force = False,
) -> None:
    """Create a prompt, or write a new version of it.

    Read the text from a file or from options; without either, open $EDITOR. Fields that are not given keep their
    values.
    """
    sections = {} if text is None else {BODY: text}
    sections |= {name: _read_at(value) for name, value in pairs(section, "--section").items()}
    overriding = {name: _read_at(value) for name, value in pairs(override, "--override").items()}
    fields: dict[str, Any] = {
        "params": [_param(each) for each in param] if param else None,
        "type": type_,
        "engine": engine,
        "description": description,
        "tags": tag,
        "semver": semver,
        "sync": sync,
        "override_sections": overriding or None,
        "metadata": {"context_weights": numbers(weight, "--weight")} if weight else None,
    }
    data = {name: value for name, value in fields.items() if value is not None}
    data |= {} if inherits is None else {"inherits": inherits or None}
    if file is not None and (sections or data):
        msg = "FILE cannot be combined with text options. Use one of them"
        raise typer.BadParameter(msg, param_hint="FILE")
    if file is None and not (sections or data):
        await _edit(state, prompt, branch, author=author, new=True, force=force)
        return
    async with state.open_async() as cue:
        if file is not None:
            made = await _save_file(cue, prompt, branch, file, base=base, author=author, force=force)
        else:
            made = await _save(cue, prompt, branch, sections, data | {"base": base, "author": author, "force": force})
        await write_through(cue, made.slug)
    state.report(made, f"wrote {made}")


async def _save_file(
    cue: Cuebook, prompt: str, branch: str | None, file: str, *, base: int | None, author: str, force: bool
) -> VersionIdentity:
    draft, head = await drafts.draft_of(cue.services, prompt, branch, new=True)
    if base not in (None, head):
        msg = f"Prompt {draft.slug!r} has changed: head of {draft.branch!r} is {head}, not {base}. Retry."
        raise Conflict(msg)
    edited = drafts.read_draft(draft, head, read_input(file), name=file)
    return await drafts.save_draft(cue.services, edited, head, by=author, force=force)


async def _save(
    cue: Cuebook, prompt: str, branch: str | None, sections: dict[str, str], fields: dict[str, Any]
) -> VersionIdentity:
    """Write the given fields; keep the others, and the sections if none is given."""
    draft, head = await drafts.draft_of(cue.services, prompt, branch, new=True)
    before = draft if head else None
    if "metadata" in fields and before:
        fields = fields | {"metadata": {**before.metadata, **fields["metadata"]}}
    new_sections = dict(before.sections) if before and not sections else sections
    return await cue.prompts.save(draft.slug, new_sections, branch=draft.branch, **fields)


def _param(written: str) -> dict[str, Any]:
    name, mark, default = written.partition("=")
    return {"name": name} | ({"default": default} if mark else {})


def _read_at(text: str) -> str:
    return Path(text[1:]).read_text("utf-8").removesuffix("\n") if text.startswith("@") else text


@command(
    app, "cuebook prompt edit persona/kind", "EDITOR='code --wait' cuebook prompt edit persona/kind@trial", name="edit"
)
async def edit(
    state: State, prompt: Prompt, *, branch: Branch = None, author: Author = "", force: Force = False
) -> None:
    """Edit a prompt in $EDITOR and write a new version.

    $VISUAL takes precedence over $EDITOR. If the prompt changed meanwhile or the file is invalid, nothing is written
    and your file is kept.
    """
    await _edit(state, prompt, branch, author=author, new=False, force=force)


async def _edit(state: State, prompt: str, branch: str | None, *, author: str, new: bool, force: bool) -> None:
    async with state.open_async() as cue:
        draft, base = await drafts.draft_of(cue.services, prompt, branch, new=new)
    text = write_file(draft)
    folder = Path(tempfile.mkdtemp(prefix="cuebook-"))
    file = folder / f"{draft.slug.rpartition('/')[2]}.md"
    file.write_text(text, "utf-8", newline="\n")
    _run_editor(file)
    data = file.read_bytes()
    if data.decode("utf-8", "replace") == text:
        _remove(file)
        state.report({"changed": False}, "no changes")
        return
    made = None
    try:
        version = drafts.read_draft(draft, base, data, name=file.name)
        if not base or write_file(version) != text:
            async with state.open_async() as cue:
                made = await drafts.save_draft(cue.services, version, base, by=author, force=force)
                await write_through(cue, made.slug)
    except CuebookError as error:
        target = f"{draft.slug}@{draft.branch}" if draft.branch != MAIN else draft.slug
        way = f"Your text is in {file}. Fix it and run `cuebook prompt new {target} {file}`."
        raise type(error)(f"{str(error).rstrip('.')}. {way}") from error
    _remove(file)
    state.report(made or {"changed": False}, f"wrote {made}" if made else "no changes")


def _run_editor(file: Path) -> None:
    name = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not name and not screen.on_terminal():
        msg = "No text given. Pass FILE, --text or --section, or set EDITOR."
        raise InvalidInput(msg, where="text")
    command_line = [*shlex.split(name or _EDITOR, posix=os.name != "nt"), str(file)]
    try:
        done = subprocess.run(command_line, check=False)  # noqa: S603  # the user's own editor
    except OSError as error:
        msg = f"Cannot start the editor {command_line[0]!r}: {error.strerror}. Set EDITOR to another program."
        raise InvalidInput(msg, where="EDITOR") from error
    if done.returncode:
        msg = f"The editor {command_line[0]!r} failed with exit code {done.returncode}. Your text is in {file}."
        raise InvalidInput(msg, where="EDITOR")


def _remove(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.parent.rmdir()
