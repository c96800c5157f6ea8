"""Answer `/api/chat` with the configured model, in chunks, or only preview its window."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.context_limits import target_of
from cuebook.engine.core.drafts import Posted
from cuebook.engine.core.scheduling import closing
from cuebook.engine.core.services import Services
from cuebook.engine.turn.decide_step import replan_step
from cuebook.engine.turn.decision import reply_metadata
from cuebook.engine.turn.history import align_history
from cuebook.engine.turn.request import StoredReply, TurnRequest
from cuebook.engine.turn.step import FIRST_PIECE, BrokenOffError, OpenStep
from cuebook.engine.turn.turn import decide_turn
from cuebook.errors import UpstreamError
from cuebook.interfaces import ModelRequest
from cuebook.records.memory import NO_MODEL
from cuebook.records.plain_text import plain
from cuebook.records.turn import Ask, Window
from cuebook.wire.anthropic_requests import plain_chat
from cuebook.wire.chat_messages import read_message


class Chunk(Struct, frozen=True, kw_only=True):
    """A chunk of `stream`: the turn's metadata, a piece of text, or the final answer."""

    type: str  # METADATA_UPDATE | text_delta | final_response
    text: str = ""
    plain: str = ""
    turn: int = 0
    metadata: dict[str, Any] = {}
    window: Window | None = None


def read_ask(services: Services, ask: Ask, *, digest: bytes = b"", post_id: str = "") -> TurnRequest:
    """Return the request of `/api/chat`. Raises NotFound."""
    services.settings.persona(ask.persona)
    posted = Posted(
        sender=ask.user or "user", recipient="assistant", message=ask.text, parts=ask.attachments, role="user"
    )
    return TurnRequest(
        ask=replace(ask, mode=ask.mode and services.writer.clean(ask.mode)),
        target=target_of(services),
        key=(ask.idempotency_key, digest) if ask.idempotency_key else None,
        posted=posted,
        post_id=post_id,
        quotes=services.model.name == NO_MODEL,
    )


class ChatSpeaker(Struct, frozen=True):
    """Answers with the configured model, in chunks."""

    services: Services

    async def stream(self, step: OpenStep) -> AsyncGenerator[Chunk, None]:
        """Yield the turn's metadata, the pieces of the answer, and the complete answer once it is durable."""
        place: Any = {"turn": step.lease.turn, "metadata": step.decision.start.metadata, "window": step.plan.window}
        yield Chunk(type="METADATA_UPDATE", **place)
        async with aclosing(speak(self.services, step)) as texts:
            async for text in texts:
                yield Chunk(type="text_delta", text=text, turn=step.lease.turn)
        whole = "".join(step.text)
        place |= {"metadata": step.decision.start.metadata, "window": step.plan.window}
        yield Chunk(type="final_response", text=whole, plain=plain(whole), **place)

    def replay(self, reply: StoredReply) -> Iterator[Chunk]:
        """Yield the stored answer of a repeated request."""
        turn, text = reply.turn, read_message(reply.messages[0]).message
        data = {name: value for name, value in turn.metadata.items() if name != FIRST_PIECE}  # the first one lacked it
        yield Chunk(type="METADATA_UPDATE", turn=turn.n, metadata=data)
        if text:
            yield Chunk(type="text_delta", text=text, turn=turn.n)
        yield Chunk(type="final_response", text=text, plain=plain(text), turn=turn.n, metadata=data)


async def speak(services: Services, step: OpenStep) -> AsyncGenerator[str, None]:
    """Stream the model's answer. After the last piece it is durable. Raises the model's errors.

    A prompt that is too long is retried once with a smaller one, which `step` then has.
    """
    for is_retry in (False, True):
        plan, usage, finish = step.plan, None, ""
        request = ModelRequest(
            messages=plain_chat(plan.messages),
            conversation=step.lease.conversation,
            recalled=tuple(plan.quotes),
            zone=plan.request.zone,
        )
        step.trace_call(services.model.name, services.settings.model_url)
        try:
            async with closing(services.model.stream(request)) as pieces:
                async for piece in pieces:
                    usage, finish = piece.usage or usage, piece.finish or finish
                    if piece.text:
                        step.hear(piece.text)
                        yield piece.text
        except UpstreamError as error:
            if is_retry or step.text or not await replan_step(services, step, error.status or 0, str(error).encode()):
                raise
        else:
            break
    if not finish:
        msg = f"Incomplete answer from model {services.model.name}. The partial answer was stored."
        raise BrokenOffError(msg, retryable=True)
    if finish != "stop" and "answer" in step.metadata:
        step.metadata["answer"]["finishReasons"] = [finish]
    await step.finish(usage=usage)


async def preview(services: Services, ask: Ask) -> tuple[Window, dict[str, Any]]:
    """Return the window that a request would get, and the metadata of its reply. Nothing is stored.

    The same state gives the same bytes, except for the fence around recalled text.
    """
    request = replace(read_ask(services, ask, post_id="query"), asks_model=False)
    decision = await decide_turn(services, request, await align_history(services, request))
    plan, turn = decision.plan, decision.start.metadata["turn"]
    metadata = reply_metadata(services, decision.prompt, plan, turn=turn, mode=request.ask.mode)
    return replace(plan.window, raw_messages=plan.messages), metadata
