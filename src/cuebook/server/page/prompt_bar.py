"""Compute the prompt bar: positions of its blocks, its cache anchors and the cached prefix."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

from cuebook.app.turns.explanation import source_in_words

#: Minimum width of a block in percent, so that each is visible. All minimums together take at most half of the bar.
MIN_WIDTH: Final = 0.35
_HALF: Final = 50.0
#: Number of blocks above which there are no gaps between them.
DENSE: Final = 120
#: Minimum distance in percent of two anchor names in one row.
_APART: Final = 22.0
#: Maximum length of a block's preview in characters.
PREVIEW: Final = 240
#: The prefix of a recalled post.
_RECALL_PREFIX: Final = re.compile(r"^- \[[^\]]*\] [^:\n]{1,60}: ")
#: The fields of a block without a name.
_UNNAMED: Final = {"name": "", "href": "", "title": "", "mark": ""}
TOOLS: Final = "tools and response format of the request"


def lay_out(window: Mapping[str, Any]) -> dict[str, Any]:
    """Return a window (JSON shape) with positions of its parts in percent of the bar.

    Adds `spans`, `kinds`, `anchor_marks`, `cached` and `left_out`.
    """
    blocks: Sequence[Mapping[str, Any]] = window["blocks"]
    pieces = [(each["kind"], each["source"], each["tokens"]) for each in blocks]
    if window["toolsTokens"]:
        pieces.append(("tools", TOOLS, window["toolsTokens"]))
    total = sum(tokens for *_, tokens in pieces)
    ends = list(accumulate((tokens for *_, tokens in pieces), initial=0))
    edges = list(accumulate(_widths([tokens for *_, tokens in pieces]), initial=0.0))
    at = _scale(ends, edges)
    cache = window.get("cache") or {}
    read = min(cache.get("readTokens") or 0, total)
    return {
        **window,
        "blocks": [{**_UNNAMED, **each, "form": _form(each), "preview": _preview(each)} for each in blocks],
        "dropped": [{**each, "which": source_in_words(each)} for each in window["dropped"]],
        "spans": [
            {"kind": kind, "source": source, "tokens": tokens, "x": round(start, 3), "width": round(end - start, 3)}
            for (kind, source, tokens), (start, end) in zip(pieces, pairwise(edges), strict=True)
        ],
        "dense": len(pieces) > DENSE,
        "kinds": kinds_shown(_kinds(pieces)),
        "anchor_marks": _anchor_marks(window, at),
        "cached": round(at(read), 3),
        "read": read,
        "read_share": read / total if total else 0.0,
        "left_out": _left_out(window["dropped"], total),
    }


def kinds_shown(kinds: Mapping[str, int], *, of: int = 0) -> list[dict[str, Any]]:
    """Return tokens by kind as a bar, each kind with its share, position and width in percent.

    `of` is the number of tokens of the whole bar. Default: their sum.
    """
    total = sum(kinds.values()) or 1
    scale = total / of if of else 1.0
    edges = [scale * edge for edge in accumulate(_widths(list(kinds.values())), initial=0.0)]
    return [
        {"kind": kind, "tokens": tokens, "share": tokens / total, "x": round(start, 3), "width": round(end - start, 3)}
        for (kind, tokens), (start, end) in zip(kinds.items(), pairwise(edges), strict=True)
    ]


def _kinds(pieces: Sequence[tuple[str, str, int]]) -> dict[str, int]:
    kinds: dict[str, int] = {}
    for kind, _, tokens in pieces:
        kinds[kind] = kinds.get(kind, 0) + tokens
    return kinds


def _widths(sizes: Sequence[int]) -> list[float]:
    """Return sizes in percent of their sum, with a visible minimum."""
    total, least = sum(sizes), min(MIN_WIDTH, _HALF / max(1, len(sizes)))
    if not total:
        return [100.0 / len(sizes)] * len(sizes)
    rest = 100.0 - least * len(sizes)
    return [least + rest * size / total for size in sizes]


def _scale(ends: Sequence[int], edges: Sequence[float]) -> Callable[[int], float]:
    """Return a function that maps a number of tokens to a position on the bar."""

    def at(tokens: int) -> float:
        for (start, end), (left, right) in zip(pairwise(ends), pairwise(edges), strict=True):
            if tokens <= end:
                return left + (right - left) * (tokens - start) / (end - start) if end > start else right
        return 100.0

    return at


def _left_out(dropped: Sequence[Mapping[str, Any]], total: int) -> dict[str, Any] | None:
    """Return a bar of the left-out content on the prompt's scale.

    If the content is longer than the prompt, `prompt` is the position of the prompt's end.
    """
    tokens = sum(each["tokens"] or 0 for each in dropped)
    if not tokens:
        return None
    scale = max(tokens, total)
    starts = accumulate((each["tokens"] or 0 for each in dropped), initial=0)
    spans = [
        {
            **each,
            "which": source_in_words(each),
            "x": round(100 * start / scale, 3),
            "width": round(max(MIN_WIDTH, 100 * (each["tokens"] or 0) / scale), 3),
        }
        for each, start in zip(dropped, starts, strict=False)
    ]
    return {
        "tokens": tokens,
        "count": sum(each["count"] for each in dropped),
        "spans": spans,
        "prompt": round(100 * total / scale, 3) if tokens > total else None,
    }


def _form(block: Mapping[str, Any]) -> str:
    return "cut" if block.get("cut") else "short form" if block.get("compressed") else ""


def _preview(block: Mapping[str, Any]) -> str:
    """Return a block's preview. For a recalled post, omit the date and sender, which its name contains."""
    text = block["text"][: 2 * PREVIEW]
    return " ".join((_RECALL_PREFIX.sub("", text) if block["kind"] == "memory" else text).split())[:PREVIEW]


def _anchor_marks(window: Mapping[str, Any], at: Callable[[int], float]) -> list[dict[str, Any]]:
    """Return the anchors' positions, each at the end of a message."""
    ends: list[int] = []
    tokens = 0
    for each in window["blocks"]:
        tokens += each["tokens"]
        joins = bool(ends) and each["role"] in ("system", "developer") and not each.get("seq")
        if joins or (ends and each["kind"] in ("mind", "memory", "experience")):
            ends[-1] = tokens
        else:
            ends.append(tokens)
    items: list[dict[str, Any]] = []
    rows: list[float] = []  # position of the last name in each row
    for anchor in window["anchors"] if ends else ():
        x = round(at(ends[min(anchor["after"], len(ends) - 1)]), 3)
        row = next((n for n, last in enumerate(rows) if x - last >= _APART), len(rows))
        rows[row:] = [x, *rows[row + 1 :]]
        side = "start" if x < 2 * _APART else "end" if x > 100 - _APART else "middle"
        items.append({"name": anchor["name"], "x": x, "row": row, "side": side})
    return items


def mark_differences(window: Mapping[str, Any], other: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a window to draw. Mark blocks that are missing or different in the other window."""
    result = lay_out(window)
    texts = {(each["kind"], each["source"]): each["text"] for each in (other["blocks"] if other else ())}
    for each in result["blocks"]:
        text = texts.get((each["kind"], each["source"]))
        each["mark"] = "only here" if text is None else "" if text == each["text"] else "different text"
    return result
