"""`/api/conversations/{id}`: its views as C and D have them, and a summary of the caller's own."""

from typing import Annotated

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from cuebook.app import json_shapes as shapes
from cuebook.app.paging import page_of
from cuebook.errors import Conflict
from cuebook.server.api import types as wire
from cuebook.server.authorization import AnyRequest, book_of, check_first, idempotency_key, user_of
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import PATH, PageCursor, PageLimit, UserQuery, json_of, listed


@get(f"{PATH}/session", responses=wire.answers(wire.Listing))
async def get_session(
    request: AnyRequest,
    conversation: FromPath[str],
    *,
    user_id: UserQuery = None,
    include_compressed: Annotated[bool, QueryParameter(name="includeCompressed")] = False,
    limit: PageLimit = None,
    cursor: PageCursor = None,
) -> Response[bytes]:
    """Return the conversation as a session loads it: the summary first, then what is not compressed under it."""
    talk, name, user = book_of(request).conversations, name_in(conversation), user_of(request, user_id)
    found = await talk.get(name, user=user)
    rows = await talk.session(name, user=user, include_compressed=include_compressed)
    page = page_of(
        rows, no=found.no, name=f"session {include_compressed}", state=found.mark, limit=limit, cursor=cursor
    )
    return listed([shapes.session_message(each) for each in page.items], page.cursor)


@get(f"{PATH}/shared-entries", responses=wire.answers(wire.Listing))
async def get_shared_entries(
    request: AnyRequest,
    conversation: FromPath[str],
    *,
    user_id: UserQuery = None,
    type_: Annotated[str | None, QueryParameter(name="type", description="Only entries of this type")] = None,
    include_failed: Annotated[bool, QueryParameter(name="includeFailed")] = False,
    limit: PageLimit = None,
    cursor: PageCursor = None,
) -> Response[bytes]:
    """Return the notes the roles left for each other; those of scope `round` hold in the last round only."""
    talk, name, user = book_of(request).conversations, name_in(conversation), user_of(request, user_id)
    found = await talk.get(name, user=user)
    rows = await talk.shared_entries(name, user=user, entry_type=type_, include_failed=include_failed)
    view = f"shared {type_} {include_failed}"
    page = page_of(rows, no=found.no, name=view, state=found.last_seq, limit=limit, cursor=cursor)
    return listed([shapes.shared_entry(each) for each in page.items], page.cursor)


@post(f"{PATH}/compress", dto=JsonBody[wire.CompressBody], responses=wire.answers(wire.SummaryAnswer, 201))
async def compress(
    request: AnyRequest,
    conversation: FromPath[str],
    data: JSONBody[wire.CompressBody],
    user_id: UserQuery = None,
) -> Response[bytes]:
    """Put a summary of the caller's own in the place of all posts before one.

    The posts stay in the transcript, and what memory holds of them stays.
    """
    book, name, user = book_of(request), name_in(conversation), user_of(request, data.user_id, user_id)
    await check_first(request, name, user, "condensing another's conversation")
    key = idempotency_key(request.scope)
    done = await book.conversations.compress(
        name, older_than=data.older_than, summary=data.summary, user=user, idempotency_key=key
    )
    if not done:
        msg = f"conversation {name!r} has moved on while it was compressed; read it again, then compress it"
        raise Conflict(msg)
    summary = await book.memory.summary(name, user=user)
    return json_of({"summary": shapes.summary_state(summary) if summary else None}, 201)


ROUTES = [get_session, get_shared_entries, compress]
