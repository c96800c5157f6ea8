"""`/v1/chat/completions`: a request goes upstream as it came but for its messages, its answer comes back byte for byte, and both are kept."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from cuebook.assembly.anchors import with_breakpoints
from cuebook.assembly.cache import rule_for
from cuebook.engine.answer import Head, answer
from cuebook.engine.compare import frozen_volatile
from cuebook.engine.desk import Desk
from cuebook.engine.plan import Wish
from cuebook.engine.request import Call, Place, Request, place_of, read_request, sender_of
from cuebook.engine.step import Step
from cuebook.engine.turn import RETRIES, Opened, open_step
from cuebook.engine.wire import Heard, Lines, hear, message_of, take
from cuebook.errors import Conflict, InvalidInput, UpstreamError
from cuebook.memory.recall import read_query
from cuebook.ports.model import RelayAnswer, RelayRequest, Upstream
from cuebook.ports.store import Look, Scene
from cuebook.records.conversation import CALL, TOOL, Draft
from cuebook.records.memory import Scope
from cuebook.records.openai_messages import read_message
from cuebook.records.turn import Ask

_encode = msgspec.json.Encoder().encode


async def relay(
    desk: Desk, upstream: Upstream | None, scope: Scope, call: Call, *, model: str | None
) -> AsyncIterator[Head | bytes]:
    """Answer a chat completion: the head first, then the body's bytes. The last of them come when the turn is durable.

    `model` replaces the request's model where that names a persona.
    """
    request = read_request(desk, call)
    if request.user and scope.user is None:
        scope = Scope(scope.tenant, request.user)
    place = await place_of(desk, scope, request, server_history=call.server_history)
    async with desk.lines.hold(scope.tenant, place.conversation):
        opened = await _open(desk, scope, request, place, call)
        async with Step(desk, opened.lease, reply_id=desk.dice.new_id("post")) as step:
            if upstream is None:
                answers = answer(desk, opened, step, stream=request.stream)
            else:
                marks = breaks(desk, upstream, model or request.model)
                body = body_of(request, opened, model=model, breakpoints=marks)
                outgoing = RelayRequest(
                    method="POST", path="/chat/completions", headers=call.headers, body=body, query=call.query
                )
                answers = _relay(await upstream.send(outgoing), desk, opened, step)
            async for piece in answers:
                yield piece


async def _open(desk: Desk, scope: Scope, request: Request, place: Place, call: Call) -> Opened:
    """Store what is new of the history and open the step; look for its place again when the tree has changed meanwhile."""
    failure: Conflict | None = None
    for _ in range(RETRIES):
        drafts = _drafts(desk, request, place)
        text = next((each.said.message for each in reversed(request.history) if each.said.role == "user"), "")
        ask = Ask(text=text, conversation=place.conversation, user=request.user or scope.user)
        waiting = await _waiting(desk, scope, place, drafts)
        frozen = await frozen_volatile(desk, scope, waiting) if waiting else None
        try:
            return await open_step(
                desk,
                scope,
                _wish(desk, request, place, drafts, ask, waiting, frozen),
                ask=ask,
                parent=place.parent,
                moves_head=not place.side,
                waiting_turn=waiting.open_turn.n if waiting and waiting.open_turn else 0,
            )
        except Conflict as conflict:
            failure = conflict
            named = msgspec.structs.replace(request, conversation=place.conversation)
            place = await place_of(desk, scope, named, server_history=call.server_history)
    raise failure or Conflict(f"conversation {place.conversation!r} changes too fast; try again")


def _drafts(desk: Desk, request: Request, place: Place) -> tuple[Draft, ...]:
    now = desk.clock.now()
    return tuple(
        desk.writer.message(
            each.raw,
            each.said,
            id=desk.dice.new_id("post"),
            sender=sender_of(each.said, request.user),
            now=now,
        )
        for each in request.history[place.first_new :]
    )


async def _waiting(desk: Desk, scope: Scope, place: Place, drafts: Sequence[Draft]) -> Scene | None:
    """Give the scene of a turn that waits for the tool results that come now."""
    if place.side or place.parent == 0 or not drafts or drafts[0].role != TOOL:
        return None
    scene = await desk.store.scene(scope, Look(conversation=place.conversation, parent=place.parent, use_summary=False))
    turn = scene.open_turn
    return scene if turn is not None and turn.waiting and turn.reply_seq == scene.parent else None


def _wish(
    desk: Desk,
    request: Request,
    place: Place,
    drafts: tuple[Draft, ...],
    ask: Ask,
    waiting: Scene | None,
    frozen: tuple[Any, ...] | None,
) -> Callable[[Scene], Wish]:
    live = {seq: request.history[n].raw for n, seq in place.seqs.items() if request.history[n].secret}
    live_drafts = {n: each.raw for n, each in enumerate(request.history[place.first_new :]) if each.secret}
    text = desk.writer.clean(ask.text)
    recalls = desk.recall and bool(text) and not place.side

    def wish(scene: Scene) -> Wish:
        return Wish(
            conversation=place.conversation,
            drafts=drafts,
            persona=desk.persona(request.model if request.model in desk.personas else None),
            user=ask.user,
            query=read_query(text, speakers=scene.speakers, now=desk.clock.now()) if recalls else None,
            recall_hits=desk.recall_hits,
            client=request.client,
            live_client=request.live_client,
            tools=request.tools,
            live=live,
            live_drafts=live_drafts,
            frozen=frozen,
            query_seq=waiting.open_turn.query_seq if waiting and waiting.open_turn else None,
        )

    return wish


def breaks(desk: Desk, upstream: Upstream, model: str) -> bool:
    """Say whether breakpoints go on the wire: by setting, or where the provider itself is known to read them."""
    if desk.breakpoints != "auto":
        return desk.breakpoints == "on"
    rule = rule_for(model, upstream.base_url)
    return rule is not None and rule.name == "openai-breakpoints"


def body_of(request: Request, opened: Opened, *, model: str | None, breakpoints: bool = False) -> bytes:
    """Give the request's body with the window in the place of its messages: every other field keeps its bytes and its place."""
    fields = dict(request.fields)
    messages = opened.planned.messages
    if breakpoints:
        messages = with_breakpoints(messages, opened.planned.window.anchors, opened.planned.sheet)
        fields.setdefault("prompt_cache_key", Raw(_encode(opened.lease.conversation)))
        fields.setdefault("prompt_cache_options", Raw(b'{"mode":"explicit"}'))
    fields["messages"] = Raw(b"[" + b",".join(messages) + b"]")
    if model is not None:
        fields["model"] = Raw(_encode(model))
    return _encode(fields)


