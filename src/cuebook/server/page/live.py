"""The live view: the newest turns, and each change of one as it comes."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from litestar import Response, get

from cuebook import Cuebook
from cuebook.server.caller import AnyRequest, book_of, user_of
from cuebook.server.page.render import HEADERS, place, show
from cuebook.server.streams import Start, Streamed, encoded

#: Looks that found nothing after which a word goes out, so that who went away is noticed.
_QUIET = 20
_HEAD = [("content-type", "text/event-stream; charset=utf-8"), ("x-accel-buffering", "no"), *HEADERS.items()]
_encode = msgspec.json.Encoder().encode


@get("/", include_in_schema=False)
async def front(request: AnyRequest) -> Response[bytes]:
    """Show what goes on: turns as they come, what their prompts hold, cost and leave out."""
    book, user = book_of(request), user_of(request)
    host = request.headers.get("host", "127.0.0.1:8760")
    turns = [msgspec.to_builtins(each) for each in await book.live.newest(user=user)]
    return show("live.html", view="Live", turns=turns, base=f"http://{host}", upstream=book.upstream_url or "")


@get("/page/live", include_in_schema=False)
async def changes(request: AnyRequest) -> Streamed:
    """Give each change of a turn as an event, a JSON object with the address of its view."""
    return Streamed(request.app.state.running, _events(book_of(request), user_of(request)))


async def _events(book: Cuebook, user: str | None) -> AsyncGenerator[Start | bytes, None]:
    yield Start(200, encoded(_HEAD))
    yield b": watching\n\n"
    quiet = 0
    async with aclosing(book.live.changes(user=user)) as found:  # type: ignore[type-var]
        async for each in found:
            quiet = 0 if each else quiet + 1
            if each is not None:
                href = f"/page/conversations/{place(each.conversation)}/turns/{each.turn}"
                yield b"event: turn\ndata: " + _encode({**msgspec.to_builtins(each), "href": href}) + b"\n\n"
            elif quiet % _QUIET == 0:
                yield b": quiet\n\n"


ROUTES = [front, changes]
