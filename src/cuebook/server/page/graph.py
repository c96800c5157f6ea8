"""A prompt's versions as a picture: a row for each branch, in the order they were written, each with its origin."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

#: Units between two versions, and between two branches.
STEP, ROW, EDGE = 60, 64, 44
#: Versions that are drawn, the newest.
MOST: Final = 200


def graph_of(versions: Sequence[Mapping[str, Any]], branches: Sequence[str]) -> dict[str, Any]:
    """Give the newest versions (in the wire's shape) with their places, and the lines between them."""
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