async def _relay(reply: RelayAnswer, desk: Desk, opened: Opened, step: Step) -> AsyncIterator[Head | bytes]:
    try:
        head = Head(
            status=reply.status, headers=reply.headers, conversation=opened.lease.conversation, turn=opened.lease.turn
        )
        streams = reply.headers.get("content-type", "").startswith("text/event-stream")
        if streams and reply.status < 400:
            yield head
            async for piece in _relay_stream(reply, desk, step):
                yield piece
            return
        body = b"".join([chunk async for chunk in reply.chunks()])
        await _keep_whole(desk, step, reply.status, body)
        yield head
        yield body
    finally:
        await reply.aclose()


async def _keep_whole(desk: Desk, step: Step, status: int, body: bytes) -> None:
    """Keep an answer that came in one piece; an error ends the turn as failed, its query stays."""
    heard = Heard({}, {})
    try:
        event = msgspec.json.decode(body)
        if isinstance(event, dict) and status < 400:
            take(heard, event, "message")
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    if heard.messages:
        await _finish(desk, step, heard)
    else:
        reason = f"the upstream answered {status}" + ("" if status >= 400 else " with no message")
        await step.finish(state="failed", error=reason)


async def _relay_stream(reply: RelayAnswer, desk: Desk, step: Step) -> AsyncIterator[bytes]:
    """Pass lines on as they come; the end of the stream waits until the turn is durable."""
    heard = Heard({}, {})
    lines = Lines()
    ended = False
    try:
        async for data in reply.chunks():
            ready: list[bytes] = []
            for line in lines.feed(data):
                before = len(heard.text())
                hear(heard, line)
                if len(heard.text()) > before:
                    step.hear(heard.text()[before:])
                if heard.done and not ended:
                    ended = True
                    if ready:
                        yield b"".join(ready)
                        ready = []
                    await _finish(desk, step, heard)
                ready.append(line)
            if ready:
                yield b"".join(ready)
    except UpstreamError as error:
        if not ended:
            await _cut_off(desk, step, heard, str(error))
        raise
    rest = lines.rest()
    if not ended:
        if heard.finish:
            await _finish(desk, step, heard)
        else:
            await _cut_off(desk, step, heard, "the upstream's stream ended before its answer did")
    if rest:
        yield rest


async def _finish(desk: Desk, step: Step, heard: Heard) -> None:
    wire = message_of(heard)
    said = read_message(wire) if wire else None
    others = tuple(other for choice in sorted(heard.messages) if choice and (other := message_of(heard, choice)))
    waiting = bool(said and any(part.type == CALL for part in said.parts)) and heard.finish.get(0) != "stop"
    await step.finish(wire=wire, said=said, usage=heard.usage, waiting=waiting, others=others)


async def _cut_off(desk: Desk, step: Step, heard: Heard, reason: str) -> None:
    """Keep half an answer as interrupted."""
    wire = message_of(heard)
    try:
        said = read_message(wire) if wire else None
    except InvalidInput:
        said = None
    await step.finish(said=said, usage=heard.usage, state="interrupted", error=reason)
