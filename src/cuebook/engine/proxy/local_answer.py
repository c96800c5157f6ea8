"""Answer a chat completion without an upstream: by the configured model or, without one, with recalled text."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

import msgspec
from msgspec import Struct

from cuebook.engine.core.services import Services
from cuebook.engine.turn.opening import Opened
from cuebook.engine.turn.step import OpenStep
from cuebook.engine.turn.turn import speak
from cuebook.records.turn import Usage
from cuebook.wire.chat_answers import usage_fields, write_chunk, write_completion, write_end

_encode = msgspec.json.Encoder().encode


class Head(Struct, frozen=True, kw_only=True):
    """Status and headers of an answer, sent before its body, and where it is stored."""

    status: int
    headers: Mapping[str, str]
    conversation: str = ""
    turn: int = 0
    step: int = 1
    side: bool = False  # the request continues no path and is stored apart
    tokens: int = 0  # of the prompt, by our count

    @property
    def is_stream(self) -> bool:
        """Return whether the body is a stream of events."""
        return self.headers.get("content-type", "").lower().startswith("text/event-stream")


async def answer(
    services: Services, opened: Opened, step: OpenStep, *, stream: bool, counts: bool = False
) -> AsyncGenerator[Head | bytes, None]:
    """Answer by the configured model, or with recalled text without one.

    `counts`: a stream ends with its usage.
    """
    lease = step.lease
    created = int(services.clock.now())
    id_ = f"chatcmpl-{lease.no}-{lease.turn}-{lease.fence}"  # unique in this database: clients identify answers by it
    frame = {"id": id_, "created": created, "model": services.model.name}
    step.metadata = {"answer": {"step": lease.step, **frame}}
    head = local_head(stream=stream)
    if stream:
        yield head
        yield write_chunk(frame, {"role": "assistant", "content": ""})
    async with aclosing(speak(services, opened, step)) as texts:
        async for text in texts:
            if stream:
                yield write_chunk(frame, {"content": text})
    text, finish = "".join(step.text), (step.metadata["answer"].get("finishReasons") or ["stop"])[0]
    usage = usage_fields(Usage(input=opened.planned.window.tokens, output=services.count(text)))
    if stream:
        for event in write_end(frame, [finish], usage if counts else None):
            yield event
        return
    yield head
    yield write_completion(frame, [_encode({"role": "assistant", "content": text})], [finish], usage)


def local_head(*, stream: bool) -> Head:
    """Return the head of a local answer."""
    return Head(
        status=200, headers={"content-type": "text/event-stream; charset=utf-8" if stream else "application/json"}
    )
