"""Look up relayed answers of OpenAI's Responses wire by their ids.

A request that continues an answer by its id contains only new messages; the provider adds the earlier ones. It is
therefore parsed with the stored path up to that answer.
"""

from collections import OrderedDict
from typing import Final

import msgspec
from msgspec import Raw

from cuebook.engine.core.services import Services
from cuebook.engine.proxy.request import RelayCall
from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.store import Lease
from cuebook.wire.answer import Answer
from cuebook.wire.chat_messages import write_message
from cuebook.wire.responses_requests import read_asked

#: Requests that call a model.
PATH: Final = "/responses"
#: Most answers with a cached provider id.
MOST_ANSWERS = 50_000

_encode = msgspec.json.Encoder().encode


class AnswerIds:
    """Cache of relayed answers by provider id: the turn and step of each."""

    def __init__(self, most: int = MOST_ANSWERS) -> None:
        self._known: OrderedDict[str, Lease] = OrderedDict()
        self._most = most

    def learn(self, answer: Answer, lease: Lease) -> None:
        """Add an answer."""
        if id_ := answer.frame.get("id"):
            self._known[id_] = lease
            while len(self._known) > self._most:
                self._known.popitem(last=False)

    async def as_chat(self, services: Services, call: RelayCall) -> RelayCall:
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
            turn = await services.store.turn(lease.scope, lease.conversation, lease.turn)
        except NotFound as error:
            raise InvalidInput(str(error), where="previous_response_id") from None
        end = turn.steps[lease.step - 1].reply_seq or turn.query_seq
        path = await services.store.posts(lease.scope, lease.conversation, head=end)
        values = [Raw(post.wire or write_message(post, user=lease.scope.user)) for post in path]
        front = int(bool(response_request.echo["instructions"]))
        messages = response_request.fields["messages"]
        body = _encode(response_request.fields | {"messages": [*messages[:front], *values, *messages[front:]]})
        return msgspec.structs.replace(call, body=body, conversation=lease.conversation)
