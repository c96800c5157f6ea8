"""ADK's sessions as conversations, so that search, forgetting and export cover them; their state as documents."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.platform import time as platform_time
from google.adk.platform import uuid as platform_uuid
from google.adk.sessions._session_util import extract_json_safe_state_delta
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State

from cuebook.app.cuebook import Cuebook
from cuebook.engine.core.drafts import Posted
from cuebook.errors import NotFound
from cuebook.integrations.connection import (
    Connection,
    conversation_id,
    conversation_ids,
    documents_in,
    place_name,
    posts_of,
)
from cuebook.integrations.google_adk.events import FRAMEWORK, posted
from cuebook.records.conversation import Part
from cuebook.records.document import Document, DocumentChange

#: The part of a post that has an event as ADK stored it, and that of the post with which a session begins.
_EVENT, _SESSION = "adk_event", "adk_session"
#: The places of state; in each, a place per app, and for sessions in it one per session.
_SESSION_STATE, _USER_STATE, _APP_STATE = [(FRAMEWORK, f"{each}_state") for each in ("session", "user", "app")]


class CuebookSessionService(Connection, BaseSessionService):
    """ADK's sessions: `Runner(session_service=CuebookSessionService("my-project"), …)`.

    `where` is a project (see `Connection`). A session is a conversation of its user, and an event a post. State is
    stored in documents: that of the app for all users, the rest for the user. Secrets in events are redacted.
    """

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        found = (session_id or "").strip() or platform_uuid.new_uuid()
        session = Session(id=found, app_name=app_name, user_id=user_id, last_update_time=platform_time.get_time())
        await self._await(lambda cue: self._create(cue, session, state or {}))
        return session

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        return await self._await(
            lambda cue: self._get(cue, app_name, user_id, session_id.strip(), config or GetSessionConfig())
        )

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        found = await self._await(lambda cue: self._list(cue, app_name, user_id))
        found.sort(key=lambda each: (each.last_update_time, each.user_id, each.id))
        return ListSessionsResponse(sessions=found)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        await self._await(lambda cue: self._delete(cue, app_name, user_id, session_id.strip()))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        found = await self._await(lambda cue: documents_in(cue, (*_USER_STATE, place_name(app_name)), user=user_id))
        return _state(found)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Store an event and the changes of state. An event that is stored already changes nothing."""
        if event.partial or not await self._await(lambda cue: self._append(cue, session, event)):
            return event
        event = await super().append_event(session, event)
        session.last_update_time = event.timestamp
        return event

    async def _create(self, cue: Cuebook, session: Session, state: dict[str, Any]) -> None:
        part = Part(type=_SESSION, content="")
        first = Posted(sender="system", role="system", id=_SESSION, parts=(part,), created_at=session.last_update_time)
        place = conversation_id(FRAMEWORK, "sessions", session.app_name, session.user_id, session.id)
        if not (await cue.append(place, [first], user=session.user_id)).stored:
            msg = f"Session with id {session.id} already exists."
            raise AlreadyExistsError(msg)
        state_of = (*_SESSION_STATE, place_name(session.app_name), place_name(session.id))
        await cue.documents.delete(state_of, user=session.user_id)  # a forget of only the conversation leaves it
        await _save(cue, session, state)
        session.state = await _merged(cue, session.app_name, session.user_id, session.id)

    async def _get(self, cue: Cuebook, app: str, user: str, session: str, config: GetSessionConfig) -> Session | None:
        most = config.num_recent_events
        place = conversation_id(FRAMEWORK, "sessions", app, user, session)
        posts = await posts_of(cue, place, user=user, last=None if most is None else most or 1)
        if not posts:
            return None
        parts = [part for post in posts for part in post.parts if part.type == _EVENT and most != 0]
        events = [Event.model_validate_json(each.content) for each in parts]
        if config.after_timestamp is not None:
            old = [at for at, each in enumerate(events) if each.timestamp < config.after_timestamp]
            events = events[old[-1] + 1 :] if old else events
        return Session(
            id=session,
            app_name=app,
            user_id=user,
            state=await _merged(cue, app, user, session),
            events=events,
            last_update_time=float(posts[-1].created_at),
        )

    async def _list(self, cue: Cuebook, app: str, user: str | None) -> list[Session]:
        owners = () if user is None else (user,)
        beginning, found = conversation_id(FRAMEWORK, "sessions", app, *owners, ""), []
        for name in await conversation_ids(cue, beginning, user=user):
            owner, session = map(unquote, name.split("/")[-2:])
            latest = await self._get(cue, app, owner, session, GetSessionConfig(num_recent_events=0))
            found += [latest] if latest else []
        return found

    async def _delete(self, cue: Cuebook, app: str, user: str, session: str) -> None:
        with suppress(NotFound):
            await cue.conversations.delete(conversation_id(FRAMEWORK, "sessions", app, user, session), user=user)
        await cue.documents.delete((*_SESSION_STATE, place_name(app), place_name(session)), user=user)

    async def _append(self, cue: Cuebook, session: Session, event: Event) -> bool:
        """Store an event and its changes of state. Return whether it is new."""
        place = conversation_id(FRAMEWORK, "sessions", session.app_name, session.user_id, session.id)
        try:
            await cue.conversations.get(place, user=session.user_id)
        except NotFound as error:
            msg = f"Session {session.id} not found."
            raise SessionNotFoundError(msg) from error
        stored = event.model_dump(mode="json", exclude_none=True)
        changes = stored["actions"]["state_delta"]
        stored["actions"]["state_delta"] = {k: v for k, v in changes.items() if not k.startswith(State.TEMP_PREFIX)}
        raw = json.dumps(stored)
        name = f"{event.id}-{hashlib.sha256(raw.encode()).hexdigest()[:16]}"  # ADK allows different events of one id
        post = posted(event, Part(type=_EVENT, content=raw), name=name)
        if not (await cue.append(place, [post], user=session.user_id)).stored:
            return False
        await _save(cue, session, event.actions.state_delta)
        return True


async def _save(cue: Cuebook, session: Session, state: dict[str, Any]) -> None:
    """Store values of the state, each in a document of its own. Values of the invocation are left out."""
    app, found = place_name(session.app_name), extract_json_safe_state_delta(state)
    own = [_change((*_SESSION_STATE, app, place_name(session.id)), *each) for each in found["session"].items()]
    own += [_change((*_USER_STATE, app), *each) for each in found["user"].items()]
    if own:
        await cue.documents.put(own, user=session.user_id)
    if found["app"]:
        await cue.documents.put([_change((*_APP_STATE, app), *each) for each in found["app"].items()])


def _change(space: tuple[str, ...], key: str, value: Any) -> DocumentChange:
    return DocumentChange(space=space, key=f"/{key}", value={"value": value})


def _state(documents: Sequence[Document], prefix: str = "") -> dict[str, Any]:
    return {prefix + each.key[1:]: each.value["value"] for each in documents}


async def _merged(cue: Cuebook, app: str, user: str, session: str) -> dict[str, Any]:
    """Return the state of a session with that of its app and of its user."""
    own = await documents_in(cue, (*_SESSION_STATE, place_name(app), place_name(session)), user=user)
    shared = await documents_in(cue, (*_APP_STATE, place_name(app)))
    users = await documents_in(cue, (*_USER_STATE, place_name(app)), user=user)
    return _state(own) | _state(shared, State.APP_PREFIX) | _state(users, State.USER_PREFIX)
