"""Relay an upstream's answer unchanged and store it."""

from collections.abc import AsyncGenerator, Iterable

from cuebook.engine.core.model_call import closing
from cuebook.engine.proxy.local_answer import Head
from cuebook.engine.turn.step import OpenStep
from cuebook.errors import InvalidInput, UpstreamError
from cuebook.interfaces.model import RelayAnswer
from cuebook.records.conversation import CALL
from cuebook.wire.answer import StreamReader
from cuebook.wire.chat_messages import MessageContent, read_message
from cuebook.wire.event_stream import ByteLines


async def relay_answer(reply: RelayAnswer, step: OpenStep, reader: StreamReader) -> AsyncGenerator[Head | bytes, None]:
    """Yield an answer's head and its body's bytes. The last bytes follow once the answer is durable.

    An error status ends the turn as failed, and its query stays.
    """
    head, good = Head(status=reply.status, headers=reply.headers), reply.status < 400
    try:
        if good and head.is_stream:
            yield head
            async with closing(_relay_stream(reply, step, reader)) as lines:
                async for line in lines:
                    yield line
            return
        body = b"".join([chunk async for chunk in reply.chunks()])
        if good:
            reader.read_body(body)
        empty = f"The upstream answered {reply.status}" + (" with no message." if good else ".")
        await _store_answer(step, reader, empty=empty)
        yield head
        yield body
    finally:
        await reply.aclose()


async def _relay_stream(reply: RelayAnswer, step: OpenStep, reader: StreamReader) -> AsyncGenerator[bytes, None]:
    """Yield a stream's lines unchanged and parse them. The end of the stream waits until the turn is durable."""
    lines, answer, stored = ByteLines(), reader.answer, False
    step.so_far = lambda: _content(reader.message())

    async def store(broken: str = "") -> None:
        nonlocal stored
        if not stored:
            stored = True
            await _store_answer(step, reader, broken=broken)

    try:
        async with closing(reply.chunks()) as chunks:
            async for data in chunks:
                before, end = _read_lines(reader, lines.feed(data), step)
                if before:
                    yield before
                if end:
                    await store()
                    yield end
    except UpstreamError as error:
        if stored:
            return  # the connection broke after the end
        await store(str(error))
        raise
    finally:
        if answer.whole:  # the client disconnected, but the answer is complete
            await store()
    rest = lines.rest()
    _read_lines(reader, [rest], step)
    await store("The upstream's stream ended before the answer was complete.")
    if rest:
        yield rest


def _read_lines(reader: StreamReader, lines: Iterable[bytes], step: OpenStep) -> tuple[bytes, bytes]:
    """Parse lines up to the end of the answer. Return the bytes before its last line, and the others."""
    before: list[bytes] = []
    end: list[bytes] = []
    for line in lines:
        if not reader.answer.done:
            if text := reader.read_line(line):
                step.hear(text)
            else:
                step.check()
        (end if reader.answer.done else before).append(line)
    return b"".join(before), b"".join(end)


async def _store_answer(
    step: OpenStep, reader: StreamReader, *, broken: str = "", empty: str = "The stream contained no answer."
) -> None:
    """End a step with the complete or partial answer. `broken` is the reason why it is incomplete, if it is."""
    answer, wire = reader.answer, reader.message()
    content = _content(wire)
    if answer.error:
        await step.finish(state="failed", error=f"Upstream error: {answer.error}", usage=answer.usage)
    elif broken and not answer.whole:
        await step.finish(state="interrupted", error=broken, usage=answer.usage)
    elif wire is None or content is None:
        reason = empty if wire is None else "The upstream's answer is unreadable."
        await step.finish(state="failed", error=reason, usage=answer.usage)
    else:
        reasons = [answer.finish[choice] or None for choice in answer.choices]
        others = [reader.message(choice) for choice in answer.choices if choice]
        step.metadata |= {"answer": {"step": step.lease.step, **answer.frame, "finishReasons": reasons}}
        await step.finish(
            wire=wire,
            usage=answer.usage,
            waiting=answer.waits and any(part.type == CALL for part in content.parts),
            others=tuple(other for other in others if other and _content(other)),
        )


def _content(wire: bytes | None) -> MessageContent | None:
    """Return the parsed answer, or None if it is empty or unreadable."""
    try:
        return read_message(wire) if wire else None
    except InvalidInput:
        return None
