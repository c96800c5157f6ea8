"""An open step of a turn and its speaker: collect the streamed answer, renew the lease, and close exactly once."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import msgspec
from msgspec.structs import replace

from cuebook.engine.core.audit_records import answered
from cuebook.engine.core.context_limits import learn_ratio
from cuebook.engine.core.drafts import dated, recipient_of
from cuebook.engine.core.services import Services
from cuebook.engine.core.token_limit import spending_of
from cuebook.engine.core.tracing import Span, message_list, usage_values
from cuebook.engine.turn.decision import Decision
from cuebook.engine.turn.history import HistoryPosition
from cuebook.engine.turn.plan import WindowPlan
from cuebook.engine.turn.request import StoredReply, TurnRequest
from cuebook.errors import BackendError, CuebookError, InvalidInput, LeaseLost
from cuebook.interfaces.store import Lease, Spending, StepEnd
from cuebook.memory.owner_memories import repeats
from cuebook.memory.recall import unlearned
from cuebook.records.conversation import ASSISTANT, Draft
from cuebook.records.memory import MEMORY, Scope
from cuebook.records.turn import SHADOW, TurnState, Usage
from cuebook.wire.chat_messages import MessageContent, read_message

T = TypeVar("T")
Piece_co = TypeVar("Piece_co", covariant=True)

#: Seconds for which a process tries to store an answer while the database does not answer, and between two attempts.
STORE_S: Final = 600.0
PAUSE_S: Final = 0.5
log: Final = logging.getLogger("cuebook.turns")
#: Metadata key of a finished turn: milliseconds until the first piece of a streamed answer.
FIRST_PIECE: Final = "firstTokenMs"


class BrokenOffError(BackendError):
    """An answer ended before it was complete."""


class Speaker(Protocol[Piece_co]):
    """Answers a turn: the configured model or the client's upstream, in the format of the client."""

    def stream(self, step: "OpenStep") -> AsyncGenerator[Piece_co, None]:
        """Stream the answer of an open step, and finish it."""

    def replay(self, reply: StoredReply) -> Iterable[Piece_co]:
        """Return the stored answer of a repeated request."""


