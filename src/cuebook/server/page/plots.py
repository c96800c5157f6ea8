"""Compute line plots for SVG: scale points to the picture's units, add ticks and event markers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cuebook.records.answer import Time

#: Width and height of the picture in units, and the margins for labels.
WIDTH, HEIGHT, LEFT, TOP = 1000, 240, 84, 12
#: Maximum number of points drawn per line. Of a longer line, every nth point and the last are drawn.
MAX_POINTS: Final = 300
#: Maximum number of points of a line that has a dot for each.
MAX_DOTS: Final = 100
#: Multiples of a power of ten that the top of a picture from 0 may have.
ROUND_TOPS: Final = (1, 2, 3, 4, 5, 6, 8, 10)
#: Number of distinct line styles.
STYLES: Final = 6

Point = tuple[float, float]


def plot_lines(
    lines: Mapping[str, Sequence[Point]], *, low: float, high: float, events: Sequence[tuple[float, str]] = ()
) -> dict[str, Any] | None:
    """Return lines of (x, y) as polylines and dots, with `events` marked at their x. None without a point.

    `low` and `high` bound the y axis; if `low` is 0, the top is rounded up.
    """
    if low == 0 and high > 1:
        power = 10 ** math.floor(math.log10(high))
        high = next(power * each for each in ROUND_TOPS if power * each >= high)
    xs = [x for points in lines.values() for x, _ in points]
    if not xs:
        return None
    xs += [x for x, _ in events]
    first, last = min(xs), max(xs)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - first) / (last - first) if last > first else 0.5
        up = (min(max(y, low), high) - low) / (high - low) if high > low else 0.5
        return round(LEFT + across * (WIDTH - LEFT - TOP), 1), round(HEIGHT - 2 * TOP - up * (HEIGHT - 3 * TOP), 1)

    drawn_lines = []
    for number, (name, points) in enumerate(lines.items()):
        step = max(1, -(-len(points) // MAX_POINTS))
        entries = [*points[:-1:step], *points[-1:]]
        at = [(*place(x, y), y) for x, y in entries]
        drawn_lines.append(
            {
                "name": name,
                "style": number % STYLES,
                "path": " ".join(f"{x},{y}" for x, y, _ in at),
                "dots": at if len(at) <= MAX_DOTS else [],
            }
        )
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "left": LEFT,
        "right": WIDTH - TOP,
        "lines": drawn_lines,
        "ticks": [{"y": place(first, y)[1], "value": y} for y in (low, (low + high) / 2, high)],
        "events": [{"x": place(x, low)[0], "what": what} for x, what in events],
        "first": first,
        "last": last,
    }


def plot_over_time(
    lines: Mapping[str, Sequence[Point]], *, low: float, high: float, events: Sequence[tuple[float, str]] = ()
) -> dict[str, Any] | None:
    """Return the same plot for points with Unix seconds as x."""
    plot = plot_lines(lines, low=low, high=high, events=events)
    return plot and plot | {name: str(Time(plot[name])) for name in ("first", "last")}
