"""`cuebook prompt clusters`: which prompts are about the same, and which say nearly the same."""

from typing import Annotated

import msgspec
import typer

from cuebook.app.book import Cuebook
from cuebook.app.prompts.clusters import Clusters
from cuebook.cli import screen
from cuebook.cli.group import command
from cuebook.cli.prompt.group import app, wait
from cuebook.cli.state import State


@command(app, "cuebook prompt clusters", "cuebook prompt clusters --prefix persona/ --json", name="clusters")
def clusters(
    state: State,
    *,
    prefix: Annotated[str, typer.Option("--prefix", metavar="P", help="Only those whose id begins so.")] = "",
    least: Annotated[
        float | None,
        typer.Option(
            "--least", metavar="0..1", min=0, max=1, help="Join from this mean likeness on.", show_default=False
        ),
    ] = None,
) -> None:
    """Group the prompts that are about the same, and name near duplicates.

    The configured embedder tells, else the words they share. Each prompt counts by its active version on `main`.
    """

    async def run(book: Cuebook) -> Clusters:
        return await book.prompts.clusters(prefix=prefix, least=least)

    found = wait(state, run)
    if state.json:
        screen.say_json(msgspec.to_builtins(found))
        return
    for number, each in enumerate(found.groups, 1):
        screen.heading(f"{number}. {', '.join(each.words)} \u00b7 {each.likeness:.2f} alike")
        screen.table(
            ("prompt", "like the others"), [(one.name, f"{one.likeness:.2f}") for one in each.members],
            right=("like the others",),
        )  # fmt: skip
    if found.near_duplicates:
        screen.heading("nearly the same")
        rows = [(each.a, each.b, f"{each.similarity:.0%}") for each in found.near_duplicates]
        screen.table(("prompt", "and", "alike"), rows, right=("alike",))
    if found.alone:
        screen.say(f"like no other: {', '.join(found.alone)}")
    by = "the embedder" if found.by == "meaning" else "their words"
    groups = len(found.groups)
    screen.say(f"{found.prompts:,} prompts, {groups:,} {'group' if groups == 1 else 'groups'}, by {by}")
    if found.instead:
        screen.say(f"{found.instead}: words told the rest")
