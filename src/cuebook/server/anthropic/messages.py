"""Anthropic's wire: messages are relayed and kept; what else stands below them goes to the upstream as it came."""

from typing import Any

from litestar import post
from litestar.params import JSONBody
from litestar.response.base import ASGIResponse
from msgspec import Struct, json

from cuebook.errors import InvalidInput
from cuebook.server.api import types as wire
from cuebook.server.api.chat import StreamsToo
from cuebook.server.authorization import AnyRequest, book_of, idempotency_key
from cuebook.server.error_responses import AnthropicError, Failure
from cuebook.server.json_body import JsonBody, check_json
from cuebook.server.openai.chat_completions import answer_of, begin, call_of, pass_through, sends_new
from cuebook.server.streaming import Streamed


class MessageAsked(Struct, frozen=True):
    """A request as Anthropic means it. Every field goes upstream as it came, those not named here too."""

    messages: list[dict[str, Any]]
    model: str = ""
    max_tokens: int = 0
    system: str | list[dict[str, Any]] = ""
    stream: bool | None = None


class NotRead(JsonBody[MessageAsked]):
    """A body that is documented, and for the upstream to judge."""

    def decode_bytes(self, value: bytes) -> Any:
        return value


@post(
    "/v1/messages",
    dto=NotRead,
    status_code=200,
    responses=wire.openai_answers(dict[str, Any], AnthropicError),
    operation_class=StreamsToo,
)
async def messages(request: AnyRequest, data: JSONBody[MessageAsked]) -> ASGIResponse:
    """Answer a request of Anthropic's wire, and keep it with its answer.

    Where the upstream speaks that wire it answers: with `messages = "book"` under [upstream] it gets the window in the
    place of the messages, with "keep" the request as it came; "pass" keeps nothing. What cannot be read goes up as it
    came, unkept. With "chat", and without an upstream, another model answers: the upstream as a chat completion with
    its tools, or the book's own. Header X-Cuebook-Left-Out then names fields of the request it did not get. The other
    headers are those of /v1/chat/completions.
    """
    body: Any = data
    book = book_of(request)
    own = book.messages.translates
    if own:
        check_json(body)
    elif book.config.settings.upstream.messages == "pass" or not _is_clean(body):
        return await pass_through(request)
    call = call_of(request, body, server_history=sends_new(request), key=idempotency_key(request.scope))
    return Streamed(
        request.app.state.running,
        answer_of(book.message(call), _said),
        begin,
        to_the_end=call.idempotency_key is not None,
    )


@post(
    "/v1/messages/count_tokens",
    dto=NotRead,
    status_code=200,
    responses=wire.openai_answers(dict[str, Any], AnthropicError),
)
async def count_tokens(request: AnyRequest, data: JSONBody[MessageAsked]) -> ASGIResponse:
    """Count the tokens of a request: an upstream that speaks Anthropic's wire does, else they are estimated."""
    body: Any = data
    book = book_of(request)
    if not book.messages.translates:
        return await pass_through(request)
    check_json(body)
    counted = book.messages.count(call_of(request, body, server_history=False, key=None))
    return ASGIResponse(body=json.encode(counted), media_type="application/json")


def _is_clean(body: bytes) -> bool:
    """Whether a body is one the rooms behind can take."""
    try:
        check_json(body)
    except InvalidInput:
        return False
    return True


def _said(fault: Failure) -> bytes:
    """Return a fault as Anthropic's wire does in a stream."""
    return b"event: error\ndata: " + json.encode(fault.anthropic())


ROUTES = [messages, count_tokens]