class OpenStep:
    """A stored step, ready for the model, until its answer is stored.

    Leaving the context without `finish` closes it with the partial answer: as failed after an error, as interrupted if
    the caller disconnected or the answer broke off.
    """

    def __init__(
        self,
        services: Services,
        request: TurnRequest,
        position: HistoryPosition,
        decision: Decision,
        lease: Lease,
    ) -> None:
        self.request, self.position, self.lease = request, position, lease
        self.decision = decision  # with another window if the first one was too long for the model
        self.text: list[str] = []
        #: Partial answer of more than text.
        self.so_far: Callable[[], MessageContent | None] | None = None
        #: Data about the answer for the turn's metadata.
        self.metadata: dict[str, Any] = {}
        request.span.set(gen_ai__conversation__id=lease.conversation)
        self._call = Span()  # of the last model call
        self._services = services
        self._began = services.clock.now()
        self._first_ms: int | None = None  # until the first piece of a streamed answer
        self._reply_id = services.dice.new_id("post")
        self._beat: asyncio.Task[None] | None = None
        self._closed = False
        self._lost: LeaseLost | None = None

    @property
    def plan(self) -> WindowPlan:
        """Return the window."""
        return self.decision.plan

    async def replan(self, decision: Decision) -> None:
        """Replace the window, in the database too."""
        await self._services.store.replan(self.lease, decision.start)
        self.decision = decision
        if (window := decision.plan.cached) is not None:
            self._services.caches.windows[self.lease.scope.tenant, self.lease.conversation] = window

    async def __aenter__(self) -> Self:
        self._beat = asyncio.create_task(self._renew())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed:
            return
        failed = isinstance(error, Exception) and not isinstance(error, BrokenOffError)
        with suppress(LeaseLost):
            await to_the_end(self._close("failed" if failed else "interrupted", error=_say(error)))

    def trace_call(self, model: str, url: str, *, provider: str = "") -> None:
        """Start the span of a call of a model. It ends with the step, or with the next call."""
        self._call.end()
        tracing, messages = self._services.tracing, None
        if tracing.content:
            messages = message_list([read_message(each) for each in self.plan.window.raw_messages])
        conversation = self.lease.conversation
        self._call = tracing.model_call(
            model,
            url,
            provider=provider,
            conversation=conversation,
            parent=self.request.span,
            gen_ai__input__messages=messages,
        )

    def _end_call(self, closing: StepEnd) -> None:
        """Add what the provider reported to the span of its call, and end it."""
        frame = self.metadata.get("answer", {})
        reasons = [each for each in frame.get("finishReasons") or () if each]
        answer = closing.reply.message if closing.reply and self._services.tracing.content else None
        self._call.set(
            **usage_values(closing.usage),
            gen_ai__response__model=frame.get("model"),
            gen_ai__response__id=frame.get("id"),
            gen_ai__response__finish_reasons=reasons or None,
            gen_ai__response__time_to_first_chunk=None if self._first_ms is None else self._first_ms / 1000,
            gen_ai__output__messages=None
            if answer is None
            else message_list([MessageContent(ASSISTANT, None, answer)]),
        )
        if closing.state == "failed":
            self._call.fail("upstream")
        self._call.end()

    def hear(self, text: str) -> None:
        """Add a piece of the answer. Raises LeaseLost once another process has taken over the turn."""
        self.check()
        if self._first_ms is None and not self.request.shadow:
            self._first_ms = round(1000 * (self._services.clock.now() - self._began))
        self.text.append(text)
        self._services.failpoint("stream.piece")

    def check(self) -> None:
        """Raise LeaseLost once another process has taken over the turn."""
        if self._lost is not None:
            raise self._lost

    async def finish(
        self,
        *,
        wire: bytes | None = None,
        usage: Usage | None = None,
        waiting: bool = False,
        state: TurnState = "finished",
        error: str = "",
        others: tuple[bytes, ...] = (),
    ) -> int:
        """Store the complete answer durably. Return the reply's seq. Raises LeaseLost."""
        self._services.failpoint("stream.ended")
        closing = self._close(state, wire=wire, usage=usage, waiting=waiting, error=error, others=others)
        return await to_the_end(closing)

    def _used(self, reply: Draft) -> tuple[str, ...]:
        """Return the ids of the memories in the window that the answer repeats. A recalled answer repeats nothing."""
        if self.request.shadow or unlearned(reply.role, reply.message):
            return ()
        shown = {
            each.source.removeprefix(MEMORY): each.text
            for each in self.plan.window.blocks
            if each.source.startswith(MEMORY)
        }
        return tuple(id_ for id_, text in shown.items() if repeats(reply.message, text.partition("] ")[2]))

    async def _close(
        self,
        state: TurnState,
        *,
        wire: bytes | None = None,
        usage: Usage | None = None,
        waiting: bool = False,
        error: str = "",
        others: tuple[bytes, ...] = (),
    ) -> int:
        reply = self._whole(wire, self._reply_id) if wire else self._partial(state)
        renders = self.decision.start.audit
        try:
            usage = msgspec.convert(msgspec.to_builtins(usage), Usage | None)
        except msgspec.ValidationError:  # the model's adapter returned invalid counts
            usage = None
        self._learn(usage)
        closing = StepEnd(
            state=state,
            now=self._services.clock.now(),
            reply=reply,
            waiting=waiting,
            usage=usage,
            error=self._services.writer.clean(error),
            metadata=self.metadata | ({FIRST_PIECE: self._first_ms} if self._first_ms is not None else {}),
            others=tuple(self._whole(each, f"{self._reply_id}-{number}") for number, each in enumerate(others, 2)),
            audit=answered(self._services, renders, reply.message) if renders and reply else (),
            used=self._used(reply) if reply and state == "finished" else (),
            spending=self._spending(state, reply, usage),
        )
        self._closed = True
        self._end_call(closing)
        if self._beat is not None:
            self._beat.cancel()
            await asyncio.wait((self._beat,))
            self._beat = None
        try:
            return await self._store(closing)
        except BackendError as failure:
            if not failure.retryable:
                raise
        return await self._store_later(closing)

    async def _store(self, closing: StepEnd) -> int:
        seq = await self._services.store.close(self.lease, closing)
        self._services.notify_jobs()
        if self._services.log_prompt is not None and not self.request.shadow:
            self._services.log_prompt(self, seq)
        return seq

    async def _store_later(self, closing: StepEnd) -> int:
        """Store the end as soon as the database answers again, even after the caller got an error.

        Raises BackendError if that takes longer than a lease, after which another process may end the turn.
        """
        task = asyncio.create_task(self._store_retried(closing))
        tasks, wait_s = self._services.caches.late_ends, self._services.config.work.lease_s
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        done, _ = await asyncio.wait((task,), timeout=wait_s)
        if done:
            return task.result()
        task.add_done_callback(_log_failure)
        msg = f"The database has not answered for {wait_s:.0f} s. The answer is stored once it does; read it then."
        raise BackendError(msg, retryable=True)

    async def _store_retried(self, closing: StepEnd) -> int:
        until = asyncio.get_running_loop().time() + STORE_S
        while True:
            await asyncio.sleep(PAUSE_S)
            try:
                return await self._store(closing)
            except BackendError as error:
                if not error.retryable or asyncio.get_running_loop().time() > until:
                    raise

    def _learn(self, usage: Usage | None) -> None:
        """Compare the provider's count of the prompt with ours."""
        target = self.request.target
        if usage is not None and target.base_url:
            conversation, tokens = self.lease.conversation, self._prompt_tokens()
            learn_ratio(self._services, target.model, conversation, reported=usage.input, tokens=tokens)

    def _prompt_tokens(self) -> int:
        """Return our count of the prompt. In shadow mode the provider got the client's own request."""
        if not self.request.shadow:
            return self.plan.window.tokens
        return int(self.metadata.get(SHADOW, {}).get(str(self.lease.step), {}).get("clientTokens", 0))

    def _spending(self, state: TurnState, reply: Draft | None, usage: Usage | None) -> Spending | None:
        """Return what the step adds to the day's tokens of its key: as the provider counts them, else our count."""
        if self.request.quotes or (state == "failed" and reply is None and usage is None):
            return None  # no model has answered
        counts = usage or Usage()
        prompt = self._prompt_tokens() if counts.input is None else counts.input
        answer = (reply.tokens if reply else 0) if counts.output is None else counts.output
        work = sum(each.input_tokens + each.output_tokens for each in self.decision.start.work)
        return spending_of(self._services, self.request.ask.key, prompt + answer + work)

    def _whole(self, wire: bytes, id_: str) -> Draft:
        """Return the draft of a complete message, the reply or another choice.

        It is parsed after redaction like a client's messages, so that the same message has the same digest when resent.
        """
        kept = self._services.writer.clean_json(wire)
        return self._draft(read_message(kept), id_, "finished", kept, clean=kept is wire)

    def _partial(self, state: TurnState) -> Draft | None:
        """Return the partial answer, or None if it is empty. A key cut off at its end is removed."""
        content = (self.so_far() if self.so_far else None) or MessageContent(ASSISTANT, None, "".join(self.text))
        if state != "finished":
            content = replace(content, message=self._services.writer.settled(content.message))
        return self._draft(content, self._reply_id, state, None) if content.message or content.parts else None

    def _draft(
        self, content: MessageContent, id_: str, state: TurnState, wire: bytes | None, *, clean: bool = False
    ) -> Draft:
        text = content.message.replace("\x00", "").encode("utf-8", "replace").decode("utf-8")
        draft = self._services.writer.draft(
            replace(content, message=text),
            id=id_,
            sender=ASSISTANT,
            recipient=recipient_of(ASSISTANT),
            now=self._services.clock.now(),
            state="complete" if state == "finished" else "interrupted",
            wire=wire,
            limited=False,  # a model's answer is stored at any length
            clean=clean and text == content.message,
        )
        return dated([draft], self.plan.request.zone)[0]

    async def _renew(self) -> None:
        services, settings = self._services, self._services.config.work
        while True:
            await asyncio.sleep(min(settings.checkpoint_s, settings.lease_s / 3))
            try:
                partial = self._partial("interrupted")
                await services.store.checkpoint(self.lease, partial, now=services.clock.now(), lease_s=settings.lease_s)
            except LeaseLost as lost:
                self._lost = lost
                return
            except (BackendError, InvalidInput):
                continue  # the next renewal retries; the lease outlasts several


async def store_step(services: Services, scope: Scope, decision: Decision) -> Lease:
    """Store a step and take its lease.

    If the caller disconnects meanwhile, the turn ends as interrupted and its lease is released.
    """
    opening = asyncio.ensure_future(services.store.open(scope, decision.start))

    async def interrupt() -> None:
        end = StepEnd(state="interrupted", now=services.clock.now(), error="the caller went away")
        await services.store.close(await opening, end)

    try:
        lease = await asyncio.shield(opening)
    except asyncio.CancelledError:
        with suppress(CuebookError):
            await to_the_end(interrupt())
        raise
    if (window := decision.plan.cached) is not None:
        services.caches.windows[scope.tenant, decision.start.conversation] = window
    return lease


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Finish a coroutine despite repeated cancellation, then re-raise the cancellation."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # not reported: the caller is gone
        raise


def _log_failure(task: asyncio.Task[int]) -> None:
    """Log that an answer could not be stored after its stream had ended with an error."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("An answer was not stored completely: %s", error)


def _say(error: BaseException | None) -> str:
    if error is None:
        return "The answer was not finished."
    if isinstance(error, Exception):
        return str(error) or type(error).__name__
    return "the caller went away"
