"""A plot: lines of points over time, in the units of its picture; beside each its numbers stand in a table."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cuebook.app.json_shapes import iso

#: Units the picture is wide and high, and free at its edges for what is written there.
WIDTH, HEIGHT, EDGE, TOP = 1000, 240, 84, 12
#: Points of a line that are drawn; of more every nth is, and the last.
MOST: Final = 300
#: Points of a line up to which each is a dot as well.
DOTTED: Final = 100
#: What the top of a picture from 0 on is a power of ten of.
ROUND: Final = (1, 2, 3, 4, 5, 6, 8, 10)
#: Lines that look different from each other.
STYLES: Final = 6

Point = tuple[float, float]


def plotted(
    lines: Mapping[str, Sequence[Point]], *, low: float, high: float, events: Sequence[tuple[float, str]] = ()
) -> dict[str, Any] | None:
    """Return lines of (x, y) as a picture's polylines and dots; `events` are said at their x. None without a point.

    `low` and `high` are the least and the most y that the picture holds; from 0 on it reaches up to a round number.
    """
    if low == 0 and high > 1:
        power = 10 ** math.floor(math.log10(high))
        high = next(power * each for each in ROUND if power * each >= high)
    xs = [x for points in lines.values() for x, _ in points]
    if not xs:
        return None
    xs += [x for x, _ in events]
    first, last = min(xs), max(xs)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - first) / (last - first) if last > first else 0.5
        up = (min(max(y, low), high) - low) / (high - low) if high > low else 0.5
        return round(EDGE + across * (WIDTH - EDGE - TOP), 1), round(HEIGHT - 2 * TOP - up * (HEIGHT - 3 * TOP), 1)

    drawn = []
    for number, (name, points) in enumerate(lines.items()):
        step = max(1, -(-len(points) // MOST))
        shown = [*points[:-1:step], *points[-1:]]
        at = [(*place(x, y), y) for x, y in shown]
        drawn.append(
            {
                "name": name,
                "style": number % STYLES,
                "path": " ".join(f"{x},{y}" for x, y, _ in at),
                "dots": at if len(at) <= DOTTED else [],
            }
        )
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": EDGE,
        "right": WIDTH - TOP,
        "lines": drawn,
        "ticks": [{"y": place(first, y)[1], "value": y} for y in (low, (low + high) / 2, high)],
        "events": [{"x": place(x, low)[0], "what": what} for x, what in events],
        "first": first,
        "last": last,
    }


def plotted_over_time(
    lines: Mapping[str, Sequence[Point]], *, low: float, high: float, events: Sequence[tuple[float, str]] = ()
) -> dict[str, Any] | None:
    """Return the same of points whose x are Unix seconds."""
    made = plotted(lines, low=low, high=high, events=events)
    return made and made | {"first": iso(made["first"]), "last": iso(made["last"])}
