"""How a chat completion is answered without an upstream: by the book's own model, or by what was recalled, in the form of the wire."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.engine.desk import Desk
from cuebook.engine.step import Step
from cuebook.engine.turn import Opened
from cuebook.ports.model import ModelRequest
from cuebook.records.memory import NO_MODEL_LABEL

_encode = msgspec.json.Encoder().encode


class Head(Struct, frozen=True, kw_only=True):
    """Status and headers of an answer; its bytes follow."""

    status: int
    headers: Mapping[str, str]
    conversation: str = ""
    turn: int = 0


async def answer(desk: Desk, opened: Opened, step: Step, *, stream: bool) -> AsyncIterator[Head | bytes]:
    """Answer by the book's own model, or by what was recalled where there is none, in the form of the wire."""
    created = int(desk.clock.now())
    frame = {"id": f"chatcmpl-{step.lease.fence}-{step.lease.turn}", "created": created, "model": desk.model.name}
    where = {"conversation": opened.lease.conversation, "turn": opened.lease.turn}
    model_request = ModelRequest(
        messages=opened.planned.messages, conversation=opened.lease.conversation, recalled=opened.planned.hits
    )
    pieces = desk.model.stream(model_request)
    if stream:
        yield Head(status=200, headers={"content-type": "text/event-stream; charset=utf-8"}, **where)  # type: ignore[arg-type]
        yield _event(frame, {"role": "assistant", "content": ""})
    usage = None
    async for piece in pieces:
        usage = piece.usage or usage
        if piece.text:
            step.hear(piece.text)
            if stream:
                yield _event(frame, {"content": piece.text})
    text = "".join(step.text)
    await step.finish(usage=usage, silent=text.startswith(NO_MODEL_LABEL))
    counted = {"prompt_tokens": opened.planned.window.tokens, "completion_tokens": desk.count(text)}
    counted["total_tokens"] = sum(counted.values())
    if stream:
        yield _event(frame, {}, finish="stop")
        yield b"data: [DONE]\n\n"
        return
    yield Head(status=200, headers={"content-type": "application/json"}, **where)  # type: ignore[arg-type]
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", "logprobs": None}
    yield _encode({**frame, "object": "chat.completion", "choices": [choice], "usage": counted})


def _event(frame: Mapping[str, Any], delta: Mapping[str, Any], *, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return b"data: " + _encode({**frame, "object": "chat.completion.chunk", "choices": [choice]}) + b"\n\n"
