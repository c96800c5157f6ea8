"""Serve OpenAI's conversations API for stored conversations; pass unknown ones to the upstream."""

from collections.abc import Awaitable
from typing import Annotated, Any

from litestar import delete, get, post
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.response.base import ASGIResponse
from msgspec import Struct, json

from cuebook.app.proxy.openai_conversations import Order
from cuebook.server.api import types as wire
from cuebook.server.caller import AnyRequest, check_first, cue_of, idempotency_key, user_of
from cuebook.server.guard import WireAddress, name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.openai.chat_completions import pass_through

PATH = "/v1/conversations/{conversation:str}"

Limit = Annotated[int, QueryParameter(ge=1, le=100, description="Maximum number of items")]
Sorted = Annotated[Order, QueryParameter(description="Order by time")]
After = Annotated[str | None, QueryParameter(description="`last_id` of the previous page")]


class ConversationAsked(Struct, frozen=True):
    """A conversation to create: up to 20 items, and metadata."""

    items: list[dict[str, Any]] | None = None
    metadata: dict[str, Any] | None = None


class ConversationMetadata(Struct, frozen=True):
    """The new metadata of a conversation, which replaces the old."""

    metadata: dict[str, Any] | None


class ItemsAsked(Struct, frozen=True):
    """Items to add, up to 20."""

    items: list[dict[str, Any]]


def asked_by(request: AnyRequest) -> str | None:
    """Return the acting user."""
    place: WireAddress = request.scope["state"]["place"]
    return user_of(request, place.user)


async def _is_theirs(request: AnyRequest, conversation: str) -> bool:
    """Return whether the upstream answers, because this conversation is unknown here."""
    cue = cue_of(request)
    return bool(cue.upstream_url) and not await cue.openai_conversations.has(conversation, user=asked_by(request))


async def from_project(answer: Awaitable[dict[str, Any]]) -> ASGIResponse:
    """Return a response with a result as JSON."""
    return ASGIResponse(body=json.encode(await answer), media_type="application/json")


@post(
    "/v1/conversations",
    dto=JsonBody[ConversationAsked],
    status_code=200,
    responses=wire.openai_answers(dict[str, Any]),
)
async def begin_conversation(request: AnyRequest, data: JSONBody[ConversationAsked]) -> ASGIResponse:
    """Create a conversation. Send its id as `conversation` in requests that continue it."""
    begun = cue_of(request).openai_conversations.create(
        data.items, data.metadata, user=asked_by(request), idempotency_key=idempotency_key(request.scope)
    )
    return await from_project(begun)


@get(PATH, responses=wire.openai_answers(dict[str, Any]))
async def conversation_(request: AnyRequest, conversation: FromPath[str]) -> ASGIResponse:
    """Return a conversation: its creation time and metadata."""
    name = name_in(conversation)
    if await _is_theirs(request, name):
        return await pass_through(request)
    return await from_project(cue_of(request).openai_conversations.get(name, user=asked_by(request)))


@post(PATH, dto=JsonBody[ConversationMetadata], status_code=200, responses=wire.openai_answers(dict[str, Any]))
async def attach(
    request: AnyRequest, conversation: FromPath[str], data: JSONBody[ConversationMetadata]
) -> ASGIResponse:
    """Replace a conversation's metadata."""
    name = name_in(conversation)
    if await _is_theirs(request, name):
        return await pass_through(request)
    await check_first(request, name, asked_by(request), "Changing another user's conversation")
    return await from_project(cue_of(request).openai_conversations.attach(name, data.metadata, user=asked_by(request)))


@delete(PATH, status_code=200, responses=wire.openai_answers(dict[str, Any]))
async def delete_conversation_(request: AnyRequest, conversation: FromPath[str]) -> ASGIResponse:
    """Forget a conversation, its items and everything derived from it. Only for its first user."""
    name = name_in(conversation)
    if await _is_theirs(request, name):
        return await pass_through(request)
    await check_first(request, name, asked_by(request), "Forgetting another user's conversation")
    await cue_of(request).conversations.delete(name, user=asked_by(request))
    deleted = {"id": name, "object": "conversation.deleted", "deleted": True}
    return ASGIResponse(body=json.encode(deleted), media_type="application/json")


@post(f"{PATH}/items", dto=JsonBody[ItemsAsked], status_code=200, responses=wire.openai_answers(dict[str, Any]))
async def add_items(request: AnyRequest, conversation: FromPath[str], data: JSONBody[ItemsAsked]) -> ASGIResponse:
    """Append items, all or none."""
    name = name_in(conversation)
    if await _is_theirs(request, name):
        return await pass_through(request)
    added = cue_of(request).openai_conversations.add(
        name, data.items, user=asked_by(request), idempotency_key=idempotency_key(request.scope)
    )
    return await from_project(added)


@get(f"{PATH}/items", responses=wire.openai_answers(dict[str, Any]))
async def list_items(
    request: AnyRequest,
    conversation: FromPath[str],
    *,
    limit: Limit = 20,
    order: Sorted = "desc",
    after: After = None,
) -> ASGIResponse:
    """Return a page of a conversation's items: messages, function calls and their outputs."""
    name = name_in(conversation)
    if await _is_theirs(request, name):
        return await pass_through(request)
    open_aiconversations = cue_of(request).openai_conversations
    return await from_project(
        open_aiconversations.items(name, user=asked_by(request), order=order, after=after, limit=limit)
    )


@get(f"{PATH}/items/{{item:str}}", responses=wire.openai_answers(dict[str, Any]))
async def item_(request: AnyRequest, conversation: FromPath[str], item: FromPath[str]) -> ASGIResponse:
    """Return an item of a conversation."""
    name = name_in(conversation)
    if await _is_theirs(request, name):
        return await pass_through(request)
    return await from_project(cue_of(request).openai_conversations.item(name, name_in(item), user=asked_by(request)))


@delete(f"{PATH}/items/{{item:str}}", status_code=200, responses=wire.openai_answers(dict[str, Any]))
async def delete_item(request: AnyRequest, conversation: FromPath[str], item: FromPath[str]) -> ASGIResponse:
    """Forget an item with its message; a call with its outputs. Only for the conversation's first user."""
    name = name_in(conversation)
    if await _is_theirs(request, name):
        return await pass_through(request)
    await check_first(request, name, asked_by(request), "Deleting from another user's conversation")
    return await from_project(cue_of(request).openai_conversations.erase(name, name_in(item), user=asked_by(request)))


ROUTES = [begin_conversation, conversation_, attach, delete_conversation_, add_items, list_items, item_, delete_item]
