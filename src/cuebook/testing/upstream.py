"""A test double of the port Upstream: scripted answers, whole, in chunks, or broken."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from cuebook.interfaces import RelayRequest


class HttpReply(Struct, frozen=True, kw_only=True):
    """One answer: its head, the chunks of its body with `delay` seconds before each, and its end.

    `error` is raised after the chunks. `waits` is called before each chunk but the first.
    """

    pieces: Sequence[bytes] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    delay: float = 0.0
    error: Exception | None = None
    waits: Callable[[], Any] | None = None


class ScriptedUpstream:
    """An upstream that returns its answers in order and records requests. At the end it returns `default`, or fails."""

    base_url = "scripted:/v1"

    def __init__(self, *answers: HttpReply | Exception, default: HttpReply | None = None) -> None:
        self.requests: list[RelayRequest] = []
        self.closed = 0  # answers that were closed, read to the end or not
        self._answers = list(answers)
        self._default = default

    def say(self, *answers: HttpReply | Exception) -> None:
        """Append answers."""
        self._answers.extend(answers)

    async def send(self, request: RelayRequest) -> "_ScriptedAnswer":
        """Return the next answer."""
        self.requests.append(request)
        answer = self._answers.pop(0) if self._answers else self._default
        if answer is None:
            msg = f"The scripted upstream has no answer left for request {len(self.requests)}. Add one with `say`."
            raise AssertionError(msg)
        if isinstance(answer, Exception):
            raise answer
        return _ScriptedAnswer(self, answer)

    def sent(self, number: int = -1) -> dict[str, Any]:
        """Return a request's body."""
        body: dict[str, Any] = json.loads(self.requests[number].body)
        return body

    def messages(self, number: int = -1) -> list[dict[str, Any]]:
        """Return the messages of a request."""
        messages: list[dict[str, Any]] = self.sent(number)["messages"]
        return messages

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""


class _ScriptedAnswer:
    """A scripted answer that is being read."""

    def __init__(self, upstream: ScriptedUpstream, answer: HttpReply) -> None:
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers
        self._upstream = upstream
        self._answer = answer

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the chunks of the body."""
        for number, piece in enumerate(self._answer.pieces):
            if number and self._answer.waits:
                self._answer.waits()
            await asyncio.sleep(self._answer.delay)
            yield piece
        if self._answer.error is not None:
            raise self._answer.error

    async def aclose(self) -> None:
        """Record that the answer was closed."""
        self._upstream.closed += 1
