"""ADK's memory: the texts of events as conversations, explicit memories as memories of the user."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai import types

from cuebook.app.cuebook import Cuebook
from cuebook.engine.core.drafts import Posted
from cuebook.errors import NotFound
from cuebook.integrations.connection import (
    Connection,
    conversation_id,
    conversation_ids,
    copy_of,
    documents_in,
    place_name,
    posts_of,
    rewrite,
)
from cuebook.integrations.google_adk.events import FRAMEWORK, posted, text_of
from cuebook.records.document import DocumentChange
from cuebook.records.memory import Hit

#: The places of the fields of explicit memories, and of the ids of deleted events; in each, a place per app.
_MEMORIES, _DELETED = (FRAMEWORK, "memories"), (FRAMEWORK, "deleted")
#: Most results of a search, as in ADK's in-memory service, and most hits that are looked at.
_RESULTS, _HITS = 10, 200


class CuebookMemoryService(Connection, BaseMemoryService):
    """ADK's memory: `Runner(memory_service=CuebookMemoryService("my-project"), …)`.

    `where` is a project (see `Connection`). The texts of a session's events are a conversation of its user that stays
    when the session is deleted. A search returns the best posts of them and the memories of `add_memory`.
    """

    async def add_session_to_memory(self, session: Session) -> None:
        place = session.app_name, session.user_id, session.id
        await self._await(lambda cue: self._add(cue, *place, session.events, whole=True))

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,  # noqa: ARG002  # ADK's signature
    ) -> None:
        await self._await(lambda cue: self._add(cue, app_name, user_id, session_id or "", events))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store texts as memories of the user. One with the id of an earlier one supersedes it."""
        for each in memories:
            entry = each.model_copy(update={"custom_metadata": {**(custom_metadata or {}), **each.custom_metadata}})
            await self._await(partial(self._remember, app=app_name, user=user_id, entry=entry))

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        found = await self._await(lambda cue: self._search(cue, app_name, user_id, query))
        return SearchMemoryResponse(memories=found)

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Delete a memory by the id that a search returned. An event of this id is not stored again."""
        if memory_id:
            await self._await(lambda cue: self._delete(cue, app_name, user_id, memory_id))

    async def _add(
        self, cue: Cuebook, app: str, user: str, session: str, events: Sequence[Event], *, whole: bool = False
    ) -> None:
        """Store events that are new; with `whole`, delete the session's others."""
        place = conversation_id(FRAMEWORK, "memory", app, user, session)
        deleted = {each.key for each in await documents_in(cue, (*_DELETED, place_name(app)), user=user)}
        posts: dict[str, Posted] = {}
        for each in events:
            if text_of(each.content) and each.id not in deleted:
                posts.setdefault(each.id, posted(each, name=each.id))
        stored = [each.id for each in await posts_of(cue, place, user=user)]
        if whole and stored != [*posts][: len(stored)]:
            await rewrite(cue, place, [*posts.values()], user=user)
        elif new := [post for name, post in posts.items() if name not in stored]:
            await cue.append(place, new, user=user)

    async def _remember(self, cue: Cuebook, *, app: str, user: str, entry: MemoryEntry) -> None:
        key = f"{app}/{entry.id}" if entry.id else None
        memory = await cue.memory.add(text_of(entry.content), key=key, user=user)
        value = entry.model_dump(mode="json", exclude={"content", "id"}, exclude_none=True)
        change = DocumentChange(space=(*_MEMORIES, place_name(app)), key=memory.id, value=value)
        await cue.documents.put([change], user=user)

    async def _search(self, cue: Cuebook, app: str, user: str, query: str) -> list[MemoryEntry]:
        beginning = conversation_id(FRAMEWORK, "memory", app, user, "")
        explicit = {each.key: each.value for each in await documents_in(cue, (*_MEMORIES, place_name(app)), user=user)}
        found: list[MemoryEntry] = []
        for hit in await cue.memory.search(query, user=user, limit=_HITS):
            if hit.memory_id in explicit:
                memory = await cue.memory.get(hit.memory_id, user=user)  # a hit's text begins with its key
                found.append(_entry(hit, memory.text, explicit[hit.memory_id]))
            elif hit.kind == "post" and (hit.conversation or "").startswith(beginning):
                found.append(_entry(hit, hit.text, {"id": hit.sources[0], "author": hit.speaker}))
            if len(found) == _RESULTS:
                break
        return found

    async def _delete(self, cue: Cuebook, app: str, user: str, memory: str) -> None:
        space = (*_MEMORIES, place_name(app))
        places = [each.space for each in await documents_in(cue, _MEMORIES, user=user) if each.key == memory]
        if space not in places:
            await self._delete_event(cue, app, user, memory)
            return
        if places == [space]:  # no other app has added the same text
            with suppress(NotFound):
                await cue.memory.delete(memory, user=user)
        await cue.documents.put([DocumentChange(space=space, key=memory)], user=user)

    async def _delete_event(self, cue: Cuebook, app: str, user: str, event: str) -> None:
        for place in await conversation_ids(cue, conversation_id(FRAMEWORK, "memory", app, user, ""), user=user):
            posts = await posts_of(cue, place, user=user)
            rest = [copy_of(each) for each in posts if each.id != event]
            if len(rest) < len(posts):
                change = DocumentChange(space=(*_DELETED, place_name(app)), key=event, value={})
                await cue.documents.put([change], user=user)
                await rewrite(cue, place, rest, user=user)


def _entry(hit: Hit, text: str, known: Mapping[str, Any]) -> MemoryEntry:
    """Return a hit as ADK's memory; `known` are the fields that the hit does not have."""
    content = types.Content(role="user" if hit.speaker == "user" else "model", parts=[types.Part(text=text)])
    when = datetime.fromtimestamp(hit.timestamp).isoformat()  # noqa: DTZ006  # local time, as in ADK's own services
    return MemoryEntry(**{"id": hit.memory_id, "content": content, "timestamp": when, **known})
