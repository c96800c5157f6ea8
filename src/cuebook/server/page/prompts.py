"""Render the prompt pages: list, version graph, variant scores, rollbacks, similar prompts and diffs."""

import math
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Annotated, Any, Final

from litestar import Response, get
from litestar.params import FromPath, FromQuery, QueryParameter

from cuebook import Cuebook
from cuebook.app.json_shapes import iso
from cuebook.app.prompts import json_shapes as shapes
from cuebook.app.prompts import lookup
from cuebook.app.prompts import views as prompt_views
from cuebook.app.prompts.impact import MOST_TURNS
from cuebook.app.prompts.learning import Course, PromptEvent
from cuebook.errors import CuebookError
from cuebook.server.authorization import AnyRequest, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.page.plots import plotted_over_time
from cuebook.server.page.render import show

# ---- rollbacks ------------------------------------------------------------------------------------------------------


#: Most rollbacks shown with their evidence, newest first.
MOST_ROLLBACKS: Final = 5
#: The smallest log10 of a stake that a plot shows.
_LEAST: Final = -3.0
#: Names of the groups of conversations that the evidence compares.
_ARMS: Final = {"baseline": "before", "window": "since", "control": "control group", "new": "trial group"}
_BETS: Final = {"began": "by first turns of conversations", "whole": "by full conversations"}


async def taken_back(cue: Cuebook, slug: str, undone: Sequence[PromptEvent]) -> list[dict[str, Any]]:
    """Return the newest rollbacks, each with its statistics and plots. Raises NotFound."""
    return [
        _shown(each, await cue.prompts.course(slug, each) if each.evidence else None)
        for each in undone[:MOST_ROLLBACKS]
    ]


def _shown(event: PromptEvent, course: Course | None) -> dict[str, Any]:
    told, new, old = event.evidence, f"{event.branch}:{event.number}", f"{event.branch}:{event.to}"
    shown: dict[str, Any] = {
        "what": new,
        "to": old,
        "at": iso(event.at),
        "by": event.by,
        "reason": event.reason,
        "since": iso(told["since"]) if told.get("since") else "",
        "arms": _arms(told, new, old),
        "checks": _checks(told),
        "means": None,
        "bets": None,
    }
    if course is None:
        return shown
    fell = [(event.at, f"{new} rolled back")]
    means = {
        name: course.means[number] for name, number in ((old, event.to), (new, event.number)) if course.means[number]
    }
    shown["means"] = plotted_over_time(means, low=0.0, high=1.0, events=fell)
    bound = told.get("thresholds", {}).get("wealth")
    bets = {_BETS[name]: [(at, _power(held)) for at, held in points] for name, points in course.wealth.items()}
    if bets and bound:
        first = min(points[0][0] for points in bets.values())
        bets["rollback threshold"] = [(first, math.log10(bound)), (event.at, math.log10(bound))]
        tops = [power for points in bets.values() for _, power in points]
        shown["bets"] = plotted_over_time(bets, low=min(tops), high=max(tops), events=fell)
    return shown


def _arms(told: Mapping[str, Any], new: str, old: str) -> list[dict[str, Any]]:
    """Return the number of conversations and the mean score of each version; `which` names the group."""
    means, counts = told.get("means", {}), told.get("n", {})
    versions = {"baseline": old, "control": old, "window": new, "new": new}
    return [
        {"name": versions[arm], "which": which, "n": counts.get(arm), "mean": means[arm]}
        for arm, which in _ARMS.items()
        if arm in means
    ]


