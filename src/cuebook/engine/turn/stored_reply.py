"""Idempotent replay: answer a request with a repeated Idempotency-Key from its stored step."""

import asyncio
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.engine.core.services import Services
from cuebook.engine.turn.request import TurnRequest
from cuebook.errors import KeyReused
from cuebook.interfaces.store import StoredAnswer
from cuebook.records.memory import Scope
from cuebook.records.turn import Step, Turn, Usage
from cuebook.window.post_forms import whole
from cuebook.window.tokens import Counter
from cuebook.wire.chat_messages import read_message

#: Seconds between checks of a lease held by another process.
POLL_S = 0.05
#: Content of an answer that ended without text.
_NOTHING = b'{"role":"assistant","content":""}'


class StoredReply(Struct, frozen=True, kw_only=True):
    """A stored answer: the messages of its choices, and its step."""

    conversation: str
    no: int  # the conversation's number
    turn: Turn
    step: Step
    messages: tuple[bytes, ...]

    @property
    def about(self) -> dict[str, Any]:
        """Return the answer's metadata: id, model, finish reasons and other header fields."""
        about: dict[str, Any] = self.turn.metadata.get("answer", {})
        return about if about.get("step") == self.step.n else {}

    @property
    def reasons(self) -> list[str]:
        """Return the finish reason of each choice, as in a chat completion."""
        stored = self.about.get("finishReasons", [])
        return [
            stored[n] if n < len(stored) and stored[n] else _finish(message) for n, message in enumerate(self.messages)
        ]

    def usage(self, count: Counter | None) -> Usage | None:
        """Return the provider's token counts. Without them return None, or our own by `count`."""
        usage = self.step.usage
        if usage is not None and usage.input is not None and usage.output is not None:
            return usage
        if count is None:
            return None
        output = sum(count(read_message(each).message) for each in self.messages)
        return Usage(input=self.step.manifest.tokens, output=output)


def _finish(message: bytes) -> str:
    value = msgspec.json.decode(message)
    return "tool_calls" if value.get("tool_calls") else "function_call" if value.get("function_call") else "stop"


async def find_reply(services: Services, request: TurnRequest) -> StoredReply | None:
    """Return the stored answer of a request's key, waiting while its step runs, or None for a new or missing key.

    A step without a complete answer counts as none, so that the request can be repeated. Raises KeyReused if the key
    belongs to another request.
    """
    if request.key is None:
        return None
    scope, (name, digest) = request.scope, request.key
    answered = await services.find_answer(scope, request.key)
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


async def wait_until_free(services: Services, scope: Scope, conversation: str) -> None:
    """Wait until a conversation's lease is free. End an expired one."""
    while (await services.store.conversation(scope, conversation)).lease_until > 0:
        await services.expire()
        await asyncio.sleep(POLL_S)
