"""Idempotent replay: answer a chat completion with a repeated Idempotency-Key from its stored step."""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.engine.core.services import Key, Services
from cuebook.engine.proxy.local_answer import Head, head_of
from cuebook.engine.proxy.request import Request
from cuebook.engine.turn.opening import POLL_S
from cuebook.errors import KeyReused
from cuebook.interfaces.store import StoredAnswer
from cuebook.records.memory import Scope
from cuebook.records.turn import Step, Turn, Usage
from cuebook.window.post_forms import whole
from cuebook.wire.chat_answers import usage_fields, write_completion, write_stream
from cuebook.wire.chat_messages import read_message

#: Content of an answer that ended without text.
_NOTHING = b'{"role":"assistant","content":""}'


class StoredReply(Struct, frozen=True, kw_only=True):
    """A stored answer: the messages of its choices, and its step."""

    conversation: str
    no: int  # the conversation's number
    turn: Turn
    step: Step
    messages: tuple[bytes, ...]


async def told_before(services: Services, scope: Scope, key: Key, request: Request) -> StoredReply | None:
    """Return the stored answer of a key, waiting while its step runs, or None for a new or missing key.

    Raises KeyReused if the key belongs to another request.
    """
    name, digest = key
    answered = await services.answered(scope, key)
    if answered is None:
        return None
    if answered.digest != digest or not answered.turn:
        msg = f"Idempotency-Key {name!r} was used with a different request. Choose a new key."
        raise KeyReused(msg, where="Idempotency-Key")
    turn, step = await _ended(services, scope, answered)
    if step.state != "finished":
        return None
    messages = await _choices(services, scope, answered.conversation, step, most=request.choices)
    no = (await services.store.conversation(scope, answered.conversation)).no
    return StoredReply(conversation=answered.conversation, no=no, turn=turn, step=step, messages=messages)


async def _ended(services: Services, scope: Scope, answered: StoredAnswer) -> tuple[Turn, Step]:
    """Wait for the step of a key. End a step whose process died."""
    while True:
        turn = await services.store.turn(scope, answered.conversation, answered.turn)
        step = turn.steps[answered.step - 1]
        if step.state != "running":
            return turn, step
        await services.expire()
        await asyncio.sleep(POLL_S)


async def _choices(services: Services, scope: Scope, conversation: str, step: Step, *, most: int) -> tuple[bytes, ...]:
    """Load the reply and the other choices after it."""
    if not step.reply_seq:
        return (_NOTHING,)
    span = (step.reply_seq, step.reply_seq + most - 1)
    reply, *others = await services.store.posts_in(scope, conversation, [span])
    return tuple(whole(each, None) for each in (reply, *others) if each is reply or each.id.startswith(f"{reply.id}-"))


def tell(services: Services, stored_reply: StoredReply, request: Request, *, estimate: bool) -> Iterator[Head | bytes]:
    """Yield a stored answer in its wire format. With `estimate`, count missing usage."""
    about = stored_reply.turn.metadata.get("answer", {})
    about = about if about.get("step") == stored_reply.step.n else {}
    frame = {
        "id": f"chatcmpl-{stored_reply.no}.{stored_reply.turn.n}.{stored_reply.step.n}",  # unique in this database
        "created": int(stored_reply.turn.closed_at or stored_reply.turn.created_at),
        "model": request.model,
        **{name: value for name, value in about.items() if name not in ("step", "finishReasons")},
    }
    raw = about.get("finishReasons", [])
    reasons = [raw[n] if n < len(raw) and raw[n] else _finish(each) for n, each in enumerate(stored_reply.messages)]
    usage = usage_fields(counted(services, stored_reply, estimate=estimate))
    yield told_head(stored_reply, request)
    if request.stream:
        yield from write_stream(frame, stored_reply.messages, reasons, usage if request.wants_usage else None)
    else:
        yield write_completion(frame, stored_reply.messages, reasons, usage)


def told_head(stored_reply: StoredReply, request: Request) -> Head:
    """Return the head of a stored answer."""
    place: Any = {"conversation": stored_reply.conversation, "turn": stored_reply.turn.n, "step": stored_reply.step.n}
    return head_of(**place, stream=request.stream, tokens=stored_reply.step.manifest.tokens)


def _finish(message: bytes) -> str:
    value = msgspec.json.decode(message)
    return "tool_calls" if value.get("tool_calls") else "function_call" if value.get("function_call") else "stop"


def counted(services: Services, stored_reply: StoredReply, *, estimate: bool) -> Usage | None:
    """Return the provider's token counts. Without them return None, or with `estimate` our own counts."""
    usage = stored_reply.step.usage
    if usage is None or usage.input is None or usage.output is None:
        if not estimate:
            return None
        said = sum(services.count(read_message(each).message) for each in stored_reply.messages)
        usage = Usage(input=stored_reply.step.manifest.tokens, output=said)
    return usage
