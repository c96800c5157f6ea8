"""Commands `cuebook prompt list|show|log|diff`: list prompts, show versions, history and differences."""

from functools import partial
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from cuebook.app.cuebook import Cuebook
from cuebook.app.prompts import Choice, Selection, write_file
from cuebook.app.prompts.answers import PromptEntry, VersionDiff, VersionEntry
from cuebook.app.prompts.impact import MOST_TURNS, TURNS
from cuebook.app.prompts.reading import compare_versions, find_beside
from cuebook.app.prompts.writing import Prompts
from cuebook.cli.group import command
from cuebook.cli.operations import operation_command
from cuebook.cli.output import screen
from cuebook.cli.prompt.group import Branch, Prompt, app
from cuebook.cli.state import State
from cuebook.errors import InvalidInput
from cuebook.records.answer import Page
from cuebook.records.prompt import Branch as BranchState
from cuebook.records.prompt import Param


def print_prompts(page: Page[PromptEntry]) -> None:
    """Print a page of prompts with their branches, labels and weights."""
    if not page:
        screen.say("no prompts. Run `cuebook prompt list` to list all, or `cuebook prompt new PROMPT` to create one.")
        return
    rows = [
        (
            each.slug,
            each.semver,
            ", ".join(map(_branch, each.branches)),
            ", ".join(one.name for one in each.labels),
            each.type,
            each.description,
        )
        for each in page
    ]
    names = ("prompt", "semver", "branches", "labels", "type", "description")
    screen.table(names, rows, fold=("prompt", "branches"))
    if page.next:
        screen.say(f"more results: --cursor {page.next}")


def _branch(branch: BranchState) -> str:
    back = f", head {branch.head}" if branch.head != branch.active else ""
    seen = f" {branch.weight:.2f} of {branch.observations:,}" if branch.observations else ""
    return f"{branch.name}:{branch.active}{seen}{back}"


def print_selection(
    found: Selection,
    *,
    explain: Annotated[bool, typer.Option("--explain", help="Show the scores of all variants.")] = False,
) -> None:
    """Print the selected variant, and the scores of all."""
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


@operation_command(
    app,
    Prompts.show,
    "cuebook prompt show persona/kind",
    "cuebook prompt show persona/kind@trial:2 --resolve",
    "cuebook prompt show persona/kind --file > kind.md",
)
def show(
    state: State,
    values: Any,
    *,
    file: Annotated[bool, typer.Option("--file", help="Print the version as a prompt file.")] = False,
) -> None:
    """Show a version: sections, parameters, labels and state."""
    with state.open() as cue:
        data = cue.prompts.show(**values)
        found = cue.prompts.get(data.slug, branch=data.branch, version=data.number)
    state.report(data, render=partial(screen.say, write_file(found), end="") if file else partial(_draw, data))


def _draw(shown: VersionEntry) -> None:
    marks = [name for name, holds in (("head", shown.head), ("active", shown.active)) if holds]
    marks += ["rolled back"] if shown.rolled_back else []
    marks += [*(f"label {name}" for name in shown.labels)]
    where = f"{shown.slug}@{shown.branch}:{shown.number}"
    screen.heading(" · ".join((where, shown.semver, *marks)))
    about = {
        "purpose": shown.description,
        "author": shown.author,
        "written": str(shown.created_at)[:19].replace("T", " "),
        "type": shown.type,
        "engine": shown.engine if shown.engine != "dollar" else "",
        "inherits": shown.inherits or "",
        "lineage": " → ".join(shown.lineage) if len(shown.lineage) > 1 else "",
        "tags": ", ".join(shown.tags),
        "digest": shown.digest,
    }
    for name, value in about.items():
        if value:
            screen.say(f"{name:<9} {screen.line_of(value)}")
    for each in shown.params:
        screen.say(f"{'param':<9} {_param(each)}")
    if shown.metadata:
        screen.say(f"{'metadata':<9} {screen.json_text(shown.metadata, compact=True)}")
    for name, text in shown.sections.items():
        screen.heading(f"\n[{name}]".strip())
        screen.say(text)
    for name, text in shown.override_sections.items():
        screen.heading(f"[{name}] (overrides)")
        screen.say(text)


