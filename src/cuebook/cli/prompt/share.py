"""Commands `cuebook prompt sync|bundle|unbundle`: exchange prompts with other projects."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from cuebook.app.cuebook import Cuebook
from cuebook.app.sync.bundles import BundleResult
from cuebook.app.sync.sync import SyncResult, SyncStatus
from cuebook.cli.group import command
from cuebook.cli.operations import whoever
from cuebook.cli.output import screen
from cuebook.cli.prompt.group import DryRun, app, write_through
from cuebook.cli.state import State
from cuebook.errors import InvalidInput, UnknownSigner
from cuebook.records.answer import in_words
from cuebook.records.prompt import MAIN

T = TypeVar("T")

Trust = Annotated[
    list[str] | None,
    typer.Option("--trust", metavar="FINGERPRINT", help="Trust the project with this key from now on; repeatable."),
]
_CHANGES = {
    "new": "new from {}", "updated": "updated from {}", "merged": "merged with {}", "conflict": "conflict with {}",
    "skipped": "skipped: not synced here", "published": "published",
}  # fmt: skip


@command(
    app,
    "cuebook prompt sync klp://prompts.example.com/team",
    "cuebook prompt sync file:///media/stick/prompts --dry-run",
    "cuebook prompt sync --status",
    name="sync",
)
async def sync(
    state: State,
    location: Annotated[
        str,
        typer.Argument(
            metavar="LOCATION",
            help="klp://HOST[:PORT]/SPACE, https://HOST/klp/v1/SPACE or file:///DIR. Default: sync.hub.",
            show_default=False,
        ),
    ] = "",
    *,
    trust: Trust = None,
    dry_run: DryRun = False,
    status: Annotated[
        bool, typer.Option("--status", help="Show the last sync, the other projects and their keys.")
    ] = False,
    rotate_key: Annotated[
        bool, typer.Option("--rotate-key", help="Replace this project's signing key. The next sync publishes it.")
    ] = False,
) -> None:
    """Exchange prompts with other projects.

    Only prompts with `sync: true` take part. New versions of other projects are stored or merged, and yours are
    published. A version that cannot be merged becomes a branch sync/PROJECT, and the command exits with 1. If another
    project's prompts fail a check, nothing is written.
    """
    if rotate_key and (dry_run or status or location):
        msg = "--rotate-key replaces the key at once. Use it alone, then sync."
        raise InvalidInput(msg, where="--rotate-key")
    if status or rotate_key:
        async with state.open_async() as cue:
            shown = await (cue.prompt_sync.rotate_key() if rotate_key else cue.prompt_sync.status())
        state.report(shown, *_lines(shown))
        return

    async def run(cue: Cuebook, keys: str) -> SyncResult:
        result = await cue.prompt_sync.sync(location, trust=keys, dry_run=dry_run, by=whoever(None))
        changed = {each.slug for each in result.items if each.change not in ("skipped", "published")}
        if changed and not dry_run:
            await write_through(cue, *sorted(changed))
        return result

    result = await _trusting(state, trust, run)
    has_conflict = any(each.change == "conflict" for each in result.items)
    state.report(result, render=partial(_print, result), failed=has_conflict and not dry_run)


@command(app, "cuebook prompt bundle team.bundle", name="bundle")
async def bundle(
    state: State, file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write.", show_default=False)]
) -> None:
    """Export all prompts, personas and presets to one signed file."""
    async with state.open_async() as cue:
        made = await cue.prompt_sync.bundle(file)
    state.report(made, f"wrote {file}: {made}")


@command(app, "cuebook prompt unbundle team.bundle --dry-run", name="unbundle")
async def unbundle(
    state: State,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Bundle to import.", show_default=False)],
    *,
    trust: Trust = None,
    dry_run: DryRun = False,
) -> None:
    """Import a bundle of another project.

    Its signature is checked first. Stored versions are skipped, and no file is overwritten. A prompt with other
    versions here keeps its text: those of the bundle become a branch sync/PROJECT, and the command exits with 1.
    """

    async def run(cue: Cuebook, keys: str) -> BundleResult:
        done = await cue.prompt_sync.unbundle(file, trust=keys, dry_run=dry_run, by=whoever(None))
        if not dry_run and done.prompts:
            await write_through(cue, *done.prompts)
        return done

    done = await _trusting(state, trust, run)
    lines: list[str] = []
    for name, new in done.conflicts.items():
        slug, _, branch = name.partition("@")
        lines += _resolutions(slug, branch, new)
    text = f"{'would import' if dry_run else 'imported'} {done}"
    state.report(done, text, *lines, failed=bool(done.conflicts) and not dry_run)


def _resolutions(slug: str, branch: str, other: str) -> tuple[str, ...]:
    """Return the lines that say how to resolve a conflict with a branch of another project."""
    own = slug if branch == MAIN else f"{slug}@{branch}"
    into = "" if branch == MAIN else f"--into {branch} "
    return (
        f"{own}: your version was kept; theirs is {slug}@{other}",
        f"  compare:      cuebook prompt diff {own} {slug}@{other}",
        f"  keep yours:   cuebook prompt merge {slug} {branch} --into {other} --theirs",
        f"  take theirs:  cuebook prompt merge {slug} {other} {into}--theirs",
    )


async def _trusting(state: State, trust: list[str] | None, work: Callable[[Cuebook, str], Awaitable[T]]) -> T:
    """Run a sync. On a terminal, ask whether to trust each unknown key; without one, an unknown key is an error."""
    keys = list(trust or ())
    while True:
        try:
            async with state.open_async() as cue:
                return await work(cue, " ".join(keys))
        except UnknownSigner as error:
            name = f"Project {error.project!r}" if error.project else "The bundle"
            if state.json or not screen.agreed(f"{name} is signed by {error.fingerprint}, a new key. Trust it?"):
                raise
            keys.append(error.fingerprint)


def _print(result: SyncResult) -> None:
    rows = [
        (each.slug, _CHANGES[each.change].format(each.project), each.semver, ", ".join(each.sections))
        for each in result.items
    ]
    if rows:
        screen.table(["prompt", "planned change" if result.dry_run else "change", "semver", "conflict in"], rows)
    else:
        screen.say("no changes" if result.dry_run or result.notice else f"no changes; published at {result.location}")
    conflicts = [each for each in result.items if each.change == "conflict"]
    for each in () if result.dry_run else conflicts:  # a dry run creates no branch
        screen.say("\n".join(_resolutions(each.slug, MAIN, each.branch)))
    for each in result.items:
        if each.change == "skipped":
            screen.say(f"{each.slug}: to sync it, run `cuebook prompt new {each.slug} --sync`")
    if conflicts and not result.dry_run:
        screen.say("Resolve each conflict, or edit one of the two, then sync again.")
    if result.notice:
        screen.complain(result.notice)


def _lines(shown: SyncStatus) -> list[str]:
    last = f"last sync {in_words(shown.last_sync)} with {shown.location}" if shown.last_sync else "not synced yet"
    lines = [f"project {shown.project}, key {shown.fingerprint}", last]
    if shown.published_fingerprint not in ("", shown.fingerprint):
        lines.append(f"this key is not published yet; others see {shown.published_fingerprint}")
    lines += [
        f"{each.project}, key {each.fingerprint}, last sync {in_words(each.last_sync)} with {each.location}, expires"
        f" {each.expires_at.day}"
        for each in shown.peers
    ]
    lines += [
        f"conflict: {each.slug} and {each.slug}@{each.branch} differ in {', '.join(each.sections)}"
        for each in shown.conflicts
    ]
    return lines
