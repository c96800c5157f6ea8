"""Commands `cuebook optimizer status|run|history`: tune the thresholds of summarization automatically."""

from collections.abc import Sequence
from typing import Annotated

import typer

from cuebook.app.json_shapes import iso
from cuebook.app.turns.optimizer import snapshot
from cuebook.cli.group import User, command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.expression import counted
from cuebook.records.tuning import Snapshot

app = new_app(
    "Show and run the automatic tuning of summarization.",
    "cuebook optimizer status",
    "cuebook optimizer run c1",
)

MaybeConversation = Annotated[
    str | None,
    typer.Argument(metavar="CONVERSATION", help="Conversation ID. Default: all conversations.", show_default=False),
]


@command(app, "cuebook optimizer status", "cuebook optimizer status c1 --json", name="status")
def status(state: State, conversation: MaybeConversation = None, *, user: User = None) -> None:
    """Show the total savings and the current parameters."""
    with state.open() as cue:
        found = cue.optimizer.status(conversation, user=user)
    if state.json:
        screen.say_json(found)
        return
    now = found.current_parameters
    screen.say(
        f"{counted(found.total_optimizations, 'run')} saved {counted(found.total_tokens_saved, 'token')}, "
        f"{found.avg_savings_per_run:,} on average"
    )
    screen.say(
        f"compression trigger {now.compression_trigger:g} · kept verbatim {now.full_message_window} posts · "
        f"minimum relevance {now.min_relevance:g} · target usage {now.target_usage_ratio:g}"
    )


@command(app, "cuebook optimizer run", "cuebook optimizer run c1", name="run")
def run(state: State, conversation: MaybeConversation = None, *, user: User = None) -> None:
    """Run the optimizer now. Default: on all conversations that changed since their last run."""
    with state.open() as cue:
        made = cue.optimizer.run(conversation, user=user)
    if state.json:
        screen.say_json(snapshot(made))
    elif made.untuned:
        screen.say(f"no parameter changed: {made.untuned}")
    else:
        _show([made])


@command(app, "cuebook optimizer history", "cuebook optimizer history c1 --limit 5", name="history")
def history(
    state: State,
    conversation: MaybeConversation = None,
    *,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="Show at most N runs.")] = 20,
    user: User = None,
) -> None:
    """List the tuning history, newest first."""
    with state.open() as cue:
        found = cue.optimizer.history(conversation, user=user, limit=limit)
    if state.json:
        screen.say_json({"items": [snapshot(each) for each in found]})
    elif found:
        _show(found)
    else:
        screen.say("no runs yet. The optimizer runs when a conversation with at least ten posts changes.")


def _show(found: Sequence[Snapshot]) -> None:
    columns = (
        "time", "conversation", "before", "after", "compressed", "dropped", "promoted", "trigger", "window", "minimum",
    )  # fmt: skip
    rows = [
        (
            (iso(each.timestamp) or "")[:16].replace("T", " "),
            each.conversation_id or "all",
            f"{each.tokens_before:,}",
            f"{each.tokens_after:,}",
            str(each.entries_compressed),
            str(each.entries_dropped),
            str(each.entries_promoted),
            f"{each.compression_trigger_ratio:g}",
            str(each.full_message_window),
            f"{each.min_relevance_score:g}",
        )
        for each in found
    ]
    screen.table(columns, rows, right=columns[2:])
