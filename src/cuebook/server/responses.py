"""OpenAI's Responses wire: answered by turns of the book; what is not ours to answer goes to the upstream."""

from typing import Any

from litestar import get, post
from litestar.params import FromPath, JSONBody
from litestar.response.base import ASGIResponse
from msgspec import Struct, json

from cuebook.server import wire
from cuebook.server.caller import AnyRequest, book_of, idempotency_key, user_of
from cuebook.server.chat import StreamsToo
from cuebook.server.edge import JsonBody, check_json
from cuebook.server.guard import Place, name_in
from cuebook.server.streams import Streamed
from cuebook.server.v1 import begin, call_of, pass_through, sends_new


class ResponseAsked(Struct, frozen=True):
    """A request as OpenAI means it. What is not named here is read too."""

    input: str | list[dict[str, Any]] = ""
    model: str = ""
    stream: bool | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None


class ReadLater(JsonBody[ResponseAsked]):
    """A body that is checked for JSON, and read where it is known who answers."""

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
    """Answer a response. `previous_response_id` or `conversation` names what it continues, else `input` is all of it.

    Function tools are passed through. What a chat completion cannot say goes to the upstream as it came, unkept, and
    everything with `responses = "pass"` under [upstream]; 400 where there is none. The headers are those of
    /v1/chat/completions.
    """
    body: Any = data
    book = book_of(request)
    passes = book.config.settings.upstream.responses == "pass"
    place: Place = request.scope["state"]["place"]
    user = user_of(request, place.user)
    if book.upstream_url and (passes or await book.responses.refused(body, user=user)):
        return await pass_through(request)
    call = call_of(request, body, server_history=sends_new(request), key=idempotency_key(request.scope))
    return Streamed(
        request.app.state.running, book.respond(call), begin, to_the_end=call.idempotency_key is not None
    )  # fmt: skip


@get("/v1/responses/{response:str}", responses=wire.openai_answers(dict[str, Any]))
async def response_(request: AnyRequest, response: FromPath[str]) -> ASGIResponse:
    """Give a response as it is kept: how it ended, its output and its usage; ask the upstream for one of its own."""
    book, id_ = book_of(request), name_in(response)
    if book.upstream_url and not book.responses.is_ours(id_):
        return await pass_through(request)
    place: Place = request.scope["state"]["place"]
    found = await book.responses.get(id_, user=user_of(request, place.user))
    return ASGIResponse(body=json.encode(found), media_type="application/json")


ROUTES = [responses, response_]
