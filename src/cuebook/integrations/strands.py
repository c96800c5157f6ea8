"""Strands Agents: a session's messages are conversations, and the memory store is the memory of a user."""

import json
from contextlib import suppress
from typing import Any

from strands.memory.extraction.types import ExtractionConfig
from strands.memory.types import AddMessagesContext, MemoryEntry, MemoryStore, Metadata, SearchOptions
from strands.multiagent import MultiAgentBase
from strands.session.session_repository import SessionRepository
from strands.types.content import Message
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage

from cuebook.app.cuebook import Cuebook
from cuebook.engine.core.drafts import Posted
from cuebook.errors import NotFound
from cuebook.integrations.connection import (
    Connection,
    Where,
    conversation_id,
    conversation_ids,
    copy_of,
    place_name,
    posts_of,
    readable,
    rewrite,
)
from cuebook.records.conversation import Part, Role
from cuebook.records.conversation_answers import PostEntry
from cuebook.records.document import DocumentChange
from cuebook.records.memory import Hit
from cuebook.records.memory_answers import StoredMemory

#: The part of a post that has a message as Strands stored it.
_MESSAGE = "strands_message"
#: The places of documents. In those of agents, a place per session.
_SESSIONS, _AGENTS, _MULTI_AGENTS = [("strands", each) for each in ("sessions", "agents", "multi_agents")]
_METADATA = ("strands", "metadata")
#: Results of a search by default, and most hits that are looked at.
_RESULTS, _HITS = 10, 200


class CuebookSessionRepository(Connection, SessionRepository):
    """Strands' sessions: `RepositorySessionManager("trip", CuebookSessionRepository("my-project", user="ann"))`.

    `where` is a project (see `Connection`); `user` owns the data. Each agent of a session has a conversation, with a
    post per message; its state is a document. Secrets in messages are redacted.
    """

    def __init__(self, where: Where = None, *, user: str | None = None) -> None:
        super().__init__(where)
        self._user = user

    def create_session(self, session: Session, **_: Any) -> Session:
        if self.read_session(session.session_id) is not None:
            msg = f"Session {session.session_id} already exists"
            raise SessionException(msg)
        self._put(_SESSIONS, session.session_id, session.to_dict())
        return session

    def read_session(self, session_id: str, **_: Any) -> Session | None:
        found = self._get(_SESSIONS, session_id)
        return Session.from_dict(found) if found is not None else None

    def delete_session(self, session_id: str, **_: Any) -> None:
        """Delete a session with its agents and messages."""
        if self.read_session(session_id) is None:
            msg = f"Session {session_id} does not exist"
            raise SessionException(msg)
        self._run(lambda cue: self._delete(cue, session_id))

    def create_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        self._put((*_AGENTS, place_name(session_id)), session_agent.agent_id, session_agent.to_dict())

    def read_agent(self, session_id: str, agent_id: str, **_: Any) -> SessionAgent | None:
        found = self._get((*_AGENTS, place_name(session_id)), agent_id)
        return SessionAgent.from_dict(found) if found is not None else None

    def update_agent(self, session_id: str, session_agent: SessionAgent, **_: Any) -> None:
        before = self.read_agent(session_id, session_agent.agent_id)
        if before is None:
            msg = f"Agent {session_agent.agent_id} in session {session_id} does not exist"
            raise SessionException(msg)
        session_agent.created_at = before.created_at
        self.create_agent(session_id, session_agent)

    def create_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any) -> None:
        """Store a message. One with the same id is replaced."""
        self._run(lambda cue: self._store(cue, self._conversation(session_id, agent_id), session_message))

    def read_message(self, session_id: str, agent_id: str, message_id: int, **_: Any) -> SessionMessage | None:
        found = self._run(lambda cue: posts_of(cue, self._conversation(session_id, agent_id), user=self._user))
        return next((_message(each) for each in found if each.id == _post_id(message_id)), None)

    def update_message(self, session_id: str, agent_id: str, session_message: SessionMessage, **_: Any) -> None:
        """Replace a message, such as by its redacted form, which is then the text that search finds."""
        before = self.read_message(session_id, agent_id, session_message.message_id)
        if before is None:
            msg = f"Message {session_message.message_id} does not exist"
            raise SessionException(msg)
        session_message.created_at = before.created_at
        self.create_message(session_id, agent_id, session_message)

    def list_messages(
        self, session_id: str, agent_id: str, limit: int | None = None, offset: int = 0, **_: Any
    ) -> list[SessionMessage]:
        posts = self._run(lambda cue: posts_of(cue, self._conversation(session_id, agent_id), user=self._user))
        if not posts and self.read_agent(session_id, agent_id) is None:
            msg = f"Agent {agent_id} in session {session_id} does not exist"
            raise SessionException(msg)
        return [_message(each) for each in posts[offset:][:limit]]

    def create_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **_: Any) -> None:
        self._put((*_MULTI_AGENTS, place_name(session_id)), multi_agent.id, multi_agent.serialize_state())

    def read_multi_agent(self, session_id: str, multi_agent_id: str, **_: Any) -> dict[str, Any] | None:
        return self._get((*_MULTI_AGENTS, place_name(session_id)), multi_agent_id)

    def update_multi_agent(self, session_id: str, multi_agent: MultiAgentBase, **_: Any) -> None:
        if self.read_multi_agent(session_id, multi_agent.id) is None:
            msg = f"MultiAgent state {multi_agent.id} in session {session_id} does not exist"
            raise SessionException(msg)
        self.create_multi_agent(session_id, multi_agent)

    def _put(self, space: tuple[str, ...], key: str, value: dict[str, Any]) -> None:
        change = DocumentChange(space=space, key=place_name(key), value=value)
        self._run(lambda cue: cue.documents.put([change], user=self._user))

    def _get(self, space: tuple[str, ...], key: str) -> dict[str, Any] | None:
        try:
            return self._run(lambda cue: cue.documents.get(space, place_name(key), user=self._user)).value
        except NotFound:
            return None

    def _conversation(self, session_id: str, agent_id: str) -> str:
        return conversation_id("strands", self._user or "", session_id, agent_id)

    async def _store(self, cue: Cuebook, place: str, message: SessionMessage) -> None:
        post = _posted(message)
        last = await posts_of(cue, place, user=self._user, last=1)
        if not last or _message(last[0]).message_id < message.message_id:
            await cue.append(place, [post], user=self._user)
            return
        posts = {each.id: copy_of(each) for each in await posts_of(cue, place, user=self._user)}
        posts[post.id] = post
        await rewrite(cue, place, [posts[each] for each in sorted(posts)], user=self._user)

    async def _delete(self, cue: Cuebook, session_id: str) -> None:
        for place in await conversation_ids(cue, self._conversation(session_id, ""), user=self._user):
            with suppress(NotFound):
                await cue.conversations.delete(place, user=self._user)
        for root in (_AGENTS, _MULTI_AGENTS):
            await cue.documents.delete((*root, place_name(session_id)), user=self._user)
        await cue.documents.put([DocumentChange(space=_SESSIONS, key=place_name(session_id))], user=self._user)


