"""A test double of the port Upstream: scripted answers of the OpenAI API, whole, in chunks, or broken."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
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


def response(id_: str, *output: Mapping[str, Any], **fields: Any) -> HttpReply:
    """Return a whole answer of the Responses API with these items."""
    return HttpReply(pieces=(json.dumps(_response(id_, output, fields)).encode(),))


def streamed_response(id_: str, *output: Mapping[str, Any], done: bool = True, **fields: Any) -> HttpReply:
    """Return a streamed answer of the Responses API, each word of its texts in an event."""
    begun = _response(id_, (), {"status": "in_progress", "usage": None})
    events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
    for place, item in enumerate(output):
        where = {"output_index": place, "item_id": item.get("id")}
        events.append({"type": "response.output_item.added", "output_index": place, "item": {**item, "content": []}})
        for number, part in enumerate(item.get("content") or ()):
            events.append({"type": "response.content_part.added", "content_index": number, **where, "part": part})
            words = part["text"].split(" ")
            pieces = [words[0], *(f" {word}" for word in words[1:])]
            name: dict[str, Any] = {
                "type": "response.output_text.delta",
                "content_index": number,
                "logprobs": [],
                **where,
            }
            events += [{**name, "delta": piece} for piece in pieces]
        events += [{"type": "response.output_item.done", "output_index": place, "item": item}] if done else []
    events += [{"type": "response.completed", "response": _response(id_, output, fields)}] if done else []
    numbered = ({**each, "sequence_number": number} for number, each in enumerate(events))
    pieces_ = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in numbered]
    return HttpReply(pieces=pieces_, headers={"content-type": EVENTS})


def output_text(text: str) -> dict[str, Any]:
    """Return a message of an answer of the Responses API."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def _response(id_: str, output: Sequence[Mapping[str, Any]], fields: Mapping[str, Any]) -> dict[str, Any]:
    usage: dict[str, Any] = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}
    usage |= {"input_tokens_details": {"cached_tokens": 16}, "output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": id_, "object": "response", "created_at": 1, "model": "gpt-5.2", "status": "completed", "error": None,
        "output": list(output), "usage": usage, "tools": [], "tool_choice": "auto",
        "parallel_tool_calls": True, **fields,
    }  # fmt: skip


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


def cut(body: bytes, places: Iterable[int]) -> list[bytes]:
    """Return a body in chunks, split at these positions."""
    marks = [0, *sorted({min(place, len(body)) for place in places}), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(marks)]
