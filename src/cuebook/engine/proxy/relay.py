"""Relay of the proxy: answer a request of a provider's client by a turn, from the upstream or the configured model."""

import logging
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.scheduling import closing
from cuebook.engine.core.services import Services
from cuebook.engine.core.token_limit import AnswerMeter, spending_of
from cuebook.engine.proxy.wire import Head, Wire, local_head, send_upstream
from cuebook.engine.turn.chat import speak
from cuebook.engine.turn.decide_step import replan_step
from cuebook.engine.turn.request import StoredReply
from cuebook.engine.turn.step import OpenStep, to_the_end
from cuebook.engine.turn.turn import answer
from cuebook.errors import InvalidInput, UpstreamError
from cuebook.interfaces import RelayAnswer, RelayRequest, Upstream
from cuebook.records.conversation import CALL
from cuebook.records.memory import Scope
from cuebook.records.turn import BRANCH, Usage
from cuebook.wire.answer import StreamReader
from cuebook.wire.chat_answers import usage_fields, write_chunk, write_completion, write_end
from cuebook.wire.chat_messages import MessageContent, read_message
from cuebook.wire.event_stream import ByteLines

log = logging.getLogger("cuebook.relay")
#: Path of requests in Anthropic's format.
MESSAGES = "/messages"
_encode = msgspec.json.Encoder().encode


async def relay(wire: Wire, *, model: str | None) -> AsyncGenerator[Head | bytes, None]:
    """Answer a request: first the head, then the body's bytes. The last bytes follow once the turn is durable.

    `model` replaces a model that names a persona. A repeated Idempotency-Key returns the stored answer. Without an
    upstream, the answer is a chat completion. Raises InvalidInput, KeyReused, Conflict.
    """
    request = await wire.load()
    if model is not None:
        request = replace(request, target=wire.target(model))
    pieces = answer(wire.services, request, WireSpeaker(wire=wire, model=model))
    async with aclosing(wire.write(pieces)) as written:
        async for piece in written:
            yield piece


class WireSpeaker(Struct, frozen=True, kw_only=True):
    """Answers a provider's client: with its upstream or, without one, with the configured model."""

    wire: Wire
    model: str | None

    async def stream(self, step: OpenStep) -> AsyncGenerator[Head | bytes, None]:
        """Yield the head and the body of the answer, the head with the request's position and its prompt's length."""
        wire, services, lease = self.wire, self.wire.services, step.lease
        name, logged = (lease.scope.tenant, lease.conversation), services.caches.side_requests
        if step.position.is_side_branch and name not in logged:
            logged[name] = None
            log.info(
                "A request of conversation %s does not continue its history; it is stored as a side branch",
                lease.conversation,
            )
        position: Any = {"conversation": lease.conversation, "turn": lease.turn, "step": lease.step}
        position["is_side_branch"] = not step.decision.start.moves_head
        if wire.upstream is None:
            body = local_answer(services, step, stream=wire.stream, counts=wire.wants_usage)
        else:
            body = await self._upstream_answer(wire.upstream, step)
        async with aclosing(body) as pieces:
            async for piece in pieces:
                tokens = step.plan.window.tokens
                yield replace(piece, **position, tokens=tokens) if isinstance(piece, Head) else piece

    async def _upstream_answer(self, upstream: Upstream, step: OpenStep) -> AsyncGenerator[Head | bytes, None]:
        """Send a step to the upstream, again in another form or with a smaller window if it refuses the first one."""
        wire = self.wire
        reply, error = await self._send(upstream, step)
        if wire.turns_to_chat(reply.status, error or b""):
            await reply.aclose()
            reply, error = await self._send(upstream, step)
        if error is not None and await replan_step(wire.services, step, reply.status, error):
            await reply.aclose()
            reply, error = await self._send(upstream, step)
        return relay_answer(reply, step, wire.reader(), body=error)

    async def _send(self, upstream: Upstream, step: OpenStep) -> tuple[RelayAnswer, bytes | None]:
        """Send a step's window. Return the answer, and its body if it is an error."""
        request = self.wire.outgoing(step, model=self.model)
        provider = "anthropic" if request.path == MESSAGES else ""
        step.trace_call(self.model or self.wire.model, upstream.base_url, provider=provider)
        reply = await send_upstream(self.wire.services, upstream, request)
        return reply, await _body_of(reply) if reply.status >= HTTPStatus.BAD_REQUEST else None

    def replay(self, reply: StoredReply) -> Iterator[Head | bytes]:
        """Yield the stored answer of a repeated request."""
        place: Any = {"conversation": reply.conversation, "turn": reply.turn.n, "step": reply.step.n}
        head, body = local_head(stream=self.wire.stream), self.wire.replay(reply)
        place |= {"is_side_branch": BRANCH in reply.turn.metadata, "tokens": reply.step.manifest.tokens}
        yield replace(head, **place)
        yield from body