class CuebookMemoryStore(Connection, MemoryStore):
    """Strands' memory: `MemoryManager(stores=[CuebookMemoryStore("my-project", user="ann")])`.

    `where` is a project (see `Connection`). The store searches the memories of `user`, or of the project without one,
    and the messages that `add_messages` was given, which are a conversation.
    """

    def __init__(
        self,
        where: Where = None,
        *,
        user: str | None = None,
        name: str = "cuebook",
        description: str | None = None,
        max_search_results: int | None = None,
        writable: bool = True,
        extraction: ExtractionConfig | bool | None = None,
    ) -> None:
        super().__init__(where)
        self.name, self.description, self.max_search_results = name, description, max_search_results
        self.writable, self.extraction, self._user = writable, extraction, user
        self._conversation = conversation_id("strands_memory", user or "", name)

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        most = (options or {}).get("max_search_results") or self.max_search_results or _RESULTS
        return await self._await(lambda cue: self._search(cue, query, most))

    async def add(self, content: str, metadata: Metadata | None = None) -> StoredMemory:
        """Store a text as a memory. The same text is stored once."""
        self._check_writable()
        return await self._await(lambda cue: self._add(cue, content, metadata))

    async def add_messages(self, messages: list[Message], context: AddMessagesContext | None = None) -> None:  # noqa: ARG002
        """Store messages, from which Cuebook extracts memories. A message is stored once, by its tracking id."""
        self._check_writable()
        posts = [_spoken(each, name=each.get("tracking_id", "")) for each in messages if _text(each)]
        if posts:
            await self._await(lambda cue: cue.append(self._conversation, posts, user=self._user))

    def _check_writable(self) -> None:
        if not self.writable:
            msg = f"Store {self.name!r} is not writable. Create it with writable=True."
            raise ValueError(msg)

    async def _search(self, cue: Cuebook, query: str, most: int) -> list[MemoryEntry]:
        hits = await cue.memory.search(query, user=self._user, limit=_HITS)
        own = [each for each in hits if each.kind != "post" or each.conversation == self._conversation][:most]
        return [MemoryEntry(content=each.text, metadata=await self._metadata(cue, each)) for each in own]

    async def _metadata(self, cue: Cuebook, hit: Hit) -> Metadata:
        """Return what a hit is, with the metadata that its memory was added with."""
        found: Metadata = {"id": hit.memory_id, "kind": hit.kind, "score": hit.score, "day": hit.day}
        with suppress(NotFound):
            found |= (await cue.documents.get(_METADATA, hit.memory_id, user=self._user)).value
        return found

    async def _add(self, cue: Cuebook, content: str, metadata: Metadata | None) -> StoredMemory:
        memory = await cue.memory.add(content, user=self._user)
        if metadata:
            change = DocumentChange(space=_METADATA, key=memory.id, value=metadata)
            await cue.documents.put([change], user=self._user)
        return memory


def _post_id(message: int) -> str:
    return f"message-{message:09}"


def _posted(message: SessionMessage) -> Posted:
    """Return a message as a post: its role, the text that the model sees, and the message itself as a part."""
    part = Part(type=_MESSAGE, content=json.dumps(message.to_dict()))
    return _spoken(message.to_message(), part, name=_post_id(message.message_id))


def _spoken(message: Message, *parts: Part, name: str) -> Posted:
    role: Role = "tool" if any("toolResult" in each for each in message["content"]) else message["role"]
    return Posted(sender=role, role=role, message=readable(_text(message)), parts=parts, id=name)


def _text(message: Message) -> str:
    return "\n".join(each["text"] for each in message["content"] if each.get("text"))


def _message(post: PostEntry) -> SessionMessage:
    return SessionMessage.from_dict(json.loads(next(each.content for each in post.parts if each.type == _MESSAGE)))
