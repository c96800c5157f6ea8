"""Proxy for OpenAI's `/v1/responses`: read a request as a chat completion, and send it in either format.

The upstream gets a request in its own format if it has this API, otherwise as a chat completion. Setting
`upstream.responses` decides; `auto` finds out by the first request.
"""

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, Final

import msgspec
from msgspec import Raw

from cuebook.engine.core.services import LruCache, Services
from cuebook.engine.proxy.messages_window import split_recall
from cuebook.engine.proxy.request import RelayCall
from cuebook.engine.proxy.wire import Head, TranslatedWire
from cuebook.engine.turn.request import StoredReply, TurnRequest
from cuebook.engine.turn.step import OpenStep
from cuebook.errors import Conflict, InvalidInput, NotFound
from cuebook.interfaces import RelayRequest, Upstream
from cuebook.interfaces.store import Lease
from cuebook.records.erasure import GONE
from cuebook.records.memory import Scope
from cuebook.records.turn import Step, Turn
from cuebook.window.post_forms import JOIN
from cuebook.wire.answer import AnswerWriter, ModelAnswer, StreamReader, as_dict
from cuebook.wire.anthropic_messages import ConvertedMessage
from cuebook.wire.chat_answers import ChatReader
from cuebook.wire.chat_messages import write_message
from cuebook.wire.event_stream import ByteLines, read_event
from cuebook.wire.responses_answers import ResponsesReader, ResponsesWriter, looks_foreign, may_be_ours
from cuebook.wire.responses_items import convert_items, has_items, with_text, write_items
from cuebook.wire.responses_requests import AnswerId, is_stored, read_id, read_response_request, write_id

#: Requests for an answer, and for a compaction item.
PATH: Final = "/responses"
COMPACT_PATH: Final = "/responses/compact"
#: Most answers that shadow mode remembers by the provider's id.
MOST_ANSWERS: Final = 50_000
#: Fields with an equal meaning in a chat completion, from which a turn is read.
_SAME: Final = {
    "model": "model", "stream": "stream", "tools": "tools", "text": "response_format", "user": "user",
    "safety_identifier": "safety_identifier", "metadata": "metadata",
}  # fmt: skip
#: Fields that name a history which only Cuebook has.
_HISTORY: Final = ("previous_response_id", "conversation")
#: Statuses of servers without this API, and wordings of their errors.
_NO_ROUTE: Final = (405, 501)
_NO_ROUTE_ERROR = re.compile(
    r"(?:invalid|unknown|unexpected|unsupported|unrecognized|no such) (?:request )?(?:url|route|endpoint|path)",
    re.IGNORECASE,
)
#: Error codes of a 404 by servers without this API. Others are about the request: an unknown model or item.
_NO_ROUTE_CODES: Final = (None, 404, "404", "not_found", "unknown_url")

_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def is_native(services: Services, upstream: Upstream | None) -> bool:
    """Return whether requests go to an upstream in their own format, as far as known."""
    setting = services.config.upstream.responses
    if upstream is None or setting == "chat":
        return False
    return setting == "native" or services.caches.has_responses.get(upstream.base_url, True)


