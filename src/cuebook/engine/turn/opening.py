"""Open a step: load the state once, decide without side effects, store the decision, and retry after a concurrent
write.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, tzinfo
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.engine.core.memory_selection import retrieve
from cuebook.engine.core.query_vector import with_sense
from cuebook.engine.core.services import Key, Services
from cuebook.engine.core.time_zones import dated, zone_of
from cuebook.engine.turn.compare import compare
from cuebook.engine.turn.experiences import advise
from cuebook.engine.turn.front import SILENT, Front, front_again, front_of, is_silent, wanted
from cuebook.engine.turn.message_signals import hear_turn, outcome_before, signals_for, with_heard
from cuebook.engine.turn.mood import with_mind
from cuebook.engine.turn.plan import Planned, Wish, plan
from cuebook.engine.turn.reply_metadata import metadata_of
from cuebook.engine.turn.step import to_the_end
from cuebook.engine.turn.summary_correction import correct_summary
from cuebook.errors import Busy, Conflict, CuebookError, LeaseLost
from cuebook.interfaces.memories import MemoryLook
from cuebook.interfaces.store import Lease, Opening, PathQuery, Scene, SearchLook, StepEnd, Stretch
from cuebook.memory.profiles import choose
from cuebook.memory.scopes import (
    BROUGHT,
    KEPT,
    SHARED_BY,
    SHARED_WITH,
    SHARING,
    SPOKEN_WITH,
    Participants,
    personal_places,
    policy_to_wire,
    published_place,
    read_control,
    unshared,
)
from cuebook.records.audit import Record
from cuebook.records.conversation import Draft
from cuebook.records.memory import Scope
from cuebook.records.mind import TurnSignals
from cuebook.records.turn import ASKED, SHADOW, Ask, Turn
from cuebook.window.partition import reach
from cuebook.window.tuning_marks import in_force, moves, newest

#: Retries after concurrent writes before the caller gets an error.
RETRIES = 50
#: Seconds between checks of a lease held by another process.
POLL_S = 0.05
#: Posts from full text; their neighbors are added. On LoCoMo dev 24 are as good as 200 (R@10 79.0, 79.2).
CANDIDATES = 32


class Intent(Struct, frozen=True, kw_only=True):
    """The request of a step, before the state is loaded that it is decided on."""

    ask: Ask
    drafts: tuple[Draft, ...]
    wish: Callable[[Scene], Wish]
    parent: int | None = None  # the post it continues; None = the head
    moves_head: bool = True
    goes_on: Turn | None = None  # the waiting turn that this step continues
    idempotency: Key | None = None
    relayed: bool = False  # a client's own request: gets advice only if the persona is active in it
    own_text: bool = False  # the request has its own system text
    asks_model: bool = True  # a model may be called before the step opens
    shadow: bool = False  # shadow mode: decide and store, never send
    told: Mapping[str, Any] = {}  # request data, stored with the step
    seqs: Mapping[int, int] = {}  # number of a request message -> the stored post with the same content
    first_new: int = 0  # number of the message that is the first draft


class Opened(Struct, frozen=True, kw_only=True):
    """A stored step, ready for the model."""

    lease: Lease
    planned: Planned
    scene: Scene
    metadata: dict[str, Any]
    zone: tzinfo = UTC  # time zone of its answer's dates
    renders: tuple[Record, ...] = ()
    side: bool = False  # continues no path
    role: str = ""  # of the active persona
    asked: tuple[bytes, ...] = ()  # messages to the model that selected experiences
    sent: Mapping[int, int] = {}  # seq of a post -> number of its message in the request


async def open_step(
    services: Services, scope: Scope, intend: Callable[[], Awaitable[Intent]], *, waits: bool = True
) -> Opened | None:
    """Decide and open a step. When it returns, the query is durable. Return None if another request used its
    Idempotency-Key.

    Wait for a running turn of another process, and end a turn whose process died. Raises InvalidInput, LeaseLost if the
    conversation was erased meanwhile, and Conflict if concurrent writes prevent a decision. `waits`: a caller waits for
    the first token, so background jobs pause.
    """
    over = services.foreground.begin() if waits else lambda: None
    try:
        return await _open_step(services, scope, intend)
    finally:
        over()


async def _open_step(services: Services, scope: Scope, intend: Callable[[], Awaitable[Intent]]) -> Opened | None:
    stood = 0
    for _ in range(RETRIES):
        intent = await intend()
        scene, planned, front, number = await decide(services, scope, intent)
        stands = scene.conversation.no if scene.conversation else 0
        if stood not in (0, stands):
            msg = f"Conversation {intent.ask.conversation!r} was erased during this request, with its message."
            raise LeaseLost(msg)
        stood = stands
        window, cache, last = await compare(services, scope, scene, planned, intent.ask.conversation)
        planned = msgspec.structs.replace(planned, window=window)
        metadata = metadata_of(services, scene, planned, front, cache=cache, turn=number, mode=intent.ask.mode)
        metadata |= _terms(scene, intent) | _shadow(intent) | _told(intent)
        zone = zone_of(intent.ask.time_zone, scene.conversation, services.settings.zone)
        try:
            lease = await _open(
                services, scope, _opening(services, intent, scene, planned, front=front, metadata=metadata)
            )
        except Busy:
            await _until_free(services, scope, intent.ask.conversation)
        except Conflict:
            if intent.idempotency and await services.answered(scope, intent.idempotency):
                return None
        else:
            services.caches.keep_window((scope.tenant, intent.ask.conversation), last)
            return Opened(
                lease=lease, planned=planned, scene=scene, metadata=metadata, renders=front.renders, zone=zone,
                side=not intent.moves_head, role=_role(services, intent, scene), asked=front.asked,
                sent=_sent(intent, scene),
            )  # fmt: skip
    msg = f"Conversation {intent.ask.conversation!r} has too many concurrent changes. Try again."
    raise Conflict(msg)


def _sent(intent: Intent, scene: Scene) -> dict[int, int]:
    first = scene.conversation.last_seq + 1 if scene.conversation else 1
    drafts = {first + n: intent.first_new + n for n in range(len(intent.drafts))}
    return {seq: number for number, seq in intent.seqs.items()} | drafts


async def decide(services: Services, scope: Scope, intent: Intent) -> tuple[Scene, Planned, Front, int]:
    """Load once and decide. Return the scene, the plan, the system prompt and the turn's number."""
    path_query, turn = await with_sense(services, _look(services, intent)), intent.goes_on
    scene = await services.store.scene(scope, path_query)
    if turn is None and scene.summary and scene.summary.corrected < scene.corrected:
        await correct_summary(services, scope, intent.ask.conversation, upto=scene.summary.upto_seq)
        scene = await services.store.scene(scope, path_query)
    services.caches.drop_erased(scene.epoch)
    if turn is not None:
        scene = await _with_query(services, scope, scene, turn.query_seq)
    number = turn.n if turn else scene.conversation.turns + 1 if scene.conversation else 1
    if turn is None:
        turn_signals = await hear_turn(services, scene, intent.ask, intent.drafts, aside=not intent.moves_head)
        front = await _front(services, scene, intent, number, turn_signals)
    else:
        front = await front_again(services, scope, turn.steps[0].manifest, turn.metadata)
    wish = msgspec.structs.replace(intent.wish(scene), front=front.texts, unsaid=front.dropped, mind=front.mind)
    if turn is None:
        wish = _with_memories(services, scene, wish, number)
        if front.texts or not intent.relayed:
            advice = await advise(services, scope, scene, intent.ask, asks_model=intent.asks_model)
            wish = msgspec.structs.replace(wish, advice=advice.texts)
            data = {**front.metadata, **advice.metadata}
            front = msgspec.structs.replace(front, metadata=data, asked=advice.asked)
    return scene, plan_tuned(services, scene, wish, turn=number, goes_on=turn), front, number