# ---- The configured model's answer ----------------------------------------------------------------------------------


async def local_answer(
    services: Services, step: OpenStep, *, stream: bool, counts: bool = False
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
    async with aclosing(speak(services, step)) as texts:
        async for text in texts:
            if stream:
                yield write_chunk(frame, {"content": text})
    text, finish = "".join(step.text), (step.metadata["answer"].get("finishReasons") or ["stop"])[0]
    usage = usage_fields(Usage(input=step.plan.window.tokens, output=services.count(text)))
    if stream:
        for event in write_end(frame, [finish], usage if counts else None):
            yield event
        return
    yield head
    yield write_completion(frame, [_encode({"role": "assistant", "content": text})], [finish], usage)


# ---- Requests that are passed on ------------------------------------------------------------------------------------


async def pass_on(upstream: Upstream, request: RelayRequest) -> AsyncGenerator[Head | bytes, None]:
    """Yield the head and the body of the upstream's answer to an unchanged request."""
    answer = await upstream.send(request)
    try:
        yield Head(status=answer.status, headers=answer.headers)
        async for chunk in answer.chunks():
            yield chunk
    finally:
        await answer.aclose()


async def metered(
    services: Services, pieces: AsyncGenerator[Head | bytes, None], request: RelayRequest, key: str
) -> AsyncGenerator[Head | bytes, None]:
    """Yield an answer that is passed on, and count its tokens for an API key."""
    meter, status = AnswerMeter(request.path, len(request.body)), 0
    try:
        async with aclosing(pieces):
            async for piece in pieces:
                if isinstance(piece, Head):
                    status = piece.status
                else:
                    meter.add(piece)
                yield piece
    finally:
        spending = spending_of(services, key, meter.tokens(status)) if status else None
        if spending is not None:
            await to_the_end(services.store.keys.spend(Scope(), spending))


# ---- The upstream's answer ------------------------------------------------------------------------------------------


async def relay_answer(
    reply: RelayAnswer, step: OpenStep, reader: StreamReader, *, body: bytes | None = None
) -> AsyncGenerator[Head | bytes, None]:
    """Yield an answer's head and its body's bytes. The last bytes follow once the answer is durable.

    `body` is the body if it was already read. An error status ends the turn as failed, and its query stays.
    """
    head, good = Head(status=reply.status, headers=reply.headers), reply.status < 400
    try:
        if good and head.is_stream:
            yield head
            async with closing(_relay_stream(reply, step, reader)) as lines:
                async for line in lines:
                    yield line
            return
        body = await _body_of(reply) if body is None else body
        if good:
            reader.read_body(body)
        empty = f"The upstream answered {reply.status}" + (" with no message." if good else ".")
        await _store_answer(step, reader, empty=empty)
        yield head
        yield body
    finally:
        await reply.aclose()


async def _body_of(reply: RelayAnswer) -> bytes:
    return b"".join([chunk async for chunk in reply.chunks()])


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
