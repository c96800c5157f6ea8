"""Proxy for OpenAI's `/v1/responses`: read a request as a chat completion, after the response that it continues."""

from collections import OrderedDict
from typing import Any, Final

import msgspec
from msgspec import Raw

from cuebook.engine.core.services import Services
from cuebook.engine.proxy.request import RelayCall
from cuebook.engine.proxy.wire import ChatWire, Head, TranslatedWire
from cuebook.engine.turn.request import TurnRequest
from cuebook.errors import Conflict, InvalidInput, NotFound
from cuebook.interfaces import Upstream
from cuebook.interfaces.store import Lease
from cuebook.records.erasure import GONE
from cuebook.records.memory import Scope
from cuebook.records.turn import Step, Turn
from cuebook.wire.answer import Answer, AnswerWriter, StreamReader
from cuebook.wire.chat_messages import write_message
from cuebook.wire.responses_answers import ResponsesReader, ResponsesWriter, looks_foreign, may_be_ours
from cuebook.wire.responses_requests import AnswerId, is_stored, read_id, read_response_request, write_id

#: Requests that call a model.
PATH: Final = "/responses"
#: Most answers that shadow mode remembers by the provider's id.
MOST_ANSWERS: Final = 50_000

_encode = msgspec.json.Encoder().encode


# ---- Answered by a chat completion ----------------------------------------------------------------------------------


class ResponsesAsChat(TranslatedWire):
    """A response that a chat completion answers. Its id encodes the conversation, turn and step."""

    def __init__(self, services: Services, upstream: Upstream | None, call: RelayCall) -> None:
        """Parse the request. Raises InvalidInput naming the field."""
        super().__init__(services, upstream, call)
        self._request = read_response_request(call.body)

    async def load(self, scope: Scope) -> TurnRequest:
        """Find the response or conversation that the request continues, and parse it.

        Raises NotFound for an unknown one, Conflict for an empty response.
        """
        request, user = self._request, self.call.user or self._request.user
        leading = int(bool(request.echo["instructions"]))  # they apply to this answer only; developer messages stay
        changes: dict[str, Any] = {"body": _encode(request.fields), "metadata": self._stored_fields()}
        if request.previous is not None:
            answer_id, _, step = await stored_answer(self.services, request.previous, user)
            if not step.reply_seq:
                msg = f"Cannot continue response {request.previous!r}: it is empty. Omit previous_response_id."
                raise Conflict(msg)
            changes |= {"conversation": answer_id.conversation, "server_history": True}
            changes |= {"parent": step.reply_seq, "leading": leading}
        else:
            named = request.conversation
            if named and (may_be_ours(named) or looks_foreign(named)):  # another name creates a conversation
                await self.services.store.conversation(Scope(user=user), named)
            goes_on, conversation = self.call.server_history or named is not None, named or self.call.conversation
            changes |= {"conversation": conversation, "server_history": goes_on}
            changes |= {"leading": leading if goes_on else None, "lists": conversation is None and not goes_on}
        self.call = msgspec.structs.replace(self.call, **changes)
        return self.read(scope)

    def _stored_fields(self) -> dict[str, Any]:
        """Return the request fields to store besides its input: its metadata, and the previous response."""
        echo = self._request.echo
        pairs = echo["metadata"].items() if isinstance(echo["metadata"], dict) and echo["store"] else ()
        metadata = {name: self.services.writer.clean(value) for name, value in pairs if isinstance(value, str)}
        optional = {"metadata": metadata, "previous_response_id": self._request.previous}
        return {name: value for name, value in optional.items() if value}

    def writer(self, head: Head) -> AnswerWriter:
        """Return a writer of the answer."""
        request = self._request
        return ResponsesWriter(
            write_id(AnswerId(head.conversation, head.turn, head.step), stored=request.echo["store"]),
            conversation=head.conversation,
            created=int(self.services.clock.now()),
            model=str(request.fields.get("model", "")),
            echo=request.echo,
        )

    def left_out(self) -> tuple[str, ...]:
        """Return the names of the fields that a chat completion cannot express."""
        return self._request.left_out

    def write_error(self, head: Head, body: bytes) -> tuple[Head, bytes]:
        """Return an error unchanged: errors of both wires are the same."""
        return head, body

    def write_document(self, writer: AnswerWriter, head: Head, body: bytes) -> tuple[Head, bytes]:  # noqa: ARG002
        """Return the complete answer. Its status tells whether the upstream's answer was readable."""
        writer.end("" if writer.finish else "The upstream's answer is unreadable.")
        return self.headed(head), _encode(writer.document())


