"""Proxy of provider clients: find the stored path that a request continues, relay the answer, store both."""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, NoReturn

import msgspec

from cuebook.engine.core.services import Key, Services
from cuebook.engine.core.time_zones import zone_of
from cuebook.engine.proxy.answer_relay import relay_answer
from cuebook.engine.proxy.idempotent_replay import find_reply
from cuebook.engine.proxy.local_answer import Head, answer
from cuebook.engine.proxy.request import HistoryPlace, RelayCall, Request, key_of, place_of
from cuebook.engine.proxy.shadow_ledger import CallAccounting, reckoned
from cuebook.engine.proxy.wire import Wire
from cuebook.engine.turn.compare import frozen_volatile
from cuebook.engine.turn.opening import Intent, open_step
from cuebook.engine.turn.plan import Wish
from cuebook.engine.turn.prompt_logs import logging_of
from cuebook.engine.turn.step import OpenStep
from cuebook.errors import Conflict
from cuebook.interfaces.store import PathQuery, Scene
from cuebook.memory.profiles import RELAY
from cuebook.memory.recall import read_query
from cuebook.records.conversation import TOOL, Draft
from cuebook.records.memory import NO_MODEL, Scope
from cuebook.records.turn import Ask, Turn
from cuebook.window.window import Text

log = logging.getLogger("cuebook.relay")


def relay(
    wire: Wire, scope: Scope, *, model: str | None, ledger: CallAccounting | None = None
) -> AsyncGenerator[Head | bytes, None]:
    """Answer a request: first the head, then the body's bytes. The last bytes follow once the turn is durable.

    `model` replaces a model that names a persona. A repeated Idempotency-Key returns the stored answer. Without an
    upstream, the answer is a chat completion. `ledger` accounts for wires that send no window. Raises InvalidInput,
    KeyReused, Conflict.
    """
    return wire.write(_relay(wire, scope, model=model, ledger=ledger))


async def _relay(
    wire: Wire, scope: Scope, *, model: str | None, ledger: CallAccounting | None
) -> AsyncGenerator[Head | bytes, None]:
    began = time.perf_counter()
    request = await wire.load()
    services, upstream, call = wire.services, wire.upstream, wire.call
    if request.user and scope.user is None:
        scope = Scope(scope.tenant, request.user)
    key = key_of(services, call, request)
    if again := await _again(wire, scope, request, key):
        for piece in again:
            yield piece
        return
    conversation = request.conversation or (await _place(services, scope, request, call)).conversation
    request = msgspec.structs.replace(request, conversation=conversation)
    async with services.queue.hold(scope.tenant, conversation):
        quotes = upstream is None and services.model.name == NO_MODEL
        intend = meaning(services, scope, request, call, conversation, key=key, quotes=quotes)
        place = None if wire.sends_window else await _place(services, scope, request, call)
        opened = await open_step(services, scope, intend if wire.sends_window else unsaid(intend))
        if opened is None:  # the same request was first, in another process
            for piece in await _again(wire, scope, request, key) or _nothing(conversation):
                yield piece
            return
        if opened.side and services.caches.is_first_side_request((scope.tenant, conversation)):
            log.info(
                "A request of conversation %s does not continue its history; it is stored as a side branch",
                conversation,
            )
        async with OpenStep(
            services, opened.lease, opened.renders if wire.sends_window else (), zone=opened.zone
        ) as step:
            step.on_closed = logging_of(services, opened) if wire.sends_window else None
            if upstream is None:
                answers = answer(services, opened, step, stream=request.stream, counts=request.wants_usage)
            else:
                if ledger is not None and place is not None:
                    marks = wire.sends_marks(model or request.model)
                    step.metadata |= await reckoned(ledger, services, request, place, opened, began=began, marks=marks)
                reply = await upstream.send(wire.outgoing(request, opened, model=model))
                answers = relay_answer(reply, step, wire.reader())
            position: Any = {"conversation": conversation, "turn": step.lease.turn, "step": step.lease.step}
            position |= {"side": opened.side, "tokens": opened.planned.window.tokens}
            async with aclosing(answers) as pieces:
                async for piece in pieces:
                    yield msgspec.structs.replace(piece, **position) if isinstance(piece, Head) else piece


async def _again(wire: Wire, scope: Scope, request: Request, key: Key | None) -> list[Head | bytes]:
    """Return the stored answer of an Idempotency-Key, or nothing."""
    reply = await find_reply(wire.services, scope, key, request) if key else None
    return [reply.head(stream=request.stream), *wire.replay(reply, request)] if reply else []


def _nothing(conversation: str) -> NoReturn:
    raise Conflict(f"Conversation {conversation!r} was changed by another request. Try again.")


