"""Commands `cuebook mind show|run|reset`: the mood state and reflections of a conversation."""

from typing import Annotated

import typer

from cuebook.app.json_shapes import iso
from cuebook.app.turns.explanation import mind_lines
from cuebook.app.turns.mood import MindState, mind_shape, reflection_shape
from cuebook.cli.group import Conversation, User, command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.expression import counted

app = new_app(
    "Show, update and reset the mood state of a conversation.",
    "cuebook mind show c1",
    "cuebook mind run c1 gmi_self_trait_adjustment",
)


@command(app, "cuebook mind show c1", "cuebook mind show c1 --last 50 --json", name="show")
def show(
    state: State,
    conversation: Conversation,
    *,
    last: Annotated[int, typer.Option("--last", metavar="N", min=1, max=500, help="Show at most N reflections.")] = 20,
    user: User = None,
) -> None:
    """Show the mood state and reflections. The state is the mood, the user's skill and the task complexity."""
    with state.open() as cue:
        _say(state, cue.mind.show(conversation, user=user, limit=last))


@command(app, "cuebook mind run c1 gmi_self_trait_adjustment", name="run")
def run(
    state: State,
    conversation: Conversation,
    metaprompt: Annotated[str, typer.Argument(metavar="METAPROMPT", help="Metaprompt ID.", show_default=False)],
    *,
    user: User = None,
) -> None:
    """Run a metaprompt on the newest turn.

    Use a metaprompt of the persona (see `cuebook persona show`) or a built-in one.
    """
    with state.open() as cue:
        _say(state, cue.mind.run(conversation, metaprompt, user=user), told=1)


@command(app, "cuebook mind reset c1", name="reset")
def reset(state: State, conversation: Conversation, *, user: User = None) -> None:
    """Reset the mood state to neutral and keep the history."""
    with state.open() as cue:
        _say(state, cue.mind.reset(conversation, user=user), told=1)


def _say(state: State, found: MindState, *, told: int | None = None) -> None:
    """Print a mood state and its reflections; with `told`, only the newest `told` reflections."""
    if state.json:
        screen.say_json(mind_shape(found))
        return
    mind = found.mind
    since = f"since turn {found.turn}" if found.turn else "initial state"
    screen.say(f"mood {mind.mood} · user's skill {mind.user_skill} · task {mind.task_complexity} ({since})")
    if mind.strategy:
        screen.say(f"strategy: {mind.strategy}")
    for key, value in mind.imprints.items():
        screen.say(f"imprint.{key}: {value}")
    if found.due:
        screen.say(f"{counted(found.due, 'reflection')} pending. Run `cuebook settle` after the turn has ended.")
    for reflection in found.reflections[:told]:
        when = (iso(reflection.at) or "")[:16].replace("T", " ")
        for line in mind_lines({}, [reflection_shape(reflection)]):
            screen.say(f"turn {reflection.turn} · {when} · {line}")
