"""The request of a turn: `TurnRequest`, from `/api/chat` or from the client of a provider."""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from cuebook.engine.core.context_limits import ModelTarget
from cuebook.engine.core.drafts import Posted
from cuebook.engine.core.services import Key
from cuebook.interfaces.store import StoredPath
from cuebook.records.memory import Scope
from cuebook.records.turn import Ask
from cuebook.window.window import Text
from cuebook.wire.chat_messages import ResentMessage

#: What a request has of a utility call, from "" (nothing) over its shape alone, which needs a known frame too, a
#: requested JSON format or few tokens, and a known template, to its own declaration.
UtilitySign = Literal["", "shape", "format", "template", "declared"]


class TurnRequest(Struct, frozen=True, kw_only=True):
    """A request before anything is loaded: one new post after the head, or the history of a provider's client."""

    ask: Ask  # without a conversation, the history identifies it
    target: ModelTarget = ModelTarget()
    key: Key | None = None  # its Idempotency-Key
    choices: int = 1  # number of requested answers
    posted: Posted | None = None  # the new post; without one, `history` has the messages
    post_id: str = ""  # by default a new one
    history: tuple[ResentMessage, ...] = ()
    only_new: bool = False  # the history has no stored posts; it follows `parent`
    parent: int | None = None  # by default the head
    paths: tuple[StoredPath, ...] | None = None  # stored paths that the history continues; None: to be looked up
    lists: bool = False  # the client may store its messages as items of a conversation that it created
    utility: UtilitySign = ""  # how it looks like a utility call
    retried: bool = False  # the client marks the request as a retry
    client: tuple[Text, ...] = ()  # the client's system messages
    live_client: tuple[Text, ...] = ()  # the original, if `client` has redacted secrets
    tools: str = ""
    live_tools: str = ""  # the original, if `tools` has redacted secrets
    quotes: bool = False  # no model answers: the answer quotes memories
    asks_model: bool = True  # a model may be called before the step opens
    adds_nothing: bool = False  # neither to the prompt nor to memory: it continues a conversation, but is no question
    begins_at_compaction: bool = False  # a history that the server keeps begins at the provider's compaction item
    shadow: bool = False  # decide and store a window that is never sent
    metadata: Mapping[str, Any] = {}  # request fields that the answer repeats, stored with the step

    @property
    def scope(self) -> Scope:
        """Return the scope of the data that may be read: the user's."""
        return Scope(user=self.ask.user)

    @property
    def resends_history(self) -> bool:
        """Return whether the client sends the whole history, which it keeps itself."""
        return self.posted is None and not self.only_new
