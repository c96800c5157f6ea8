"""`/api/holds`: legal holds, which forbid that what they name is forgotten."""

from typing import Annotated

from litestar import Response, delete, get, post
from litestar.params import FromPath, JSONBody
from msgspec import Meta, Struct

from cuebook.app.forgetting import LONGEST_ID, REASON, hold_shape
from cuebook.app.paging import short_page
from cuebook.errors import Conflict, KeyReused
from cuebook.server.caller import AnyRequest, book_of, idempotency_key
from cuebook.server.edge import JsonBody
from cuebook.server.guard import name_in
from cuebook.server.lists import PageCursor, PageLimit, json_of, listed
from cuebook.server.wire import In, Text, answers

ALL = "/api/holds"


class HoldBody(In, frozen=True, kw_only=True):
    """What to hold, one of these, and why; without `id` a name is made up."""

    user_id: Text | None = None
    conversation_id: Text | None = None
    persona_id: Text | None = None
    organization_id: Text | None = None
    memory_id: Text | None = None
    reason: Annotated[str, Meta(max_length=REASON)] = ""
    id: Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)] | None = None


class HoldShown(Struct, frozen=True, kw_only=True, rename="camel"):
    """A hold: the kind and the id of what it keeps, with all that belongs to it."""

    id: str
    kind: str
    owner: str
    reason: str
    created_at: str


class HoldAnswer(Struct, frozen=True, kw_only=True):
    """The hold that was made."""

    hold: HoldShown


class HoldList(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The holds, by id."""

    items: list[HoldShown]
    next: str | None = None


class Released(Struct, frozen=True, kw_only=True):
    """The id of the hold that ended."""

    released: str


@get(ALL, responses=answers(HoldList))
async def list_holds(request: AnyRequest, limit: PageLimit = None, cursor: PageCursor = None) -> Response[bytes]:
    """List the holds. For admins."""
    found = [hold_shape(each) for each in await book_of(request).holds.list()]
    page = short_page(found, "holds", limit=limit, cursor=cursor)
    return listed(list(page.items), page.cursor)


@post(ALL, dto=JsonBody[HoldBody], responses=answers(HoldAnswer, 201))
async def add_hold(request: AnyRequest, data: JSONBody[HoldBody]) -> Response[bytes]:
    """Hold one thing: whoever wants it forgotten gets 409, which names the hold. For admins.

    The same again under its id, or its Idempotency-Key, is the same hold; another under a taken id is 409.
    """
    book, key = book_of(request), idempotency_key(request.scope)
    named = f"hold-{book.desk.request_digest(key.encode()).hex()[:20]}" if key is not None else None
    try:
        made = await book.holds.add(
            user=data.user_id,
            conversation=data.conversation_id,
            persona=data.persona_id,
            organization=data.organization_id,
            memory=data.memory_id,
            reason=data.reason,
            id=data.id or named,
        )
    except Conflict:
        if data.id is not None:
            raise
        msg = "Idempotency-Key: it was used for another hold; choose a new one"
        raise KeyReused(msg, where="Idempotency-Key") from None
    return json_of({"hold": hold_shape(made)}, 201)


@delete(ALL + "/{hold:str}", status_code=200, responses=answers(Released))
async def release_hold(request: AnyRequest, hold: FromPath[str]) -> Response[bytes]:
    """End a hold: what it kept may be forgotten. For admins."""
    name = name_in(hold)
    await book_of(request).holds.release(name)
    return json_of({"released": name})


ROUTES = [list_holds, add_hold, release_hold]