async def _front(
    services: Services, scene: Scene, intent: Intent, number: int, turn_signals: TurnSignals | None
) -> Front:
    """Return the system prompt of a turn's first step. An inactive persona has no mood state either."""
    if intent.relayed and is_silent(services, scene, intent.ask, own_text=intent.own_text):
        return with_heard(Front(metadata={SILENT: True}), turn_signals)
    front = await front_of(services, scene, intent.ask, turn=number, signals=signals_for(intent.ask, turn_signals))
    return with_mind(services, scene, intent.ask, with_heard(front, turn_signals))


def _with_memories(services: Services, scene: Scene, wish: Wish, number: int) -> Wish:
    """Return a wish with cross-conversation memories. Without recall in the conversation it has no query."""
    query = wish.query
    if scene.known is not None and not scene.known.policy.recalls:
        wish = msgspec.structs.replace(wish, query=None)
    hits, every = services.settings.recall_hits, services.settings.review_every
    retrieved = retrieve(scene, query, turn=number, every=every, hits=hits, count=services.count)
    return wish if retrieved is None else msgspec.structs.replace(wish, memories=retrieved)


def look_of(services: Services, conversation: str, text: str, *, parent: int | None, budget: int | None) -> PathQuery:
    """Return a turn's store query: as much of the path as may fit, and full-text results for the query."""
    far = reach(services.settings.limits, budget)
    return PathQuery(
        conversation=conversation,
        parent=parent,
        full_tokens=far.full,
        small_tokens=far.small,
        small_after=far.small_after,
        post_tokens=far.post,
        search=SearchLook(text=text, limit=CANDIDATES) if services.settings.recall and text else None,
    )