async def stored_answer(services: Services, id_: str, user: str | None) -> tuple[AnswerId, Turn, Step]:
    """Return the turn and step of a response. Raises NotFound."""
    answer_id, scope = read_id(id_), Scope(user=user)
    try:
        if answer_id is not None and is_stored(id_):
            turn = await services.store.turn(scope, answer_id.conversation, answer_id.number)
            step = turn.steps[answer_id.step - 1]
            span = [(step.reply_seq, step.reply_seq)] if step.reply_seq else []
            posts = await services.store.posts_in(scope, answer_id.conversation, span)
            if all(post.state != GONE for post in posts):
                return answer_id, turn, step
    except (NotFound, IndexError):
        pass
    if not is_stored(id_):
        msg = f"Unknown response {id_!r}: its request has store: false, so it was not stored."
        raise NotFound(msg)
    msg = f"Unknown response {id_!r}. It may have been deleted with its conversation."
    raise NotFound(msg)


# ---- Answered by a server of this wire ------------------------------------------------------------------------------


class ResponsesWire(ChatWire):
    """A response that its own provider answers, read as a chat completion. Only shadow mode relays it.

    A request that continues an answer by its id contains only new messages; the provider adds the earlier ones. It is
    therefore read with the stored path up to that answer.
    """

    def __init__(
        self, services: Services, upstream: Upstream | None, call: RelayCall, answers: OrderedDict[str, Lease]
    ) -> None:
        """`answers` caches where relayed answers are stored, by the provider's id."""
        super().__init__(services, upstream, call)
        self._answers = answers

    async def load(self, scope: Scope) -> TurnRequest:
        """Load the messages before the request's own, and parse all.

        Raises InvalidInput for content that a chat completion cannot represent, or for an unknown previous answer.
        """
        services, request = self.services, read_response_request(self.call.body)
        if request.conversation is not None:
            msg = "conversation: its items are stored by the provider. Use previous_response_id or send all items."
            raise InvalidInput(msg, where="conversation")
        if request.previous is None:
            self.call = msgspec.structs.replace(self.call, body=_encode(request.fields))
            return self.read(scope)
        lease = self._answers.get(request.previous)
        if lease is None:
            msg = f"previous_response_id: unknown response {request.previous!r}. Send the full history."
            raise InvalidInput(msg, where="previous_response_id")
        try:
            turn = await services.store.turn(lease.scope, lease.conversation, lease.turn)
        except NotFound as error:
            raise InvalidInput(str(error), where="previous_response_id") from None
        end = turn.steps[lease.step - 1].reply_seq or turn.query_seq
        path = await services.store.posts(lease.scope, lease.conversation, head=end)
        before = [Raw(post.wire or write_message(post, user=lease.scope.user)) for post in path]
        messages, front = request.fields["messages"], int(bool(request.echo["instructions"]))
        body = _encode(request.fields | {"messages": [*messages[:front], *before, *messages[front:]]})
        self.call = msgspec.structs.replace(self.call, body=body, conversation=lease.conversation)
        return self.read(scope)

    def reader(self) -> StreamReader:
        """Return a reader of the upstream's answer."""
        return ResponsesReader()

    def remember(self, answer: Answer, lease: Lease) -> None:
        """Remember where an answer is stored: a later request may continue it by its id."""
        if id_ := answer.frame.get("id"):
            self._answers[id_] = lease
            while len(self._answers) > MOST_ANSWERS:
                self._answers.popitem(last=False)
