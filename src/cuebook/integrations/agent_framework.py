"""Microsoft Agent Framework: history and recall of an agent as conversations, and its sessions as documents."""

import json
import secrets
from collections.abc import Sequence
from typing import Any

from agent_framework import (
    AgentSession,
    ContextProvider,
    HistoryProvider,
    Message,
    SessionContext,
    SessionStore,
    SupportsAgentRun,
)
from agent_framework._sessions import filter_new_messages

from cuebook.app.cuebook import Cuebook
from cuebook.engine.core.drafts import Posted
from cuebook.errors import NotFound
from cuebook.integrations.connection import (
    Connection,
    Where,
    conversation_id,
    fenced,
    place_name,
    posts_of,
    readable,
    recall,
)
from cuebook.records.conversation import Part, Role
from cuebook.records.conversation_answers import PostEntry
from cuebook.records.document import DocumentChange

#: The part of a post that has a message as the framework stored it.
_MESSAGE = "agent_framework_message"
#: The place of sessions.
_SESSIONS = ("agent_framework", "sessions")
#: The role of a post by the role of its message; messages of other roles are the system's.
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool"}


class CuebookHistoryProvider(Connection, HistoryProvider):
    """An agent's history: `Agent(client, context_providers=[CuebookHistoryProvider("my-project", user="ann")])`.

    `where` is a project (see `Connection`). A session is a conversation of `user`, and each message a post. `options`
    are those of `HistoryProvider`. Secrets in messages are redacted.
    """

    def __init__(
        self, where: Where = None, *, user: str | None = None, source_id: str = "cuebook_history", **options: Any
    ) -> None:
        Connection.__init__(self, where)
        HistoryProvider.__init__(self, source_id, **options)
        self._user = user

    async def get_messages(
        self,
        session_id: str | None,
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002  # the framework's signature
        **_: Any,
    ) -> list[Message]:
        return await self._await(lambda cue: _stored(cue, session_id, user=self._user))

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Store messages. If they begin with stored ones, as in a repeated transcript, only the others are stored."""
        if messages:
            await self._await(lambda cue: self._save(cue, session_id, messages))

    async def _save(self, cue: Cuebook, session: str | None, messages: Sequence[Message]) -> None:
        new = filter_new_messages(await _stored(cue, session, user=self._user), messages)
        if new:
            await cue.append(_conversation(session, self._user), [_posted(each) for each in new], user=self._user)


class CuebookContextProvider(Connection, ContextProvider):
    """An agent's recall: `Agent(client, context_providers=[CuebookContextProvider("my-project", user="ann")])`.

    Before a run, the agent gets earlier messages and memories of `user` that match the input, except messages of the
    session itself. `recalls` limits their number. With another history than `CuebookHistoryProvider`, use one of these
    with `load_messages=False` too, so that there are messages to recall.
    """

    def __init__(
        self, where: Where = None, *, user: str | None = None, source_id: str = "cuebook_memory", recalls: int = 10
    ) -> None:
        Connection.__init__(self, where)
        ContextProvider.__init__(self, source_id)
        self._user, self._recalls = user, recalls

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,  # noqa: ARG002  # the framework's signature
        session: AgentSession,  # noqa: ARG002
        context: SessionContext,
        state: dict[str, Any],  # noqa: ARG002
    ) -> None:
        """Add what matches the input to the messages, as quoted data."""
        query = "\n".join(each.text for each in context.input_messages if each.role == "user")
        own = _conversation(context.session_id, self._user)
        options: Any = {"user": self._user, "limit": self._recalls, "without": own}
        if lines := await self._await(lambda cue: recall(cue, query, **options)):
            text = fenced("\n".join(lines), secrets.token_hex(8))
            context.extend_messages(self, [Message("user", [text])])


class CuebookSessionStore(Connection, SessionStore):
    """A store of sessions: `CuebookSessionStore("my-project", user="ann")`. They are documents of `user`.

    `where` is a project (see `Connection`). The state of a session must be convertible to JSON.
    """

    def __init__(self, where: Where = None, *, user: str | None = None) -> None:
        super().__init__(where)
        self._user = user

    async def get(self, session_id: str) -> AgentSession | None:
        self.validate_session_id(session_id)
        try:
            found = await self._await(lambda cue: cue.documents.get(_SESSIONS, place_name(session_id), user=self._user))
        except NotFound:
            return None
        return AgentSession.from_dict(found.value)

    async def set(self, session_id: str, session: AgentSession) -> None:
        """Store a session. Raises ValueError or TypeError for values that JSON does not have."""
        self.validate_session_id(session_id)
        value = json.loads(json.dumps(session.to_dict(), allow_nan=False))
        await self._put(session_id, value)

    async def delete(self, session_id: str) -> None:
        self.validate_session_id(session_id)
        await self._put(session_id, None)

    async def _put(self, session_id: str, value: dict[str, Any] | None) -> None:
        change = DocumentChange(space=_SESSIONS, key=place_name(session_id), value=value)
        await self._await(lambda cue: cue.documents.put([change], user=self._user))


def _conversation(session: str | None, user: str | None) -> str:
    return conversation_id("agent_framework", user or "", session or "default")


async def _stored(cue: Cuebook, session: str | None, *, user: str | None) -> list[Message]:
    return [_message(each) for each in await posts_of(cue, _conversation(session, user), user=user)]


def _posted(message: Message) -> Posted:
    """Return a message as a post: its role, its text, and the message itself as a part."""
    role: Role = _ROLES.get(message.role, "system")
    part = Part(type=_MESSAGE, content=json.dumps(message.to_dict()))
    return Posted(sender=role, role=role, message=readable(message.text), parts=(part,))


def _message(post: PostEntry) -> Message:
    """Return the message of a post; other programs' posts have none."""
    stored = next((part.content for part in post.parts if part.type == _MESSAGE), None)
    return Message.from_dict(json.loads(stored)) if stored else Message(post.role, [post.message])
