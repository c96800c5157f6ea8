"""Relay an upstream's answer unchanged and store it."""

from collections.abc import AsyncGenerator
from typing import Any

from cuebook.engine.core.model_call import closing
from cuebook.engine.proxy.chat_stream import Heard, Hearing
from cuebook.engine.proxy.local_answer import Head
from cuebook.engine.turn.step import OpenStep
from cuebook.errors import InvalidInput, UpstreamError
from cuebook.interfaces.model import RelayAnswer
from cuebook.records.conversation import CALL
from cuebook.wire.chat_messages import MessageContent, read_message
from cuebook.wire.chat_stream import ByteLines


async def relay_answer(
    reply: RelayAnswer, step: OpenStep, hearing: Hearing | None = None
) -> AsyncGenerator[Head | bytes, None]:
    """Yield an answer's head and its body's bytes. The last bytes follow once the answer is durable.

    `heard` parses it; the default is OpenAI's wire.
    """
    hearing = hearing or Heard()
    lease = step.lease
    place: Any = {"conversation": lease.conversation, "turn": lease.turn, "step": lease.step}
    head = Head(status=reply.status, headers=reply.headers, **place)
    try:
        if reply.status < 400 and reply.headers.get("content-type", "").lower().startswith("text/event-stream"):
            yield head
            ear = Ear(step, hearing)
            async with closing(ear.relay(reply)) as lines:
                async for line in lines:
                    yield line
            return
        body = b"".join([chunk async for chunk in reply.chunks()])
        await _keep_whole(step, hearing, reply.status, body)
        yield head
        yield body
    finally:
        await reply.aclose()


async def _keep_whole(step: OpenStep, hearing: Hearing, status: int, body: bytes) -> None:
    """Store an answer that is not streamed. An error ends the turn as failed, and its query stays."""
    if status < 400:
        hearing.take(body)
    await keep(
        step, hearing, nothing=f"The upstream answered {status}" + (" with no message." if status < 400 else ".")
    )


class Ear:
    """Relays a stream and parses a copy of it."""

    def __init__(self, step: OpenStep, heard: Hearing) -> None:
        self._step = step
        self._heard = heard
        self._kept = False
        step.so_far = lambda: partly(self._heard)

    async def relay(self, reply: RelayAnswer) -> AsyncGenerator[bytes, None]:
        """Yield the lines unchanged. The end of the stream waits until the turn is durable."""
        lines = ByteLines()
        try:
            async with closing(reply.chunks()) as chunks:
                async for data in chunks:
                    ready: list[bytes] = []
                    for line in lines.feed(data):
                        self._hear(line)
                        if self._heard.done and not self._kept:
                            if ready:
                                yield b"".join(ready)
                                ready = []
                            await self._keep("")
                        ready.append(line)
                    if ready:
                        yield b"".join(ready)
        except UpstreamError as error:
            if self._kept:
                return  # the connection broke after the end
            await self._keep(str(error))
            raise
        finally:
            if self._heard.whole:  # the client disconnected, but the answer is complete
                await self._keep("")
        rest = lines.rest()
        self._hear(rest)
        await self._keep("The upstream's stream ended before the answer was complete.")
        if rest:
            yield rest

    def _hear(self, line: bytes) -> None:
        added = self._heard.hear(line)
        if not self._kept:
            if added:
                self._step.hear(added)
            else:
                self._step.check()

    async def _keep(self, broken: str) -> None:
        """Store the answer, once. `broken` is the reason why it is incomplete, if it is."""
        if not self._kept:
            self._kept = True
            await keep(self._step, self._heard, broken=broken)


async def keep(
    step: OpenStep, hearing: Hearing, *, broken: str = "", nothing: str = "The stream contained no answer."
) -> None:
    """End a step with the complete or partial answer."""
    wire = hearing.message()
    message_content = _read(wire)
    if hearing.error:
        await step.finish(state="failed", error=f"Upstream error: {hearing.error}", usage=hearing.usage)
    elif broken and not hearing.whole:
        await step.finish(state="interrupted", error=broken, usage=hearing.usage)
    elif wire is None or message_content is None:
        reason = nothing if wire is None else "The upstream's answer is unreadable."
        await step.finish(state="failed", error=reason, usage=hearing.usage)
    else:
        others = [hearing.message(choice) for choice in hearing.choices if choice]
        calls = any(part.type == CALL for part in message_content.parts)
        step.metadata |= {"answer": {"step": step.lease.step, **hearing.frame, "finishReasons": hearing.reasons}}
        await step.finish(
            wire=wire,
            usage=hearing.usage,
            waiting=calls and hearing.waits,
            others=tuple(other for other in others if other and _read(other)),
        )


def partly(hearing: Hearing) -> MessageContent | None:
    """Return the partial answer, or None if it is empty or unreadable."""
    return _read(hearing.message())


def _read(wire: bytes | None) -> MessageContent | None:
    try:
        return read_message(wire) if wire else None
    except InvalidInput:
        return None
