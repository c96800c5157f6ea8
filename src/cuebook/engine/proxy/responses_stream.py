"""Parse relayed answers of OpenAI's Responses wire, and look up earlier answers by their ids.

A request that continues an answer by its id contains only new messages; the provider adds the earlier ones. It is
therefore parsed with the stored path up to that answer.
"""

from collections import OrderedDict
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct, field

from cuebook.engine.core.desk import Desk
from cuebook.engine.proxy.request import RelayCall
from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.store import Lease
from cuebook.records.turn import Usage
from cuebook.wire.chat_messages import write_message
from cuebook.wire.chat_stream import Events, read_event, read_usage
from cuebook.wire.responses_requests import read_asked, read_items

#: Requests that call a model.
PATH: Final = "/responses"
#: Most answers with a cached provider id.
MOST_ANSWERS = 50_000
#: Output items that a chat message can represent. Others are the provider's own.
_SAID = ("message", "function_call")
#: Fields with the id and the model of an answer.
_FRAME = ("id", "model")
#: Final states of an answer.
_ENDS = ("completed", "incomplete", "failed", "cancelled")

_encode = msgspec.json.Encoder().encode


class ResponseHeard(Struct):
    """Stream parser of the Responses wire: the answer so far. Mutable."""

    answer: dict[str, Any] = {}
    items: dict[int, dict[str, Any]] = {}
    texts: dict[int, list[str]] = {}  # of unfinished items
    error: str = ""
    events: Events = field(default_factory=Events)

    @property
    def done(self) -> bool:
        """Return whether the stream has ended."""
        return bool(self.error) or self.answer.get("status") in _ENDS

    @property
    def whole(self) -> bool:
        """Return whether the answer is complete."""
        return self.answer.get("status") in ("completed", "incomplete")

    @property
    def waits(self) -> bool:
        """Return whether the answer waits for tool results."""
        return any(item.get("type") == "function_call" for item in self.items.values())

    @property
    def usage(self) -> Usage | None:
        """Return the provider's token counts."""
        used = self.answer.get("usage")
        if not isinstance(used, dict):
            return None
        names = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
        return read_usage(
            {ours: used.get(theirs) for ours, theirs in names.items()}
            | {"prompt_tokens_details": used.get("input_tokens_details")}
        )

    @property
    def frame(self) -> dict[str, str]:
        """Return the answer's id, model and other header fields."""
        return {name: self.answer[name] for name in _FRAME if isinstance(self.answer.get(name), str)}

    @property
    def choices(self) -> tuple[int, ...]:
        """Return the number of the only answer."""
        return (0,)

    @property
    def reasons(self) -> list[str | None]:
        """Return the finish reason, in terms of a chat completion."""
        if not self.whole:
            return [None]
        return ["tool_calls" if self.waits else "stop" if self.answer["status"] == "completed" else "length"]

    def hear(self, line: bytes) -> str:
        """Parse a line of a stream. Return the text it adds."""
        event = self.events.read(line)
        if not isinstance(event, dict):
            return ""
        kind, place, delta = event.get("type"), event.get("output_index"), event.get("delta")
        if kind == "response.output_text.delta" and isinstance(place, int) and isinstance(delta, str):
            self.texts.setdefault(place, []).append(delta)
            return delta
        if kind == "response.output_item.done" and isinstance(place, int) and isinstance(event.get("item"), dict):
            self.items[place] = event["item"]
            self.texts.pop(place, None)
        elif kind == "error":
            self.error = str(event.get("message") or "The provider reported an error.")
        elif isinstance(event.get("response"), dict):
            self._take(event["response"])
        return ""

    def take(self, body: bytes) -> None:
        """Parse a complete answer."""
        answer = read_event(body)
        if isinstance(answer, dict):
            self._take(answer)

    def _take(self, answer: dict[str, Any]) -> None:
        self.answer = answer
        output = answer.get("output")
        items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
        if items:
            self.items, self.texts = dict(enumerate(items)), {}
        error = answer.get("error")
        if isinstance(error, dict):
            self.error = str(error.get("message") or "The provider reported an error.")

    def message(self, choice: int = 0) -> bytes | None:
        """Return the answer as one chat message."""
        begun = {
            place: {"type": "message", "role": "assistant", "content": "".join(lines)}
            for place, lines in self.texts.items()
        }
        items = [item for _, item in sorted((begun | self.items).items()) if item.get("type") in _SAID]
        try:
            messages = [] if choice else read_items(items, "output")
        except InvalidInput:
            return None
        return _encode(_joined(messages)) if messages else None


def _joined(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return several messages of an answer as one."""
    texts = [each["content"] for each in messages if each["content"] is not None]
    calls = [call for each in messages for call in each.get("tool_calls", ())]
    content = texts[0] if len(texts) == 1 else "\n\n".join(map(str, texts)) or None
    return {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})


class AnswerIds:
    """Cache of relayed answers by provider id: the turn and step of each."""

    def __init__(self, most: int = MOST_ANSWERS) -> None:
        self._known: OrderedDict[str, Lease] = OrderedDict()
        self._most = most

    def learn(self, response_heard: ResponseHeard, lease: Lease) -> None:
        """Add an answer."""
        if id_ := response_heard.frame.get("id"):
            self._known[id_] = lease
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    async def as_chat(self, desk: Desk, call: RelayCall) -> RelayCall:
        """Return a request as an equivalent chat completion, with all earlier messages.

        Raises InvalidInput for content that a chat completion cannot represent, or for an unknown previous answer.
        """
        response_request = read_asked(call.body)
        if response_request.conversation is not None:
            msg = "conversation: its items are stored by the provider. Use previous_response_id or send all items."
            raise InvalidInput(msg, where="conversation")
        if response_request.previous is None:
            return msgspec.structs.replace(call, body=_encode(response_request.fields))
        lease = self._known.get(response_request.previous)
        if lease is None:
            msg = f"previous_response_id: unknown response {response_request.previous!r}. Send the full history."
            raise InvalidInput(msg, where="previous_response_id")
        try:
            turn = await desk.store.turn(lease.scope, lease.conversation, lease.turn)
        except NotFound as error:
            raise InvalidInput(str(error), where="previous_response_id") from None
        end = turn.steps[lease.step - 1].reply_seq or turn.query_seq
        path = await desk.store.posts(lease.scope, lease.conversation, head=end)
        values = [Raw(post.wire or write_message(post, user=lease.scope.user)) for post in path]
        front = int(bool(response_request.echo["instructions"]))
        messages = response_request.fields["messages"]
        body = _encode(response_request.fields | {"messages": [*messages[:front], *values, *messages[front:]]})
        return msgspec.structs.replace(call, body=body, conversation=lease.conversation)
