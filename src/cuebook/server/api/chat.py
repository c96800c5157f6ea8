"""Serve `/api/chat` (JSON or server-sent events) and `/api/assemble`, which builds a prompt without a model call."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Annotated, ClassVar

import msgspec
from litestar import post
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation
from litestar.params import JSONBody, QueryParameter
from litestar.response.base import ASGIResponse
from msgspec import Raw

from cuebook import Chunk, Cuebook
from cuebook.errors import CuebookError
from cuebook.records.answer import as_answer, to_wire
from cuebook.records.conversation_answers import ChatAnswer, window_entry
from cuebook.records.turn import Ask
from cuebook.server.api import types as wire
from cuebook.server.caller import AnyRequest, caller_of, cue_of, fresh_conversation, header, idempotency_key, user_of
from cuebook.server.error_responses import failure_of
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import json_of
from cuebook.server.streaming import RunningTurns, Start, StreamResponse, encoded, event

UserQuery = Annotated[str | None, QueryParameter(name="userId", description="The acting user, if not in the body")]
EVENTS = "text/event-stream"
_HEAD = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]


@dataclass
class StreamsToo(Operation):
    """An operation that also returns server-sent events, or a subclass's media type."""

    ALSO: ClassVar = EVENTS

    def __post_init__(self) -> None:
        good = (self.responses or {}).get("200")
        if isinstance(good, OpenAPIResponse) and good.content is not None:
            good.content[self.ALSO] = OpenAPIMediaType()


@post(
    "/api/chat",
    role="editor",
    dto=JsonBody[wire.ChatBody],
    status_code=200,
    responses=wire.answers(ChatAnswer),
    operation_class=StreamsToo,
)
async def chat(request: AnyRequest, data: JSONBody[wire.ChatBody], user_id: UserQuery = None) -> ASGIResponse:
    """Answer a message.

    With `stream`, or Accept: text/event-stream, as events METADATA_UPDATE, text_delta, final_response, error. With an
    Idempotency-Key the turn finishes even if the client disconnects; retry to get the answer.
    """
    cue, running = cue_of(request), request.app.state.running
    user, key = user_of(request, data.user_id, user_id), idempotency_key(request.scope)
    conversation = data.conversation_id or fresh_conversation(cue, user=user, key=key)
    ask = _asked(request, wire.ask_of(data, conversation=conversation, user=user, idempotency_key=key))
    accepts = header(request.scope, b"accept") or ""
    if data.stream or (data.stream is None and EVENTS in accepts):
        return StreamResponse(running, _events(cue, ask), to_the_end=key is not None)
    return json_of(await _answer(cue, ask, request, running))


def _asked(request: AnyRequest, ask: Ask) -> Ask:
    """Return a request with the permissions of the caller's key. Raises NotFound for another's organization."""
    caller = caller_of(request)
    caller.check_organization(ask.organization)
    proven = bool(caller.key) and ask.user is not None
    return msgspec.structs.replace(ask, authenticated=proven, may_publish=caller.may("admin"), key=caller.key)


async def _answer(cue: Cuebook, ask: Ask, request: AnyRequest, running: RunningTurns) -> ChatAnswer:
    """Return the answer. Without an Idempotency-Key it is canceled when the client disconnects."""
    if ask.idempotency_key:
        reply = await running.to_the_end(cue.ask(ask))
    else:
        reply = await running.until_gone(request.receive, cue.ask(ask))
    return as_answer(ChatAnswer, reply)


async def _events(cue: Cuebook, ask: Ask) -> AsyncGenerator[Start | bytes, None]:
    started = False
    async with aclosing(cue.stream(ask)) as chunks:  # type: ignore[type-var]
        try:
            async for chunk in chunks:
                if not started:
                    started = True
                    yield Start(200, encoded([*_HEAD, ("x-conversation-id", ask.conversation)]))
                yield _event(chunk, ask.conversation)
        except CuebookError as error:
            if not started:
                raise
            yield event("error", failure_of(error).problem("/api/chat"))


def _event(chunk: Chunk, conversation: str) -> bytes:
    if chunk.type == "text_delta":
        return event(chunk.type, {"textDelta": chunk.text})
    if chunk.type == "METADATA_UPDATE":
        return event(chunk.type, {"updates": chunk.metadata})
    final = {
        "finalResponseText": chunk.text,
        "finalResponseTextPlain": chunk.plain,
        "conversationId": conversation,
        "turn": chunk.turn,
        "metadata": chunk.metadata,
    }
    return event("final_response", final)


@post(
    "/api/assemble",
    role="viewer",
    dto=JsonBody[wire.ChatBody],
    status_code=200,
    responses=wire.answers(wire.AssembleAnswer),
)
async def assemble(request: AnyRequest, data: JSONBody[wire.ChatBody], user_id: UserQuery = None) -> ASGIResponse:
    """Build the prompt of a chat request. Calls no model and stores nothing."""
    cue = cue_of(request)
    user = user_of(request, data.user_id, user_id)
    conversation = data.conversation_id or fresh_conversation(cue, user=user, key=None)
    ask = _asked(request, wire.ask_of(data, conversation=conversation, user=user))
    window, metadata = await cue.assemble_with_metadata(ask)
    entries = {
        "messages": [Raw(message) for message in window.raw_messages],
        "window": to_wire(window_entry(window)),
        "metadata": metadata,
    }
    return json_of(entries)


ROUTES = [chat, assemble]
