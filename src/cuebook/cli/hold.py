"""`cuebook hold`: add, list, release."""

from typing import Annotated

import typer

from cuebook.app.forgetting import hold_shape
from cuebook.cli import screen
from cuebook.cli.group import command, new_app
from cuebook.cli.state import State

app = new_app(
    "Keep what the law says must be kept: nothing of it is forgotten until it is released.",
    "cuebook hold add --user ann --reason 'case 4711'",
    "cuebook hold list",
)


@command(
    app,
    "cuebook hold add --user ann --reason 'case 4711'",
    "cuebook hold add --conversation c1 --id case-4711 --json",
    name="add",
)
def add(
    state: State,
    *,
    user: Annotated[str | None, typer.Option("--user", metavar="U", help="A user, with their conversations.")] = None,
    conversation: Annotated[str | None, typer.Option("--conversation", metavar="C", help="A conversation.")] = None,
    persona: Annotated[str | None, typer.Option("--persona", metavar="P", help="A persona's conversations.")] = None,
    organization: Annotated[
        str | None, typer.Option("--organization", metavar="O", help="What an organization knows.")
    ] = None,
    memory: Annotated[str | None, typer.Option("--memory", metavar="M", help="A memory, by its id.")] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why.")] = "",
    name: Annotated[str | None, typer.Option("--id", metavar="NAME", help="Its name; one is made up else.")] = None,
) -> None:
    """Hold one thing: whoever wants it forgotten is refused, and told of the hold."""
    with state.open() as book:
        made = book.holds.add(
            user=user,
            conversation=conversation,
            persona=persona,
            organization=organization,
            memory=memory,
            reason=reason,
            id=name,
        )
    if state.json:
        screen.say_json({"hold": hold_shape(made)})
    else:
        screen.say(f"hold {made.id} keeps {made.kind} {made.owner}")


@command(app, "cuebook hold list", "cuebook hold list --json", name="list")
def list_(state: State) -> None:
    """List the holds."""
    with state.open() as book:
        found = book.holds.list()
    if state.json:
        screen.say_json({"items": [hold_shape(each) for each in found]})
    elif not found:
        screen.say("no holds: whatever is asked for is forgotten")
    else:
        rows = [(each.id, each.kind, each.owner, each.created_at[:10], each.reason) for each in found]
        screen.table(("hold", "kind", "what", "since", "why"), rows, fold=("what", "why"))


@command(app, "cuebook hold release case-4711", name="release")
def release(
    state: State, hold: Annotated[str, typer.Argument(metavar="HOLD", help="Its id.", show_default=False)]
) -> None:
    """End a hold."""
    with state.open() as book:
        book.holds.release(hold)
    if state.json:
        screen.say_json({"released": hold})
    else:
        screen.say(f"released {hold}")
