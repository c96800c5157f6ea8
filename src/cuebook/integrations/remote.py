"""A Cuebook server as the adapters use it: the operations of `Cuebook` as calls of its HTTP API."""

import os
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from functools import cache
from http import HTTPStatus
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx2
import msgspec
from msgspec.structs import replace

from cuebook.app.cuebook import Cuebook
from cuebook.app.loop import LoopThread
from cuebook.engine.core.drafts import Posted
from cuebook.errors import BackendError, Conflict, CuebookError, Denied, InvalidInput, NotFound
from cuebook.operations import Operation, operations_of
from cuebook.records.answer import Page, Time, from_json, to_json
from cuebook.records.conversation import Appended
from cuebook.records.conversation_answers import PartEntry, PostEntry

T = TypeVar("T")
#: The environment variable of the API key.
KEY: Final = "CUEBOOK_API_KEY"
#: Seconds that a call may take.
_PATIENCE_S: Final = 60
#: The error of each status; others are errors of the server.
_ERRORS: Final[dict[int, type[CuebookError]]] = {
    HTTPStatus.UNAUTHORIZED: Denied,
    HTTPStatus.FORBIDDEN: Denied,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.BAD_REQUEST: InvalidInput,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: InvalidInput,
    HTTPStatus.UNPROCESSABLE_ENTITY: InvalidInput,
}


class RemoteCuebook:
    """The operations of a server by the names that they have in Python: `await cue.documents.get(space, key)`."""

    def __init__(self, url: str) -> None:
        headers = {"X-Cuebook-Key": key} if (key := os.environ.get(KEY)) else {}
        self._http = httpx2.AsyncClient(base_url=url.rstrip("/"), headers=headers, timeout=_PATIENCE_S)

    @property
    def documents(self) -> "_Namespace":
        return _Namespace(self, "documents")

    @property
    def conversations(self) -> "_Conversations":
        return _Conversations(self, "conversations")

    @property
    def memory(self) -> "_Memories":
        return _Memories(self, "memory")

    async def append(self, conversation: str, posts: Sequence[Posted], *, user: str | None = None) -> Appended:
        """Store posts, all or none. The server derives their roles from their senders."""
        values = [
            {
                "sendFrom": each.sender,
                "sendTo": each.recipient,
                "message": each.message,
                "attachments": [
                    {"type": part.type, "content": part.content, "extra": part.extra} for part in each.parts
                ],
                **({"id": each.id} if each.id else {}),
                **({} if each.created_at is None else {"timestamp": str(Time(each.created_at))}),
            }
            for each in posts
        ]
        path = f"/api/conversations/{quote(conversation, safe='')}/posts"
        return from_json(await self.call("POST", path, body={"posts": values, "userId": user}), Appended)

    async def settle(self, *, conversation: str | None = None) -> None:
        """Wait until no background job of a conversation is pending."""
        await self.call("POST", "/api/settle", body={"conversationId": conversation})

    async def call(self, method: str, path: str, *, query: Any = None, body: Any = None) -> bytes:
        """Return the answer to a request. Raises the CuebookError that the server reports."""
        content = None if body is None else to_json(body)
        headers = {} if content is None else {"Content-Type": "application/json"}
        try:
            response = await self._http.request(method, path, params=query, content=content, headers=headers)
        except httpx2.HTTPError as error:
            msg = f"The server {self._http.base_url} does not answer: {type(error).__name__}."
            raise BackendError(msg, retryable=True) from error
        if response.is_success:
            return response.content
        raise _error_of(response)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()


class _Namespace:
    """A namespace of operations."""

    def __init__(self, cue: RemoteCuebook, name: str) -> None:
        self._cue, self._name = cue, name

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        operation = _operations().get((self._name, name))
        if operation is None:
            msg = f"{self._name}.{name}: a server does not offer it. Open the project itself."
            raise CuebookError(msg)

        async def run(*arguments: Any, **options: Any) -> Any:
            return await _call(self._cue, operation, arguments, options)

        return run


class _Conversations(_Namespace):
    """The conversations. A server returns parts of types that it does not know as opaque."""

    async def posts(self, conversation: str, **options: Any) -> Page[PostEntry]:
        """Return posts as they were stored."""
        page: Page[PostEntry] = await self.__getattr__("posts")(conversation, **options)
        return replace(page, items=tuple(replace(each, parts=tuple(map(_part_of, each.parts))) for each in page))


class _Memories(_Namespace):
    """The memories. An erasure has another name over HTTP."""

    async def forget(self, *, memories: Sequence[str]) -> Any:
        """Erase memories."""
        return await self.erase(memory_ids=memories)


class RemoteHost:
    """A server for adapters that call it from any thread: it runs calls in a thread of its own."""

    def __init__(self, url: str) -> None:
        self._cue, self._loop = RemoteCuebook(url), LoopThread("cuebook-remote")

    def submit(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run `work` of the server, and return its future."""
        return self._loop.submit(lambda: work(self._cue))

    def close(self) -> None:
        """Close the connections and end the thread."""
        self._loop.close(last=self._cue.aclose)


async def _call(cue: RemoteCuebook, operation: Operation, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
    """Return the answer of an operation to Python's arguments."""
    asked = operation.asked()
    positional = [each.name for each in asked if each.positional]
    values = dict(zip(positional, arguments, strict=False)) | options
    wire = {each.name: each.wire for each in asked}
    if unknown := values.keys() - wire.keys():
        msg = f"{operation.name}: unknown argument {min(unknown)!r}. Available: {', '.join(wire)}."
        raise InvalidInput(msg, where=min(unknown))
    path = operation.declaration.path
    for each in operation.parameters_in("path"):
        path = path.replace(f"{{{each.name}}}", quote(str(values[each.name]), safe=""))
    times = {each.name for each in asked if each.argument.time}
    sent = {name: Time(value) if name in times else value for name, value in values.items() if value is not None}
    body = {wire[each.name]: sent[each.name] for each in operation.parameters_in("body") if each.name in sent}
    in_query = [each for each in operation.parameters_in("query") if each.name in sent and each.wire not in body]
    query = {each.wire: _query_value(sent[each.name]) for each in in_query}
    has_body = operation.request_type() is not None
    raw = await cue.call(operation.declaration.method, path, query=query, body=body if has_body else None)
    answer = from_json(raw, operation.answer_type())
    return getattr(answer, operation.declaration.wrap) if operation.declaration.wrap else answer


def _part_of(part: PartEntry) -> PartEntry:
    """Return a part with its own type."""
    if part.type != "opaque" or not isinstance(part.extra, dict) or "originalType" not in part.extra:
        return part
    return replace(part, type=part.extra["originalType"], extra=part.extra.get("extra"))


def _query_value(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return list(value) if isinstance(value, list | tuple) else str(value)


def _error_of(response: httpx2.Response) -> CuebookError:
    """Return the error of a problem document."""
    try:
        problem = msgspec.json.decode(response.content, type=dict[str, Any])
    except msgspec.DecodeError:
        problem = {}
    detail = problem.get("detail") or f"The server answered with status {response.status_code}."
    kind = _ERRORS.get(response.status_code, BackendError)
    if issubclass(kind, InvalidInput):
        return kind(detail, where=problem.get("where"))
    if issubclass(kind, BackendError):
        return kind(detail, retryable=response.status_code in (429, 503))
    return kind(detail)


@cache
def _operations() -> dict[tuple[str, str], Operation]:
    return {(each.namespace, each.name): each for each in operations_of(Cuebook) if each.declaration.path}
