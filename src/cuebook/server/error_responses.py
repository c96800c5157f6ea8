"""Convert exceptions to HTTP error responses: status, problem document (RFC 9457), OpenAI and Anthropic errors."""

import logging
import math
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException
from litestar.response.base import ASGIResponse
from msgspec import Struct, field

from cuebook.errors import (
    BackendError,
    Busy,
    Conflict,
    CuebookError,
    Denied,
    InvalidInput,
    KeyReused,
    MergeConflict,
    NotFound,
    StoreFull,
    TooLarge,
    Unproven,
    UpstreamError,
)
from cuebook.records.answer import as_answer

PROBLEM_TYPE = "application/problem+json"
#: Names of errors that the HTTP layer raises.
_NAMES = {403: "refused", 404: "no-such-address", 405: "method-not-allowed", 413: "too-large", 503: "unavailable"}

#: Litestar's message for a missing query parameter.
_MISSING = re.compile(r"Missing required query parameter '([^']*)'")

#: Words for the decoder's names of JSON types.
_TYPES = {
    "int": "a whole number", "float": "a number", "str": "text", "bool": "true or false",
    "array": "a list", "object": "an object",
}  # fmt: skip
_TYPE = re.compile("`([^`]*)`")

_log = logging.getLogger("cuebook.server")
_encode = msgspec.json.Encoder().encode


class ForbiddenOrigin(InvalidInput):
    """Raised for a request from a forbidden Host or Origin."""


class Gone(CuebookError):
    """Raised when the client disconnects before its answer is ready."""


#: Exception type → status and name, subclasses first.
TABLE: tuple[tuple[type[CuebookError], int, str], ...] = (
    (TooLarge, 413, "too-large"),
    (KeyReused, 422, "idempotency-key-reused"),
    (ForbiddenOrigin, 403, "refused"),
    (InvalidInput, 400, "invalid-input"),
    (Unproven, 401, "invalid-api-key"),
    (Denied, 403, "denied"),
    (NotFound, 404, "not-found"),
    (Busy, 429, "busy"),
    (MergeConflict, 409, "merge-conflict"),
    (Conflict, 409, "conflict"),
    (StoreFull, 507, "store-full"),
    (UpstreamError, 502, "upstream"),
    (BackendError, 500, "backend"),
    (Gone, 499, "gone"),
    (CuebookError, 500, "internal"),
)


class FieldError(Struct, frozen=True):
    """The error of one field."""

    where: str
    detail: str


class SectionConflict(Struct, frozen=True):
    """A section that both branches changed: the base text and both new texts; null if absent."""

    section: str
    base: str | None
    ours: str | None
    theirs: str | None


class Problem(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A problem document (RFC 9457). `where` names the invalid field, `errors` lists several.

    `conflicts` are those of a merge.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str | None = None
    request_id: str | None = field(default=None, name="requestId")  # as in the log
    where: str | None = None
    errors: list[FieldError] | None = None
    conflicts: list[SectionConflict] | None = None


class OpenAIErrorBody(Struct, frozen=True, kw_only=True):
    """The error in OpenAI's format."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class OpenAIError(Struct, frozen=True):
    """OpenAI's error object."""

    error: OpenAIErrorBody


class AnthropicErrorBody(Struct, frozen=True):
    """The error in Anthropic's format."""

    type: str
    message: str


class AnthropicError(Struct, frozen=True):
    """Anthropic's error object."""

    error: AnthropicErrorBody
    type: str = "error"


class Failure(Struct, frozen=True, kw_only=True):
    """An error that can be rendered in each format."""

    status: int
    name: str
    detail: str
    where: str | None = None
    errors: list[FieldError] | None = None
    conflicts: list[SectionConflict] | None = None
    headers: tuple[tuple[str, str], ...] = ()

    def problem(self, instance: str | None = None, request_id: str | None = None) -> Problem:
        """Return it as a problem document."""
        title = HTTPStatus(self.status).phrase if self.status in _STATUSES else "Error"
        place = {"instance": instance, "request_id": request_id}
        return as_answer(Problem, self, type=f"urn:cuebook:problem:{self.name}", title=title, **place)

    def openai(self) -> OpenAIError:
        """Return it as OpenAI's error object."""
        kind = _OPENAI.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        code = self.name.replace("-", "_")
        return OpenAIError(OpenAIErrorBody(message=self.detail, type=kind, param=self.where, code=code))

    def anthropic(self) -> AnthropicError:
        """Return it as Anthropic's error object."""
        kind = _ANTHROPIC.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")
        return AnthropicError(AnthropicErrorBody(kind, self.detail))


#: OpenAI's error types by status; others are `server_error`, or `invalid_request_error` below 500.
_OPENAI = {429: "rate_limit_error"}
#: Anthropic's error types by status; others are `api_error`, or `invalid_request_error` below 500.
_ANTHROPIC = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error", 504: "timeout_error", 529: "overloaded_error",
}  # fmt: skip
_STATUSES = frozenset(status.value for status in HTTPStatus)


