"""Scripted answers of the chat and Responses APIs, and answers in chunks, for the scripted upstream."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cuebook.testing.upstream import HttpReply

EVENTS = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


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


def cut(body: bytes, places: Iterable[int]) -> list[bytes]:
    """Return a body in chunks, split at these positions."""
    marks = [0, *sorted({min(place, len(body)) for place in places}), len(body)]
    return [body[start:end] for start, end in itertools.pairwise(marks)]
