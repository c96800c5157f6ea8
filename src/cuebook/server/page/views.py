"""The views of conversations and turns."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery, QueryParameter

from cuebook import Cuebook
from cuebook.app import shapes
from cuebook.app.live import kinds_of
from cuebook.app.mind import mind_shape
from cuebook.app.paging import PostsAt, write_cursor
from cuebook.app.told import told_of
from cuebook.records.conversation import Post
from cuebook.records.turn import SHADOW, Turn
from cuebook.server.caller import AnyRequest, book_of, caller_of, user_of
from cuebook.server.conversations import HIGHEST
from cuebook.server.guard import name_in
from cuebook.server.page.beside import beside
from cuebook.server.page.drawn import drawn, kinds_shown
from cuebook.server.page.named import name_blocks
from cuebook.server.page.render import asset, show
from cuebook.server.page.what_if import ask, blank_what_if, what_if

#: Turns, posts and levels of branches the view of a conversation shows.
TURNS = 200
POSTS = 200
DEEPEST = 6
ONE = "/page/conversations/{conversation:str}"
StepQuery = Annotated[
    int | None, QueryParameter(name="step", ge=1, description="Which model call; the last by default")
]
Behind = Annotated[int | None, QueryParameter(name="behind", ge=0, le=HIGHEST, description="Posts behind this number")]
Beside = Annotated[int | None, QueryParameter(name="with", ge=1, le=HIGHEST, description="Another turn beside it")]


@get("/page/static/{name:str}", include_in_schema=False)
async def static(name: FromPath[str]) -> Response[bytes]:
    """Give a style sheet or a script of the page's own."""
    found = asset(name_in(name))
    if found is None:
        raise NotFoundException(detail=f"no file {name_in(name)!r}")
    return found


@get(ONE, include_in_schema=False)
async def conversation(
    request: AnyRequest, conversation: FromPath[str], at: FromQuery[str | None] = None, behind: Behind = None
) -> Response[bytes]:
    """Show a conversation: its turns with what each took, its branches as rounds and posts, its summary's reach.

    Of its posts the newest, those around the one that `at` names, or those behind a number.
    """
    book, user, name = book_of(request), user_of(request), name_in(conversation)
    known = await book.conversations.describe(name, user=user)
    turns = await book.turns.last(name, user=user, last=TURNS)
    start = await _start(book, name, at, behind, last=known["lastSeq"], user=user)
    everything, posts = [await _posts(book, name, start, branches=each, user=user) for each in (True, False)]
    summary = await book.memory.summary(name, user=user)
    mind = await book.mind.show(name, user=user)
    on_path = {each.seq for each in posts}
    return show(
        "conversation.html",
        view="Conversations",
        name=name,
        known=known,
        turns=_lines(turns),
        tree=_tree(everything, on_path, summary.upto_seq if summary else 0),
        summary=summary,
        mind=mind_shape(mind),
        older=max(0, start - POSTS) if start else None,
        newer=start + POSTS if start + POSTS < known["lastSeq"] else None,
        changes=caller_of(request).may("editor"),
    )


async def _start(book: Cuebook, name: str, post: str | None, behind: int | None, *, last: int, user: str | None) -> int:
    """Give the seq behind which the posts begin that are shown: the newest, or those around a post."""
    newest = max(0, last - POSTS)
    if not post:
        return newest if behind is None else min(behind, newest)
    found = (await book.live.spent.places(name, [post], user=user)).get(post)
    if found is None:
        raise NotFoundException(detail=f"conversation {name!r} has no post {post!r}")
    return max(0, min(newest, found.seq - POSTS // 2))


async def _posts(book: Cuebook, name: str, start: int, *, branches: bool, user: str | None) -> Sequence[Post]:
    found = await book.conversations.get(name, user=user)
    cursor = write_cursor(PostsAt(found.no, 0 if branches else found.head, start))
    if not (branches or found.head):
        return []
    page = await book.conversations.posts_page(name, user=user, branches=branches, limit=POSTS, cursor=cursor)
    return page.items


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


def _lines(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """Give turns as lines of a table, the newest first, their prompts as bars in one scale."""
    lines = [_line(each) for each in reversed(turns)]
    most = max((each["tokens"] for each in lines), default=0) or 1
    return [{**each, "bar": kinds_shown(each["kinds"], of=max(most, sum(each["kinds"].values())))} for each in lines]


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


ROUTES = [static, conversation, turn, what_if, ask]
