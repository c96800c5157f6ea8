"""Draws what the compressor keeps: the share of key facts over the share of the text, as an SVG for light and dark."""

from collections.abc import Iterator, Sequence
from html import escape

from bench.judge import Compressed, Kept

#: The picture, and where its axes begin and end in it, in pixels.
WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 690, 60, 350
#: The share of the text at the right end of its axis.
MOST = 0.8

_STYLE = """
    svg { font: 13px system-ui, sans-serif; background: #ffffff; color-scheme: light dark }
    text { fill: #1f2328 } .faint { fill: #59636e } .grid { stroke: #d1d9e0 } .axis { stroke: #59636e }
    .ours { fill: #0969da; stroke: #0969da } .theirs { fill: #bc4c00; stroke: #bc4c00 }
    .line { fill: none; stroke-width: 1.5 } .said { stroke: none }
    @media (prefers-color-scheme: dark) {
      svg { background: #0d1117 } text { fill: #f0f6fc } .faint { fill: #9198a1 } .grid { stroke: #3d444d }
      .axis { stroke: #9198a1 } .ours { fill: #58a6ff; stroke: #58a6ff } .theirs { fill: #f0883e; stroke: #f0883e }
    }"""


def picture(found: Sequence[Compressed]) -> str:
    """Give the picture of what texts of several kinds come to."""
    title = "Key facts kept, by how short the text gets"
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(_told(found))}">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}\n</style>",
        f'<text x="{LEFT}" y="26" font-size="16" font-weight="600">{title}</text>',
        *_axes(),
        *_row(found, "ours"),
        *_row(found, "theirs"),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _told(found: Sequence[Compressed]) -> str:
    """Say the same in words."""
    rows = (
        f"{each.lines} lines with {each.facts} facts: {each.ours.recall:.0%} in {each.ours.ratio:.0%} of the text, "
        f"at most five facts {each.theirs.recall:.0%} in {each.theirs.ratio:.0%}"
        for each in found
    )
    return "Share of key facts kept. " + "; ".join(rows) + "."


def _x(ratio: float) -> float:
    return LEFT + (RIGHT - LEFT) * ratio / MOST


def _y(recall: float) -> float:
    return BOTTOM - (BOTTOM - TOP) * recall


def _axes() -> Iterator[str]:
    for share in range(0, 101, 20):
        y = _y(share / 100)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}"/>'
        yield f'<text class="faint" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share} %</text>'
    for share in range(0, int(MOST * 100) + 1, 20):
        x = _x(share / 100)
        yield f'<text class="faint" x="{x:.1f}" y="{BOTTOM + 20}" text-anchor="middle">{share} %</text>'
    yield f'<line class="axis" x1="{LEFT}" y1="{BOTTOM}" x2="{RIGHT}" y2="{BOTTOM}"/>'
    yield f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 44}" text-anchor="middle">characters left of the text</text>'
    middle = (TOP + BOTTOM) / 2
    yield f'<text x="18" y="{middle}" text-anchor="middle" transform="rotate(-90 18 {middle})">key facts kept</text>'


def _row(found: Sequence[Compressed], side: str) -> Iterator[str]:
    """Draw one side's points, from the shortest form on, each with its text's lines and facts."""
    points: list[tuple[Kept, Compressed]] = sorted((getattr(each, side), each) for each in found)
    path = " ".join(f"{_x(kept.ratio):.1f},{_y(kept.recall):.1f}" for kept, _ in points)
    yield f'<polyline class="{side} line" points="{path}"/>'
    for n, (kept, each) in enumerate(points):
        x, y = _x(kept.ratio), _y(kept.recall)
        shape = (
            f'<circle class="{side}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>'
            if side == "ours"
            else f'<rect class="{side}" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>'
        )
        yield shape
        yield _label(f"{each.lines}/{each.facts}", x, y, above=side == "ours" and n % 2 == 0)


def _label(text: str, x: float, y: float, *, above: bool) -> str:
    at = y - 10 if above else y + 20
    return f'<text class="faint" x="{x:.1f}" y="{at:.1f}" text-anchor="middle" font-size="11">{text}</text>'


def _legend() -> Iterator[str]:
    x, y = RIGHT - 250, BOTTOM - 72
    yield f'<circle class="ours" cx="{x}" cy="{y - 4}" r="4.5"/>'
    yield f'<text x="{x + 12}" y="{y}">every fact that fits (Cuebook)</text>'
    yield f'<rect class="theirs" x="{x - 4}" y="{y + 12}" width="8" height="8"/>'
    yield f'<text x="{x + 12}" y="{y + 20}">at most five facts (seed C)</text>'
    yield f'<text class="faint" x="{x + 12}" y="{y + 40}" font-size="11">40/12: lines of the text / facts in it</text>'
