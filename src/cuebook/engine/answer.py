"""How a chat completion is answered without an upstream, in the form of the wire.

By the book's own model, or by what was recalled where there is none.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.engine.desk import Desk
from cuebook.engine.opening import Opened
from cuebook.engine.speak import speak
from cuebook.engine.step import Step

_encode = msgspec.json.Encoder().encode


class Head(Struct, frozen=True, kw_only=True):
    """Status and headers of an answer; its bytes follow."""

    status: int
    headers: Mapping[str, str]
    conversation: str = ""
    turn: int = 0


async def answer(desk: Desk, opened: Opened, step: Step, *, stream: bool) -> AsyncGenerator[Head | bytes, None]:
    """Answer by the book's own model, or by what was recalled where there is none."""
    lease = step.lease
    created = int(desk.clock.now())
    frame = {"id": f"chatcmpl-{lease.turn}-{lease.fence}", "created": created, "model": desk.model.name}
    head = Head(status=200, headers={"content-type": _kind(stream)}, conversation=lease.conversation, turn=lease.turn)
    if stream:
        yield head
        yield _event(frame, {"role": "assistant", "content": ""})
    async with aclosing(speak(desk, opened, step)) as texts:
        async for text in texts:
            if stream:
                yield _event(frame, {"content": text})
    if stream:
        yield _event(frame, {}, finish="stop")
        yield b"data: [DONE]\n\n"
        return
    text = "".join(step.text)
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", "logprobs": None}
    usage = {"prompt_tokens": opened.planned.window.tokens, "completion_tokens": desk.count(text)}
    usage["total_tokens"] = sum(usage.values())
    yield head
    yield _encode({**frame, "object": "chat.completion", "choices": [choice], "usage": usage})


def _kind(stream: bool) -> str:  # noqa: FBT001  # a content type in one of two forms
    return "text/event-stream; charset=utf-8" if stream else "application/json"


def _event(frame: Mapping[str, Any], delta: Mapping[str, Any], *, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return b"data: " + _encode({**frame, "object": "chat.completion.chunk", "choices": [choice]}) + b"\n\n"
