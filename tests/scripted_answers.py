"""Scripted answers of the Responses API, and answers in chunks, for the scripted upstream."""

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cuebook.testing.upstream import EVENTS, HttpReply


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
