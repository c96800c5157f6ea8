"""Command `cuebook settle`: run pending background jobs and wait for them."""

from typing import Annotated

import typer

from cuebook.cli.group import command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.expression import counted

app = new_app()

#: Maximum number of conversations listed.
SHOWN = 20
#: Messages for kinds of jobs without a result of their own to show.
SAID = {"reflection": "completed the reflections of {}", "observation": "recorded prompt feedback from {}"}


@command(app, "cuebook settle", "cuebook settle --conversation c1 --timeout 300", name="settle")
def settle(
    state: State,
    *,
    conversation: Annotated[
        str | None, typer.Option("--conversation", metavar="ID", help="Run only jobs of this conversation.")
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=0, help="Maximum time to wait.")] = 60.0,
) -> None:
    """Run pending background jobs and wait until none is left: summaries, memory items, reflections, prompt feedback
    and the audit mirror. Exits with 1 if jobs are left.
    """
    with state.open() as cue, screen.progress("running background jobs", None):
        before = cue.conversations.marks(conversation)
        waited = cue.settle(conversation=conversation, timeout=0)
        due = cue.settle(conversation=conversation, timeout=timeout)
        done = [
            {"conversationId": name, "summaryUptoSeq": mark}
            for name, mark in cue.conversations.marks(conversation).items()
            if mark > before.get(name, 0)
        ]
    worked = {kind: waited[kind] - due.get(kind, 0) for kind in SAID if waited.get(kind, 0) > due.get(kind, 0)}
    lines = [f"{each['conversationId']}: summarized up to post {each['summaryUptoSeq']:,}" for each in done[:SHOWN]]
    if len(done) > SHOWN:
        lines.append(f"and {counted(len(done) - SHOWN, 'other conversation')}")
    lines += [SAID[kind].format(counted(count, "turn")) for kind, count in worked.items()]
    if due:
        lines.append("still pending: " + ", ".join(counted(count, f"{kind} job") for kind, count in due.items()))
    answer = ({"done": done} if done else {}) | worked | ({"due": due} if due else {})
    state.report(answer, *(lines or ["no pending jobs"]), failed=bool(due))
