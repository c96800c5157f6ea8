"""Commands `cuebook prompt push|pull|drift`: synchronize the files below prompts/ with the database."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from cuebook.app.prompts.files import SyncChange
from cuebook.cli.group import command
from cuebook.cli.output import screen
from cuebook.cli.prompt.group import DryRun, app
from cuebook.cli.state import State
from cuebook.records.prompt import MAIN

_STANDS = {
    "new": "not pushed yet",
    "changed": "changed on disk",
    "both": "changed on disk and in the database",
    "behind": "older than the stored version",
    "missing": "has no file",
    "registry": "",
}


@command(app, "cuebook prompt push", "cuebook prompt push --dry-run --json", name="push")
async def push(
    state: State,
    *,
    dry_run: DryRun = False,
    force: Annotated[
        bool, typer.Option("--force", help="Push files even if the stored prompt changed too, or they contain secrets.")
    ] = False,
) -> None:
    """Store all edited files below prompts/.

    If a file is invalid, report it and store nothing.
    """
    async with state.open_async(autopush=False) as cue:
        changes = await cue.prompts.push(dry_run=dry_run, force=force)
    lines = [f"{each.path}: {'would be ' * dry_run}{_pushed(each)}" for each in changes]
    state.report({"dryRun": dry_run, "items": changes}, *(lines or ["no changes on disk"]))


def _pushed(each: SyncChange) -> str:
    new = ", new" if each.state == "new" else ""
    return f"pushed{new} as {_name(each)} ({each.semver})"


@command(app, "cuebook prompt pull", "cuebook prompt pull --dry-run", name="pull")
async def pull(
    state: State,
    *,
    dry_run: DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files even if they were edited too.")] = False,
) -> None:
    """Write the newest versions to their files below prompts/.

    Older versions go to .objects. registry.json is rebuilt.
    """
    async with state.open_async(autopush=False) as cue:
        changes = await cue.prompts.pull(dry_run=dry_run, force=force)
    lines = [f"{each.path}: {'would be ' * dry_run}written, {_name(each)} ({each.semver})" for each in changes]
    state.report({"dryRun": dry_run, "items": changes}, *(lines or ["no changes in the database"]))


@command(app, "cuebook prompt drift", "cuebook prompt drift --json", name="drift")
async def drift(state: State) -> None:
    """Check that files and database agree, for CI.

    registry.json is checked too. Exits with 1 if they differ. Nothing is written.
    """
    async with state.open_async(autopush=False) as cue:
        sync_changes = await cue.prompts.drift()
    answer = {"ok": not sync_changes, "items": sync_changes}
    state.report(answer, render=partial(_draw, sync_changes), failed=bool(sync_changes))


def _draw(found: Sequence[SyncChange]) -> None:
    for each in found:
        what = each.message or f"{each.path}: {_STANDS[each.state]} ({_name(each)})"
        screen.verdict("fail" if each.state in ("both", "registry") else "warn", each.state, what)
    if not found:
        screen.say("no drift: files, registry.json and database agree")
    elif any(each.state in ("new", "changed") for each in found):
        screen.say("Run `cuebook prompt push` to store the changes on disk.")
    elif any(each.state in ("behind", "missing") for each in found):
        screen.say("Run `cuebook prompt pull` to write the changes to disk.")


def _name(each: SyncChange) -> str:
    branch = "" if each.branch == MAIN else f"@{each.branch}"
    return f"{each.slug}{branch}" + (f":{each.version}" if each.version else "")
