"""The views of turns, and the page's own files."""

from datetime import datetime
from typing import Annotated

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, QueryParameter

from cuebook.app.told import told_of
from cuebook.records.turn import SHADOW
from cuebook.server.caller import AnyRequest, book_of, user_of
from cuebook.server.conversations import HIGHEST
from cuebook.server.guard import name_in
from cuebook.server.page.beside import beside
from cuebook.server.page.drawn import drawn
from cuebook.server.page.named import name_blocks
from cuebook.server.page.render import asset, show
from cuebook.server.page.what_if import ask, blank_what_if, what_if

ONE = "/page/conversations/{conversation:str}"
StepQuery = Annotated[
    int | None, QueryParameter(name="step", ge=1, description="Which model call; the last by default")
]
Beside = Annotated[int | None, QueryParameter(name="with", ge=1, le=HIGHEST, description="Another turn beside it")]


@get("/page/static/{name:str}", include_in_schema=False)
async def static(name: FromPath[str]) -> Response[bytes]:
    """Give a style sheet or a script of the page's own."""
    found = asset(name_in(name))
    if found is None:
        raise NotFoundException(detail=f"no file {name_in(name)!r}")
    return found


@get(f"{ONE}/turns/{{n:int}}", include_in_schema=False)
async def turn(
    request: AnyRequest, conversation: FromPath[str], n: FromPath[int], step: StepQuery = None, with_: Beside = None
) -> Response[bytes]:
    """Show a turn: its prompt as a bar of blocks, each with its source, what was left out, and why; or two turns."""
    book, user, name = book_of(request), user_of(request), name_in(conversation)
    if with_ is not None:
        return await beside(book, name, (n, with_), user=user)
    shown = await book.turns.show(name, n, step=step, user=user)
    known = await book.conversations.get(name, user=user)
    window = None
    if shown["window"]:
        window = drawn(await name_blocks(book, name, shown, user=user, owner=known.user))
    first_ms = shown["metadata"].get("firstTokenMs")
    return show(
        "turn.html",
        view="Conversations",
        conversation=name,
        turn=shown,
        window=window,
        cache=window["cache"] if window else None,
        spent=await book.live.spent.step(name, n, shown["step"], user=user),
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
