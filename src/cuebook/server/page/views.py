"""Render a turn or two turns side by side, and serve the static files."""

from datetime import datetime
from typing import Annotated

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, QueryParameter

from cuebook import Cuebook
from cuebook.app.turns.explanation import told_of
from cuebook.app.turns.turns import HIGHEST
from cuebook.records.answer import to_wire
from cuebook.records.turn import SHADOW
from cuebook.server.caller import OPEN, AnyRequest, cue_of, user_of
from cuebook.server.guard import name_in
from cuebook.server.page.block_sources import name_blocks
from cuebook.server.page.prompt_bar import lay_out, mark_differences
from cuebook.server.page.render import asset, show
from cuebook.server.page.what_if import ask, blank_what_if, what_if

# ---- two turns side by side -----------------------------------------------------------------------------------------


async def compare_turns(
    cue: Cuebook, conversation: str, turns: tuple[int, int], *, user: str | None
) -> Response[bytes]:
    """Render two turns side by side, and mark the blocks of their prompts that differ.

    Raises NotFound.
    """
    items = [to_wire(await cue.turns.show(conversation, n, user=user)) for n in turns]
    owner = (await cue.conversations.get(conversation, user=user)).user
    for each in items:
        if each["window"]:
            each["window"] = await name_blocks(cue, conversation, each, user=user, owner=owner)
    windows = [
        each["window"] and mark_differences(each["window"], other["window"])
        for each, other in zip(items, reversed(items), strict=True)
    ]
    return show("turns.html", conversation=conversation, sides=list(zip(items, windows, strict=True)))


ONE = "/page/conversations/{conversation:str}"
StepQuery = Annotated[int | None, QueryParameter(name="step", ge=1, description="Model call. Default: the last.")]
OtherTurn = Annotated[int | None, QueryParameter(name="with", ge=1, le=HIGHEST, description="Turn to compare with")]


@get("/page/static/{name:str}", role=OPEN)
async def static(name: FromPath[str]) -> Response[bytes]:
    """Return a style sheet, script or icon of the inspector."""
    response = asset(name_in(name))
    if response is None:
        raise NotFoundException(detail=f"Unknown file {name_in(name)!r}.")
    return response


@get(f"{ONE}/turns/{{n:int}}")
async def turn(
    request: AnyRequest, conversation: FromPath[str], n: FromPath[int], step: StepQuery = None, with_: OtherTurn = None
) -> Response[bytes]:
    """Render a turn: its prompt as blocks with sources, and the content left out. `with` compares two turns."""
    cue, user, name = cue_of(request), user_of(request), name_in(conversation)
    if with_ is not None:
        return await compare_turns(cue, name, (n, with_), user=user)
    data = to_wire(await cue.turns.show(name, n, step=step, user=user))
    known = await cue.conversations.get(name, user=user)
    window = None
    if data["window"]:
        window = lay_out(await name_blocks(cue, name, data, user=user, owner=known.user))
    first_ms = data["metadata"].get("firstTokenMs")
    return show(
        "turn.html",
        conversation=name,
        turn=data,
        window=window,
        cache=window["cache"] if window else None,
        usage=await cue.live.usage_of_step(name, n, data["step"], user=user),
        duration=None if data["metadata"].get(SHADOW) else _seconds_between(data["createdAt"], data["closedAt"]),
        first_token=None if first_ms is None else first_ms / 1000,
        steps=[each["step"] for each in data["steps"]],
        before=n - 1,
        after=n + 1 if n < known.turns else 0,
        explanation=list(told_of(data)),
        what_if=blank_what_if(data["window"], request) if window else None,
    )


def _seconds_between(start: str | None, end: str | None) -> float | None:
    if not (start and end):
        return None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


ROUTES = [static, turn, what_if, ask]
