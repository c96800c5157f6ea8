"""One turn: reads once, decides purely, opens, speaks, closes. Everything else is work found in stored state (`worker`)."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.engine.compare import compare
from cuebook.engine.desk import Desk
from cuebook.engine.drafts import Posted
from cuebook.engine.metadata import metadata_of
from cuebook.engine.plan import Planned, Wish, plan
from cuebook.engine.step import Step
from cuebook.errors import BackendError, Busy, Conflict, KeyReused
from cuebook.memory.recall import read_query
from cuebook.ports.model import ModelRequest
from cuebook.ports.store import Lease, Look, Opening, Scene, SearchLook
from cuebook.records.conversation import Draft
from cuebook.records.memory import NO_MODEL_LABEL, Scope
from cuebook.records.plain import plain
from cuebook.records.turn import Ask, Window

#: How often a decision is made anew when another writer was first, before the caller is told.
RETRIES = 50
#: Posts full text may bring a turn, of which a dozen are recalled (measured on LoCoMo: 64 find 78.9 R@10, 400 find 79.4).
CANDIDATES = 64
#: Seconds between looks at a lease another process holds.
POLL_S = 0.05


class Chunk(Struct, frozen=True, kw_only=True):
    """What a caller of `stream` gets: text as it comes, the turn's metadata, the final answer, or an error."""

    type: str  # text_delta | METADATA_UPDATE | final_response | error
    text: str = ""
    plain: str = ""
    turn: int = 0
    metadata: dict[str, Any] = {}
    window: Window | None = None


class Opened(Struct, frozen=True, kw_only=True):
    """A step that may speak."""

    lease: Lease
    planned: Planned
    scene: Scene
    metadata: dict[str, Any]


async def stream(desk: Desk, scope: Scope, ask: Ask, *, request_digest: bytes = b"") -> AsyncIterator[Chunk]:
    """Answer a caller, piece by piece. The answer is durable before `final_response` comes."""
    persona = desk.persona(ask.persona)
    query = desk.writer.posted(
        Posted(sender=ask.user or "user", recipient="assistant", message=ask.text, parts=ask.attachments, role="user"),
        id=desk.dice.new_id("post"),
        now=desk.clock.now(),
        persona=persona.id,
        user=ask.user,
    )
    key = (ask.idempotency_key, request_digest) if ask.idempotency_key else None
    async with desk.lines.hold(scope.tenant, ask.conversation):
        if key and (repeated := await repeat(desk, scope, *key)):
            yield repeated
            return
        opened = await open_step(
            desk, scope, lambda scene: wish_of(desk, ask, scene, (query,)), ask=ask, idempotency=key
        )
        yield Chunk(
            type="METADATA_UPDATE", turn=opened.lease.turn, metadata=opened.metadata, window=opened.planned.window
        )
        async with Step(desk, opened.lease, reply_id=desk.dice.new_id("post")) as step:
            request = ModelRequest(
                messages=opened.planned.messages, conversation=ask.conversation, recalled=opened.planned.hits
            )
            usage = None
            async for piece in desk.model.stream(request):
                usage = piece.usage or usage
                if piece.text:
                    step.hear(piece.text)
                    yield Chunk(type="text_delta", text=piece.text, turn=opened.lease.turn)
            text = "".join(step.text)
            await step.finish(usage=usage, silent=text.startswith(NO_MODEL_LABEL))
        yield Chunk(
            type="final_response",
            text=text,
            plain=plain(text),
            turn=opened.lease.turn,
            metadata=opened.metadata,
            window=opened.planned.window,
        )


async def repeat(desk: Desk, scope: Scope, key: str, request_digest: bytes) -> Chunk | None:
    """Give the answer an Idempotency-Key stands for, waited for while its turn runs; None for a new key."""
    answered = await desk.store.answered(scope, key)
    if answered is None:
        return None
    if answered.digest != request_digest:
        msg = f"Idempotency-Key {key!r} came before with another request; choose a new key"
        raise KeyReused(msg, where="Idempotency-Key")
    while (turn := await desk.store.turn(scope, answered.conversation, answered.turn)).state == "running":
        await desk.store.expire(now=desk.clock.now())
        await asyncio.sleep(POLL_S)
    if turn.state != "finished":
        reason = turn.steps[-1].error if turn.steps else ""
        msg = (
            f"turn {turn.n} of conversation {answered.conversation!r} {turn.state}: {reason}; ask again under a new key"
        )
        raise BackendError(msg)
    reply = await desk.store.posts_in(scope, answered.conversation, [(turn.reply_seq, turn.reply_seq)])
    text = reply[0].message or "" if reply else ""
    return Chunk(type="final_response", text=text, plain=plain(text), turn=turn.n, metadata=turn.metadata)


