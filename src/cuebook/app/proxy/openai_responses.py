"""The stored answers of the OpenAI Responses API, by id, and the requests that Cuebook cannot answer."""

from contextlib import suppress
from typing import Any

import msgspec

from cuebook.app.proxy.openai_conversations import LIMIT, OpenAIConversations, Order
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.erasure import forget
from cuebook.engine.proxy.responses_wire import is_native, stored_answer
from cuebook.errors import InvalidInput, NotFound, TooLarge
from cuebook.interfaces import Upstream
from cuebook.records.conversation import ASSISTANT
from cuebook.records.erasure import Target
from cuebook.records.memory import Scope
from cuebook.records.turn import ASKED, Step, Turn
from cuebook.window.post_forms import whole
from cuebook.wire.chat_answers import usage_fields
from cuebook.wire.responses_answers import ResponsesWriter, looks_foreign, may_be_ours, read_item_id
from cuebook.wire.responses_items import cannot_express
from cuebook.wire.responses_requests import continued, read_id, read_response_request

#: Number of posts loaded at a time to find an answer's input.
PAGE = 200


class Responses:
    """The stored responses of a project, by id."""

    def __init__(self, services: Services, upstream: Upstream | None, *, most: int) -> None:
        """Create it; `most` is the maximum size of a request in bytes, including the items that it refers to."""
        self._services, self._upstream = services, upstream
        self._most = most

    async def refused(self, body: bytes, *, user: str | None = None, compacts: bool = False) -> InvalidInput | None:
        """Return why a request must be forwarded instead of answered here, None if it can be answered.

        Raises InvalidInput if neither works: it cannot be parsed and continues a response that the upstream does not
        know, or the upstream lacks this API.
        """
        native = is_native(self._services, self._upstream)
        try:
            request = read_response_request(body, compacts=compacts)
            if native and request.data.get("background"):
                raise cannot_express("background")
        except InvalidInput as error:
            if not native:
                raise
            if name := await self._continues(body, user):
                fault = str(error).rstrip(".")
                msg = f"{fault}. It continues {name!r}, which the upstream does not know. Send all messages as input."
                raise InvalidInput(msg, where=error.where) from None
            return error
        if request.previous and read_id(request.previous) is None:
            msg = f"previous_response_id: unknown response {request.previous!r}. Send the full history."
            return InvalidInput(msg, where="previous_response_id")
        if request.conversation and looks_foreign(request.conversation):
            with suppress(NotFound):
                await self._services.store.conversation(Scope(user=user or request.user), request.conversation)
                return None
            msg = (
                f"conversation: unknown conversation {request.conversation!r}. Create one with POST /v1/conversations."
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
        is_stored = conversation and await OpenAIConversations(self._services).has(conversation, user=user)
        return conversation if is_stored else None

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
        items, conversations, size = data.get("input"), OpenAIConversations(self._services), len(body)
        for number, item in enumerate(items if isinstance(items, list) else ()):
            if isinstance(item, dict) and item.get("type") == "item_reference" and isinstance(item.get("id"), str):
                location = read_item_id(item["id"])
                if location is not None:
                    who = user or data.get("user") or data.get("safety_identifier")
                    fields = await conversations.item(location.conversation, item["id"], user=who)
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
        answer_id, turn, step = await stored_answer(self._services, id_, user)
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
                {"choices": [{"message": message, "finish_reason": reasons[0]}], "usage": usage_fields(step.usage)},
                "message",
            )
        writer.end("" if step.state == "finished" else step.error or "The answer was not finished.")
        return writer.document()

    async def input_items(
        self, id_: str, *, user: str | None = None, order: Order = "desc", after: str | None = None, limit: int = LIMIT
    ) -> dict[str, Any]:
        """Return a page of a response's input: the items of its conversation before it. Raises NotFound."""
        answer_id, turn, step = await stored_answer(self._services, id_, user)
        scope, head = Scope(user=user), turn.query_seq
        conversation = await self._services.store.conversation(scope, answer_id.conversation)
        if step.reply_seq:
            [reply] = await self._services.store.posts(
                scope, conversation.id, after=step.reply_seq - 1, limit=1, path=False
            )
            head = reply.parent
        conversations = OpenAIConversations(self._services)
        return await conversations.page(scope, conversation, head, order=order, after=after, limit=limit)

    def conversation_of(self, id_: str) -> str:
        """Return the conversation of a response by its id; "" if it is not Cuebook's."""
        answer_id = read_id(id_)
        return answer_id.conversation if answer_id else ""

    async def delete(self, id_: str, *, user: str | None = None) -> dict[str, Any]:
        """Delete a response with its input, back to the previous answer, and everything derived from both.

        Raises NotFound, Conflict naming a hold, InvalidInput for a response in a conversation that the client created.
        """
        answer_id, turn, step = await stored_answer(self._services, id_, user)
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
        await stored_answer(self._services, id_, user)
        msg = f"Cannot cancel response {id_!r}: it does not run in the background. Close its connection."
        raise InvalidInput(msg, where="response_id")


#: Default fields of a stored response whose request was not stored.
_KEPT: dict[str, Any] = {
    "instructions": None, "metadata": {}, "parallel_tool_calls": True, "previous_response_id": None,
    "tool_choice": "auto", "tools": [],
}  # fmt: skip
