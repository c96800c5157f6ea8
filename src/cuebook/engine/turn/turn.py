"""Run one turn: load once, decide without side effects, open, stream, close. Background jobs do the rest (`worker`)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.engine.core.drafts import Posted
from cuebook.engine.core.model_call import closing
from cuebook.engine.core.services import Key, Services
from cuebook.engine.core.time_zones import zone_of
from cuebook.engine.turn.compare import compare
from cuebook.engine.turn.opening import POLL_S, Intent, Opened, decide, open_step
from cuebook.engine.turn.plan import Wish, path_of
from cuebook.engine.turn.prompt_logs import logging_of
from cuebook.engine.turn.reply_metadata import metadata_of
from cuebook.engine.turn.step import FIRST_PIECE, BrokenOffError, OpenStep
from cuebook.errors import BackendError, KeyReused
from cuebook.interfaces.model import ModelRequest
from cuebook.interfaces.store import Scene, StoredAnswer
from cuebook.memory.recall import read_query
from cuebook.records.conversation import Draft
from cuebook.records.memory import NO_MODEL, Scope
from cuebook.records.plain_text import plain
from cuebook.records.turn import Ask, Turn, Window
from cuebook.window.post_forms import whole
from cuebook.wire.anthropic_requests import plain_chat


class Chunk(Struct, frozen=True, kw_only=True):
    """A chunk of `stream`: the turn's metadata, a piece of text, or the final answer."""

    type: str  # METADATA_UPDATE | text_delta | final_response
    text: str = ""
    plain: str = ""
    turn: int = 0
    metadata: dict[str, Any] = {}
    window: Window | None = None


async def stream(
    services: Services, scope: Scope, ask: Ask, *, request_digest: bytes = b""
) -> AsyncGenerator[Chunk, None]:
    """Stream an answer. The query is durable before the model is called, and the answer at the end."""
    key = (ask.idempotency_key, request_digest) if ask.idempotency_key else None
    await services.catch_up()
    async with services.queue.hold(scope.tenant, ask.conversation):
        came_before = key and await services.answered(scope, key)
        opened = None if came_before else await open_step(services, scope, asking(services, ask, key))
        if opened is None:
            for chunk in await repeat(services, scope, ask, key):
                yield chunk
            return
        async with OpenStep(services, opened.lease, opened.renders, zone=opened.zone) as step:
            step.on_closed = logging_of(services, opened)
            yield _chunk("METADATA_UPDATE", opened)
            async with aclosing(speak(services, opened, step)) as texts:
                async for text in texts:
                    yield Chunk(type="text_delta", text=text, turn=opened.lease.turn)
        yield _chunk("final_response", opened, "".join(step.text))


async def assemble(services: Services, scope: Scope, ask: Ask) -> tuple[Window, dict[str, Any]]:
    """Return the window that an ask would get. Nothing is stored, and the same state gives the same bytes."""
    await services.catch_up()
    intent = msgspec.structs.replace(await asking(services, ask, None, post="query")(), asks_model=False)
    ask = intent.ask
    scene, planned, front, turn = await decide(services, scope, intent)
    window, cache, _ = await compare(services, scope, scene, planned, ask.conversation)
    window = msgspec.structs.replace(window, messages=planned.messages)
    planned = msgspec.structs.replace(planned, window=window)
    return window, metadata_of(services, scene, planned, front, cache=cache, turn=turn, mode=ask.mode)


# ---- Request --------------------------------------------------------------------------------------------------------


def asking(services: Services, ask: Ask, key: Key | None, *, post: str = "") -> Callable[[], Awaitable[Intent]]:
    """Return an ask as an intent: its query after the head's path. Raises InvalidInput, NotFound."""
    posted = Posted(
        sender=ask.user or "user", recipient="assistant", message=ask.text, parts=ask.attachments, role="user"
    )
    services.settings.persona(ask.persona)
    ask = msgspec.structs.replace(ask, mode=ask.mode and services.writer.clean(ask.mode))
    id_, now, live = post or services.dice.new_id("post"), services.clock.now(), None
    query = services.writer.posted(posted, id=id_, now=now, persona=None, user=ask.user)
    if query.message != ask.text or query.parts != ask.attachments:  # stored text has secrets redacted
        live = msgspec.structs.replace(services.writer, redactor=None).posted(
            posted, id=id_, now=now, persona=None, user=ask.user
        )
        query = msgspec.structs.replace(query, tokens=max(query.tokens, live.tokens))
    intent = Intent(
        ask=ask, drafts=(query,), wish=lambda scene: wish_of(services, ask, scene, (query,), live=live), idempotency=key
    )

    async def intend() -> Intent:
        return intent

    return intend