def _checks(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the statistics of a rollback, each with its bound and its meaning."""
    found, bounds = told.get("statistics", {}), told.get("thresholds", {})
    chance = f"{bounds['alpha']:.1%}" if "alpha" in bounds else "a small share"
    means = {
        "drop": "drop of the mean score; the bound is the smallest drop that triggers a rollback",
        "sd": "standard deviation of the scores before",
        "effect": "effect of the new version on a conversation's score",
        "wealth": f"evidence that it is worse (a stake starting at 1); by chance {chance} at most reach the bound",
        "detector": "the same evidence since its promotion, to detect late regressions",
        "margin": "distance of the drop from its confidence sequence",
        "ratio_p": "p-value of the traffic split; below the bound no decision is made",
    }
    return [
        {"name": name, "value": _said(value), "bound": _said(bounds.get(name)), "means": means.get(name, "")}
        for name, value in found.items()
    ]


def _said(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def _power(held: float) -> float:
    return max(_LEAST, math.log10(held)) if held > 0 else _LEAST


# ---- the version graph ----------------------------------------------------------------------------------------------


#: Units between two versions, between two branches, and at the margin.
STEP, ROW, EDGE = 60, 64, 44
#: Most versions drawn, newest first.
MOST: Final = 200


def graph_of(versions: Sequence[Mapping[str, Any]], branches: Sequence[str]) -> dict[str, Any]:
    """Return the newest versions (JSON shape) with their coordinates, and the lines between them."""
    newest = sorted(versions, key=lambda each: (each["createdAt"] or "", each["version"]))[-MOST:]
    rows = {name: number for number, name in enumerate(branches)}
    dots: dict[tuple[str, int], dict[str, Any]] = {}
    for number, each in enumerate(newest):
        at = {"x": EDGE + number * STEP, "y": EDGE + rows[each["branch"]] * ROW}
        dots[each["branch"], each["version"]] = {**each, **at}
    lines = []
    for dot in dots.values():
        before = dots.get((dot["branch"], dot["supersedes"] or 0))
        if before is None and dot["branchedFrom"]:
            branch, _, number = dot["branchedFrom"].rpartition(":")
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
#: Most prompts and events on a page.
LISTED = 50
EVENTS = 100
#: Turns a change is measured on; each assembles two or three prompts.
TURNS = 20
VIEW = "Prompts"

At = Annotated[str | None, QueryParameter(name="at", description="Version: branch, branch:number or a label")]
Turns = Annotated[int, QueryParameter(name="turns", ge=0, le=MOST_TURNS, description="Number of turns to measure on")]

Sides = Annotated[bool, QueryParameter(name="sides", description="Show both texts side by side")]


@get(ALL, include_in_schema=False)
async def prompts(
    request: AnyRequest, prefix: FromQuery[str] = "", cursor: FromQuery[str | None] = None
) -> Response[bytes]:
    """Render the list of prompts with their branches and labels."""
    cue = cue_of(request)
    items, more = await prompt_views.prompts_page(cue.prompts, prefix=prefix, limit=LISTED, cursor=cursor)
    return show("prompts.html", view=VIEW, items=items, next=more, prefix=prefix)


@get("/page/prompt-clusters", include_in_schema=False)
async def clusters(request: AnyRequest, prefix: FromQuery[str] = "") -> Response[bytes]:
    """Render groups of similar prompts and near duplicates."""
    found = await cue_of(request).prompts.clusters(prefix=prefix)
    return show("prompt_clusters.html", view=VIEW, found=found, prefix=prefix)


@get(ONE, include_in_schema=False)
async def prompt(request: AnyRequest, prompt: FromPath[str], at: At = None) -> Response[bytes]:
    """Render a prompt: the version graph, one version's text, variant scores, rollbacks and history."""
    cue = cue_of(request)
    family = await cue.prompts.family(name_in(prompt))
    active = family.version() or family.active[0]
    named = await lookup.find_beside(cue.prompts, active, at) if at else active
    shown = await prompt_views.show(cue.prompts, family.slug, branch=named.branch, version=named.number, project="")
    versions, _ = await prompt_views.versions_page(cue.prompts, family.slug)
    events, _ = await prompt_views.history_page(cue.prompts, family.slug, limit=EVENTS)
    weights = await cue.prompts.weights(family.slug)
    undone = [each for each in await cue.prompts.events(family.slug, limit=EVENTS) if each.kind == "rollback"]
    plot = plotted_over_time(
        {f"{each.branch}:{each.number}": [(when, weight) for when, _, weight in each.points] for each in weights},
        low=0.0, high=1.0, events=[(each.at, f"{each.branch}:{each.number} rolled back") for each in undone],
    )  # fmt: skip
    return show(
        "prompt.html",
        view=VIEW,
        slug=family.slug,
        shown=shown,
        lineage=await _lineage(cue, family.slug, named.branch, named.number),
        versions=list(reversed(versions)),
        names=[f"{each['branch']}:{each['version']}" for each in versions],
        graph=graph_of(versions, [each.name for each in family.branches]),
        branches=[shapes.branch(each, family) for each in family.branches],
        labels=[shapes.label(each) for each in family.labels],
        plot=plot,
        learnt=[_learnt(each.branch, each.number, each.points) for each in weights],
        events=events,
        undone=await taken_back(cue, family.slug, undone),
        turns=TURNS,
    )


@get(ONE + "/quality", include_in_schema=False)
async def quality(request: AnyRequest, prompt: FromPath[str], at: At = None) -> Response[bytes]:
    """Render a version's quality score by part, and the prompt's lint findings."""
    cue = cue_of(request)
    family = await cue.prompts.family(name_in(prompt))
    active = family.version() or family.active[0]
    named = await lookup.find_beside(cue.prompts, active, at) if at else active
    rated = await prompt_views.rating(cue.prompts, family.slug, branch=named.branch, version=named.number)
    found = await prompt_views.findings(cue.prompts, family.slug)
    return show("prompt_quality.html", view=VIEW, slug=family.slug, rated=rated, findings=found)


@get(ONE + "/diff", include_in_schema=False)
async def diff(
    request: AnyRequest,
    *,
    prompt: FromPath[str],
    a: FromQuery[str],
    b: FromQuery[str],
    turns: Turns = TURNS,
    sides: Sides = False,
) -> Response[bytes]:
    """Render the changes from version `a` to `b`: sections, tokens and the impact on recorded turns."""
    cue = cue_of(request)
    family = await cue.prompts.family(name_in(prompt))
    active = family.version() or family.active[0]
    before = await lookup.find_beside(cue.prompts, active, a)
    after = await lookup.find_beside(cue.prompts, active, b)
    async with request.app.state.measures.hold("a prompt measurement"):
        found = await lookup.compare(cue.desk, before, after, turns=turns, user=user_of(request))
    versions, _ = await prompt_views.versions_page(cue.prompts, family.slug)
    return show(
        "prompt_diff.html",
        view=VIEW,
        slug=family.slug,
        a=f"{before.branch}:{before.number}",
        b=f"{after.branch}:{after.number}",
        names=[f"{each['branch']}:{each['version']}" for each in versions],
        diff=found,
        impact=found.get("impact"),
        turns=turns,
        sides=sides,
        paired=[paired(each["lines"]) for each in found["sections"]] if sides else [],
    )


def paired(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return a diff as pairs of lines, the old text beside the new."""
    found: list[tuple[str, str]] = []
    gone: list[str] = []
    new: list[str] = []
    for line in lines:
        if line.startswith("+"):
            new.append(line)
            continue
        if new or not line.startswith("-"):
            found += zip_longest(gone, new, fillvalue="")
            gone, new = [], []
        if line.startswith("-"):
            gone.append(line)
        else:
            found.append((line, line))
    return [*found, *zip_longest(gone, new, fillvalue="")]


async def _lineage(cue: Cuebook, slug: str, branch: str, version: int) -> list[dict[str, str]]:
    """Return a version and its ancestors, nearest first; empty if inheritance cannot be resolved."""
    try:
        resolved = await cue.prompts.resolve(slug, branch=branch, version=version)
    except CuebookError:
        return []
    names = [each.removeprefix("prompt:") for each in reversed(resolved.lineage)]
    return [{"name": each, "slug": each.partition("@")[0], "at": each.partition("@")[2]} for each in names]


def _learnt(branch: str, number: int, points: tuple[tuple[float, float, float], ...]) -> dict[str, Any]:
    return {
        "name": f"{branch}:{number}",
        "observations": len(points),
        "mean": sum(score for _, score, _ in points) / len(points),
        "weight": points[-1][2],
    }


ROUTES = [prompts, clusters, prompt, quality, diff]
