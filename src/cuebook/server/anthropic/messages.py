"""Serve Anthropic's wire: proxy and store messages, count tokens; other paths go to the upstream."""

from functools import partial
from typing import Any

from litestar.params import JSONBody
from litestar.response.base import ASGIResponse
from msgspec import Struct, json

from cuebook.errors import InvalidInput, TooLarge
from cuebook.server.caller import AnyRequest, cue_of
from cuebook.server.error_responses import AnthropicError, Failure
from cuebook.server.json_body import check_body
from cuebook.server.openai.chat_completions import call_of, pass_through, relay, wire_route
from cuebook.server.route_parts import json_of


class MessageAsked(Struct, frozen=True):
    """Anthropic's request body. All fields, also those not listed here, are forwarded unchanged."""

    messages: list[dict[str, Any]]
    model: str = ""
    max_tokens: int = 0
    system: str | list[dict[str, Any]] = ""
    stream: bool | None = None


@wire_route("/v1/messages", MessageAsked, bad=AnthropicError)
async def messages(request: AnyRequest, data: JSONBody[MessageAsked]) -> ASGIResponse:
    """Answer a request of Anthropic's wire, and store it with its answer.

    A body that cannot be parsed is forwarded unchanged and not stored. With `messages = "chat"` under [upstream], the
    upstream answers a chat completion with the tools; without an upstream, the project's own model answers. Header
    X-Cuebook-Left-Out then names the request fields that the model did not get. The other headers are those of
    /v1/chat/completions.
    """
    body: Any = data
    cue = cue_of(request)
    if cue.messages.translates:
        await check_body(request, body)
    elif not await _is_clean(request, body):
        return await pass_through(request)
    return relay(request, body, cue.message, _error_event)


@wire_route("/v1/messages/count_tokens", MessageAsked, bad=AnthropicError, streams=False)
async def count_tokens(request: AnyRequest, data: JSONBody[MessageAsked]) -> ASGIResponse:
    """Count a request's tokens: by the upstream if it supports Anthropic's wire, else by an estimate."""
    body: Any = data
    cue = cue_of(request)
    if not cue.messages.translates:
        return await pass_through(request)
    await check_body(request, body)
    call = call_of(request, body, server_history=False, key=None)
    return json_of(await cue.services.offload.run(len(body), partial(cue.messages.count, call)))


async def _is_clean(request: AnyRequest, body: bytes) -> bool:
    """Return whether a body is valid JSON for the engine. Raises TooLarge."""
    try:
        await check_body(request, body)
    except TooLarge:
        raise
    except InvalidInput:
        return False
    return True


def _error_event(fault: Failure) -> bytes:
    """Return an error as an event of Anthropic's stream."""
    return b"event: error\ndata: " + json.encode(fault.anthropic())


ROUTES = [messages, count_tokens]