# ---- Interpretation of a request ------------------------------------------------------------------------------------


async def _place(services: Services, scope: Scope, request: Request, call: RelayCall) -> HistoryPlace:
    return await place_of(services, scope, request, call)


def meaning(
    services: Services,
    scope: Scope,
    request: Request,
    call: RelayCall,
    conversation: str,
    *,
    key: Key | None = None,
    quotes: bool = False,
) -> Callable[[], Awaitable[Intent]]:
    """Return a request as an intent: the new part of its history, after the post it continues.

    Each attempt finds that post again, because the tree may have changed.
    """

    async def intend() -> Intent:
        place = await _place(services, scope, request, call)
        drafts = _drafts(services, request, place)
        turn = await _waiting(services, scope, request, place, drafts)
        frozen = await frozen_volatile(services, scope, turn) if turn else None
        return Intent(
            ask=Ask(
                "" if place.side else request.query,
                conversation,
                user=request.user or scope.user,
                persona=request.model if request.model in services.settings.personas else None,
                mode=RELAY if place.begins else None,
                project=call.project,
                time_zone=call.time_zone,
                organization=request.organization,
                memory_control=request.memory_control,
                may_publish=call.may_publish,
                key=call.key,
                authenticated=call.authenticated and (request.user or scope.user) is not None,
            ),
            drafts=drafts,
            wish=_wish(services, request, place, drafts, frozen, quotes=quotes, time_zone=call.time_zone),
            parent=place.parent,
            moves_head=not place.side,
            goes_on=turn,
            idempotency=key,
            told=call.told,
            relayed=True,
            own_text=any(each.text.strip() for each in request.client),
            seqs=place.seqs,
            first_new=place.first_new,
        )

    return intend


def unsaid(intend: Callable[[], Awaitable[Intent]]) -> Callable[[], Awaitable[Intent]]:
    """Return an intent whose window is stored and never sent."""

    async def intended() -> Intent:
        return msgspec.structs.replace(await intend(), shadow=True, asks_model=False)

    return intended


def _drafts(services: Services, request: Request, place: HistoryPlace) -> tuple[Draft, ...]:
    drafts: list[Draft] = []
    for each in request.history[place.first_new :]:
        id_, now = services.dice.new_id("post"), services.clock.now()
        drafts.append(
            services.writer.message(
                each.raw, each.content, id=id_, user=request.user, now=now, owner=place.owner, clean=not each.secret
            )
        )
    return tuple(drafts)


async def _waiting(
    services: Services, scope: Scope, request: Request, place: HistoryPlace, drafts: Sequence[Draft]
) -> Turn | None:
    """Return the turn that waits for these tool results, or for results already stored."""
    if place.side or place.parent == 0 or any(draft.role != TOOL for draft in drafts):
        return None
    asked = place.parent if drafts else _asked_by(request, place)
    if not drafts and asked is None:
        return None
    scene = await services.store.scene(
        scope, PathQuery(conversation=place.conversation, parent=place.parent, use_summary=False)
    )
    turn = scene.open_turn
    return turn if turn is not None and turn.waiting and turn.reply_seq == (asked or scene.parent) else None


def _asked_by(request: Request, place: HistoryPlace) -> int | None:
    """Return the post whose calls the results at the end of a history answer, or None."""
    number = len(request.history) - 1
    while number >= 0 and request.history[number].role == TOOL:
        number -= 1
    return place.seqs.get(number) if number < len(request.history) - 1 else None


def _wish(
    services: Services,
    request: Request,
    place: HistoryPlace,
    drafts: tuple[Draft, ...],
    frozen: tuple[Text, ...] | None,
    *,
    quotes: bool,
    time_zone: str | None,
) -> Callable[[Scene], Wish]:
    live = {seq: request.history[n].raw for n, seq in place.seqs.items() if request.history[n].secret}
    live_drafts = {n: each.raw for n, each in enumerate(request.history[place.first_new :]) if each.secret}
    asked = "" if place.side or frozen is not None or not services.settings.recall else request.query

    def wish(scene: Scene) -> Wish:
        zone = zone_of(time_zone, scene.conversation, services.settings.zone)
        return Wish(
            conversation=request.conversation or place.conversation,
            drafts=drafts,
            user=place.owner,
            query=read_query(asked, speakers=scene.speakers, now=services.clock.now(), zone=zone) if asked else None,
            zone=zone,
            recall_hits=services.settings.recall_hits,
            quotes=quotes,
            client=request.client,
            live_client=request.live_client,
            tools=request.tools,
            live_tools=request.live_tools,
            live=live,
            live_drafts=live_drafts,
            frozen=frozen,
            query_seq=scene.open_turn.query_seq if frozen is not None and scene.open_turn else None,
        )

    return wish
