"""Render the prompt pages: list, version graph, variant scores, rollbacks, similar prompts and diffs."""

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated, Any, Final

from litestar import Response, get
from litestar.params import FromPath, FromQuery, QueryParameter

from cuebook import Cuebook
from cuebook.app.prompts import Course
from cuebook.app.prompts.answers import VersionSummary
from cuebook.app.prompts.impact import MOST_TURNS
from cuebook.app.prompts.reading import compare_versions, find_beside
from cuebook.errors import CuebookError
from cuebook.records.answer import to_wire
from cuebook.records.prompt import PromptEvent, Version
from cuebook.server.caller import AnyRequest, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.page.plots import plot_over_time
from cuebook.server.page.render import show

# ---- rollbacks ------------------------------------------------------------------------------------------------------


#: Maximum number of rollbacks shown with their evidence, newest first.
MAX_ROLLBACKS: Final = 5
#: The smallest log10 of the evidence that a plot shows.
_MIN_LOG: Final = -3.0
_STAKES: Final = {"began": "first turns of conversations", "whole": "full conversations"}


async def describe_rollbacks(cue: Cuebook, slug: str, events: Sequence[PromptEvent]) -> list[dict[str, Any]]:
    """Return the newest rollbacks, each with its statistics and plots. Raises NotFound."""
    return [
        _rollback(each, await cue.prompts.course(slug, each) if each.evidence else None)
        for each in events[:MAX_ROLLBACKS]
    ]


def _rollback(event: PromptEvent, course: Course | None) -> dict[str, Any]:
    evidence, new, old = event.evidence, f"{event.branch}:{event.number}", f"{event.branch}:{event.to}"
    rollback = {"event": event, "version": new, "to": old, "score_plot": None, "evidence_plot": None}
    if course is None:
        return rollback
    markers = [(event.at, f"{new} rolled back")]
    numbers = {old: event.to or 0, new: event.number}
    means = {name: course.means[number] for name, number in numbers.items() if course.means[number]}
    rollback["score_plot"] = plot_over_time(means, low=0.0, high=1.0, events=markers)
    bound = evidence.get("thresholds", {}).get("wealth")
    evidence_lines = {
        _STAKES[name]: [(at, _log(stake)) for at, stake in points] for name, points in course.wealth.items()
    }
    if evidence_lines and bound:
        first = min(points[0][0] for points in evidence_lines.values())
        evidence_lines["rollback threshold"] = [(first, math.log10(bound)), (event.at, math.log10(bound))]
        tops = [value for points in evidence_lines.values() for _, value in points]
        rollback["evidence_plot"] = plot_over_time(evidence_lines, low=min(tops), high=max(tops), events=markers)
    return rollback


def _log(stake: float) -> float:
    return max(_MIN_LOG, math.log10(stake)) if stake > 0 else _MIN_LOG


# ---- the version graph ----------------------------------------------------------------------------------------------


#: Units between two versions, between two branches, and at the margin.
STEP, ROW, EDGE = 60, 64, 44
#: Maximum number of versions drawn, newest first.
MAX_VERSIONS: Final = 200


def graph_of(versions: Sequence[VersionSummary], branches: Sequence[str]) -> dict[str, Any]:
    """Return the newest versions with their coordinates, and the lines between them."""
    newest = sorted(versions, key=lambda each: (each.created_at, each.number))[-MAX_VERSIONS:]
    rows = {name: number for number, name in enumerate(branches)}
    dots: dict[tuple[str, int], dict[str, Any]] = {}
    for column, each in enumerate(newest):
        dots[each.branch, each.number] = {
            "version": each, "x": EDGE + column * STEP, "y": EDGE + rows[each.branch] * ROW,
        }  # fmt: skip
    lines = []
    for dot in dots.values():
        version: VersionSummary = dot["version"]
        before = dots.get((version.branch, version.supersedes or 0))
        if before is None and version.branched_from:
            branch, _, number = version.branched_from.rpartition(":")
            before = dots.get((branch, int(number)))
        if before:
            lines.append({"x1": before["x"], "y1": before["y"], "x2": dot["x"], "y2": dot["y"]})
    return {
        "dots": list(dots.values()),
        "lines": lines,
        "rows": [{"name": name, "y": EDGE + row * ROW - 20} for name, row in rows.items()],
        "width": 2 * EDGE + max(len(dots), 4) * STEP,
        "height": 2 * EDGE + (len(rows) - 1) * ROW,
    }


ALL = "/page/prompts"
ONE = ALL + "/{prompt:str}"
#: Maximum number of prompts and of events on a page.
LISTED = 50
EVENTS = 100
#: Default number of turns to measure a change on. Each turn assembles two or three prompts.
TURNS = 20

Turns = Annotated[int, QueryParameter(name="turns", ge=0, le=MOST_TURNS, description="Number of turns to measure on")]


@get(ALL)
async def prompts(
    request: AnyRequest, prefix: FromQuery[str] = "", cursor: FromQuery[str | None] = None
) -> Response[bytes]:
    """Render the list of prompts with their branches and labels."""
    cue = cue_of(request)
    page = await cue.prompts.list(prefix=prefix, limit=LISTED, cursor=cursor)
    sync = None if prefix or cursor else await cue.prompt_sync.summary()
    return show("prompts.html", items=page.items, next=page.next, prefix=prefix, sync=sync)


