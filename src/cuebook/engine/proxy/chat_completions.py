"""Proxy for `/v1/chat/completions`: replace only the messages of a request, relay the answer byte
for byte, store both.
"""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from typing import NoReturn

import msgspec
from msgspec import Raw, Struct

from cuebook.engine.core.services import Key, Services
from cuebook.engine.core.time_zones import zone_of
from cuebook.engine.proxy.answer_relay import relay_answer
from cuebook.engine.proxy.idempotent_replay import tell, told_before
from cuebook.engine.proxy.local_answer import Head, answer
from cuebook.engine.proxy.request import HistoryPlace, RelayCall, Request, key_of, place_of, read_request
from cuebook.engine.proxy.shadow_ledger import CallAccounting, reckoned
from cuebook.engine.turn.compare import frozen_volatile
from cuebook.engine.turn.opening import Intent, Opened, open_step
from cuebook.engine.turn.plan import Wish
from cuebook.engine.turn.prompt_logs import logging_of
from cuebook.engine.turn.step import OpenStep
from cuebook.errors import Conflict
from cuebook.interfaces.model import RelayRequest, Upstream
from cuebook.interfaces.store import PathQuery, Scene
from cuebook.memory.profiles import RELAY
from cuebook.memory.recall import read_query
from cuebook.records.conversation import TOOL, Draft
from cuebook.records.memory import NO_MODEL, Scope
from cuebook.records.turn import Ask, Turn
from cuebook.window.anchors import with_breakpoints
from cuebook.window.cache import rule_for
from cuebook.window.window import Text
from cuebook.wire.answer import StreamReader
from cuebook.wire.anthropic_messages import REMINDED
from cuebook.wire.chat_answers import ChatReader

log = logging.getLogger("cuebook.relay")
#: A part added by a client program, stored from Anthropic's wire. On this wire it is a text.
_REMINDED, _TEXT = f'"type":"{REMINDED}"'.encode(), b'"type":"text"'
_encode = msgspec.json.Encoder().encode


class OutgoingRequest(Struct, frozen=True, kw_only=True):
    """The request to send: as parsed, as received, and its opened step. `model` replaces the request's model."""

    request: Request
    call: RelayCall
    opened: Opened
    model: str | None = None


class Wire(Struct, frozen=True, kw_only=True):
    """Functions of a wire format: parse requests as chat completions, build the outgoing body, parse the answer."""

    read: Callable[[Services, RelayCall], Request]
    outgoing: Callable[[Services, Upstream, OutgoingRequest], RelayRequest]
    hears: Callable[[], StreamReader]
    breaks: Callable[[Services, Upstream, str], bool]  # whether to send cache breakpoints to a model
    tells: Callable[..., Iterator[Head | bytes]] = tell  # replays a stored answer
    says: bool = True  # False: send the client's own messages and only store the window


