"""The OpenAI Responses API: translate each request to a chat completion, and each answer back to a response."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from cuebook.app.proxy.openai_conversations import LIMIT, OpenAIConversations, Order
from cuebook.engine.core.desk import Desk
from cuebook.engine.jobs.erasure import forget
from cuebook.engine.proxy.local_answer import Head
from cuebook.engine.proxy.request import RelayCall
from cuebook.errors import Conflict, CuebookError, InvalidInput, NotFound, TooLarge
from cuebook.records.conversation import ASSISTANT
from cuebook.records.erasure import GONE, Target
from cuebook.records.memory import Scope
from cuebook.records.turn import ASKED, Step, Turn
from cuebook.window.post_forms import whole
from cuebook.wire.chat_stream import ByteLines, Events, read_event
from cuebook.wire.responses_answers import Telling
from cuebook.wire.responses_items import looks_foreign, may_be_ours, read_item_id
from cuebook.wire.responses_requests import (
    AnswerId,
    ResponseRequest,
    continued,
    is_stored,
    read_asked,
    read_id,
    write_id,
)

#: Number of posts loaded at a time to find an answer's input.
PAGE = 200
_EVENTS = "text/event-stream"


class Responses:
    """The stored responses of a project, by id."""

    def __init__(self, desk: Desk, *, most: int) -> None:
        """Create it; `most` is the maximum size of a request in bytes, including the items that it refers to."""
        self._desk = desk
        self._most = most

    async def refused(self, body: bytes, *, user: str | None = None) -> InvalidInput | None:
        """Return why a request must be forwarded instead of answered here, None if it can be answered.

        Raises InvalidInput if neither works: it continues a response that the upstream does not know.
        """
        try:
            asked = read_asked(body)
        except InvalidInput as error:
            if name := await self._continues(body, user):
                msg = f"{error}. It continues {name!r}, which the upstream does not know: send what was said as input"
                raise InvalidInput(msg, where=error.where) from None
            return error
        if asked.previous and read_id(asked.previous) is None:
            return InvalidInput(
                f"previous_response_id: {asked.previous!r} is none of ours", where="previous_response_id"
            )
        if asked.conversation and looks_foreign(asked.conversation):
            with suppress(NotFound):
                await self._desk.store.conversation(Scope(user=user or asked.user), asked.conversation)
                return None
            return InvalidInput(f"conversation: {asked.conversation!r} is none of ours", where="conversation")
        return None

    async def _continues(self, body: bytes, user: str | None) -> str | None:
        """Return the stored response or conversation that an unanswerable request continues."""
        try:
            previous, conversation = continued(msgspec.json.decode(body, type=dict[str, Any]))
        except (ValueError, RecursionError, InvalidInput):
            return None
        if previous and read_id(previous) is not None:
            return previous
        known = conversation and await OpenAIConversations(self._desk).has(conversation, user=user)
        return conversation if known else None

    async def with_items(self, body: bytes, *, user: str | None = None) -> bytes:
        """Return a request with its item references replaced by the stored items.

        Raises NotFound for a deleted item, TooLarge if the result exceeds the size limit.
        """
        if b"item_reference" not in body:
            return body
        try:
            given = msgspec.json.decode(body, type=dict[str, Any])
        except (ValueError, RecursionError):
            return body  # the parser reports the error
        items, talk, size = given.get("input"), OpenAIConversations(self._desk), len(body)
        for number, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict) and item.get("type") == "item_reference" and isinstance(item.get("id"), str):
                named = read_item_id(item["id"])
                if named is not None:
                    who = user or given.get("user") or given.get("safety_identifier")
                    told = await talk.item(named.conversation, item["id"], user=who)
                    size += len(msgspec.json.encode(told))
                    if size > self._most:
                        msg = f"input[{number}]: with its items the request exceeds {self._most:,} bytes."
                        raise TooLarge(msg, where=f"input[{number}]")
                    given["input"][number] = told
        return msgspec.json.encode(given)

    def is_ours(self, id_: str) -> bool:
        """Return whether an id has the form of a response id of Cuebook."""
        return read_id(id_) is not None

    async def get(self, id_: str, *, user: str | None = None) -> dict[str, Any]:
        """Return a stored response with its request's metadata and previous response. Raises NotFound."""
        named, turn, step = await _found(self._desk, id_, user)
        about = turn.metadata.get("answer", {})
        telling = Telling(
            id_, conversation=named.conversation, created=int(turn.created_at),
            model=str(about.get("model", "")) if about.get("step") == step.n else "",
            echo=_KEPT | turn.metadata.get(ASKED, {}).get(str(step.n), {}),
        )  # fmt: skip
        if step.state == "running":
            return telling.response
        if step.reply_seq:
            span = [(step.reply_seq, step.reply_seq)]
            [post] = await self._desk.store.posts_in(Scope(user=user), named.conversation, span)
            message = msgspec.json.decode(whole(post, None))
            reasons = about.get("finishReasons") or ["stop"] if about.get("step") == step.n else ["stop"]
            telling.take(
                {"choices": [{"message": message, "finish_reason": reasons[0]}], "usage": _usage(step)}, "message"
            )
        telling.end("" if step.state == "finished" else step.error or "the answer was not finished")
        return telling.response

    async def input_items(
        self, id_: str, *, user: str | None = None, order: Order = "desc", after: str | None = None, limit: int = LIMIT
    ) -> dict[str, Any]:
        """Return a page of a response's input: the items of its conversation before it. Raises NotFound."""
        named, turn, step = await _found(self._desk, id_, user)
        scope, head = Scope(user=user), turn.query_seq
        found = await self._desk.store.conversation(scope, named.conversation)
        if step.reply_seq:
            [reply] = await self._desk.store.posts_behind(
                scope, found.id, after=step.reply_seq - 1, limit=1, path=False
            )
            head = reply.parent
        talk = OpenAIConversations(self._desk)
        return await talk.page(scope, found, head, order=order, after=after, limit=limit)

    def conversation_of(self, id_: str) -> str:
        """Return the conversation of a response by its id; "" if it is not Cuebook's."""
        named = read_id(id_)
        return named.conversation if named else ""

    async def delete(self, id_: str, *, user: str | None = None) -> dict[str, Any]:
        """Delete a response with its input, back to the previous answer, and everything derived from both.

        Raises NotFound, Conflict naming a hold, InvalidInput for a response in a conversation that the client created.
        """
        named, turn, step = await _found(self._desk, id_, user)
        if may_be_ours(named.conversation):
            msg = f"response {id_!r}: its items belong to conversation {named.conversation!r}. Delete them there."
            raise InvalidInput(msg, where="response_id")
        scope = Scope(user=user)
        posts = {named.conversation: await self._exchange(scope, named.conversation, turn, step)}
        await forget(self._desk, scope, Target("item", (id_,)), posts=posts)
        return {"id": id_, "object": "response", "deleted": True}

    async def _exchange(self, scope: Scope, conversation: str, turn: Turn, step: Step) -> list[int]:
        """Return an answer's post and the posts of its input, back to the previous answer."""
        seqs: list[int] = []
        at = step.reply_seq or turn.query_seq
        while at:
            path = await self._desk.store.posts(scope, conversation, last=PAGE, head=at)
            for post in reversed(path):
                if post.role == ASSISTANT and post.seq != step.reply_seq:
                    return seqs
                seqs.append(post.seq)
            at = path[0].parent if path else 0
        return seqs

    async def cancel(self, id_: str, *, user: str | None = None) -> dict[str, Any]:
        """Refuse to cancel: responses never run in the background. Raises InvalidInput, NotFound."""
        await _found(self._desk, id_, user)
        msg = f"Cannot cancel response {id_!r}: it does not run in the background. Close its connection."
        raise InvalidInput(msg, where="response_id")


