"""The OpenAI Responses API: translate each request to a chat completion, and each answer back to a response."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, suppress
from typing import Any

import msgspec

from cuebook.app.proxy.openai_conversations import LIMIT, OpenAIConversations, Order
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.erasure import forget
from cuebook.engine.proxy.local_answer import Head
from cuebook.engine.proxy.request import RelayCall
from cuebook.errors import Conflict, CuebookError, InvalidInput, NotFound, TooLarge
from cuebook.records.conversation import ASSISTANT
from cuebook.records.erasure import GONE, Target
from cuebook.records.memory import Scope
from cuebook.records.turn import ASKED, Step, Turn
from cuebook.window.post_forms import whole
from cuebook.wire.event_stream import ByteLines, Events, read_event
from cuebook.wire.responses_answers import ResponsesWriter
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

    def __init__(self, services: Services, *, most: int) -> None:
        """Create it; `most` is the maximum size of a request in bytes, including the items that it refers to."""
        self._services = services
        self._most = most

    async def refused(self, body: bytes, *, user: str | None = None) -> InvalidInput | None:
        """Return why a request must be forwarded instead of answered here, None if it can be answered.

        Raises InvalidInput if neither works: it continues a response that the upstream does not know.
        """
        try:
            response_request = read_asked(body)
        except InvalidInput as error:
            if name := await self._continues(body, user):
                fault = str(error).rstrip(".")
                msg = f"{fault}. It continues {name!r}, which the upstream does not know. Send all messages as input."
                raise InvalidInput(msg, where=error.where) from None
            return error
        if response_request.previous and read_id(response_request.previous) is None:
            msg = f"previous_response_id: unknown response {response_request.previous!r}. Send the full history."
            return InvalidInput(msg, where="previous_response_id")
        if response_request.conversation and looks_foreign(response_request.conversation):
            with suppress(NotFound):
                await self._services.store.conversation(
                    Scope(user=user or response_request.user), response_request.conversation
                )
                return None
            msg = (
                f"conversation: unknown conversation {response_request.conversation!r}. "
                "Create one with POST /v1/conversations."
            )
            return InvalidInput(msg, where="conversation")
        return None

    async def _continues(self, body: bytes, user: str | None) -> str | None:
        """Return the stored response or conversation that an unanswerable request continues."""
        try:
            previous, conversation = continued(msgspec.json.decode(body, type=dict[str, Any]))
        except (ValueError, RecursionError, InvalidInput):
            return None
        if previous and read_id(previous) is not None:
            return previous
        known = conversation and await OpenAIConversations(self._services).has(conversation, user=user)
        return conversation if known else None

    async def with_items(self, body: bytes, *, user: str | None = None) -> bytes:
        """Return a request with its item references replaced by the stored items.

        Raises NotFound for a deleted item, TooLarge if the result exceeds the size limit.
        """
        if b"item_reference" not in body:
            return body
        try:
            data = msgspec.json.decode(body, type=dict[str, Any])
        except (ValueError, RecursionError):
            return body  # the parser reports the error
        items, open_aiconversations, size = data.get("input"), OpenAIConversations(self._services), len(body)
        for number, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict) and item.get("type") == "item_reference" and isinstance(item.get("id"), str):
                item_location = read_item_id(item["id"])
                if item_location is not None:
                    who = user or data.get("user") or data.get("safety_identifier")
                    fields = await open_aiconversations.item(item_location.conversation, item["id"], user=who)
                    size += len(msgspec.json.encode(fields))
                    if size > self._most:
                        msg = (
                            f"input[{number}]: the request and its items exceed {self._most:,} bytes. "
                            "Reference fewer items."
                        )
                        raise TooLarge(msg, where=f"input[{number}]")
                    data["input"][number] = fields
        return msgspec.json.encode(data)

    def is_ours(self, id_: str) -> bool:
        """Return whether an id has the form of a response id of Cuebook."""
        return read_id(id_) is not None

    async def get(self, id_: str, *, user: str | None = None) -> dict[str, Any]:
        """Return a stored response with its request's metadata and previous response. Raises NotFound."""
        answer_id, turn, step = await _found(self._services, id_, user)
        about = turn.metadata.get("answer", {})
        writer = ResponsesWriter(
            id_,
            conversation=answer_id.conversation,
            created=int(turn.created_at),
            model=str(about.get("model", "")) if about.get("step") == step.n else "",
            echo=_KEPT | turn.metadata.get(ASKED, {}).get(str(step.n), {}),
        )
        if step.state == "running":
            return writer.document()
        if step.reply_seq:
            span = [(step.reply_seq, step.reply_seq)]
            [post] = await self._services.store.posts_in(Scope(user=user), answer_id.conversation, span)
            message = msgspec.json.decode(whole(post, None))
            reasons = about.get("finishReasons") or ["stop"] if about.get("step") == step.n else ["stop"]
            writer.take(
                {"choices": [{"message": message, "finish_reason": reasons[0]}], "usage": _usage(step)}, "message"
            )
        writer.end("" if step.state == "finished" else step.error or "The answer was not finished.")
        return writer.document()

    async def input_items(
        self, id_: str, *, user: str | None = None, order: Order = "desc", after: str | None = None, limit: int = LIMIT
    ) -> dict[str, Any]:
        """Return a page of a response's input: the items of its conversation before it. Raises NotFound."""
        answer_id, turn, step = await _found(self._services, id_, user)
        scope, head = Scope(user=user), turn.query_seq
        conversation = await self._services.store.conversation(scope, answer_id.conversation)
        if step.reply_seq:
            [reply] = await self._services.store.posts_behind(
                scope, conversation.id, after=step.reply_seq - 1, limit=1, path=False
            )
            head = reply.parent
        open_aiconversations = OpenAIConversations(self._services)
        return await open_aiconversations.page(scope, conversation, head, order=order, after=after, limit=limit)

    def conversation_of(self, id_: str) -> str:
        """Return the conversation of a response by its id; "" if it is not Cuebook's."""
        answer_id = read_id(id_)
        return answer_id.conversation if answer_id else ""

    async def delete(self, id_: str, *, user: str | None = None) -> dict[str, Any]:
        """Delete a response with its input, back to the previous answer, and everything derived from both.

        Raises NotFound, Conflict naming a hold, InvalidInput for a response in a conversation that the client created.
        """
        answer_id, turn, step = await _found(self._services, id_, user)
        if may_be_ours(answer_id.conversation):
            msg = (
                f"Cannot delete response {id_!r}: its items belong to conversation {answer_id.conversation!r}. "
                "Delete them there."
            )
            raise InvalidInput(msg, where="response_id")
        scope = Scope(user=user)
        posts = {answer_id.conversation: await self._exchange(scope, answer_id.conversation, turn, step)}
        await forget(self._services, scope, Target("item", (id_,)), posts=posts)
        return {"id": id_, "object": "response", "deleted": True}

    async def _exchange(self, scope: Scope, conversation: str, turn: Turn, step: Step) -> list[int]:
        """Return an answer's post and the posts of its input, back to the previous answer."""
        seqs: list[int] = []
        at = step.reply_seq or turn.query_seq
        while at:
            path = await self._services.store.posts(scope, conversation, last=PAGE, head=at)
            for post in reversed(path):
                if post.role == ASSISTANT and post.seq != step.reply_seq:
                    return seqs
                seqs.append(post.seq)
            at = path[0].parent if path else 0
        return seqs

    async def cancel(self, id_: str, *, user: str | None = None) -> dict[str, Any]:
        """Refuse to cancel: responses never run in the background. Raises InvalidInput, NotFound."""
        await _found(self._services, id_, user)
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


