"""Commands `cuebook prompt lint|rate|clusters`: find faults in prompts, rate them and group similar ones."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import typer

from cuebook.app.prompts import SEVERITIES, LintFinding, QualityRating
from cuebook.app.prompts import lint as linting
from cuebook.app.prompts.clusters import Clusters
from cuebook.app.prompts.folder import PromptFolder
from cuebook.cli.group import command
from cuebook.cli.output import screen
from cuebook.cli.prompt.group import app
from cuebook.cli.state import State
from cuebook.records.expression import counted

_STATES = {"error": "fail", "warning": "warn", "info": "info"}


@command(
    app,
    "cuebook prompt lint",
    "cuebook prompt lint persona/kind --strict",
    "cuebook prompt lint --json > lint.json",
    name="lint",
)
async def lint(
    state: State,
    prompts: Annotated[
        list[str] | None, typer.Argument(metavar="PROMPT", help="Prompt IDs. Default: all prompts.", show_default=False)
    ] = None,
    *,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings too.")] = False,
    rules: Annotated[bool, typer.Option("--rules", help="List the rules and exit.")] = False,
) -> None:
    """Check prompts for secrets, injections and unused parameters.

    Edited files are checked before they are pushed. Exits with 1 on errors, for CI. Nothing is written.
    """
    if rules:
        rows = [tuple(each.values()) for each in linting.rules()]
        columns = ("rule", "severity", "description")
        state.report({"items": linting.rules()}, render=partial(screen.table, columns, rows))
        return
    async with state.open_async(autopush=False) as cue:
        found = await linting.lint_prompts(cue.services, PromptFolder(cue.prompts.root), prompts or ())
    counts = Counter(each.severity for each in found)
    by_severity = {name: counts[name] for name in SEVERITIES}
    failed = counts["error"] > 0 or (strict and counts["warning"] > 0)
    answer = {"counts": by_severity, "findings": found}
    state.report(answer, render=partial(_draw_findings, found, by_severity), failed=failed)


def _draw_findings(found: list[LintFinding], counts: Mapping[Any, int]) -> None:
    for each in found:
        where = " ".join(filter(None, (each.slug, each.where)))
        said = each.message if each.message.startswith(where) else f"{where}: {each.message}"
        screen.verdict(_STATES[each.severity], each.rule, said)
    lines = [f"{count:,} {name}{'s' * (count != 1 and name != 'info')}" for name, count in counts.items()]
    screen.say(", ".join(lines) if found else "no findings")


def print_rating(rated: QualityRating) -> None:
    """Print a quality score and its parts."""
    screen.heading(f"{rated.slug}@{rated.branch}:{rated.number} · {rated.score:.1f} of 100")
    rows = [
        (each.name, f"{each.points:g}", str(each.most), screen.bar(each.points / each.most), each.reason)
        for each in rated.parts
    ]
    screen.table(("part", "points", "of", "", "reason"), rows, right=("points", "of"))


# ---- clusters -------------------------------------------------------------------------------------------------------


def print_clusters(found: Clusters) -> None:
    """Print groups of similar prompts, near duplicates and the other prompts."""
    for number, each in enumerate(found.groups, 1):
        screen.heading(f"{number}. {', '.join(each.words)} \u00b7 similarity {each.likeness:.2f}")
        screen.table(
            ("prompt", "similarity"), [(one.name, f"{one.likeness:.2f}") for one in each.members],
            right=("similarity",),
        )  # fmt: skip
    if found.near_duplicates:
        screen.heading("near duplicates")
        rows = [(each.a, each.b, f"{each.similarity:.0%}") for each in found.near_duplicates]
        screen.table(("prompt", "duplicate of", "similarity"), rows, right=("similarity",))
    if found.alone:
        screen.say(f"ungrouped: {', '.join(found.alone)}")
    by = "embeddings" if found.by == "meaning" else "shared words"
    groups = len(found.groups)
    screen.say(f"{counted(found.prompts, 'prompt')}, {counted(groups, 'group')}, by {by}")
    if found.instead:
        screen.say(f"{found.instead}: shared words were used instead")
