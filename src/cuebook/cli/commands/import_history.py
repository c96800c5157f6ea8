"""Command `cuebook import`: find conversations and memories of other programs, show them, and import them."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.blocking.cuebook import BlockingCuebook
from cuebook.app.transcripts.import_run import ImportProgress, SourceCounts, Survey, import_sources, survey
from cuebook.cli.group import Yes, command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.errors import InvalidInput
from cuebook.records.answer import to_wire
from cuebook.records.expression import counted

app = new_app()

#: Most lines and people that are listed; `--json` has all.
LISTED = 10
_PROGRAMS = "Claude Code, Codex, OpenCode, Hermes, ChatGPT, Claude.ai, LangGraph, OpenAI Agents, mem0"


@command(
    app,
    "cuebook import ~/.claude/projects --user ann",
    "cuebook import chatgpt-export.zip --user ann --yes",
    "cuebook import ~/.local/share/opencode/opencode.db",
    name="import",
)
def import_(
    state: State,
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A file, a folder or a zip archive.", show_default=False)
    ],
    *,
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="Owner of all conversations and memories.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Import old conversations and memories of other programs. Shows what it found and asks before it stores anything.

    Formats: sessions of Claude Code, Codex, OpenCode and Hermes; data exports of ChatGPT, Claude.ai and mem0; SQLite
    files of OpenCode, Hermes, OpenAI Agents and LangGraph; and those of `cuebook conversation import`. Importing the
    same path again adds only what is new.
    """
    with screen.progress(f"reading {path}"):
        found = survey(path.expanduser(), user=user)
    if not state.json:
        print_survey(found, str(path))
    if not found.found:
        msg = f"No conversation or memory found in {str(path)!r}. Supported: {_PROGRAMS}, and `conversation import`'s."
        raise InvalidInput(msg, where="path")
    with state.open() as cue:
        owned = user or any(each.users for each in found.found)
        if owned and found.posts and not state.json and cue.config.settings.memory.user is not True:
            screen.say(
                "\nSearch finds imported posts. To add them to memories across conversations too, set `user = true` "
                "under [memory] before you import."
            )
        if not yes:
            what = [counted(found.posts, "post")] * bool(found.posts) + [counted(found.memories, "memory")] * bool(
                found.memories
            )
            owner = f" as user {user!r}" if user else ""
            screen.confirm(f"Import {' and '.join(what)}{owner}?", "Nothing was imported.")
            _confirm_erased(cue, found)
        done = ImportProgress()
        with screen.progress(f"importing {path}") as advance:
            for done in import_sources(cue, path.expanduser(), user=user):
                advance(done.posts + done.memories, found.posts + found.memories)
    answer = to_wire(done) | {"found": found.found, "skipped": found.skipped, "leftOut": dict(found.left_out)}
    state.report(answer, render=lambda: print_result(done), failed=bool(done.refused))


def print_survey(found: Survey, path: str) -> None:
    """Print what a path contains, by program, and what is left out."""
    if found.found:
        rows = [_row(each) for each in found.found]
        columns = ("found", "conversations", "posts", "memories", "from", "to", "users")
        screen.table(columns, rows, right=("conversations", "posts", "memories"), fold=("users",))
    if found.skipped:
        screen.say(f"\nunreadable, skipped: {len(found.skipped):,}")
        _print_some(found.skipped)
    if found.left_out:
        kinds = sorted(found.left_out.items(), key=lambda each: (-each[1], each[0]))
        screen.say("\nleft out: " + ", ".join(f"{kind} ({count:,})" for kind, count in kinds))
    if not found.found and not found.skipped:
        screen.say(f"{path} has no conversations.")


def _row(each: SourceCounts) -> tuple[str, ...]:
    users = ", ".join(each.users[:LISTED]) + (
        f" and {len(each.users) - LISTED:,} more" if len(each.users) > LISTED else ""
    )
    days = [moment.day if moment is not None else "" for moment in (each.first, each.last)]
    return (
        each.source,
        f"{each.conversations:,}",
        f"{each.posts:,}",
        f"{each.memories:,}",
        *days,
        users or "none named",
    )


def _print_some(lines: list[str]) -> None:
    for line in lines[:LISTED]:
        screen.say(f"  {line}")
    if len(lines) > LISTED:
        screen.say(f"  and {len(lines) - LISTED:,} more; --json lists all")


def print_result(done: ImportProgress) -> None:
    """Print what was imported and what was refused."""
    if done.posts:
        into = f" in {counted(done.conversations, 'conversation')}" if done.conversations else ""
        screen.say(f"{done.stored_posts:,} of {counted(done.posts, 'post')} new{into}")
    if done.memories:
        screen.say(f"{done.stored_memories:,} of {counted(done.memories, 'memory')} new")
    if done.refused:
        screen.say(f"not imported: {len(done.refused):,}")
        _print_some(done.refused)
    if done.stored_posts:
        screen.say(
            "Run `cuebook settle` to summarize now; `cuebook chat` and `cuebook serve` do this in the background."
        )


def _confirm_erased(cue: BlockingCuebook, found: Survey) -> None:
    """Ask before importing conversations that are older than an erasure of them or of their user."""
    for name, (users, first) in found.conversations.items():
        for each in cue.memory.earlier_erasures(users=users, conversations=[name]):
            if first < datetime.fromisoformat(each.requested_at).timestamp():
                what = f"{name}: its {each.kind} was forgotten on {each.requested_at[:10]} ({each.id})."
                screen.confirm(f"{what} Import the erased data again?", f"{what} Nothing was imported.")
                return
