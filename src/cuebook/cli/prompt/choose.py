"""Commands `cuebook prompt select|observe`: select a variant (A/B testing) and record feedback on it."""

from typing import Annotated, Any

import typer

from cuebook.app.cuebook import Cuebook
from cuebook.app.prompts import Choice, Selection
from cuebook.cli.group import command
from cuebook.cli.output import screen
from cuebook.cli.prompt.group import Branch, Number, Prompt, app, numbers, report, slug_of, wait
from cuebook.cli.state import State
from cuebook.records.answer import to_wire
from cuebook.records.prompt import Missing, Strategy, TaskOutcome

Signals = Annotated[
    list[str] | None,
    typer.Option("--signal", metavar="NAME[=0..1]", help="Signal and its strength, 1 by default; repeatable."),
]


@command(
    app,
    "cuebook prompt select persona/kind --signal task_coding --explain",
    "cuebook prompt select persona/kind --signal user_frustrated=0.7 --strategy thompson --seed 7 --json",
    name="select",
)
def select(
    state: State,
    prompt: Prompt,
    *,
    signal: Signals = None,
    strategy: Annotated[
        Strategy | None, typer.Option("--strategy", help="Selection strategy. Default: prompts.strategy.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option("--epsilon", metavar="0..1", min=0, max=1, help="Exploration rate of epsilon_greedy."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Random seed, for a reproducible selection.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the scores of all variants.")] = False,
) -> None:
    """Select one of the variants of a prompt and show its score.

    The variants are the active versions of all branches. Nothing is stored.
    """
    signals = numbers(signal, "--signal")

    async def run(cue: Cuebook) -> Selection:
        named = strategy or cue.config.settings.prompts.strategy
        return await cue.prompts.select(slug_of(prompt), signals, strategy=named, epsilon=epsilon, seed=seed)

    found = wait(state, run)
    if state.json:
        screen.say_json(to_wire(found))
        return
    picked = found.selected
    how = "exploration" if found.explored else "best score"
    screen.say(f"{_name(picked)} ({how}, selected with probability {found.propensity:.3f})")
    if explain:
        rows = [
            (
                "→" if each == picked else "",
                _name(each),
                f"{each.edge_weight:.3f}",
                f"{each.context_fit:+.3f}",
                f"{each.total_score:.3f}",
                f"{each.propensity:.3f}",
            )
            for each in found.variants
        ]
        names = ("", "variant", "edge weight", "context fit", "total", "propensity")
        screen.table(names, rows, right=names[2:], fold=("variant",))


def _name(choice: Choice) -> str:
    return f"{choice.slug}@{choice.branch}:{choice.number}"


@command(
    app,
    "cuebook prompt observe persona/kind --sentiment 0.9 --outcome success",
    "cuebook prompt observe persona/kind@trial --sentiment 0.2 --corrections 3",
    name="observe",
)
def observe(
    state: State,
    prompt: Prompt,
    *,
    sentiment: Annotated[float, typer.Option("--sentiment", metavar="0..1", min=0, max=1, help="User satisfaction.")],
    corrections: Annotated[int, typer.Option("--corrections", metavar="N", min=0, help="Number of corrections.")] = 0,
    outcome: Annotated[TaskOutcome | None, typer.Option("--outcome", help="Outcome of the task.")] = None,
    missing: Annotated[
        Missing | None,
        typer.Option("--missing", help="How an unknown outcome counts. Default: learning.missing."),
    ] = None,
    signal: Signals = None,
    propensity: Annotated[
        float,
        typer.Option("--propensity", metavar="0..1", min=0, max=1, help="Probability with which it was selected."),
    ] = 1.0,
    branch: Branch = None,
    version: Number = None,
    conversation: Annotated[
        str | None, typer.Option("--conversation", metavar="ID", help="Conversation of the feedback.")
    ] = None,
    user: Annotated[str, typer.Option("--user", metavar="USER", help="User who gave the feedback.")] = "",
) -> None:
    """Record feedback on a version of a prompt.

    The score updates the edge weight of the branch.
    """
    options: dict[str, Any] = {
        "sentiment": sentiment,
        "corrections": corrections,
        "outcome": outcome,
        "missing": missing,
        "branch": branch,
        "version": version,
        "signals": numbers(signal, "--signal"),
        "propensity": propensity,
        "conversation": conversation,
        "user": user,
    }
    observed = wait(state, lambda cue: cue.prompts.observe(prompt, **options))
    report(
        state,
        observed,
        f"score {observed.score:.3f}, new edge weight {observed.edge_weight:.3f}",
        f"{'version rolled back' if observed.rolled_back else 'no rollback'}: {observed.rollback.reason}",
    )