def _look(services: Services, intent: Intent) -> PathQuery:
    """Return a step's store query. A later step repeats the first step's, so that its text stays the same."""
    ask, turn = intent.ask, intent.goes_on
    path_query = look_of(
        services, ask.conversation, "" if turn else ask.text, parent=intent.parent, budget=ask.token_budget
    )
    if turn is None:
        names, memory = wanted(services, ask.persona), memory_look(services, ask)
        profile = choose(services.settings.compaction, ask.mode)
        steady = profile.tail + profile.most if profile.trigger == "posts" else 0
        return msgspec.structs.replace(
            path_query,
            prompts=names,
            project=ask.project,
            otherwise=services.settings.project,
            memory=memory,
            steady_posts=steady,
        )
    return msgspec.structs.replace(path_query, summary_version=turn.steps[0].manifest.summary_version)


def memory_look(services: Services, ask: Ask) -> MemoryLook:
    """Return a turn's store query for cross-conversation memories."""
    defaults = services.settings.keyed_policy if ask.authenticated else services.settings.memory_policy
    if ask.organization is None:
        defaults = msgspec.structs.replace(defaults, organization=False)
    return MemoryLook(
        control=read_control(ask.memory_control),
        defaults=defaults,
        user=ask.user,
        persona=ask.persona or "",
        otherwise=services.settings.default_persona,
        organization=ask.organization,
        text=ask.text if services.settings.recall else "",
    )


async def _with_query(services: Services, scope: Scope, scene: Scene, query: int) -> Scene:
    """Return a scene that includes the open turn's query in full, however long the turn is."""
    gap = next((each for each in scene.unread if each.first <= query <= each.last), None)
    small = any(post.seq == query and post.message is None for post in scene.path)
    if scene.conversation is None or not (gap or small):
        return scene
    path_posts = await services.store.posts_in(scope, scene.conversation.id, [(query, query)])
    if not path_posts:
        return scene  # erased meanwhile
    post = path_posts[0]
    if gap is None:
        return msgspec.structs.replace(scene, path=tuple(post if each.seq == query else each for each in scene.path))
    newer = sum(each.tokens for each in scene.unread if each.first > query)
    behind = scene.path[0].path_tokens - scene.path[0].tokens - newer - post.path_tokens
    before = gap.tokens - post.tokens - behind
    halves = [
        Stretch(gap.first, query - 1, query - gap.first, before),
        Stretch(query + 1, gap.last, gap.last - query, behind),
    ]
    unread = [half for each in scene.unread for half in (halves if each is gap else [each]) if half.count]
    return msgspec.structs.replace(scene, path=(post, *scene.path), unread=tuple(unread))


def _opening(
    services: Services, intent: Intent, scene: Scene, planned: Planned, *, front: Front, metadata: dict[str, Any]
) -> Opening:
    """Return the rows to write when a step opens."""
    remembered, ask = planned.remembered, intent.ask
    ratio = planned.window.stable_prefix_ratio
    said = not intent.shadow
    return Opening(
        conversation=ask.conversation,
        expected_head=scene.conversation.head if scene.conversation else 0,
        expected_last_seq=scene.conversation.last_seq if scene.conversation else 0,
        parent=scene.parent,
        drafts=dated(intent.drafts, zone_of(ask.time_zone, scene.conversation, services.settings.zone)),
        manifest=msgspec.structs.replace(remembered.manifest, stable_prefix_ratio=ratio),
        texts=remembered.texts,
        now=services.clock.now(),
        lease_s=services.settings.lease_s,
        user=ask.user,
        persona=ask.persona,
        turn=intent.goes_on.n if intent.goes_on else 0,
        query_seq=planned.query_seq,
        moves_head=intent.moves_head,
        metadata=metadata,
        mode=ask.mode,
        time_zone=ask.time_zone,
        policy=_kept_policy(scene, ask),
        delivers=_delivers(scene, ask),
        uses=planned.uses if said else (),
        project=ask.project,
        idempotency=services.settings.keyed_digest_of(intent.idempotency),
        audit=front.renders if said else (),
        calls=front.calls if intent.moves_head else (),
        outcome=outcome_before(services, scene, ask, intent.drafts, front.heard) if intent.moves_head else None,
        epoch=scene.epoch,
    )


def _kept_policy(scene: Scene, ask: Ask) -> dict[str, Any] | None:
    """Return the conversation's new policy, or None without one in the request. A guest's request cannot change it."""
    conversation = scene.conversation
    guest = conversation is not None and ask.user is not None and conversation.user not in (None, ask.user)
    return policy_to_wire(scene.known.policy) if scene.known and ask.memory_control is not None and not guest else None


