"""`/v1/chat/completions`: a request goes upstream as it came but for its messages, its answer comes back byte for byte, and both are kept."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from cuebook.assembly.window import ClientSystem
from cuebook.engine.align import Continuation, continue_at, digest_list, same_conversation
from cuebook.engine.compare import frozen_volatile
from cuebook.engine.desk import Desk
from cuebook.engine.plan import Wish
from cuebook.engine.step import Step
from cuebook.engine.turn import RETRIES, Opened, open_step
from cuebook.engine.wire import Heard, Lines, hear, message_of, take
from cuebook.errors import Conflict, InvalidInput, UpstreamError
from cuebook.memory.recall import read_query
from cuebook.ports.model import ModelRequest, RelayAnswer, RelayRequest, Upstream
from cuebook.ports.store import Look, Scene
from cuebook.records import openai_messages
from cuebook.records.conversation import ASSISTANT, CALL, SYSTEM, TOOL, Draft
from cuebook.records.memory import NO_MODEL_LABEL, Scope
from cuebook.records.openai_messages import Said, read_message
from cuebook.records.turn import Ask

#: Answers looked for when a history comes without a conversation id, from the newest on.
ANCHORS = 32

_fields = msgspec.json.Decoder(dict[str, Raw])
_raws = msgspec.json.Decoder(list[Raw])
_encode = msgspec.json.Encoder().encode


class Call(Struct, frozen=True, kw_only=True):
    """A chat-completions request as it came."""

    body: bytes
    headers: Mapping[str, str]
    conversation: str | None = None  # from the base URL or a header
    user: str | None = None
    server_history: bool = False  # X-History: server: `messages` are new ones only
    query: str = ""


class Head(Struct, frozen=True, kw_only=True):
    """Status and headers of an answer; its bytes follow."""

    status: int
    headers: Mapping[str, str]
    conversation: str = ""
    turn: int = 0


class Spoken(Struct, frozen=True):
    """A message of a request: as it came, as we read it, and the digest of what of it would be stored."""

    raw: bytes
    said: Said
    digest: bytes
    secret: bool


class Request(Struct, frozen=True, kw_only=True):
    """A request read: its fields' own bytes, its system messages, and the rest of its history."""

    fields: dict[str, Raw]
    client: tuple[ClientSystem, ...]
    live_client: tuple[ClientSystem, ...]
    history: tuple[Spoken, ...]
    model: str
    conversation: str | None
    user: str | None
    stream: bool
    tools: str


def read_request(desk: Desk, call: Call) -> Request:
    """Read a request. Raises InvalidInput naming the field; whatever is not ours to judge is left to the upstream."""
    try:
        fields = _fields.decode(call.body)
        raws = _raws.decode(fields["messages"])
    except KeyError:
        msg = "messages: missing; a chat completion needs a list of messages"
        raise InvalidInput(msg, where="messages") from None
    except msgspec.DecodeError as error:
        msg = f"the request body is no JSON object with a list of messages ({error})"
        raise InvalidInput(msg, where="body") from None
    spoken = [_spoken(desk, bytes(raw), number) for number, raw in enumerate(raws)]
    if not spoken:
        msg = "messages: empty; send at least one message"
        raise InvalidInput(msg, where="messages")
    lead = next((n for n, each in enumerate(spoken) if each.said.role != SYSTEM), len(spoken))
    front = spoken[:lead]
    clean = tuple(_system(each, desk.writer.clean_json(each.raw)) for each in front)
    metadata = _value(fields, "metadata")
    named = metadata.get("conversation_id") if isinstance(metadata, dict) else None
    return Request(
        fields=fields,
        client=clean,
        live_client=tuple(_system(each, each.raw) for each in front) if any(each.secret for each in front) else (),
        history=tuple(spoken[lead:]),
        model=_text(_value(fields, "model")),
        conversation=call.conversation or (named if isinstance(named, str) and named else None),
        user=call.user or _text(_value(fields, "user")) or _text(_value(fields, "safety_identifier")) or None,
        stream=_value(fields, "stream") is True,
        tools=bytes(fields["tools"]).decode() if "tools" in fields and _value(fields, "tools") else "",
    )


def _spoken(desk: Desk, raw: bytes, number: int) -> Spoken:
    clean = desk.writer.clean_json(raw)
    said = read_message(clean, index=number)
    return Spoken(raw, said, openai_messages.digest(said), clean is not raw)


def _system(spoken: Spoken, raw: bytes) -> ClientSystem:
    said = read_message(raw)
    role = _text(msgspec.json.decode(raw).get("role")) or SYSTEM
    text = said.message or "\n".join(part.content for part in said.parts)
    return ClientSystem(role=role, text=text, wire=raw)


def _value(fields: Mapping[str, Raw], name: str) -> Any:
    return msgspec.json.decode(fields[name]) if name in fields else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# ---- where a request continues --------------------------------------------------------------------------------------


class Place(Struct, frozen=True, kw_only=True):
    """Where a request's new messages go."""

    conversation: str
    parent: int | None  # None: the head of a conversation, or its beginning
    first_new: int
    seqs: dict[int, int]
    side: bool = False  # continues no path: stored apart, teaches nothing


