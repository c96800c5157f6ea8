"""The request of a turn, from `/api/chat` or from the client of a provider, and the stored reply of a repeated one.

Idempotent replay: a request with a repeated Idempotency-Key is answered from its stored step.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from cuebook.engine.core.context_limits import ModelTarget
from cuebook.engine.core.drafts import Posted
from cuebook.engine.core.services import Key, Services
from cuebook.engine.core.tracing import Span
from cuebook.errors import KeyReused
from cuebook.interfaces.store import IdempotencyRecord, StoredPath
from cuebook.records.memory import Scope
from cuebook.records.turn import Ask, Block, Step, Turn, Usage
from cuebook.window.post_forms import whole
from cuebook.window.tokens import Counter
from cuebook.wire.chat_messages import ResentMessage, read_message

#: What a request has of a utility call, from "" (nothing) over its shape alone, which needs a known frame too, a
#: requested JSON format or few tokens, and a known template, to its own declaration.
UtilitySign = Literal["", "shape", "format", "template", "declared"]


class TurnRequest(Struct, frozen=True, kw_only=True):
    """A request before anything is loaded: one new post after the head, or the history of a provider's client."""

    ask: Ask  # the question and who asks it where; without a conversation, the history identifies it
    target: ModelTarget = ModelTarget()
    key: Key | None = None  # its Idempotency-Key
    choices: int = 1  # number of requested answers
    posted: Posted | None = None  # the new post; without one, `history` has the messages
    post_id: str = ""  # by default a new one
    history: tuple[ResentMessage, ...] = ()
    only_new: bool = False  # the history has no stored posts; it follows `parent`
    parent: int | None = None  # by default the head
    paths: tuple[StoredPath, ...] | None = None  # stored paths that the history continues; None: to be looked up
    lists: bool = False  # the client may store its messages as items of a conversation that it created
    utility_sign: UtilitySign = ""  # how much it looks like a utility call
    retried: bool = False  # the client marks the request as a retry
    client: tuple[Block, ...] = ()  # the client's system messages
    live_client: tuple[Block, ...] = ()  # the original, if `client` has redacted secrets
    tools: str = ""
    live_tools: str = ""  # the original, if `tools` has redacted secrets
    quotes: bool = False  # no model answers: the answer quotes memories
    asks_model: bool = True  # a model may be called before the step opens
    compacts: bool = False  # asks for a compaction item, not an answer: nothing is recalled for it or learned from it
    begins_at_compaction: bool = False  # a history that the server keeps begins at the provider's compaction item
    shadow: bool = False  # shadow mode: decide and store a window that is never sent
    metadata: Mapping[str, Any] = {}  # request fields that the answer repeats, stored with the step
    span: Span = Span()  # the trace of its turn

    @property
    def scope(self) -> Scope:
        """Return the scope of the data that may be read: the user's."""
        return Scope(user=self.ask.user)

    @property
    def resends_history(self) -> bool:
        """Return whether the client sends the whole history, which it keeps itself."""
        return self.posted is None and not self.only_new


# ---- The stored reply of a repeated request -------------------------------------------------------------------------


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


async def find_stored_reply(services: Services, request: TurnRequest) -> StoredReply | None:
    """Return the stored answer of a request's key, waiting while its step runs, or None for a new or missing key.

    A step without a complete answer counts as none, so that the request can be repeated. Raises KeyReused if the key
    belongs to another request.
    """
    if request.key is None:
        return None
    scope, (name, digest) = request.scope, request.key
    record = await services.idempotency_record(scope, request.key)
    if record is None:
        return None
    if record.digest != digest or not record.turn:
        raise KeyReused(name)
    turn, step = await _ended(services, scope, record)
    if step.state != "finished":
        return None
    messages = await _choices(services, scope, record.conversation, step, most=request.choices)
    no = (await services.store.conversation(scope, record.conversation)).no
    return StoredReply(conversation=record.conversation, no=no, turn=turn, step=step, messages=messages)


async def _ended(services: Services, scope: Scope, record: IdempotencyRecord) -> tuple[Turn, Step]:
    """Wait for the step of a key. End a step whose process died."""
    while True:
        turn = await services.store.turn(scope, record.conversation, record.turn)
        step = turn.steps[record.step - 1]
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