#: Default fields of a stored response whose request was not stored.
_KEPT: dict[str, Any] = {
    "instructions": None, "metadata": {}, "parallel_tool_calls": True, "previous_response_id": None,
    "tool_choice": "auto", "tools": [],
}  # fmt: skip


def _usage(step: Step) -> dict[str, Any] | None:
    if step.usage is None or step.usage.input is None or step.usage.output is None:
        return None
    details = {"cached_tokens": step.usage.cache_read or 0}
    return {
        "prompt_tokens": step.usage.input, "completion_tokens": step.usage.output, "prompt_tokens_details": details,
    }  # fmt: skip


async def _found(desk: Desk, id_: str, user: str | None) -> tuple[AnswerId, Turn, Step]:
    named = read_id(id_)
    try:
        if named is not None and is_stored(id_):
            turn = await desk.store.turn(Scope(user=user), named.conversation, named.turn)
            step = turn.steps[named.step - 1]
            said = [(step.reply_seq, step.reply_seq)] if step.reply_seq else []
            found = await desk.store.posts_in(Scope(user=user), named.conversation, said)
            if all(post.state != GONE for post in found):
                return named, turn, step
    except (NotFound, IndexError):
        pass
    raise _no_response(id_)


def _no_response(id_: str) -> NotFound:
    if not is_stored(id_):
        return NotFound(f"response {id_!r} was requested with store: false and not stored")
    return NotFound(f"Unknown response {id_!r}. It may have been deleted with its conversation.")