def wish_of(
    services: Services, ask: Ask, scene: Scene, drafts: tuple[Draft, ...], *, live: Draft | None = None
) -> Wish:
    """Return an ask as a wish. `live` is its query in the caller's words."""
    conversation = scene.conversation
    owner = conversation.user if conversation else ask.user
    zone, asked = zone_of(ask.time_zone, conversation, services.settings.zone), services.settings.recall and ask.text
    return Wish(
        conversation=ask.conversation,
        drafts=drafts,
        user=owner,
        query=read_query(ask.text, speakers=scene.speakers, now=services.clock.now(), zone=zone) if asked else None,
        zone=zone,
        recall_hits=services.settings.recall_hits,
        quotes=services.model.name == NO_MODEL,
        token_budget=ask.token_budget,
        live_drafts={0: whole(path_of(scene, (live,))[-1], owner)} if live else {},
    )


def _chunk(kind: str, opened: Opened, text: str = "") -> Chunk:
    return Chunk(
        type=kind,
        text=text,
        plain=plain(text),
        turn=opened.lease.turn,
        metadata=opened.metadata,
        window=opened.planned.window,
    )


# ---- Idempotent replay ----------------------------------------------------------------------------------------------


async def repeat(services: Services, scope: Scope, ask: Ask, key: Key | None) -> list[Chunk]:
    """Return the stored answer of an Idempotency-Key; wait while its turn runs. Raises KeyReused, BackendError."""
    name, request_digest = key or ("", b"")
    answered = await services.answered(scope, key) if key else None
    if answered is None or answered.digest != request_digest or not answered.turn:
        msg = f"Idempotency-Key {name!r} was used with a different request. Choose a new key."
        raise KeyReused(msg, where="Idempotency-Key")
    turn = await _ended(services, scope, answered)
    if turn.state != "finished":
        reason = turn.steps[-1].error if turn.steps else ""
        msg = f"Turn {turn.n} of conversation {ask.conversation!r} {turn.state}: {reason}. Retry with a new key."
        raise BackendError(msg)
    reply = await services.store.posts_in(scope, answered.conversation, [(turn.reply_seq, turn.reply_seq)])
    text = reply[0].message or "" if reply else ""
    data = {name: value for name, value in turn.metadata.items() if name != FIRST_PIECE}  # the first answer lacked it
    return [
        Chunk(type="METADATA_UPDATE", turn=turn.n, metadata=data),
        *([Chunk(type="text_delta", text=text, turn=turn.n)] if text else []),
        Chunk(type="final_response", text=text, plain=plain(text), turn=turn.n, metadata=data),
    ]


async def _ended(services: Services, scope: Scope, answered: StoredAnswer) -> Turn:
    """Wait for the turn of a key."""
    while True:
        turn = await services.store.turn(scope, answered.conversation, answered.turn)
        if turn.state != "running":
            return turn
        await services.expire()
        await asyncio.sleep(POLL_S)


async def speak(services: Services, opened: Opened, step: OpenStep) -> AsyncGenerator[str, None]:
    """Stream the model's answer. After the last piece it is durable. Raises the model's errors."""
    lease, quotes = opened.lease, opened.planned.quotes
    request = ModelRequest(
        messages=plain_chat(opened.planned.messages),
        conversation=lease.conversation,
        recalled=tuple(quotes),
        zone=opened.zone,
    )
    usage, finish = None, ""
    async with closing(services.model.stream(request)) as pieces:
        async for piece in pieces:
            usage, finish = piece.usage or usage, piece.finish or finish
            if piece.text:
                step.hear(piece.text)
                yield piece.text
    if not finish:
        msg = f"Incomplete answer from model {services.model.name}. The partial answer was stored."
        raise BrokenOffError(msg, retryable=True)
    if finish != "stop" and "answer" in step.metadata:
        step.metadata["answer"]["finishReasons"] = [finish]
    await step.finish(usage=usage)
