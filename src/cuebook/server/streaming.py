"""Stream responses in chunks; cancel them when the client disconnects, the server stops or the source fails."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar
from urllib.parse import quote

from litestar.response.base import ASGIResponse
from litestar.types import Receive, Scope, Send
from msgspec import Struct

from cuebook.errors import BackendError, CuebookError
from cuebook.records.answer import to_json
from cuebook.server.error_responses import Gone

T = TypeVar("T")
_log = logging.getLogger("cuebook.server")
Headers = list[tuple[bytes, bytes]]


class RunningTurns:
    """The running turns. A stopping server cancels them; each is stored as interrupted."""

    def __init__(self) -> None:
        #: Seconds after which a client that reads nothing counts as disconnected.
        self.patience_s = 60.0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._views: set[asyncio.Task[Any]] = set()  # those that end only with their client or the server
        self.stopping = False

    def end_views(self) -> None:
        """Cancel the live views, which would delay the stop."""
        for task in self._views:
            task.cancel()

    def stop(self) -> None:
        """Cancel all running turns."""
        self.stopping = True
        for task in self._tasks:
            task.cancel()

    async def end(self, *, within_s: float) -> None:
        """Cancel all running turns, and wait until their partial answers are stored."""
        self.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within_s)

    async def until_gone(self, receive: Receive, work: Coroutine[Any, Any, T], *, is_view: bool = False) -> T:
        """Run work until the client disconnects. Raises Gone then, BackendError when the server stops.

        `is_view`: it has no end of its own.
        """
        task = asyncio.ensure_future(work)
        watch = asyncio.ensure_future(_gone(receive))
        self._tasks.add(task)
        if is_view:
            self._views.add(task)
        try:
            await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
            self._tasks.discard(task)
            self._views.discard(task)
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
        if not task.cancelled():
            return task.result()
        raise _stopped() if self.stopping else Gone

    async def to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work to its end, also without a client. Raises BackendError when the server stops."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            if not self.stopping:
                raise
            raise _stopped() from None
        finally:
            self._tasks.discard(task)


def _stopped() -> BackendError:
    return BackendError("The server is stopping. The partial answer is stored; send the request again.", retryable=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Start(Struct, frozen=True):
    """Status and headers of an answer. `whole`: it is sent in one piece with its length."""

    status: int
    headers: Headers
    whole: bool = False


class StreamResponse(ASGIResponse):
    """An answer sent in pieces; the first determines status and headers.

    Its source is always closed. An error before the first piece is raised; a later one aborts the connection, so that
    no client mistakes a partial answer for a complete one.
    """

    __slots__ = ("_begin", "_is_view", "_pieces", "_running", "_started", "_to_the_end")

    def __init__(
        self,
        running: RunningTurns,
        pieces: AsyncIterator[Any],
        begin: Callable[[Any], Start] | None = None,
        *,
        to_the_end: bool = False,
        is_view: bool = False,
    ) -> None:
        """`begin` converts the first piece to a Start. `to_the_end`: continue without the client.

        `is_view`: the pieces have no end, and a stopping server does not wait for them.
        """
        super().__init__()
        self._running, self._pieces, self._begin = running, pieces, begin
        self._started, self._to_the_end, self._is_view = False, to_the_end, is_view

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _ = scope
        try:
            if self._to_the_end:
                await self._running.to_the_end(self._send(send))
            else:
                await self._running.until_gone(receive, self._send(send), is_view=self._is_view)
        except Gone:
            return
        except CuebookError:
            if not self._started:
                raise
        except Exception:
            if self._started:  # headers are sent: no error response is possible
                _log.exception("Response aborted by an unexpected error")
            raise

    async def _send(self, send: Send) -> None:
        pieces = self._pieces
        try:
            first = await anext(pieces)
            start: Start = self._begin(first) if self._begin else first
            headers = start.headers
            body = b""
            if start.whole:
                body = b"".join([piece async for piece in pieces])
                headers = [*headers, (b"content-length", str(len(body)).encode())]
            self._started = True
            await send({"type": "http.response.start", "status": start.status, "headers": headers})
            if not start.whole:
                async for piece in pieces:
                    await self._give(send, piece)
            await send({"type": "http.response.body", "body": body, "more_body": False})
        finally:
            if isinstance(pieces, AsyncGenerator):
                await pieces.aclose()

    async def _give(self, send: Send, piece: bytes) -> None:
        """Send a piece. Raises Gone if the client reads nothing, because it would block its conversation's queue."""
        try:
            async with asyncio.timeout(self._running.patience_s):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError:
            if self._to_the_end:
                async for _ in self._pieces:
                    pass
            raise Gone from None


def event(name: str, value: object) -> bytes:
    """Return a value as a server-sent event."""
    return b"event: " + name.encode() + b"\ndata: " + to_json(value) + b"\n\n"


def encoded(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return headers as bytes, with control characters percent-encoded."""
    return [(name.lower().encode("latin-1"), _value(value)) for name, value in headers]


def _value(value: str) -> bytes:
    if not value.isprintable() or value != value.strip():
        value = quote(value)
    return value.encode()