class ResponsesWire(TranslatedWire):
    """A request of the Responses API.

    The id of a stored answer encodes its conversation, turn and step. The upstream gets the messages before a request
    that continues an answer or a conversation of Cuebook.
    """

    def __init__(
        self,
        services: Services,
        upstream: Upstream | None,
        call: RelayCall,
        *,
        compacts: bool = False,
        answers: LruCache[str, Lease] | None = None,
    ) -> None:
        """Parse the request. Raises InvalidInput naming the field.

        `compacts`: it asks for a compaction item instead of an answer. `answers`, in shadow mode: where relayed
        answers are stored, by the provider's id.
        """
        super().__init__(services, upstream, call)
        self._request = read_response_request(call.body, compacts=compacts)
        self._compacts, self._answers = compacts, answers
        self._provider_id = ""  # of a stored answer that cannot be continued
        self._front: list[Raw] = []  # items that are system text of the client
        self._before: tuple[ConvertedMessage, ...] = ()  # in shadow mode: what the provider puts before the input
        self.native = answers is not None or is_native(services, upstream)

    async def load(self) -> TurnRequest:
        """Find the answer or conversation that the request continues, and parse it.

        Raises NotFound for an unknown one, Conflict for an empty answer, InvalidInput for content that its model does
        not support.
        """
        request, user = self._request, self.call.user or self._request.user
        if self._answers is not None:
            await self._load_before(self._answers)
            return await super().load()
        leading = int(bool(request.instructions))  # they apply to this answer only; developer messages stay
        changes: dict[str, Any] = {"metadata": self._stored_fields()}
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
        return await super().load()

    def read(self) -> TurnRequest:
        """Parse the request. Raises InvalidInput naming the field, NotFound if nobody can compact."""
        request = self._request
        if self._compacts and not self.native:
            raise _no_compaction()
        chat_fields = None if self.native else self._chat_fields()
        fields: dict[str, Raw] = {theirs: request.own[ours] for ours, theirs in _SAME.items() if ours in request.own}
        if request.data.get("stream") is True:
            fields["stream_options"] = Raw(b'{"include_usage":true}')
        items = convert_items(request.items)
        instructions = [_encode({"role": "system", "content": request.instructions})] if request.instructions else []
        chats = [*instructions, *(each.chat for each in (*self._before, *items))]
        fields["messages"] = Raw(b"[" + b",".join(chats) + b"]")
        turn = self.turn_request(fields, own_fields=request.own)
        front = len(turn.client) - len(instructions)
        self._front = [item for each in items[:front] for item in each.blocks]
        self.converted = (*self._before, *items[front:])
        self.fields = fields if chat_fields is None else chat_fields
        return msgspec.structs.replace(turn, begins_at_compaction=self.native, compacts=self._compacts)

    def _chat_fields(self) -> dict[str, Raw]:
        return {name: Raw(_encode(value)) for name, value in self._request.chat_fields().items()}

    def _stored_fields(self) -> dict[str, Any]:
        """Return the request fields to store besides its input: its metadata, and the previous response."""
        request = self._request
        pairs = as_dict(request.data.get("metadata")).items() if request.is_stored else ()
        metadata = {name: self.services.writer.clean(value) for name, value in pairs if isinstance(value, str)}
        optional = {"metadata": metadata, "previous_response_id": request.previous}
        return {name: value for name, value in optional.items() if value}

    # ---- The upstream's own format -----------------------------------------------------------------------------------

    def outgoing(self, step: OpenStep, *, model: str | None) -> RelayRequest:
        """Return the request with the window as its input. If nothing differs, its bytes stay the same."""
        if not self.native:
            return super().outgoing(step, model=model)
        own, fields = self._request.own, dict(self._request.own)
        items = self._items(step)
        if list(map(bytes, items)) != list(map(bytes, self._request.items)):
            fields["input"] = Raw(b"[" + b",".join(items) + b"]")
        if model is not None:
            fields["model"] = Raw(_encode(model))
        for name in _HISTORY:
            fields.pop(name, None)
        body = self.call.body if fields == own else _encode(fields)
        return msgspec.structs.replace(self.request_to(body), path=COMPACT_PATH if self._compacts else PATH)

    def _items(self, step: OpenStep) -> list[Raw]:
        """Return the window's items: the client's own where it sent a message whole, others from the stored message."""
        plan, sheet = step.plan, step.plan.sheet
        numbers = step.position.messages_by_seq(step.decision.start.expected_last_seq)
        items = [_system_item(JOIN.join(text.text for text in sheet.front))] if sheet.front else []
        items += self._front
        items += [_system_item(sheet.summary.text)] if sheet.summary else []
        front = len(plan.messages) - len(sheet.partition.kept)
        custom: set[str] = set()
        for message, post_in_form in zip(plan.messages[front:], sheet.partition.kept, strict=True):
            seq, whole = post_in_form.post.seq, post_in_form.form == "full"
            custom |= _custom_calls(message)
            recalls = seq == sheet.query and sheet.volatile
            chat, recalled = split_recall(message, sheet.fence) if recalls else (message, "")
            number = numbers.get(seq)
            if whole and number is not None:
                items += self.converted[number].blocks
            else:
                items += (Raw(_encode(each)) for each in write_items(chat, custom=custom))
            if recalled:
                items[-1] = with_text(items[-1], recalled)
        return items

    def turns_to_chat(self, status: int, error: bytes) -> bool:
        """Return whether an upstream's answer shows that it lacks this API: the same request goes as chat then.

        Raises NotFound if it cannot compact, InvalidInput for what a chat completion lacks.
        """
        known, url = self.services.caches.has_responses, self.base_url
        if not self.native:
            return False
        if not _lacks_route(status, error, self.model):
            if status < 400:
                known[url] = True
            return False
        if self._compacts:
            raise _no_compaction()
        if known.get(url) or self.services.config.upstream.responses == "native":
            return False
        known[url], self.native = False, False
        self.fields = self._chat_fields()
        return True

    async def write(self, pieces: AsyncGenerator[Head | bytes, None]) -> AsyncGenerator[Head | bytes, None]:
        """Yield an answer in the client's format. The id of an answer that can be continued is Cuebook's."""
        async with aclosing(pieces):
            first = await anext(pieces)
            if not self.native:
                async with aclosing(super().write(_again(first, pieces))) as written:
                    async for piece in written:
                        yield piece
                return
            yield first
            head = first if isinstance(first, Head) else Head(status=502, headers={})
            renames = head.status < 400 and self._request.is_stored and not self._compacts
            if not renames:
                async for piece in pieces:
                    yield piece
            elif head.is_stream:
                lines = ByteLines()
                async for piece in pieces:
                    events = lines.feed(piece) if isinstance(piece, bytes) else ()
                    if renamed := b"".join(self._renamed_event(line, head) for line in events):
                        yield renamed
                yield self._renamed_event(lines.rest(), head)
            else:
                body = b"".join([piece async for piece in pieces if isinstance(piece, bytes)])
                yield self._renamed(body, head)

    def _renamed_event(self, line: bytes, head: Head) -> bytes:
        """Return a line of a stream. If it contains the answer so far, replace its id."""
        if not line.startswith(b"data:") or b'"response"' not in line:
            return line
        try:
            event = _fields(line[5:])
        except (msgspec.DecodeError, UnicodeDecodeError):
            return line
        if "response" not in event:
            return line
        event["response"] = Raw(self._renamed(bytes(event["response"]), head))
        return b"data: " + _encode(event) + line[len(line.rstrip(b"\r\n")) :]

    def _renamed(self, answer: bytes, head: Head) -> bytes:
        """Return an answer with Cuebook's id, and what it continues as the client named it. Other fields stay."""
        try:
            fields = _fields(answer)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return answer
        names: dict[str, Any] = {"id": write_id(AnswerId(head.conversation, head.turn, head.step))}
        if self._request.previous:
            names["previous_response_id"] = self._request.previous
        if self._request.conversation:
            names["conversation"] = {"id": head.conversation}
        return _encode(fields | {name: Raw(_encode(value)) for name, value in names.items()})

    # ---- Both formats ------------------------------------------------------------------------------------------------

    def sends_marks(self, model: str) -> bool:
        """Return whether to send cache breakpoints: in this format the client and the provider set them."""
        return not self.native and super().sends_marks(model)

    def reader(self) -> StreamReader:
        """Return a reader of the upstream's answer."""
        return ResponsesReader(compacts=self._compacts) if self.native else ChatReader()

    def replay(self, reply: StoredReply) -> Iterator[bytes]:
        """Yield the stored answer as a chat completion, which `write` translates."""
        if self.native and any(map(has_items, reply.messages)) and not self._request.is_stored:
            self._provider_id = str(reply.about.get("id", ""))
        self.native = False
        return super().replay(reply)

    def writer(self, head: Head) -> AnswerWriter:
        """Return a writer of the answer."""
        return ResponsesWriter(
            self._provider_id
            or write_id(AnswerId(head.conversation, head.turn, head.step), stored=self._request.is_stored),
            conversation=head.conversation,
            created=int(self.services.clock.now()),
            model=self.model,
            echo=self._request.echo(),
        )

    def left_out(self) -> tuple[str, ...]:
        """Return the names of the fields that a chat completion cannot express."""
        return self._request.left_out()

    def write_error(self, head: Head, body: bytes) -> tuple[Head, bytes]:
        """Return an error unchanged: errors of both wires are the same."""
        return head, body

    def write_document(self, writer: AnswerWriter, head: Head, body: bytes) -> tuple[Head, bytes]:  # noqa: ARG002
        """Return the complete answer. Its status tells whether the upstream's answer was readable."""
        writer.end("" if writer.finish else "The upstream's answer is unreadable.")
        return self.headed(head), _encode(writer.document())

    # ---- Shadow mode -------------------------------------------------------------------------------------------------

    async def _load_before(self, answers: LruCache[str, Lease]) -> None:
        """Load the messages that the provider puts before the request's own. Raises InvalidInput for unknown ones."""
        services, request = self.services, self._request
        if request.conversation is not None:
            msg = "conversation: its items are stored by the provider. Use previous_response_id or send all items."
            raise InvalidInput(msg, where="conversation")
        if request.previous is None:
            return
        lease = answers.get(request.previous)
        if lease is None:
            msg = f"previous_response_id: unknown response {request.previous!r}. Send the full history."
            raise InvalidInput(msg, where="previous_response_id")
        try:
            turn = await services.store.turn(lease.scope, lease.conversation, lease.turn)
        except NotFound as error:
            raise InvalidInput(str(error), where="previous_response_id") from None
        end = turn.steps[lease.step - 1].reply_seq or turn.query_seq
        path = await services.store.posts(lease.scope, lease.conversation, head=end)
        chats = [post.wire or write_message(post, user=lease.scope.user) for post in path]
        self._before = tuple(ConvertedMessage(chat, 0, "", ()) for chat in chats)
        self.call = msgspec.structs.replace(self.call, conversation=lease.conversation)

    def remember(self, answer: ModelAnswer, lease: Lease) -> None:
        """Remember where an answer is stored: a later request may continue it by its id."""
        if self._answers is not None and (id_ := answer.frame.get("id")):
            self._answers[id_] = lease


