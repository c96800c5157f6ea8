"""Serve OpenAI's Responses API with stored turns; pass unsupported requests to the upstream."""

from typing import Any

from litestar import delete, get, post
from litestar.params import FromPath, JSONBody
from litestar.response.base import ASGIResponse
from msgspec import Struct, json

from cuebook.server.api import types as wire
from cuebook.server.api.chat import StreamsToo
from cuebook.server.caller import AnyRequest, check_first, cue_of, idempotency_key
from cuebook.server.error_responses import Failure
from cuebook.server.guard import name_in
from cuebook.server.json_body import JsonBody, check_json
from cuebook.server.openai.chat_completions import answer_of, begin, call_of, pass_through, sends_new
from cuebook.server.openai.conversations import After, Limit, Sorted, asked_by, from_project
from cuebook.server.streaming import StreamResponse


class ResponseAsked(Struct, frozen=True):
    """OpenAI's request body. Fields that are not listed here are read too."""

    input: str | list[dict[str, Any]] | None = ""
    model: str = ""
    stream: bool | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None


class ReadLater(JsonBody[ResponseAsked]):
    """A body that is checked as JSON, and decoded once the answering side is known."""

    def decode_bytes(self, value: bytes) -> Any:
        check_json(value)
        return value


@post(
    "/v1/responses",
    dto=ReadLater,
    status_code=200,
    responses=wire.openai_answers(dict[str, Any]),
    operation_class=StreamsToo,
)
async def responses(request: AnyRequest, data: JSONBody[ResponseAsked]) -> ASGIResponse:
    """Create a response. `previous_response_id` or `conversation` names what it continues, else `input` is complete.

    An `item_reference` may name a stored item; with `store: false` the answer's id cannot be used later.

    The upstream gets the request in this format if it has this API, otherwise as a chat completion: header
    X-Cuebook-Left-Out of the answer then names the fields that a chat completion lacks, and other features it lacks are
    refused. Background requests and those that continue what only the upstream knows go to it unchanged, and are not
    stored. The other headers are those of /v1/chat/completions.
    """
    return await _respond(request, data)


@post("/v1/responses/compact", dto=ReadLater, status_code=200, responses=wire.openai_answers(dict[str, Any]))
async def compact(request: AnyRequest, data: JSONBody[ResponseAsked]) -> ASGIResponse:
    """Compact a conversation by the upstream, and store its compaction item. 404 if the upstream cannot.

    `input` is the whole history, or `previous_response_id` names what it follows. A later request that sends the item
    continues the conversation.
    """
    return await _respond(request, data, compacts=True)


async def _respond(request: AnyRequest, data: Any, *, compacts: bool = False) -> ASGIResponse:
    cue, user = cue_of(request), asked_by(request)
    body = await cue.responses.with_items(data, user=user)
    if cue.upstream_url and await cue.responses.refused(body, user=user, compacts=compacts):
        return await pass_through(request)
    call = call_of(request, body, server_history=sends_new(request), key=idempotency_key(request.scope))
    return StreamResponse(
        request.app.state.running,
        answer_of(cue.respond(call, compacts=compacts), _error_event),
        begin,
        to_the_end=call.idempotency_key is not None,
    )


def _error_event(fault: Failure) -> bytes:
    """Return an error as the last event of a stream that the upstream began."""
    error = {"type": "error", "code": fault.name, "message": fault.detail, "param": None, "sequence_number": 0}
    return b"event: error\ndata: " + json.encode(error)


@get("/v1/responses/{response:str}", responses=wire.openai_answers(dict[str, Any]))
async def response_(request: AnyRequest, response: FromPath[str]) -> ASGIResponse:
    """Return a stored response: status, output and usage. Pass the upstream's own ids to it."""
    cue, id_ = cue_of(request), name_in(response)
    if cue.upstream_url and not cue.responses.is_ours(id_):
        return await pass_through(request)
    return await from_project(cue.responses.get(id_, user=asked_by(request)))


@delete("/v1/responses/{response:str}", status_code=200, responses=wire.openai_answers(dict[str, Any]))
async def delete_response(request: AnyRequest, response: FromPath[str]) -> ASGIResponse:
    """Forget a response with its query and everything derived from both. Pass the upstream's own ids to it."""
    cue, id_ = cue_of(request), name_in(response)
    if cue.upstream_url and not cue.responses.is_ours(id_):
        return await pass_through(request)
    conversation = cue.responses.conversation_of(id_)
    await check_first(request, conversation, asked_by(request), "Deleting from another user's conversation")
    return await from_project(cue.responses.delete(id_, user=asked_by(request)))


@get("/v1/responses/{response:str}/input_items", responses=wire.openai_answers(dict[str, Any]))
async def input_items(
    request: AnyRequest,
    response: FromPath[str],
    *,
    limit: Limit = 20,
    order: Sorted = "desc",
    after: After = None,
) -> ASGIResponse:
    """Return a page of a response's input items, including those of the responses it continues."""
    cue, id_ = cue_of(request), name_in(response)
    if cue.upstream_url and not cue.responses.is_ours(id_):
        return await pass_through(request)
    page = cue.responses.input_items(id_, user=asked_by(request), order=order, after=after, limit=limit)
    return await from_project(page)


@post("/v1/responses/{response:str}/cancel", status_code=200, responses=wire.openai_answers(dict[str, Any]))
async def cancel(request: AnyRequest, response: FromPath[str]) -> ASGIResponse:
    """Reject a cancellation: responses do not run in the background. Pass the upstream's own ids to it."""
    cue, id_ = cue_of(request), name_in(response)
    if cue.upstream_url and not cue.responses.is_ours(id_):
        return await pass_through(request)
    return await from_project(cue.responses.cancel(id_, user=asked_by(request)))


ROUTES = [responses, compact, response_, delete_response, input_items, cancel]
