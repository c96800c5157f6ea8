"""The views of conversations: a list that is searched, one as it was said with its branches, and forgetting it."""

from typing import Annotated, Any
from urllib.parse import urlencode

from litestar import Response, get, post
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Redirect

from cuebook.app import shapes
from cuebook.records.talk import Talk
from cuebook.server.caller import AnyRequest, book_of, check_first, user_of
from cuebook.server.guard import name_in
from cuebook.server.page.memories import go
from cuebook.server.page.render import place, show

ALL = "/page/conversations"
ONE = ALL + "/{conversation:str}"
VIEW = "Conversations"
#: Conversations a page lists, and characters of the first words of each.
LISTED = 50
SAID = 100

Words = Annotated[str | None, QueryParameter(name="q", description="Words of an id, a user, or a first post")]


@get(ALL, include_in_schema=False)
async def conversations(request: AnyRequest, q: Words = None, cursor: FromQuery[str | None] = None) -> Response[bytes]:
    """List conversations, the most recent first, all or those that have some words."""
    asked = (q or "").strip()
    page = await book_of(request).live.talks.find(asked, user=user_of(request), limit=LISTED, cursor=cursor)
    query = {**({"q": asked} if asked else {}), "cursor": page.cursor or ""}
    host = request.headers.get("host", "127.0.0.1:8760")
    return show(
        "conversations.html",
        view=VIEW,
        items=[_listed(each) for each in page.items],
        q=asked,
        paged=cursor is not None,
        next=f"?{urlencode(query)}" if page.cursor else None,
        base=f"http://{host}",
    )


def _listed(talk: Talk) -> dict[str, Any]:
    known, said = talk.conversation, " ".join(talk.said.split())
    return {
        "id": known.id,
        "user": known.user or "",
        "said": said if len(said) <= SAID else f"{said[: SAID - 1]}…",
        "turns": known.turns,
        "posts": known.last_seq,
        "branches": talk.branches,
        "tokens": talk.tokens,
        "state": talk.state,
        "shadow": talk.shadow,
        "at": shapes.iso(known.updated_at),
    }


@post(ONE + "/forget", include_in_schema=False, status_code=303)
async def forget(request: AnyRequest, conversation: FromPath[str]) -> Redirect:
    """Forget a conversation and everything derived from it, then show the receipt. Who was let in later may not."""
    book, user, name = book_of(request), user_of(request), name_in(conversation)
    await book.conversations.get(name, user=user)
    await check_first(request, name, user, "forgetting another's conversation")
    gone = await book.memory.forget(conversation=name, by=user)
    return go(f"/page/receipts/{place(gone.id)}")


ROUTES = [conversations, forget]
