"""A test double of the port Upstream: scripted answers of the OpenAI API, whole, in chunks, or broken."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from cuebook.interfaces import RelayRequest

EVENTS = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


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


def call(id_: str, name: str = "look", arguments: Any = None) -> dict[str, Any]:
    """Return a tool call in OpenAI's format."""
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments or {})}}


def result(id_: str, text: str = "found") -> dict[str, Any]:
    """Return a tool result message."""
    return {"role": "tool", "tool_call_id": id_, "content": text}


def completion(*texts: str, calls: Sequence[Mapping[str, Any]] = (), usage: Any = None, **fields: Any) -> HttpReply:
    """Return a whole answer with one choice for each text."""
    choices = []
    for index, text in enumerate(texts or ("",)):
        message: dict[str, Any] = {"role": "assistant", "content": text or None, **fields}
        if calls:
            message["tool_calls"] = list(calls)
        choices.append({"index": index, "message": message, "finish_reason": "tool_calls" if calls else "stop"})
    body = {"id": "chatcmpl-1", "object": "chat.completion", "choices": choices} | ({"usage": usage} if usage else {})
    return HttpReply(pieces=(json.dumps(body).encode(),))


def event(delta: Mapping[str, Any] | None = None, *, finish: str | None = None, index: int = 0, **fields: Any) -> bytes:
    """Return one event of a stream."""
    choices = [] if delta is None else [{"index": index, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": choices, **fields}).encode() + b"\n\n"


def streamed(
    text: str = "", *, calls: Sequence[Mapping[str, Any]] = (), size: int = 8, done: bool = True, **fields: Any
) -> HttpReply:
    """Return a streamed answer, its text in events of `size` characters. `fields` are fields of HttpReply."""
    pieces = [event({"role": "assistant", "content": ""})]
    pieces += [event({"content": text[start : start + size]}) for start in range(0, len(text), size)]
    for index, each in enumerate(calls):
        opened = {**each, "index": index, "function": {"name": each["function"]["name"], "arguments": ""}}
        pieces.append(event({"tool_calls": [opened]}))
        grown = {"index": index, "function": {"arguments": each["function"]["arguments"]}}
        pieces.append(event({"tool_calls": [grown]}))
    if done:
        pieces += [event({}, finish="tool_calls" if calls else "stop"), DONE]
    return HttpReply(pieces=pieces, headers={"content-type": EVENTS}, **fields)


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
