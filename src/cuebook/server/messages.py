"""Anthropic's wire: messages are relayed and kept; what else stands below them goes to the upstream as it came."""

from typing import Any

from litestar import post
from litestar.params import JSONBody
from litestar.response.base import ASGIResponse
from msgspec import Struct, json

from cuebook.errors import InvalidInput, NotFound
from cuebook.server import wire
from cuebook.server.caller import AnyRequest, book_of
from cuebook.server.chat import StreamsToo
from cuebook.server.edge import JsonBody, check_json
from cuebook.server.problems import AnthropicError, Failure
from cuebook.server.streams import Streamed
from cuebook.server.v1 import begin, call_of, pass_through, sends_new, told


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
    """Answer a request of Anthropic's wire by the upstream, and keep both.

    `messages = "pass"` under [upstream] keeps nothing, "keep" sends the request as it came, "book" the window in the
    place of its messages; without an upstream it is 404. What cannot be read goes to the upstream as it came, unkept.
    The headers are those of /v1/chat/completions but for Idempotency-Key, which means nothing here; those of the
    answer are the same.
    """
    body: Any = data
    book = book_of(request)
    if not book.upstream_url:
        msg = "/v1/messages: a model of Anthropic's wire answers it; `cuebook serve --upstream https://api.anthropic.com/v1`"
        raise NotFound(msg)
    if book.config.settings.upstream.messages == "pass" or not _is_clean(body):
        return await pass_through(request)
    call = call_of(request, body, server_history=sends_new(request), key=None)
    return Streamed(request.app.state.running, told(book.message(call), _said), begin)


def _is_clean(body: bytes) -> bool:
    """Whether a body is one the rooms behind can take."""
    try:
        check_json(body)
    except InvalidInput:
        return False
    return True


def _said(fault: Failure) -> bytes:
    """Say a fault as Anthropic's wire does in a stream."""
    return b"event: error\ndata: " + json.encode(fault.anthropic())


ROUTES = [messages]
