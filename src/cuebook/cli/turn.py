"""`cuebook turn`: list, show, replay."""

from collections.abc import Iterator
from typing import Annotated

import typer

from cuebook.app import shapes
from cuebook.cli import screen
from cuebook.cli.group import Conversation, User, command, new_app
from cuebook.cli.heard import heard_lines
from cuebook.cli.state import State
from cuebook.cli.window import draw

app = new_app("Show what a prompt held and why, and replay it.", "cuebook turn show c1 3", "cuebook turn replay c1 3")

Number = Annotated[int, typer.Argument(metavar="N", min=1, help="The turn's number.", show_default=False)]
Step = Annotated[int | None, typer.Option("--step", metavar="K", min=1, help="Which model call; the last by default.")]


@command(app, "cuebook turn list c1", "cuebook turn list c1 --last 5 --json", name="list")
def list_(
    state: State,
    conversation: Conversation,
    *,
    last: Annotated[int, typer.Option("--last", metavar="N", min=1, max=1000, help="How many.")] = 20,
    user: User = None,
) -> None:
    """List the newest turns, oldest first."""
    with state.open() as book:
        book.conversations.get(conversation, user=user)
        turns = book.turns.last(conversation, user=user, last=last)
    shown = [shapes.turn(turn, query="", reply="", shown=None) for turn in turns]
    if state.json:
        screen.say_json({"items": [{key: each[key] for key in each if key not in _UNREAD} for each in shown]})
        return
    rows = [
        (
            str(turn.n),
            turn.state + (" (waits for tools)" if turn.waiting else ""),
            str(len(turn.steps)),
            f"{turn.steps[-1].manifest.tokens:,}" if turn.steps else "",
            (each["createdAt"] or "")[:19].replace("T", " "),
            turn.steps[-1].error if turn.steps else "",
        )
        for turn, each in zip(turns, shown, strict=True)
    ]
    screen.table(("turn", "state", "steps", "tokens", "began", "error"), rows, right=("turn", "steps", "tokens"))


#: What a list of turns does not read.
_UNREAD = ("query", "reply", "window")


@command(app, "cuebook turn show c1 3", "cuebook turn show c1 3 --full", name="show")
def show(
    state: State,
    conversation: Conversation,
    n: Number,
    *,
    step: Step = None,
    full: Annotated[bool, typer.Option("--full", help="Print each block's text.")] = False,
    user: User = None,
) -> None:
    """Show every block of a turn's prompt: source, tokens and share, what was left out and why."""
    with state.open() as book:
        shown = book.turns.show(conversation, n, step=step, user=user)
    if state.json:
        screen.say_json(shown)
        return
    steps = f" · step {shown['step']} of {len(shown['steps'])}" if len(shown["steps"]) > 1 else ""
    screen.heading(f"turn {n} of {conversation}{steps} · {shown['state']} · {shown['createdAt']}")
    screen.say(f"asked: {screen.line_of(shown['query'], 200)}")
    screen.say(f"answered: {screen.line_of(shown['reply'], 200)}")
    if shown["window"] is None:
        withheld = "the prompt is its first user's alone: it says what their other conversations told"
        erased = "the prompt cannot be shown again: something of it was erased"
        screen.say(withheld if shown["replay"] == "withheld" else erased)
    else:
        draw(shown["window"], full=full)
    for line in (*heard_lines(shown["metadata"] or {}), *_why(shown["metadata"] or {})):
        screen.say(line)
    for each in shown["steps"]:
        if each.get("error"):
            screen.say(f"step {each['step']} failed: {each['error']}")
    screen.say(f"rendered again: {shown['replay']}")


def _why(told: shapes.Wire) -> Iterator[str]:
    """Say why these prompts spoke: the preset that brought add-ons, and how each of several variants was chosen."""
    profile = told.get("promptProfile") or {}
    if profile.get("addonPromptKeys"):
        addons = ", ".join(profile["addonPromptKeys"])
        yield f"add-ons: {addons}, by preset {profile['presetId']} ({profile['reason']})"
    if selection := told.get("experienceSelection"):
        yield f"experiences: {_experiences(selection, told.get('experiences') or [])}"
    for slug, each in (told.get("promptVariants") or {}).items():
        version = f":{each['version']}" if "version" in each else ""
        how = " ".join(filter(None, (each.get("strategy"), "exploring" if each.get("explored") else "")))
        trial = f", on trial {each['trial']}" if each.get("trial") else ""
        chance = f"probability {each.get('propensity', 1.0):.3f}"
        scores = f", weight {each['edgeWeight']:.2f}, fit {each['contextFit']:.2f}" if "edgeWeight" in each else ""
        yield f"chosen: {slug}@{each['branch']}{version}, {how + ', ' if how else ''}{chance}{scores}{trial}"


def _experiences(selection: shapes.Wire, stood: list[str]) -> str:
    """Say what was chosen, how well each fits, and by whom; what found no room in the window is said too."""
    named = [
        f"{name} ({score:.2f}{'' if name in stood else ', no room'})" for name, score in selection["chosen"].items()
    ]
    instead = f"; not by the model: {selection['instead']}" if selection.get("instead") else ""
    return f"{', '.join(named) or 'none'} of {selection['offered']:,} offered, by {selection['by']}{instead}"


@command(app, "cuebook turn replay c1 3", "cuebook turn replay c1 3 --json", name="replay")
def replay(state: State, conversation: Conversation, n: Number, *, step: Step = None, user: User = None) -> None:
    """Render a turn's prompt again and hold it against what was sent. Exits 1 if it is altered."""
    with state.open() as book:
        found = book.turns.replay(conversation, n, step=step, user=user)
    if state.json:
        window = shapes.window(found.window) if found.window else None
        told = {"verdict": found.verdict, "digest": found.digest, "reason": found.reason, "window": window}
        screen.say_json(told)
    else:
        screen.say(f"{found.verdict}" + (f": {found.reason}" if found.reason else ""))
    if found.verdict == "altered":
        raise typer.Exit(1)