async def _found(services: Services, id_: str, user: str | None) -> tuple[AnswerId, Turn, Step]:
    answer_id = read_id(id_)
    try:
        if answer_id is not None and is_stored(id_):
            turn = await services.store.turn(Scope(user=user), answer_id.conversation, answer_id.turn)
            step = turn.steps[answer_id.step - 1]
            values = [(step.reply_seq, step.reply_seq)] if step.reply_seq else []
            path_posts = await services.store.posts_in(Scope(user=user), answer_id.conversation, values)
            if all(post.state != GONE for post in path_posts):
                return answer_id, turn, step
    except (NotFound, IndexError):
        pass
    raise _no_response(id_)


def _no_response(id_: str) -> NotFound:
    if not is_stored(id_):
        return NotFound(f"Unknown response {id_!r}: its request has store: false, so it was not stored.")
    return NotFound(f"Unknown response {id_!r}. It may have been deleted with its conversation.")


async def respond(
    services: Services, relay: Callable[[RelayCall], AsyncIterator[Head | bytes]], call: RelayCall
) -> AsyncGenerator[Head | bytes, None]:
    """Answer a Responses request. Yield the response head, then the body's bytes.

    Raises InvalidInput, NotFound for an unknown previous response, Conflict for an empty one.
    """
    response_request = read_asked(call.body)
    call = msgspec.structs.replace(
        await _as_chat(services, call, response_request), told=_kept_of(services, response_request)
    )
    async with aclosing(relay(call)) as pieces:  # type: ignore[type-var]
        head = await anext(pieces)
        if not isinstance(head, Head) or head.status >= 400:
            yield head
            async for piece in pieces:
                yield piece
            return
        writer = ResponsesWriter(
            write_id(AnswerId(head.conversation, head.turn, head.step), stored=response_request.echo["store"]),
            conversation=head.conversation,
            created=int(services.clock.now()), model=str(response_request.fields.get("model", "")),
            echo=response_request.echo,
        )  # fmt: skip
        if head.headers.get("content-type", "").lower().startswith(_EVENTS):
            yield head
            async for event in _events(writer, pieces):
                yield event
            return
        body = b"".join([piece async for piece in pieces if isinstance(piece, bytes)])
        completion = read_event(body)
        writer.take(completion if isinstance(completion, dict) else {}, "message")
        writer.end("" if writer.finish else "The upstream's answer is unreadable.")
        yield msgspec.structs.replace(head, headers={**head.headers, "content-type": "application/json"})
        yield msgspec.json.encode(writer.document())