def failure_of(error: Exception) -> Failure:
    """Convert an exception by the table. Unexpected ones are logged, and their text is not sent to the client."""
    if isinstance(error, CuebookError):
        return _of_family(error)
    if isinstance(error, HTTPException):
        return _of_litestar(error)
    _log.error("Request failed with an unexpected error", exc_info=error)
    return Failure(status=500, name="internal", detail="Internal error. See the server log for the cause.")


def _of_family(error: CuebookError) -> Failure:
    status, name = next((status, name) for family, status, name in TABLE if isinstance(error, family))
    headers: tuple[tuple[str, str], ...] = ()
    if isinstance(error, Busy):
        headers = (("retry-after", str(max(1, math.ceil(error.retry_after)))),)
    elif isinstance(error, Unproven):
        headers = (("www-authenticate", 'Bearer realm="cuebook"'),)
    elif isinstance(error, UpstreamError):
        status = error.status if error.status is not None and 400 <= error.status < 600 else status
    elif isinstance(error, BackendError) and error.retryable and status == 500:
        status, headers = 503, (("retry-after", "1"),)
    clashes = error.conflicts if isinstance(error, MergeConflict) else None
    return Failure(
        status=status,
        name=name,
        detail=str(error),
        where=getattr(error, "where", None),
        conflicts=msgspec.convert(clashes, list[SectionConflict] | None),
        headers=headers,
    )


def _of_litestar(error: HTTPException) -> Failure:
    status = error.status_code
    name = _NAMES.get(status, "internal" if status >= 500 else "invalid-input")
    raw: Any = error.extra if isinstance(error.extra, list) else []
    errors = [_field_error(each) for each in raw if isinstance(each, dict)]
    if match := _MISSING.match(error.detail):
        errors = [FieldError(match[1], "missing. Add it to the query.")]
    detail = {
        404: "No route at this address. See /schema for all routes.",
        405: "Method not allowed here. See the Allow header.",
        413: "Request body too large. Split it, or raise server.max_body (server.max_v1_body under /v1).",
    }.get(status, error.detail)
    if errors:
        detail = "; ".join(f"{each.where}: {each.detail}" for each in errors)
    if status >= 500:
        detail = "The request failed. See the server log for the cause."
    headers = tuple((key.lower(), value) for key, value in (error.headers or {}).items())
    return Failure(
        status=status,
        name=name,
        detail=detail,
        where=errors[0].where if errors else None,
        errors=errors or None,
        headers=headers,
    )


def _field_error(data: Mapping[str, Any]) -> FieldError:
    where, text = str(data.get("key", "")), str(data.get("message", ""))
    if where == "data":
        return FieldError("body", "empty. Send a JSON object.")
    if data.get("source") == "query":  # Litestar names the function's parameter, not the query's
        first, *more = where.rstrip("_").split("_")
        where = first + "".join(each.capitalize() for each in more)
    return FieldError(where, in_words(text))


def in_words(complaint: str) -> str:
    """Return a decoder's message with JSON type names: "Expected `int`, got `str`"."""
    text, got, value = complaint.partition(", got ")
    wanted = _TYPE.sub(lambda result: " or ".join(_TYPES.get(each, each) for each in result[1].split(" | ")), text)
    value = _TYPE.sub(lambda result: "a fraction" if result[1] == "float" else _TYPES.get(result[1], result[1]), value)
    return f"{wanted[:1].lower()}{wanted[1:]}{got}{value}"


def body_of(
    failure: Failure, rest: str | None, *, instance: str | None = None, request_id: str | None = None
) -> tuple[bytes, str]:
    """Return an error's body and its media type; `rest` is the path after `/v1`, None elsewhere."""
    if rest is None:
        return _encode(failure.problem(instance, request_id)), PROBLEM_TYPE
    error = failure.anthropic() if rest.startswith("/messages") else failure.openai()
    return _encode(error), "application/json"


def respond(failure: Failure, rest: str | None) -> ASGIResponse:
    """Return an error response before routing."""
    body, media_type = body_of(failure, rest)
    return ASGIResponse(body=body, media_type=media_type, status_code=failure.status, headers=list(failure.headers))


def answer_error(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the response for an exception that a route raised."""
    failure, place = failure_of(error), request.scope["state"].get("place")
    if "text/html" in request.headers.get("accept", "") and (shown := request.app.state.error_page(request, failure)):
        return cast("Response[bytes]", shown)
    raw = request.scope.get("raw_path", b"").decode("ascii", "replace") or None
    id_ = request.scope["state"].get("request_id")
    body, media_type = body_of(failure, place.rest if place else None, instance=raw, request_id=id_)
    return Response(body, media_type=media_type, status_code=failure.status, headers=dict(failure.headers))
