"""A prompt as a picture: the places of its blocks on a bar, of its cache anchors, and how far a cache reaches."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

#: Units a bar is wide.
WIDTH: Final = 1000


def drawn(window: Mapping[str, Any]) -> dict[str, Any]:
    """Give a window in INTERFACE's shape with `spans`, `kinds`, `marks` and `cached`, in units of WIDTH."""
    blocks: Sequence[Mapping[str, Any]] = window["blocks"]
    pieces = [(each["kind"], each["source"], each["tokens"]) for each in blocks]
    if window["toolsTokens"]:
        pieces.append(("tools", "tools and answer format of the request", window["toolsTokens"]))
    total = sum(tokens for *_, tokens in pieces) or 1
    starts = [0, *accumulate(tokens for *_, tokens in pieces)]
    spans = [
        {"kind": kind, "source": source, "tokens": tokens, "x": _at(start, total), "width": _at(tokens, total)}
        for (kind, source, tokens), start in zip(pieces, starts, strict=False)
    ]
    kinds: dict[str, int] = {}
    for kind, _, tokens in pieces:
        kinds[kind] = kinds.get(kind, 0) + tokens
    cache = window.get("cache") or {}
    return {
        **window,
        "blocks": [{**each, "form": _form(each)} for each in blocks],
        "dropped": [{**each, "which": _which(each)} for each in window["dropped"]],
        "spans": spans,
        "kinds": [{"kind": kind, "tokens": tokens} for kind, tokens in kinds.items()],
        "marks": _marks(window, total),
        "cached": _at(cache.get("readTokens") or 0, total),
    }


def _form(block: Mapping[str, Any]) -> str:
    return "cut" if block.get("cut") else "short form" if block.get("compressed") else ""


def _which(dropped: Mapping[str, Any]) -> str:
    if dropped.get("source"):
        return str(dropped["source"])
    first, last = dropped.get("from"), dropped.get("to")
    return f"post {first}" if first == last else f"posts {first}–{last}"


def _marks(window: Mapping[str, Any], total: int) -> list[dict[str, Any]]:
    """Give the anchors' places: each stands behind a message, the blocks of the first messages before it."""
    ends: list[int] = []
    taken = 0
    for each in window["blocks"]:
        taken += each["tokens"]
        joins = bool(ends) and each["role"] in ("system", "developer") and not each.get("seq")
        if joins or each["kind"] in ("mind", "memory", "experience"):
            ends[-1] = taken
        else:
            ends.append(taken)
    return [
        {"name": anchor["name"], "x": _at(ends[min(anchor["after"], len(ends) - 1)], total)}
        for anchor in window["anchors"]
        if ends
    ]


def _at(tokens: int, total: int) -> float:
    return round(min(tokens, total) * WIDTH / total, 2)
