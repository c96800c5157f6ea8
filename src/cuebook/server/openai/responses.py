"""Serve OpenAI's Responses API with stored turns; pass unsupported requests to the upstream."""

from functools import partial
from typing import Any

from litestar.params import FromPath, JSONBody
from litestar.response.base import ASGIResponse
from msgspec import Struct, json

from cuebook.server.caller import AnyRequest, check_first, cue_of
from cuebook.server.error_responses import Failure
from cuebook.server.json_body import check_body
from cuebook.server.openai.chat_completions import pass_through, relay, wire_route
from cuebook.server.openai.conversations import After, Limit, Sorted, asked_by, stored


class ResponseAsked(Struct, frozen=True):
    """OpenAI's request body. Fields that are not listed here are read too."""

    input: str | list[dict[str, Any]] | None = ""
    model: str = ""
    stream: bool | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None


@wire_route("/v1/responses", ResponseAsked)
async def responses(request: AnyRequest, data: JSONBody[ResponseAsked]) -> ASGIResponse:
    """Create a response. `previous_response_id` or `conversation` names what it continues, else `input` is complete.

    An `item_reference` may name a stored item; with `store: false` the answer's id cannot be used later.

    The upstream gets the request in this format if it has this API, otherwise as a chat completion: header
    X-Cuebook-Left-Out of the answer then names the fields that a chat completion lacks, and other features it lacks are
    refused. Background requests and those that continue what only the upstream knows go to it unchanged, and are not
    stored. The other headers are those of /v1/chat/completions.
    """
    return await _respond(request, data)


@wire_route("/v1/responses/compact", ResponseAsked, streams=False)
async def compact(request: AnyRequest, data: JSONBody[ResponseAsked]) -> ASGIResponse:
    """Compact a conversation by the upstream, and store its compaction item. 404 if the upstream cannot.

    `input` is the whole history, or `previous_response_id` names what it follows. A later request that sends the item
    continues the conversation.
    """
    return await _respond(request, data, compacts=True)


async def _respond(request: AnyRequest, data: Any, *, compacts: bool = False) -> ASGIResponse:
    await check_body(request, data)
    cue, user = cue_of(request), asked_by(request)
    body = await cue.responses.with_items(data, user=user)
    if cue.upstream_url and await cue.responses.refused(body, user=user, compacts=compacts):
        return await pass_through(request)
    return relay(request, body, partial(cue.respond, compacts=compacts), _error_event)


def _error_event(fault: Failure) -> bytes:
    """Return an error as the last event of a stream that the upstream began."""
    error = {"type": "error", "code": fault.name, "message": fault.detail, "param": None, "sequence_number": 0}
    return b"event: error\ndata: " + json.encode(error)


async def _is_theirs(request: AnyRequest, response: str) -> bool:
    """Return whether the upstream answers, because it made this response."""
    cue = cue_of(request)
    return bool(cue.upstream_url) and not cue.responses.is_ours(response)


_stored = partial(stored, "response", _is_theirs)


@_stored("GET /v1/responses/{response:str}")
async def response_(request: AnyRequest, response: FromPath[str]) -> dict[str, Any]:
    """Return a stored response: status, output and usage. Pass the upstream's own ids to it."""
    return await cue_of(request).responses.get(response, user=asked_by(request))


@_stored("DELETE /v1/responses/{response:str}")
async def delete_response(request: AnyRequest, response: FromPath[str]) -> dict[str, Any]:
    """Forget a response with its query and everything derived from both. Pass the upstream's own ids to it."""
    conversation = cue_of(request).responses.conversation_of(response)
    await check_first(request, conversation, asked_by(request), "Deleting from another user's conversation")
    return await cue_of(request).responses.delete(response, user=asked_by(request))


@_stored("GET /v1/responses/{response:str}/input_items")
async def input_items(
    request: AnyRequest, response: FromPath[str], *, limit: Limit = 20, order: Sorted = "desc", after: After = None
) -> dict[str, Any]:
    """Return a page of a response's input items, including those of the responses it continues."""
    user = asked_by(request)
    return await cue_of(request).responses.input_items(response, user=user, order=order, after=after, limit=limit)


@_stored("POST /v1/responses/{response:str}/cancel")
async def cancel(request: AnyRequest, response: FromPath[str]) -> dict[str, Any]:
    """Reject a cancellation: responses do not run in the background. Pass the upstream's own ids to it."""
    return await cue_of(request).responses.cancel(response, user=asked_by(request))


ROUTES = [responses, compact, response_, delete_response, input_items, cancel]