def _param(param: Param) -> str:
    default = "" if param.default is None else f" = {param.default!r}"
    note = f", {param.description}" if param.description else ""
    return screen.line_of(f"{param.name}{'' if param.required else '?'}: {param.type}{default}{note}")


@command(
    app,
    "cuebook prompt diff persona/kind",
    "cuebook prompt diff persona/kind 1 3",
    "cuebook prompt diff persona/kind main trial",
    "cuebook prompt diff persona/kind persona/helper@trial",
    name="diff",
)
async def diff(
    state: State,
    prompt: Prompt,
    a: Annotated[str | None, typer.Argument(metavar="A", help="Old version. Default: the one before B.")] = None,
    b: Annotated[
        str | None, typer.Argument(metavar="B", help="New version. Default: the one that PROMPT names.")
    ] = None,
    *,
    branch: Branch = None,
    turns: Annotated[
        int,
        typer.Option(
            "--turns", metavar="N", min=0, max=MOST_TURNS, help="Measure the cost in the last N turns; 0 for none."
        ),
    ] = TURNS,
) -> None:
    """Compare two versions, and measure the token cost.

    A and B are version numbers, branches (`trial`, `trial:2`), labels or versions of another prompt (`helper@trial`),
    which alone is compared with PROMPT. Without A and B, an edited file that is not pushed yet is compared with the
    stored version. The cost is the token difference, inherited sections included, and what the change would have left
    out of the last turns that used the prompt. Nothing is stored.
    """
    async with state.open_async(autopush=bool(a)) as cue:
        data = await _difference(cue, prompt, a, b, branch=branch, turns=turns)
    state.report(data, render=partial(_draw_diff, data))


async def _difference(
    cue: Cuebook, prompt: str, a: str | None, b: str | None, *, branch: str | None, turns: int
) -> VersionDiff:
    version = await cue.prompts.get(prompt, branch=branch)
    edited = await cue.prompts.edited(prompt, version) if a is None else None
    if edited:
        path, draft = edited
        return replace(await compare_versions(cue.services, version, draft, turns=turns), file=path)
    if a is not None and b is None and ("@" in a or "/" in a):
        other = await find_beside(cue.prompts, version, a)
        return await compare_versions(cue.services, version, other, turns=turns)
    after = await find_beside(cue.prompts, version, b) if b else version
    if a is None and after.number == 1:
        msg = f"{after.slug}@{after.branch}:1 is the first version of its branch. Name a version to compare it with."
        raise InvalidInput(msg, where="a")
    before = await find_beside(cue.prompts, version, a or f"{after.branch}:{after.number - 1}")
    return await compare_versions(cue.services, before, after, turns=turns)


def _draw_diff(data: VersionDiff) -> None:
    second = data.file or f"{data.branch}:{data.b}"
    other = f"{data.slug}@" if data.slug_a else ""
    screen.heading(f"{data.slug_a or data.slug} {data.branch_a or data.branch}:{data.a} → {other}{second}")
    draw_difference(data)
    tokens = data.tokens
    asked = "" if data.bump == "none" else f"; a {data.bump} change"
    screen.say(f"{tokens.change:+,} tokens ({tokens.before:,} → {tokens.after:,}){asked}")
    if impact := data.impact:
        screen.say(f"impact: {screen.line_of(impact.summary)}")
        if impact.reproduced < impact.turns:
            exact = f"{impact.reproduced} of {impact.turns} prompts were reproduced byte for byte"
            screen.say(f"{exact}, the others approximately")


def draw_difference(shown: VersionDiff) -> None:
    """Print sections as a unified diff, and the other fields line by line."""
    if not (shown.sections or shown.params or shown.fields):
        screen.say("no differences")
    for section in shown.sections:
        screen.heading(f"[{section.name}] {'(overrides) ' if section.override else ''}{section.kind}")
        screen.diff(section.lines)
    for param in shown.params:
        screen.heading(f"param {param.name} {param.kind}")
        screen.diff(f"{mark}{_param(each)}" for mark, each in (("-", param.before), ("+", param.after)) if each)
    for field in shown.fields:
        screen.heading(f"{field.name} changed")
        screen.diff(f"{mark}{_value(each)}" for mark, each in (("-", field.before), ("+", field.after)))


def _value(value: object) -> str:
    return screen.line_of(value) if isinstance(value, str) else screen.json_text(value, compact=True)