async def respond(
    desk: Desk, relay: Callable[[RelayCall], AsyncIterator[Head | bytes]], call: RelayCall
) -> AsyncGenerator[Head | bytes, None]:
    """Answer a Responses request. Yield the response head, then the body's bytes.

    Raises InvalidInput, NotFound for an unknown previous response, Conflict for an empty one.
    """
    asked = read_asked(call.body)
    call = msgspec.structs.replace(await _as_chat(desk, call, asked), told=_kept_of(desk, asked))
    async with aclosing(relay(call)) as pieces:  # type: ignore[type-var]
        head = await anext(pieces)
        if not isinstance(head, Head) or head.status >= 400:
            yield head
            async for piece in pieces:
                yield piece
            return
        telling = Telling(
            write_id(AnswerId(head.conversation, head.turn, head.step), stored=asked.echo["store"]),
            conversation=head.conversation,
            created=int(desk.clock.now()), model=str(asked.fields.get("model", "")), echo=asked.echo,
        )  # fmt: skip
        if head.headers.get("content-type", "").lower().startswith(_EVENTS):
            yield head
            async for event in _events(telling, pieces):
                yield event
            return
        body = b"".join([piece async for piece in pieces if isinstance(piece, bytes)])
        completion = read_event(body)
        telling.take(completion if isinstance(completion, dict) else {}, "message")
        telling.end("" if telling.whole else "the answer cannot be read")
        yield msgspec.structs.replace(head, headers={**head.headers, "content-type": "application/json"})
        yield msgspec.json.encode(telling.response)


def _kept_of(desk: Desk, asked: ResponseRequest) -> dict[str, Any]:
    """Return the request fields to store besides its input: its metadata, and the previous response."""
    given = asked.echo["metadata"]
    pairs = given.items() if isinstance(given, dict) and asked.echo["store"] else ()
    metadata = {name: desk.writer.clean(value) for name, value in pairs if isinstance(value, str)}
    kept = {"metadata": metadata, "previous_response_id": asked.previous}
    return {name: value for name, value in kept.items() if value}


async def _as_chat(desk: Desk, call: RelayCall, asked: ResponseRequest) -> RelayCall:
    """Return a request as an equivalent chat completion, after the response that it continues."""
    body = msgspec.json.encode(asked.fields)
    leading = int(bool(asked.echo["instructions"]))  # instructions apply to this answer only; developer messages stay
    if asked.previous is None:
        await _check_named(desk, asked.conversation, call.user or asked.user)
        goes_on = call.server_history or asked.conversation is not None
        conversation = asked.conversation or call.conversation
        front = leading if goes_on else None
        return msgspec.structs.replace(
            call,
            body=body,
            conversation=conversation,
            server_history=goes_on,
            leading=front,
            lists=conversation is None and not goes_on,
        )
    named, _, step = await _found(desk, asked.previous, call.user or asked.user)
    if not step.reply_seq:
        msg = f"Cannot continue response {asked.previous!r}: it is empty. Omit previous_response_id."
        raise Conflict(msg)
    return msgspec.structs.replace(
        call,
        body=body,
        conversation=named.conversation,
        server_history=True,
        parent=step.reply_seq,
        leading=leading,
    )


async def _check_named(desk: Desk, conversation: str | None, user: str | None) -> None:
    """Check a conversation id issued by Cuebook: it must exist. A caller's own name creates a conversation."""
    if conversation and (may_be_ours(conversation) or looks_foreign(conversation)):
        await desk.store.conversation(Scope(user=user), conversation)


async def _events(telling: Telling, pieces: AsyncIterator[Head | bytes]) -> AsyncGenerator[bytes, None]:
    """Yield a stream's chunks as events; the last one only after the turn is durable."""
    yield telling.begin()
    lines, events, broken = ByteLines(), Events(), ""
    try:
        async for piece in pieces:
            told = [events.read(line) for line in lines.feed(piece)] if isinstance(piece, bytes) else []
            for chunk in told:
                if isinstance(chunk, dict):
                    broken = broken or _error(chunk)
                    if said := telling.take(chunk):
                        yield said
    except CuebookError as error:
        broken = str(error)
    if not broken and not telling.whole:
        broken = "the answer ended early; the text received so far is stored"
    yield telling.end(broken)


def _error(chunk: dict[str, Any]) -> str:
    error = chunk.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return f"the upstream: {message}" if error else ""
