"""Render a turn or two turns side by side, and serve the static files."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, QueryParameter

from cuebook import Cuebook
from cuebook.app.turns.explanation import told_of
from cuebook.records.turn import SHADOW
from cuebook.server.api.conversations import HIGHEST
from cuebook.server.authorization import AnyRequest, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.page.block_sources import name_blocks
from cuebook.server.page.prompt_bar import drawn
from cuebook.server.page.render import asset, show
from cuebook.server.page.what_if import ask, blank_what_if, what_if

# ---- two turns side by side -----------------------------------------------------------------------------------------


Blocks = Mapping[tuple[str, str], str]


async def beside(cue: Cuebook, conversation: str, turns: tuple[int, int], *, user: str | None) -> Response[bytes]:
    """Render two turns side by side; blocks of their prompts that differ are marked.

    Raises NotFound.
    """
    shown = [await cue.turns.show(conversation, n, user=user) for n in turns]
    owner = (await cue.conversations.get(conversation, user=user)).user
    for each in shown:
        if each["window"]:
            each["window"] = await name_blocks(cue, conversation, each, user=user, owner=owner)
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
    """Return a window to draw; blocks that are missing or different in the other window are marked."""
    if window is None:
        return None
    made = drawn(window)
    for each in made["blocks"]:
        there = other.get((each["kind"], each["source"]))
        each["mark"] = "only here" if there is None else "" if there == each["text"] else "different text"
    return made


ONE = "/page/conversations/{conversation:str}"
StepQuery = Annotated[int | None, QueryParameter(name="step", ge=1, description="Model call. Default: the last.")]
Beside = Annotated[int | None, QueryParameter(name="with", ge=1, le=HIGHEST, description="Turn to compare with")]


@get("/page/static/{name:str}", include_in_schema=False)
async def static(name: FromPath[str]) -> Response[bytes]:
    """Return a style sheet, script or icon of the inspector."""
    found = asset(name_in(name))
    if found is None:
        raise NotFoundException(detail=f"No file {name_in(name)!r}.")
    return found


@get(f"{ONE}/turns/{{n:int}}", include_in_schema=False)
async def turn(
    request: AnyRequest, conversation: FromPath[str], n: FromPath[int], step: StepQuery = None, with_: Beside = None
) -> Response[bytes]:
    """Render a turn: its prompt as blocks with sources, what was left out, and why. `with` compares two turns."""
    cue, user, name = cue_of(request), user_of(request), name_in(conversation)
    if with_ is not None:
        return await beside(cue, name, (n, with_), user=user)
    shown = await cue.turns.show(name, n, step=step, user=user)
    known = await cue.conversations.get(name, user=user)
    window = None
    if shown["window"]:
        window = drawn(await name_blocks(cue, name, shown, user=user, owner=known.user))
    first_ms = shown["metadata"].get("firstTokenMs")
    return show(
        "turn.html",
        view="Conversations",
        conversation=name,
        turn=shown,
        window=window,
        cache=window["cache"] if window else None,
        spent=await cue.live.spent.step(name, n, shown["step"], user=user),
        took=None if shown["metadata"].get(SHADOW) else _between(shown["createdAt"], shown["closedAt"]),
        first=None if first_ms is None else first_ms / 1000,
        steps=[each["step"] for each in shown["steps"]],
        before=n - 1,
        after=n + 1 if n < known.turns else 0,
        why=list(told_of(shown)),
        what_if=blank_what_if(shown["window"], request) if window else None,
    )


def _between(began: str | None, ended: str | None) -> float | None:
    if not (began and ended):
        return None
    return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()


ROUTES = [static, turn, what_if, ask]
