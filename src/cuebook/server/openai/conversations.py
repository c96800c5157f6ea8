"""Serve OpenAI's conversations API for stored conversations; pass unknown ones to the upstream."""

from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import Annotated, Any

from litestar import post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.response.base import ASGIResponse
from msgspec import Struct

from cuebook.app.proxy.openai_conversations import Order
from cuebook.server.api import types as wire
from cuebook.server.caller import AnyRequest, check_first, cue_of, idempotency_key, user_of
from cuebook.server.guard import WireAddress, name_in
from cuebook.server.json_body import JsonBody
from cuebook.server.openai.chat_completions import pass_through
from cuebook.server.route_parts import json_of

#: Answers a request of a route.
Answering = Callable[..., Awaitable[Any]]

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


def stored(
    name: str, is_theirs: Callable[[AnyRequest, str], Awaitable[bool]], route: str, dto: Any = None
) -> Callable[[Answering], HTTPRouteHandler]:
    """Declare the route of a stored object: decode its ID `name`, and pass the upstream's own to it."""
    method, _, path = route.partition(" ")

    def declare(answer: Answering) -> HTTPRouteHandler:
        @wraps(answer)
        async def respond(request: AnyRequest, **values: Any) -> ASGIResponse:
            values[name] = name_in(values[name])
            if await is_theirs(request, values[name]):
                return await pass_through(request)
            return json_of(await answer(request, **values))

        respond.__annotations__ = answer.__annotations__ | {"return": ASGIResponse}
        responses = wire.openai_answers(dict[str, Any])
        methods: Any = method
        role = "viewer" if method == "GET" else "editor"
        return HTTPRouteHandler(path, http_method=methods, role=role, dto=dto, status_code=200, responses=responses)(
            respond
        )

    return declare


_stored = partial(stored, "conversation", _is_theirs)


@post(
    "/v1/conversations",
    dto=JsonBody[ConversationAsked],
    status_code=200,
    responses=wire.openai_answers(dict[str, Any]),
)
async def begin_conversation(request: AnyRequest, data: JSONBody[ConversationAsked]) -> ASGIResponse:
    """Create a conversation. Send its id as `conversation` in requests that continue it."""
    begun = await cue_of(request).openai_conversations.create(
        data.items, data.metadata, user=asked_by(request), idempotency_key=idempotency_key(request.scope)
    )
    return json_of(begun)


@_stored(f"GET {PATH}")
async def conversation_(request: AnyRequest, conversation: FromPath[str]) -> dict[str, Any]:
    """Return a conversation: its creation time and metadata."""
    return await cue_of(request).openai_conversations.get(conversation, user=asked_by(request))


@_stored(f"POST {PATH}", JsonBody[ConversationMetadata])
async def attach(
    request: AnyRequest, conversation: FromPath[str], data: JSONBody[ConversationMetadata]
) -> dict[str, Any]:
    """Replace a conversation's metadata."""
    await check_first(request, conversation, asked_by(request), "Changing another user's conversation")
    return await cue_of(request).openai_conversations.attach(conversation, data.metadata, user=asked_by(request))


@_stored(f"DELETE {PATH}")
async def delete_conversation_(request: AnyRequest, conversation: FromPath[str]) -> dict[str, Any]:
    """Forget a conversation, its items and everything derived from it. Only for its first user."""
    await check_first(request, conversation, asked_by(request), "Forgetting another user's conversation")
    await cue_of(request).conversations.delete(conversation, user=asked_by(request))
    return {"id": conversation, "object": "conversation.deleted", "deleted": True}


@_stored(f"POST {PATH}/items", JsonBody[ItemsAsked])
async def add_items(request: AnyRequest, conversation: FromPath[str], data: JSONBody[ItemsAsked]) -> dict[str, Any]:
    """Append items, all or none."""
    return await cue_of(request).openai_conversations.add(
        conversation, data.items, user=asked_by(request), idempotency_key=idempotency_key(request.scope)
    )


@_stored(f"GET {PATH}/items")
async def list_items(
    request: AnyRequest, conversation: FromPath[str], *, limit: Limit = 20, order: Sorted = "desc", after: After = None
) -> dict[str, Any]:
    """Return a page of a conversation's items: messages, function calls and their outputs."""
    user = asked_by(request)
    return await cue_of(request).openai_conversations.items(
        conversation, user=user, order=order, after=after, limit=limit
    )


@_stored(f"GET {PATH}/items/{{item:str}}")
async def item_(request: AnyRequest, conversation: FromPath[str], item: FromPath[str]) -> dict[str, Any]:
    """Return an item of a conversation."""
    return await cue_of(request).openai_conversations.item(conversation, name_in(item), user=asked_by(request))


@_stored(f"DELETE {PATH}/items/{{item:str}}")
async def delete_item(request: AnyRequest, conversation: FromPath[str], item: FromPath[str]) -> dict[str, Any]:
    """Forget an item with its message; a call with its outputs. Only for the conversation's first user."""
    await check_first(request, conversation, asked_by(request), "Deleting from another user's conversation")
    return await cue_of(request).openai_conversations.erase(conversation, name_in(item), user=asked_by(request))


ROUTES = [begin_conversation, conversation_, attach, delete_conversation_, add_items, list_items, item_, delete_item]
