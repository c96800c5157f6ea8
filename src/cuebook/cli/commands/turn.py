"""Commands `cuebook turn list|show|feedback|replay`: inspect, rate and replay turns."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer

from cuebook.app.blocking.cuebook import BlockingCuebook
from cuebook.app.turns.explanation import observed_lines, told_of
from cuebook.app.turns.turns import Turns, replay_entry
from cuebook.cli.group import new_app
from cuebook.cli.operations import add_operations, operation_command
from cuebook.cli.output import screen
from cuebook.cli.output.window import draw
from cuebook.cli.state import State
from cuebook.errors import InvalidInput
from cuebook.records.answer import to_wire

app = new_app(
    "Inspect, rate and replay the turns of a conversation.", "cuebook turn show c1 3", "cuebook turn replay c1 3"
)

#: The argument that names a turn.
Turn = Annotated[
    str,
    typer.Argument(
        metavar="TURN", help="Turn number, `latest`, or the ID of a post or response of the turn.", show_default=False
    ),
]

#: Maximum length of a block's preview in a what-if replay, in characters.
WORDS = 80
#: The lists of blocks in a what-if replay.
_LISTS = {"removed": "leftOut", "added": "letIn", "changed": "changed"}


def _numbered(cue: BlockingCuebook, values: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the values of an operation's arguments with the number of the named turn."""
    return values | {"n": cue.turns.find(values["conversation"], name, user=values["user"])}


@operation_command(app, Turns.show, "cuebook turn show c1 3", "cuebook turn show c1 latest --full")
def show(
    state: State,
    values: Any,
    *,
    n: Turn,
    full: Annotated[bool, typer.Option("--full", help="Print the text of each block.")] = False,
) -> None:
    """Show the prompt of a turn block by block. Shows sources, tokens, and what was left out and why."""
    with state.open() as cue:
        data = to_wire(cue.turns.show(**_numbered(cue, values, n)))
    state.report(data, render=partial(_draw_turn, data, values["conversation"], full=full))


def _draw_turn(data: dict[str, Any], conversation: str, *, full: bool) -> None:
    steps = f" · step {data['step']} of {len(data['steps'])}" if len(data["steps"]) > 1 else ""
    screen.heading(f"turn {data['turn']} of {conversation}{steps} · {data['state']} · {data['createdAt']}")
    screen.say(f"asked: {screen.line_of(data['query'], 200)}")
    screen.say(f"answered: {screen.line_of(data['reply'], 200)}")
    if data["window"] is None:
        withheld = "prompt withheld: it contains memories from other conversations of the first user"
        erased = "prompt unavailable: some of its content was erased"
        screen.say(withheld if data["replay"] == "withheld" else erased)
    else:
        draw(data["window"], full=full)
    for line in told_of(data):
        screen.say(line)
    screen.say(f"replay check: {data['replay']}")


@operation_command(
    app,
    Turns.feedback,
    "cuebook turn feedback c1 3 --good",
    "cuebook turn feedback c1 3 --score 0.2 --outcome failure",
)
def feedback(
    state: State,
    values: Any,
    *,
    n: Turn,
    good: Annotated[bool, typer.Option("--good", help="The answer was good: a score of 1.")] = False,
    bad: Annotated[bool, typer.Option("--bad", help="The answer was bad: a score of 0.")] = False,
) -> None:
    """Rate a turn. The newest rating replaces earlier ones and the one inferred from the user's next message."""
    if sum((good, bad, values["score"] is not None)) > 1:
        msg = "--good, --bad and --score cannot be combined. Use one."
        raise InvalidInput(msg, where="score")
    thumb: Any = "up" if good else "down" if bad else None
    with state.open() as cue:
        data = to_wire(cue.turns.feedback(**_numbered(cue, values, n), thumb=thumb))
    state.report(data, *observed_lines(data))


@operation_command(
    app,
    Turns.what_if,
    "cuebook turn replay c1 3",
    "cuebook turn replay c1 3 --without 3f2a90c41b7d5e68",
    "cuebook turn replay c1 3 --with prompt=persona/engineer@warm:2 --as-of 2026-05-01",
)
def replay(
    state: State,
    values: Any,
    *,
    n: Turn,
    step: Annotated[
        int | None,
        typer.Option("--step", metavar="K", min=1, help="Model call of the turn. Default: the last one."),
    ] = None,
) -> None:
    """Render a turn's prompt again and compare. Exits with 1 if it differs from what was sent.

    With --with, --as-of or --without, show what the prompt would have been (what-if replay). Only --ask calls a model.
    Nothing is stored except a record of that call.
    """
    values |= {"with_prompt": _prompts(values["with_prompt"])}
    with state.open() as cue:
        values = _numbered(cue, values, n)
        turn = {name: values[name] for name in ("conversation", "n", "user")}
        found = cue.turns.replay(**values, step=step)
        reply = cue.turns.show(**turn).reply if found.counterfactual else ""
    data = to_wire(replay_entry(found))
    state.report(data, render=partial(_draw_replay, data, reply), failed=found.verdict == "altered")


def _draw_replay(data: dict[str, Any], reply: str) -> None:
    screen.say(f"{data['verdict']}" + (f": {data['reason']}" if data["reason"] else ""))
    if "counterfactual" in data:
        _draw_other(data["counterfactual"], reply)


def _draw_other(data: dict[str, Any], reply: str) -> None:
    """Print the changed prompt: token change, blocks removed, added or changed, and both answers."""
    if not data["reproduced"]:
        screen.say(
            "The original prompt is not reproduced byte for byte: a setting or the search index has changed since."
        )
    if data["refused"]:
        screen.say(f"This prompt would have been refused: {data['refused']}")
        return
    tokens, posts = data["tokens"], data["postsLeftOut"]
    screen.say(f"tokens: {tokens['before']:,} before, {tokens['after']:,} after ({tokens['change']:+,})")
    moved = {name: data[key] for name, key in _LISTS.items() if data[key]}
    for name, blocks in moved.items():
        screen.say(f"{name}: {sum(each['tokens'] for each in blocks):,} tokens")
        rows = [
            (each["kind"], each["source"], f"{each['tokens']:,}", screen.line_of(each["text"], WORDS))
            for each in blocks
        ]
        screen.table(("kind", "source", "tokens", "text"), rows, right=("tokens",), fold=("source",))
    if not moved:
        screen.say("no change: the prompt would have been the same")
    screen.say(f"posts left out: {posts['before']:,} before, {posts['after']:,} after")
    if data["answer"] is not None:
        screen.heading("\noriginal answer")
        screen.say(reply)
        screen.heading("\nanswer to the changed prompt")
        screen.say(data["answer"])


def _prompts(given: Sequence[str]) -> list[str]:
    for each in given:
        if not each.removeprefix(_PROMPT) or not each.startswith(_PROMPT):
            msg = f"{each!r} is not a prompt version. Use prompt=SLUG[@BRANCH][:N]"
            raise typer.BadParameter(msg, param_hint="--with")
    return [each.removeprefix(_PROMPT) for each in given]


#: Prefix of a prompt in `--with`.
_PROMPT = "prompt="


add_operations(app, "turn")