async def place_of(desk: Desk, scope: Scope, request: Request, *, server_history: bool) -> Place:
    """Find the stored path a resent history continues."""
    history = request.history
    if server_history:
        return Place(conversation=request.conversation or desk.dice.new_id("conv"), parent=None, first_new=0, seqs={})
    digests = [each.digest for each in history]
    if request.conversation is not None:
        found = await desk.store.align(scope, digests, conversation=request.conversation)
        if not found or not found[0].conversation.last_seq:
            return Place(conversation=request.conversation, parent=None, first_new=0, seqs={})
        return _place(request.conversation, continue_at(found[0]))
    anchors = digest_list(digests, [each.said.role for each in history], most=ANCHORS)
    answers = [n for n, each in enumerate(history) if each.said.role == ASSISTANT]
    found = await desk.store.align(scope, digests, conversation=None, anchors=anchors) if anchors else []
    continuation = same_conversation(found, new_from=answers[0] + 1 if answers else 0)
    if continuation is None:
        return Place(conversation=desk.dice.new_id("conv"), parent=None, first_new=0, seqs={})
    return _place(continuation.alignment.conversation.id, continuation)


def _place(conversation: str, continuation: Continuation | None) -> Place:
    if continuation is None:
        return Place(conversation=conversation, parent=0, first_new=0, seqs={}, side=True)
    return Place(
        conversation=conversation, parent=continuation.parent, first_new=continuation.first_new, seqs=continuation.seqs
    )


# ---- the relay ------------------------------------------------------------------------------------------------------


async def relay(desk: Desk, upstream: Upstream | None, scope: Scope, call: Call, *, model: str | None) -> AsyncIterator[Head | bytes]:
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
                answers = _answer(desk, request, opened, step)
            else:
                body = body_of(request, opened, model=model)
                outgoing = RelayRequest(method="POST", path="/chat/completions", headers=call.headers, body=body, query=call.query)
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


def sender_of(said: Said, user: str | None) -> str:
    """Who sends a message of the wire."""
    if said.role == "user":
        return said.name or user or "user"
    return {TOOL: TOOL, SYSTEM: SYSTEM}.get(said.role, ASSISTANT)


async def _waiting(desk: Desk, scope: Scope, place: Place, drafts: Sequence[Draft]) -> Scene | None:
    """The scene of a turn that waits for the tool results that come now."""
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


def body_of(request: Request, opened: Opened, *, model: str | None) -> bytes:
    """The request's body with the window in the place of its messages: every other field keeps its bytes and its place."""
    fields = dict(request.fields)
    fields["messages"] = Raw(b"[" + b",".join(opened.planned.messages) + b"]")
    if model is not None:
        fields["model"] = Raw(_encode(model))
    return _encode(fields)


async def _relay(answer: RelayAnswer, desk: Desk, opened: Opened, step: Step) -> AsyncIterator[Head | bytes]:
    try:
        head = Head(
            status=answer.status, headers=answer.headers, conversation=opened.lease.conversation, turn=opened.lease.turn
        )
        streams = answer.headers.get("content-type", "").startswith("text/event-stream")
        if streams and answer.status < 400:
            yield head
            async for piece in _relay_stream(answer, desk, step):
                yield piece
            return
        body = b"".join([chunk async for chunk in answer.chunks()])
        await _keep_whole(desk, step, answer.status, body)
        yield head
        yield body
    finally:
        await answer.aclose()


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


async def _relay_stream(answer: RelayAnswer, desk: Desk, step: Step) -> AsyncIterator[bytes]:
    """Pass lines on as they come; the end of the stream waits until the turn is durable."""
    heard = Heard({}, {})
    lines = Lines()
    ended = False
    try:
        async for data in answer.chunks():
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


# ---- without an upstream --------------------------------------------------------------------------------------------


async def _answer(desk: Desk, request: Request, opened: Opened, step: Step) -> AsyncIterator[Head | bytes]:
    """Answer by the book's own model, or by what was recalled where there is none, in the form of the wire."""
    created = int(desk.clock.now())
    frame = {"id": f"chatcmpl-{step.lease.fence}-{step.lease.turn}", "created": created, "model": desk.model.name}
    where = {"conversation": opened.lease.conversation, "turn": opened.lease.turn}
    model_request = ModelRequest(
        messages=opened.planned.messages, conversation=opened.lease.conversation, recalled=opened.planned.hits
    )
    pieces = desk.model.stream(model_request)
    if request.stream:
        yield Head(status=200, headers={"content-type": "text/event-stream; charset=utf-8"}, **where)  # type: ignore[arg-type]
        yield _event(frame, {"role": "assistant", "content": ""})
    usage = None
    async for piece in pieces:
        usage = piece.usage or usage
        if piece.text:
            step.hear(piece.text)
            if request.stream:
                yield _event(frame, {"content": piece.text})
    text = "".join(step.text)
    await step.finish(usage=usage, silent=text.startswith(NO_MODEL_LABEL))
    counted = {"prompt_tokens": opened.planned.window.tokens, "completion_tokens": desk.count(text)}
    counted["total_tokens"] = sum(counted.values())
    if request.stream:
        yield _event(frame, {}, finish="stop")
        yield b"data: [DONE]\n\n"
        return
    yield Head(status=200, headers={"content-type": "application/json"}, **where)  # type: ignore[arg-type]
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop", "logprobs": None}
    yield _encode({**frame, "object": "chat.completion", "choices": [choice], "usage": counted})


def _event(frame: Mapping[str, Any], delta: Mapping[str, Any], *, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return b"data: " + _encode({**frame, "object": "chat.completion.chunk", "choices": [choice]}) + b"\n\n"