def _kept_of(services: Services, response_request: ResponseRequest) -> dict[str, Any]:
    """Return the request fields to store besides its input: its metadata, and the previous response."""
    raw = response_request.echo["metadata"]
    pairs = raw.items() if isinstance(raw, dict) and response_request.echo["store"] else ()
    metadata = {name: services.writer.clean(value) for name, value in pairs if isinstance(value, str)}
    optional = {"metadata": metadata, "previous_response_id": response_request.previous}
    return {name: value for name, value in optional.items() if value}


async def _as_chat(services: Services, call: RelayCall, response_request: ResponseRequest) -> RelayCall:
    """Return a request as an equivalent chat completion, after the response that it continues."""
    body = msgspec.json.encode(response_request.fields)
    leading = int(
        bool(response_request.echo["instructions"])
    )  # instructions apply to this answer only; developer messages stay
    if response_request.previous is None:
        await _check_named(services, response_request.conversation, call.user or response_request.user)
        goes_on = call.server_history or response_request.conversation is not None
        conversation = response_request.conversation or call.conversation
        front = leading if goes_on else None
        return msgspec.structs.replace(
            call,
            body=body,
            conversation=conversation,
            server_history=goes_on,
            leading=front,
            lists=conversation is None and not goes_on,
        )
    answer_id, _, step = await _found(services, response_request.previous, call.user or response_request.user)
    if not step.reply_seq:
        msg = f"Cannot continue response {response_request.previous!r}: it is empty. Omit previous_response_id."
        raise Conflict(msg)
    return msgspec.structs.replace(
        call,
        body=body,
        conversation=answer_id.conversation,
        server_history=True,
        parent=step.reply_seq,
        leading=leading,
    )


async def _check_named(services: Services, conversation: str | None, user: str | None) -> None:
    """Check a conversation id issued by Cuebook: it must exist. A caller's own name creates a conversation."""
    if conversation and (may_be_ours(conversation) or looks_foreign(conversation)):
        await services.store.conversation(Scope(user=user), conversation)


async def _events(writer: ResponsesWriter, pieces: AsyncIterator[Head | bytes]) -> AsyncGenerator[bytes, None]:
    """Yield a stream's chunks as events; the last one only after the turn is durable."""
    yield writer.begin()
    lines, events, broken = ByteLines(), Events(), ""
    try:
        async for piece in pieces:
            values = [events.read(line) for line in lines.feed(piece)] if isinstance(piece, bytes) else []
            for chunk in values:
                if isinstance(chunk, dict):
                    broken = broken or _error(chunk)
                    if data := writer.take(chunk):
                        yield data
    except CuebookError as error:
        broken = str(error)
    if not broken and not writer.finish:
        broken = "The answer ended early. The text received so far is stored."
    yield writer.end(broken)


def _error(chunk: dict[str, Any]) -> str:
    error = chunk.get("error")
    message = error.get("message") if isinstance(error, dict) else error
    return f"Upstream error: {message}" if error else ""