async def assemble(desk: Desk, scope: Scope, ask: Ask) -> tuple[Window, dict[str, Any]]:
    """Give the window an ask would get; nothing is stored, and the same state gives the same bytes."""
    persona = desk.persona(ask.persona)
    posted = Posted(
        sender=ask.user or "user", recipient="assistant", message=ask.text, parts=ask.attachments, role="user"
    )
    query = desk.writer.posted(posted, id="query", now=desk.clock.now(), persona=persona.id, user=ask.user)
    scene, planned, turn = await decide(desk, scope, lambda scene: wish_of(desk, ask, scene, (query,)), ask=ask)
    window, cache, _ = await compare(desk, scope, scene, planned, ask.conversation)
    planned = msgspec.structs.replace(planned, window=window)
    return window, metadata_of(desk, scene, planned, cache, turn, ask.mode)


# ---- deciding and opening -------------------------------------------------------------------------------------------


def look_of(desk: Desk, conversation: str, text: str, *, parent: int | None, budget: int | None) -> Look:
    """Say what a turn reads: as much of the path as could fit, and what full text finds for the query."""
    whole = min(budget or desk.limits.context_tokens, desk.limits.context_tokens)
    search = SearchLook(text=text, limit=CANDIDATES) if desk.recall and text else None
    return Look(conversation=conversation, parent=parent, full_tokens=whole, small_tokens=whole // 5, search=search)


def wish_of(desk: Desk, ask: Ask, scene: Scene, drafts: tuple[Draft, ...]) -> Wish:
    """Give an ask as a wish."""
    text = drafts[-1].message if drafts else ""
    return Wish(
        conversation=ask.conversation,
        drafts=drafts,
        persona=desk.persona(ask.persona or (scene.conversation.persona if scene.conversation else None)),
        user=ask.user or (scene.conversation.user if scene.conversation else None),
        query=read_query(text, speakers=scene.speakers, now=desk.clock.now()) if desk.recall and text else None,
        recall_hits=desk.recall_hits,
        token_budget=ask.token_budget,
    )


async def decide(
    desk: Desk, scope: Scope, wish: Callable[[Scene], Wish], *, ask: Ask, parent: int | None = None
) -> tuple[Scene, Planned, int]:
    """Read once and decide. Answers with the scene, the plan and the number the turn gets."""
    scene = await desk.store.scene(
        scope, look_of(desk, ask.conversation, ask.text, parent=parent, budget=ask.token_budget)
    )
    turn = scene.conversation.turns + 1 if scene.conversation else 1
    planned = plan(scene, wish(scene), turn=turn, limits=desk.limits, count=desk.count, key=desk.key)
    return scene, planned, turn


async def open_step(
    desk: Desk,
    scope: Scope,
    wish: Callable[[Scene], Wish],
    *,
    ask: Ask,
    parent: int | None = None,
    moves_head: bool = True,
    waiting_turn: int = 0,
    idempotency: tuple[str, bytes] | None = None,
) -> Opened:
    """Decide and open, anew when another writer was first; an ended lease is cleared, a held one waited for."""
    failure: Conflict = Conflict(f"conversation {ask.conversation!r} changes too fast; try again")
    for _ in range(RETRIES):
        scene, planned, turn = await decide(desk, scope, wish, ask=ask, parent=parent)
        number = waiting_turn or turn
        window, cache, last = await compare(desk, scope, scene, planned, ask.conversation)
        planned = msgspec.structs.replace(planned, window=window)
        metadata = metadata_of(desk, scene, planned, cache, number, ask.mode)
        opening = opening_of(desk, ask, scene, planned, wish(scene).drafts, metadata)
        opening = msgspec.structs.replace(opening, moves_head=moves_head, turn=waiting_turn, idempotency=idempotency)
        try:
            lease = await desk.store.open(scope, opening)
        except Busy as busy:
            failure = busy
            await desk.store.expire(now=desk.clock.now())
            await asyncio.sleep(min(busy.retry_after, POLL_S))
        except Conflict as conflict:
            failure = conflict
            if parent is not None:
                raise  # where it continues was found in the tree as it was; the caller looks again
        else:
            last.turn = (lease.turn, lease.step)
            desk.remember((scope.tenant, ask.conversation), last)
            return Opened(lease=lease, planned=planned, scene=scene, metadata=metadata)
    raise failure


def opening_of(
    desk: Desk, ask: Ask, scene: Scene, planned: Planned, drafts: tuple[Draft, ...], metadata: dict[str, Any]
) -> Opening:
    """Say what is written when a step opens."""
    remembered = planned.remembered
    ratio = planned.window.stable_prefix_ratio
    return Opening(
        conversation=ask.conversation,
        expected_head=scene.conversation.head if scene.conversation else 0,
        expected_last_seq=scene.conversation.last_seq if scene.conversation else 0,
        parent=scene.parent,
        drafts=drafts,
        manifest=msgspec.structs.replace(remembered.manifest, stable_prefix_ratio=ratio),
        texts=remembered.texts,
        now=desk.clock.now(),
        lease_s=desk.lease_s,
        user=ask.user,
        persona=ask.persona,
        query_seq=planned.query_seq,
        metadata=metadata,
        mode=ask.mode,
    )