async def relay(
    services: Services,
    upstream: Upstream | None,
    scope: Scope,
    call: RelayCall,
    *,
    model: str | None,
    wire: Wire | None = None,
    ledger: CallAccounting | None = None,
) -> AsyncGenerator[Head | bytes, None]:
    """Answer a chat completion: first the head, then the body's bytes. The last bytes follow once the turn is durable.

    `model` replaces a model that names a persona. A repeated Idempotency-Key returns the stored answer. Without an
    upstream the `wire` is OpenAI's. `ledger` accounts for wires that report no window. Raises InvalidInput, KeyReused,
    Conflict.
    """
    wire, began = wire or CHAT, time.perf_counter()
    request = wire.read(services, call)
    if request.user and scope.user is None:
        scope = Scope(scope.tenant, request.user)
    key = key_of(services, call, request)
    if again := await _again(services, upstream, scope, request, key, wire=wire):
        for piece in again:
            yield piece
        return
    conversation = request.conversation or (await _place(services, scope, request, call)).conversation
    request = msgspec.structs.replace(request, conversation=conversation)
    async with services.queue.hold(scope.tenant, conversation):
        quotes = upstream is None and services.model.name == NO_MODEL
        intend = meaning(services, scope, request, call, conversation, key=key, quotes=quotes)
        place = None if wire.says else await _place(services, scope, request, call)
        opened = await open_step(services, scope, intend if wire.says else unsaid(intend))
        if opened is None:  # the same request was first, in another process
            for piece in await _again(services, upstream, scope, request, key, wire=wire) or _nothing(conversation):
                yield piece
            return
        if opened.side and services.caches.is_first_side_request((scope.tenant, conversation)):
            log.info(
                "A request of conversation %s does not continue its history; it is stored as a side branch",
                conversation,
            )
        async with OpenStep(services, opened.lease, opened.renders if wire.says else (), zone=opened.zone) as step:
            step.on_closed = logging_of(services, opened) if wire.says else None
            if upstream is None:
                answers = answer(services, opened, step, stream=request.stream, counts=request.wants_usage)
            else:
                going = OutgoingRequest(request=request, call=call, opened=opened, model=model)
                if ledger is not None and place is not None:
                    marks = wire.breaks(services, upstream, model or request.model)
                    step.metadata |= await reckoned(ledger, services, request, place, opened, began=began, marks=marks)
                reply = await upstream.send(wire.outgoing(services, upstream, going))
                answers = relay_answer(reply, step, wire.hears())
            async with aclosing(_placed(answers, opened)) as pieces:
                async for piece in pieces:
                    yield piece


async def _placed(answers: AsyncGenerator[Head | bytes, None], opened: Opened) -> AsyncGenerator[Head | bytes, None]:
    """Yield an answer with its request's position and the length of its prompt."""
    tokens = opened.planned.window.tokens
    async with aclosing(answers):
        async for piece in answers:
            if isinstance(piece, Head):
                yield msgspec.structs.replace(piece, side=opened.side, tokens=tokens)
            else:
                yield piece


async def _again(
    services: Services, upstream: Upstream | None, scope: Scope, request: Request, key: Key | None, *, wire: Wire
) -> list[Head | bytes]:
    """Return the stored answer of an Idempotency-Key, or nothing."""
    stored_reply = await told_before(services, scope, key, request) if key else None
    return list(wire.tells(services, stored_reply, request, estimate=upstream is None)) if stored_reply else []


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


# ---- Outgoing request -----------------------------------------------------------------------------------------------


def _outgoing(services: Services, upstream: Upstream, going: OutgoingRequest) -> RelayRequest:
    request, call, model = going.request, going.call, going.model
    body = body_of(request, going.opened, model=model, breakpoints=breaks(services, upstream, model or request.model))
    return RelayRequest(method="POST", path="/chat/completions", headers=call.headers, body=body, query=call.query)


def breaks(services: Services, upstream: Upstream, model: str) -> bool:
    """Return whether to send cache breakpoints: by setting, or if the provider is known to support them."""
    if services.settings.breakpoints != "auto":
        return services.settings.breakpoints == "on"
    rule = rule_for(model, upstream.base_url)
    return rule is not None and rule.name == "openai-breakpoints"


def body_of(request: Request, opened: Opened, *, model: str | None, breakpoints: bool = False) -> bytes:
    """Return the request's body with the window as its messages. All other bytes stay the same."""
    fields = dict(request.fields)
    messages = tuple(each.replace(_REMINDED, _TEXT) for each in opened.planned.messages)
    if breakpoints:
        messages = with_breakpoints(messages, opened.planned.window.anchors, opened.planned.sheet)
        fields.setdefault("prompt_cache_key", Raw(_encode(opened.lease.conversation)))
        fields.setdefault("prompt_cache_options", Raw(b'{"mode":"explicit"}'))
    fields["messages"] = Raw(b"[" + b",".join(messages) + b"]")
    if model is not None:
        fields["model"] = Raw(_encode(model))
    return _encode(fields)


#: OpenAI's chat completions.
CHAT = Wire(read=read_request, outgoing=_outgoing, hears=ChatReader, breaks=breaks)