@get("/page/prompt-clusters")
async def clusters(request: AnyRequest, prefix: FromQuery[str] = "") -> Response[bytes]:
    """Render groups of similar prompts and near duplicates."""
    groups = await cue_of(request).prompts.clusters(prefix=prefix)
    return show("prompt_clusters.html", clusters=groups, prefix=prefix)


@get(ONE)
async def prompt(request: AnyRequest, prompt: FromPath[str], at: FromQuery[str | None] = None) -> Response[bytes]:
    """Render a prompt: the version graph, one version's text, variant scores, rollbacks and history."""
    cue = cue_of(request)
    family, version = await _version(cue, name_in(prompt), at)
    data = await cue.prompts.show(family.slug, branch=version.branch, version=version.number, project="")
    versions = await cue.prompts.versions(family.slug)
    events = await cue.prompts.history(family.slug, limit=EVENTS)
    weights = await cue.prompts.weights(family.slug)
    rollbacks = [each for each in events if each.kind == "rollback"]
    plot = plot_over_time(
        {f"{each.branch}:{each.number}": [(when, weight) for when, _, weight in each.points] for each in weights},
        low=0.0, high=1.0, events=[(each.at, f"{each.branch}:{each.number} rolled back") for each in rollbacks],
    )  # fmt: skip
    return show(
        "prompt.html",
        slug=family.slug,
        version=data,
        lineage=await _lineage(cue, family.slug, version.branch, version.number),
        versions=versions.items[::-1],
        names=[f"{each.branch}:{each.number}" for each in versions],
        graph=graph_of(versions.items, [each.name for each in family.branches]),
        labels=family.labels,
        plot=plot,
        scores=weights,
        events=events,
        rollbacks=await describe_rollbacks(cue, family.slug, rollbacks),
        statuses=await cue.prompts.branches(family.slug),
        turns=TURNS,
    )


@get(ONE + "/quality")
async def quality(request: AnyRequest, prompt: FromPath[str], at: FromQuery[str | None] = None) -> Response[bytes]:
    """Render a version's quality score by part, and the prompt's lint findings."""
    cue = cue_of(request)
    family, version = await _version(cue, name_in(prompt), at)
    rating = await cue.prompts.rating(family.slug, branch=version.branch, version=version.number)
    items = await cue.prompts.lint(family.slug)
    return show("prompt_quality.html", slug=family.slug, rating=rating, findings=items.items)


@get(ONE + "/diff")
async def diff(
    request: AnyRequest,
    *,
    prompt: FromPath[str],
    a: FromQuery[str],
    b: FromQuery[str],
    turns: Turns = TURNS,
    sides: FromQuery[bool] = False,
) -> Response[bytes]:
    """Render the changes from version `a` to `b`: sections, tokens and the impact on recorded turns."""
    cue = cue_of(request)
    family, before = await _version(cue, name_in(prompt), a)
    _, after = await _version(cue, name_in(prompt), b)
    async with request.app.state.measures.hold("a prompt measurement"):
        data = to_wire(await compare_versions(cue.services, before, after, turns=turns, user=user_of(request)))
    versions = await cue.prompts.versions(family.slug)
    return show(
        "prompt_diff.html",
        slug=family.slug,
        a=f"{before.branch}:{before.number}",
        b=f"{after.branch}:{after.number}",
        names=[f"{each.branch}:{each.number}" for each in versions],
        diff=data,
        impact=data.get("impact"),
        turns=turns,
        sides=sides,
        paired=[paired(each["lines"]) for each in data["sections"]] if sides else [],
    )


def paired(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return a diff as pairs of lines, the old text beside the new."""
    results: list[tuple[str, str]] = []
    gone: list[str] = []
    new: list[str] = []
    for line in lines:
        if line.startswith("+"):
            new.append(line)
            continue
        if new or not line.startswith("-"):
            results += zip_longest(gone, new, fillvalue="")
            gone, new = [], []
        if line.startswith("-"):
            gone.append(line)
        else:
            results.append((line, line))
    return [*results, *zip_longest(gone, new, fillvalue="")]


async def _version(cue: Cuebook, prompt: str, at: str | None) -> tuple[Any, Version]:
    """Return a prompt and a version of it; None: the active one. Raises NotFound."""
    family = await cue.prompts.family(prompt)
    active = family.version() or family.active[0]
    return family, await find_beside(cue.prompts, active, at) if at else active


async def _lineage(cue: Cuebook, slug: str, branch: str, version: int) -> list[dict[str, str]]:
    """Return a version and its ancestors, nearest first; empty if inheritance cannot be resolved."""
    try:
        resolved = await cue.prompts.resolve(slug, branch=branch, version=version)
    except CuebookError:
        return []
    names = [each.removeprefix("prompt:") for each in reversed(resolved.lineage)]
    return [{"name": each, "slug": each.partition("@")[0], "at": each.partition("@")[2]} for each in names]


ROUTES = [prompts, clusters, prompt, quality, diff]
