"""Commands `cuebook prompt branch|merge|label|rollback`: manage branches, labels and active versions."""

from functools import partial
from typing import Annotated, Any

import typer

from cuebook.app.prompts.answers import BranchStatus
from cuebook.app.prompts.arguments import ForkOrigin
from cuebook.app.prompts.writing import Prompts
from cuebook.cli.group import command
from cuebook.cli.operations import operation_command, print_answer, whoever
from cuebook.cli.output import screen
from cuebook.cli.prompt.group import Branch, By, Number, Prompt, app, slug_of, write_through
from cuebook.cli.state import State
from cuebook.errors import MergeConflict
from cuebook.records.answer import Page, to_wire
from cuebook.records.prompt import MAIN
from cuebook.records.prompt import Branch as BranchState


@command(
    app,
    "cuebook prompt branch persona/kind",
    "cuebook prompt branch persona/kind trial",
    "cuebook prompt branch persona/kind:3 old",
    name="branch",
)
async def branch_(
    state: State,
    prompt: Prompt,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the new branch. Omit it to list the branches.")
    ] = None,
    *,
    branch: Branch = None,
    version: Number = None,
    by: By = None,
) -> None:
    """Create or list the branches of a prompt.

    A branch is a variant for `select`. It starts with a copy of a version and develops independently of it.
    """
    async with state.open_async() as cue:
        if name is None:
            page = await cue.prompts.branches(slug_of(prompt))
            state.report(page, render=partial(_draw_branches, page))
            return
        found = await cue.prompts.get(prompt, branch=branch, version=version)
        origin = ForkOrigin(branch=found.branch, version=found.number)
        made = await cue.prompts.fork(found.slug, name, origin=origin, by=whoever(by))
        await write_through(cue, made.slug)
    data = to_wire(made) | {"from": {"branch": found.branch, "version": found.number}}
    state.report(data, f"created branch {made.branch} of {made.slug} from {found.branch}:{found.number}")


def _draw_branches(page: Page[BranchStatus]) -> None:
    print_answer(page, "")
    for each in page:
        screen.say(f"{each.name}: rollback {each.rollback.decision}: {each.rollback.reason}")


@command(
    app, "cuebook prompt merge persona/kind trial", "cuebook prompt merge persona/kind trial --into warm", name="merge"
)
async def merge(
    state: State,
    prompt: Prompt,
    name: Annotated[str, typer.Argument(metavar="BRANCH", help="Branch to merge from.", show_default=False)],
    *,
    into: Annotated[str, typer.Option("--into", metavar="NAME", help="Branch to merge into.")] = MAIN,
    theirs: Annotated[bool, typer.Option("--theirs", help="Take what is in conflict from BRANCH.")] = False,
    by: By = None,
) -> None:
    """Merge one branch into another, by section and field.

    If both branches changed the same lines or field, show the conflicts, write nothing and exit with 1. To choose one
    side, use --theirs.
    """
    slug = slug_of(prompt)
    async with state.open_async() as cue:
        try:
            version = await cue.prompts.merge(slug, name, into=into, theirs=theirs, by=whoever(by))
        except MergeConflict as conflict:
            render = partial(_draw_conflicts, conflict, slug, name, into)
            state.report({"conflicts": conflict.conflicts}, render=render, failed=True)
            return
        await write_through(cue, version.slug)
    state.report(version, f"wrote {version}")


def _draw_conflicts(conflict: MergeConflict, slug: str, name: str, into: str) -> None:
    for each in conflict.conflicts:
        screen.heading(f"conflict in [{each['section']}]")
        screen.diff((f"@@ {into}", *_marked("-", each["ours"]), f"@@ {name}", *_marked("+", each["theirs"])))
    named = ", ".join(str(each["section"]) for each in conflict.conflicts)
    way = f"Edit {slug}@{name} or {slug}@{into} and merge again, or take {name} with --theirs"
    screen.complain(f"Merge failed: conflicts in {named}. {way}.")


def _marked(mark: str, text: str | None) -> list[str]:
    return [f"{mark} (missing)"] if text is None else [f"{mark}{line}" for line in text.split("\n")]


@command(
    app,
    "cuebook prompt label persona/kind",
    "cuebook prompt label persona/kind:3 production",
    name="label",
)
async def label(
    state: State,
    prompt: Prompt,
    name: Annotated[
        str | None,
        typer.Argument(metavar="LABEL", help="Label to move, such as production. Omit it to list the labels."),
    ] = None,
    *,
    branch: Branch = None,
    version: Number = None,
    by: By = None,
) -> None:
    """Point a label at a version, or list the labels.

    `cuebook prompt log` shows each move.
    """
    async with state.open_async() as cue:
        if name is None:
            page = await cue.prompts.labels(slug_of(prompt))
            none = f"no labels. Run `cuebook prompt label {slug_of(prompt)} LABEL` to create one."
            state.report(page, render=partial(print_answer, page, none))
            return
        found = await cue.prompts.get(prompt, branch=branch, version=version)
        at: dict[str, Any] = {"branch": found.branch, "version": found.number}
        moved = await cue.prompts.label(found.slug, name, **at, by=whoever(by))
        await write_through(cue, found.slug)
    state.report(moved, f"label {name} points to {moved.branch}:{moved.number}")


@operation_command(
    app,
    Prompts.roll_back,
    "cuebook prompt rollback persona/kind",
    "cuebook prompt rollback persona/kind --to 2 --reason 'too chatty'",
)
def rollback(
    state: State,
    values: Any,
    *,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason, recorded in the history.")
    ] = "by hand",
) -> None:
    """Restore an earlier version of a branch.

    The newer version is kept, but `select` does not explore it until `clear`.
    """
    with state.open() as cue:
        done = cue.prompts.roll_back(**values, reason=reason)
    state.report(done, f"{done} is active again")


def print_cleared(branch: BranchState, *, slug: str, version: int) -> None:
    """Print that a version is no longer excluded."""
    screen.say(f"{slug_of(slug)}@{branch.name}:{version} can be selected again")
