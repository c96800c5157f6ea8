"""Serve session and shared-entry views of a conversation, and replace posts by the caller's own summary."""

from typing import Annotated

from litestar import Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter

from cuebook.app import json_shapes as shapes
from cuebook.app.paging import page_of
from cuebook.errors import Conflict
from cuebook.server.api import types as wire
from cuebook.server.authorization import AnyRequest, check_first, cue_of, idempotency_key, user_of
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
    """Return a conversation as a session: the summary first, then the posts after it."""
    conversations, name, user = cue_of(request).conversations, name_in(conversation), user_of(request, user_id)
    found = await conversations.get(name, user=user)
    rows = await conversations.session(name, user=user, include_compressed=include_compressed)
    page = page_of(rows, f"session {include_compressed}", no=found.no, state=found.mark, limit=limit, cursor=cursor)
    return listed([shapes.session_message(each) for each in page.items], page.next)


@get(f"{PATH}/shared-entries", responses=wire.answers(wire.Listing))
async def get_shared_entries(
    request: AnyRequest,
    conversation: FromPath[str],
    *,
    user_id: UserQuery = None,
    type_: Annotated[str | None, QueryParameter(name="type", description="Only this type")] = None,
    include_failed: Annotated[bool, QueryParameter(name="includeFailed")] = False,
    limit: PageLimit = None,
    cursor: PageCursor = None,
) -> Response[bytes]:
    """Return the notes that roles share; those of scope `round` only for the last round."""
    conversations, name, user = cue_of(request).conversations, name_in(conversation), user_of(request, user_id)
    found = await conversations.get(name, user=user)
    rows = await conversations.shared_entries(name, user=user, entry_type=type_, include_failed=include_failed)
    view = f"shared {type_} {include_failed}"
    page = page_of(rows, view, no=found.no, state=found.last_seq, limit=limit, cursor=cursor)
    return listed([shapes.shared_entry(each) for each in page.items], page.next)


@post(f"{PATH}/compress", dto=JsonBody[wire.CompressBody], responses=wire.answers(wire.SummaryAnswer, 201))
async def compress(
    request: AnyRequest,
    conversation: FromPath[str],
    data: JSONBody[wire.CompressBody],
    user_id: UserQuery = None,
) -> Response[bytes]:
    """Replace all posts before one in prompts by the caller's own summary.

    The transcript and the memories of these posts are kept.
    """
    cue, name, user = cue_of(request), name_in(conversation), user_of(request, data.user_id, user_id)
    await check_first(request, name, user, "Summarizing another user's conversation")
    key = idempotency_key(request.scope)
    done = await cue.conversations.compress(
        name, older_than=data.older_than, summary=data.summary, user=user, idempotency_key=key
    )
    if not done:
        msg = f"Conversation {name!r} changed during the compression. Read it again, then retry."
        raise Conflict(msg)
    summary = await cue.memory.summary(name, user=user)
    return json_of({"summary": shapes.summary_state(summary) if summary else None}, 201)


ROUTES = [get_session, get_shared_entries, compress]
