"""Versions that were taken back, each with why: the means of both, the evidence with its bound, and how it went."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cuebook import Cuebook
from cuebook.app.prompts.learning import Course, Event
from cuebook.app.shapes import iso
from cuebook.server.page.plots import plotted_over_time

#: Rollbacks that are shown with how they came, the newest.
MOST: Final = 5
#: The least power of ten of a stake that a picture holds.
_LEAST: Final = -3.0
#: Whose conversations evidence counts, and when they were.
_ARMS: Final = {"baseline": "before", "window": "since", "control": "beside it", "new": "on trial"}
_BETS: Final = {"began": "by how conversations began", "whole": "by whole conversations"}


async def taken_back(book: Cuebook, slug: str, undone: Sequence[Event]) -> list[dict[str, Any]]:
    """Give the newest rollbacks, each with its figures and pictures. Raises NotFound."""
    return [_shown(each, await book.prompts.course(slug, each) if each.evidence else None) for each in undone[:MOST]]


def _shown(event: Event, course: Course | None) -> dict[str, Any]:
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
    fell = [(event.at, f"{new} taken back")]
    means = {
        name: course.means[number] for name, number in ((old, event.to), (new, event.number)) if course.means[number]
    }
    shown["means"] = plotted_over_time(means, low=0.0, high=1.0, events=fell)
    bound = told.get("thresholds", {}).get("wealth")
    bets = {_BETS[name]: [(at, _power(held)) for at, held in points] for name, points in course.wealth.items()}
    if bets and bound:
        first = min(points[0][0] for points in bets.values())
        bets["taken back at"] = [(first, math.log10(bound)), (event.at, math.log10(bound))]
        tops = [power for points in bets.values() for _, power in points]
        shown["bets"] = plotted_over_time(bets, low=min(tops), high=max(tops), events=fell)
    return shown


def _arms(told: Mapping[str, Any], new: str, old: str) -> list[dict[str, Any]]:
    """Give how many conversations each version had and their mean score; `which` is when, or in which part."""
    means, counts = told.get("means", {}), told.get("n", {})
    versions = {"baseline": old, "control": old, "window": new, "new": new}
    return [
        {"name": versions[arm], "which": which, "n": counts.get(arm), "mean": means[arm]}
        for arm, which in _ARMS.items()
        if arm in means
    ]


def _checks(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Give what was held against what: a number, the bound it passed, and what that means."""
    found, bounds = told.get("statistics", {}), told.get("thresholds", {})
    chance = f"{bounds['alpha']:.1%}" if "alpha" in bounds else "so small a share"
    means = {
        "drop": "fall of the mean score, and the least that is too much",
        "sd": "standard deviation of the conversations before",
        "effect": "what the new version changes of a conversation's score",
        "wealth": f"a stake of 1 bet on its being worse; where it is not, {chance} at most ever get that far",
        "detector": "the same since its promotion, for a late break",
        "margin": "how far the fall lies beyond its confidence sequence",
        "ratio_p": "chance of such a split by the lots drawn; below the bound nothing is decided",
    }
    return [
        {"name": name, "value": _said(value), "bound": _said(bounds.get(name)), "means": means.get(name, "")}
        for name, value in found.items()
    ]


def _said(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def _power(held: float) -> float:
    return max(_LEAST, math.log10(held)) if held > 0 else _LEAST