def _no_compaction() -> NotFound:
    """Return the error for a request to compact without an upstream that can."""
    msg = "/v1/responses/compact: no upstream can compact. Send all messages; Cuebook summarizes what does not fit."
    return NotFound(msg)


def _lacks_route(status: int, error: bytes, model: str) -> bool:
    """Return whether an error answer says that its server does not know the path."""
    if status in _NO_ROUTE:
        return True
    if status not in (400, 404):
        return False
    value = as_dict(read_event(error)).get("error")
    data = as_dict(value)
    message = str(data.get("message") or value or "")
    if status == 400 or _NO_ROUTE_ERROR.search(message):
        return _NO_ROUTE_ERROR.search(message) is not None
    return not data.get("param") and data.get("code") in _NO_ROUTE_CODES and not (model and model in message)


async def _again(first: Head | bytes, pieces: AsyncGenerator[Head | bytes, None]) -> AsyncGenerator[Head | bytes, None]:
    yield first
    async for piece in pieces:
        yield piece


def _system_item(text: str) -> Raw:
    return Raw(_encode({"type": "message", "role": "system", "content": text}))


def _custom_calls(chat: bytes) -> set[str]:
    """Return the ids of a message's calls of custom tools."""
    if b'"custom"' not in chat:
        return set()
    calls = msgspec.json.decode(chat).get("tool_calls") or ()
    return {str(call.get("id")) for call in calls if call.get("type") == "custom"}


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
