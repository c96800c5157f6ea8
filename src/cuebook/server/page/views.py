"""The views of conversations and turns."""

from collections.abc import Sequence
from typing import Annotated, Any

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery, QueryParameter

from cuebook.app import shapes
from cuebook.app.live import kinds_of
from cuebook.app.mind import mind_shape
from cuebook.app.told import told_of
from cuebook.records.conversation import Post
from cuebook.records.turn import Turn
from cuebook.server.caller import AnyRequest, book_of, user_of
from cuebook.server.conversations import HIGHEST
from cuebook.server.guard import name_in
from cuebook.server.page.beside import beside
from cuebook.server.page.drawn import drawn
from cuebook.server.page.render import asset, show
from cuebook.server.page.what_if import ask, blank_what_if, what_if

#: Conversations a page lists; turns, posts and levels of branches the view of one shows.
LISTED = 50
TURNS = 200
POSTS = 400
DEEPEST = 6
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


@get("/page/conversations", include_in_schema=False)
async def conversations(request: AnyRequest, cursor: FromQuery[str | None] = None) -> Response[bytes]:
    """List conversations."""
    book, user = book_of(request), user_of(request)
    page = await book.conversations.list(user=user, limit=LISTED, cursor=cursor)
    items = [shapes.conversation(each) for each in page.items]
    host = request.headers.get("host", "127.0.0.1:8760")
    return show("conversations.html", view="Conversations", items=items, next=page.cursor, base=f"http://{host}")


@get(ONE, include_in_schema=False)
async def conversation(request: AnyRequest, conversation: FromPath[str]) -> Response[bytes]:
    """Show a conversation: its turns with what each took, its branches as rounds and posts, its summary's reach."""
    book, user, name = book_of(request), user_of(request), name_in(conversation)
    known = await book.conversations.describe(name, user=user)
    turns = await book.turns.last(name, user=user, last=TURNS)
    posts = await book.conversations.posts(name, user=user, last=POSTS)
    everything = await book.conversations.posts(name, user=user, branches=True, last=POSTS)
    summary = await book.memory.summary(name, user=user)
    mind = await book.mind.show(name, user=user)
    on_path = {each.seq for each in posts}
    return show(
        "conversation.html",
        view="Conversations",
        name=name,
        known=known,
        turns=[_line(each) for each in reversed(turns)],
        tree=_tree(everything, on_path, summary.upto_seq if summary else 0),
        summary=summary,
        mind=mind_shape(mind),
    )


@get(f"{ONE}/turns/{{n:int}}", include_in_schema=False)
async def turn(
    request: AnyRequest, conversation: FromPath[str], n: FromPath[int], step: StepQuery = None, other: Beside = None
) -> Response[bytes]:
    """Show a turn: its prompt as a bar of blocks, each with its source, what was left out, and why; or two turns."""
    book, user, name = book_of(request), user_of(request), name_in(conversation)
    if other is not None:
        return await beside(book, name, (n, other), user=user)
    shown = await book.turns.show(name, n, step=step, user=user)
    known = await book.conversations.get(name, user=user)
    window = drawn(shown["window"]) if shown["window"] else None
    return show(
        "turn.html",
        view="Conversations",
        conversation=name,
        turn=shown,
        window=window,
        cache=window["cache"] if window else None,
        steps=[each["step"] for each in shown["steps"]],
        before=n - 1,
        after=n + 1 if n < known.turns else 0,
        why=list(told_of(shown)),
        what_if=blank_what_if(shown["window"], request) if window else None,
    )


def _line(turn: Turn) -> dict[str, Any]:
    """Give a turn in a line of a table."""
    told, manifest = turn.metadata, turn.steps[-1].manifest if turn.steps else None
    sentiment = told.get("sentiment") or {}
    cache = (told.get("window") or {}).get("cache") or {}
    return {
        "n": turn.n,
        "state": turn.state,
        "steps": len(turn.steps),
        "tokens": manifest.tokens if manifest else 0,
        "kinds": kinds_of(manifest) if manifest else {},
        "cached": cache.get("readTokens") or 0,
        "dropped": sum(each.count for each in manifest.dropped) if manifest else 0,
        "score": sentiment.get("score"),
        "events": sentiment.get("events") or [],
        "mood": (told.get("mind") or {}).get("mood", ""),
        "at": shapes.iso(turn.created_at),
    }


def _tree(posts: Sequence[Post], on_path: set[int], reach: int) -> list[dict[str, Any]]:
    """Give posts as the steps of their rounds, each with its depth in branches, and whether the summary covers it."""
    depth: dict[int, int] = {}
    found: list[dict[str, Any]] = []
    seen: set[int] = set()
    for post in posts:
        branches = post.parent in seen
        seen.add(post.parent)
        depth[post.seq] = depth.get(post.parent, 0) + (1 if branches else 0)
        found.append({
            "post": post,
            "depth": min(depth[post.seq], DEEPEST),
            "here": post.seq in on_path,
            "covered": post.seq in on_path and post.seq <= reach,
            "branches": branches,
        })  # fmt: skip
    return found


ROUTES = [static, conversations, conversation, turn, what_if, ask]