def _delivers(scene: Scene, ask: Ask) -> bool:
    if scene.known is None:
        return False
    participants = _whose(scene, ask)
    return bool(personal_places(scene.known.policy, participants)) or bool(_published(scene, ask))


def _published(scene: Scene, ask: Ask) -> str:
    if scene.known is None:
        return ""
    memory_context = scene.known
    place = published_place(
        memory_context.policy, _whose(scene, ask), memory_context.settings, may_publish=ask.may_publish
    )
    return place.id if place else ""


def _terms(scene: Scene, intent: Intent) -> dict[str, Any]:
    """Add the memory policy and the new posts to a turn's metadata. Later steps use the first step's policy."""
    if intent.goes_on is not None:
        data = intent.goes_on.metadata
        return {name: data[name] for name in (KEPT, SHARED_WITH, SHARED_BY, SHARING, SPOKEN_WITH) if name in data}
    first = scene.conversation.last_seq + 1 if scene.conversation else 1
    brought = first if len(intent.drafts) > 1 else None
    shared = _published(scene, intent.ask)
    values = {
        SHARED_WITH: shared,
        SHARED_BY: intent.ask.key if shared else "",
        SPOKEN_WITH: intent.ask.persona,
        BROUGHT: brought,
        SHARING: _sharing(scene, intent.ask),
    }
    return {name: value for name, value in values.items() if value}


def _shadow(intent: Intent) -> dict[str, Any]:
    """Mark a shadow turn, with the data of its earlier steps."""
    before = intent.goes_on.metadata.get(SHADOW) if intent.goes_on else None
    return {} if before is None and not intent.shadow else {SHADOW: before or {}}


def _told(intent: Intent) -> dict[str, Any]:
    """Return the request data of a turn's steps, by step number."""
    before = intent.goes_on.metadata.get(ASKED, {}) if intent.goes_on else {}
    step = str(len(intent.goes_on.steps) + 1 if intent.goes_on else 1)
    values = {**before, step: dict(intent.told)} if intent.told else before
    return {ASKED: values} if values else {}


def _sharing(scene: Scene, ask: Ask) -> dict[str, Any] | None:
    """Return a turn's request to share with an organization, or None without one."""
    memory_context = scene.known
    if memory_context is None or not memory_context.policy.share:
        return None
    reason = unshared(memory_context.policy, _whose(scene, ask), memory_context.settings, may_publish=ask.may_publish)
    return {"shared": False, "reason": reason} if reason else {"shared": True}


def _whose(scene: Scene, ask: Ask) -> Participants:
    user = scene.conversation.user if scene.conversation else ask.user
    return Participants(user=user, persona=ask.persona or "-", organization=ask.organization)


def _role(services: Services, intent: Intent, scene: Scene) -> str:
    return services.settings.persona(
        intent.ask.persona or (scene.conversation.persona if scene.conversation else None)
    ).role


async def _open(services: Services, scope: Scope, opening: Opening) -> Lease:
    """Open the step. If the caller disconnects meanwhile, the turn ends as interrupted and its lease is released."""
    task = asyncio.ensure_future(services.store.open(scope, opening))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(CuebookError):
            await to_the_end(_give_back(services, task))
        raise


async def _give_back(services: Services, opening: Awaitable[Lease]) -> None:
    closing = StepEnd(state="interrupted", now=services.clock.now(), error="the caller went away")
    await services.store.close(await opening, closing)


async def _until_free(services: Services, scope: Scope, conversation: str) -> None:
    """Wait until a conversation's lease is free. End an expired one."""
    while (await services.store.conversation(scope, conversation)).lease_until > 0:
        await services.expire()
        await asyncio.sleep(POLL_S)


# ---- Tuning ---------------------------------------------------------------------------------------------------------


def plan_tuned(services: Services, scene: Scene, wish: Wish, *, turn: int, goes_on: Turn | None) -> Planned:
    """Build a step's window with the conversation's tuning. Raises InvalidInput as `plan` does."""
    before = in_force(scene.tuning, goes_on.metadata if goes_on else scene.told)
    now = newest(scene.tuning) if services.settings.tunes else newest(None)
    if goes_on is None and scene.previous is None:
        before = now
    planned = plan(
        scene,
        wish,
        turn=turn,
        limits=services.settings.limits,
        count=services.count,
        key=services.settings.key,
        marks=before,
    )
    if goes_on is not None or now.run == before.run or scene.previous is None:
        return planned
    if not moves(scene.previous, planned.remembered.manifest):
        return planned
    return plan(
        scene,
        wish,
        turn=turn,
        limits=services.settings.limits,
        count=services.count,
        key=services.settings.key,
        marks=now,
    )
