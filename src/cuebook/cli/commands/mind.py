"""Commands `cuebook mind show|run|reset`: the mood state and reflections of a conversation."""

from msgspec.structs import replace

from cuebook.app.turns.explanation import mind_lines
from cuebook.cli.group import new_app
from cuebook.cli.operations import add_operations
from cuebook.cli.output import screen
from cuebook.records.answer import to_wire
from cuebook.records.expression import counted
from cuebook.records.mind import ConversationMood

app = new_app(
    "Show, update and reset the mood state of a conversation.",
    "cuebook mind show c1",
    "cuebook mind run c1 gmi_self_trait_adjustment",
)


def print_mood(found: ConversationMood) -> None:
    """Print a mood state and its reflections, newest first."""
    since = f"since turn {found.turn}" if found.turn else "initial state"
    screen.say(f"mood {found.mood} · user's skill {found.user_skill} · task {found.task_complexity} ({since})")
    if found.strategy:
        screen.say(f"strategy: {found.strategy}")
    for key, value in found.imprints.items():
        screen.say(f"imprint.{key}: {value}")
    if found.due:
        screen.say(f"{counted(found.due, 'reflection')} pending. Run `cuebook settle` after the turn has ended.")
    for each in found.reflections:
        when = str(each.at)[:16].replace("T", " ")
        for line in mind_lines({}, [to_wire(each)]):
            screen.say(f"turn {each.turn} · {when} · {line}")


def print_change(found: ConversationMood) -> None:
    """Print a mood state and its newest reflection."""
    print_mood(replace(found, reflections=found.reflections[:1]))


add_operations(app, "mind", {"show": print_mood, "run": print_change, "reset": print_change})
