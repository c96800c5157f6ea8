"""The view of two turns side by side: what each prompt held, and what is in one alone or other in both."""

from collections.abc import Mapping
from typing import Any

from litestar import Response

from cuebook import Cuebook
from cuebook.server.page.drawn import drawn
from cuebook.server.page.named import name_blocks
from cuebook.server.page.render import show

Blocks = Mapping[tuple[str, str], str]


async def beside(book: Cuebook, conversation: str, turns: tuple[int, int], *, user: str | None) -> Response[bytes]:
    """Show two turns of a conversation with their prompts' blocks, those marked that are not in both as they are.

    Raises NotFound.
    """
    shown = [await book.turns.show(conversation, n, user=user) for n in turns]
    owner = (await book.conversations.get(conversation, user=user)).user
    for each in shown:
        if each["window"]:
            each["window"] = await name_blocks(book, conversation, each, user=user, owner=owner)
    held = [_blocks(each["window"]) for each in shown]
    sides = [_side(each, other) for each, other in zip(shown, reversed(held), strict=True)]
    return show("turns.html", view="Conversations", conversation=conversation, sides=sides)


def _side(turn: Mapping[str, Any], other: Blocks) -> dict[str, Any]:
    window, told = turn["window"], turn["metadata"]
    return {
        "turn": turn,
        "cache": (window or {}).get("cache") or {},
        "heard": told.get("sentiment") or {},
        "mind": told.get("mind") or {},
        "window": _marked(window, other),
    }


def _blocks(window: Mapping[str, Any] | None) -> Blocks:
    return {(each["kind"], each["source"]): each["text"] for each in (window["blocks"] if window else ())}


def _marked(window: Mapping[str, Any] | None, other: Blocks) -> dict[str, Any] | None:
    """Give a window to draw, each block marked that the other window has not, or has with another text."""
    if window is None:
        return None
    made = drawn(window)
    for each in made["blocks"]:
        there = other.get((each["kind"], each["source"]))
        each["mark"] = "only here" if there is None else "" if there == each["text"] else "other text"
    return made
