"""`cuebook settle`."""

from typing import Annotated

import typer

from cuebook.cli import screen
from cuebook.cli.group import command, new_app
from cuebook.cli.state import State

app = new_app()


@command(app, "cuebook settle", "cuebook settle --conversation c1 --timeout 300", name="settle")
def settle(
    state: State,
    *,
    conversation: Annotated[str | None, typer.Option("--conversation", metavar="ID", help="Only this one.")] = None,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Wait at most.")] = 60.0,
) -> None:
    """Do the work that is due behind the replies: summaries and items of what was said. Exits 1 if some is left."""
    with state.open() as book, screen.progress("settling", None):
        due = book.settle(conversation=conversation, timeout=timeout)
    if state.json:
        screen.say_json({"due": due} if due else {})
    elif due:
        screen.say("still due: " + ", ".join(f"{kind} {count:,}" for kind, count in due.items()))
    else:
        screen.say("nothing is due")
    if due:
        raise typer.Exit(1)
