"""Tests of Google ADK's adapters: its in-memory services are the reference."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import BaseAgent
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.platform import time as platform_time
from google.adk.runners import Runner
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.session import Session
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import examples_of

from cuebook import BlockingCuebook, Cuebook
from cuebook.integrations.google_adk import CuebookMemoryService, CuebookSessionService

#: Most results of a search.
MOST = 10
APPS, USERS, SESSIONS = (
    st.sampled_from(["trips", "a/b"]),
    st.sampled_from(["ann", "bob é"]),
    st.sampled_from(["s", "/"]),
)
VALUES = st.none() | st.integers(0, 9) | st.sampled_from(["x", "é"]) | st.lists(st.integers(0, 2), max_size=2)
STATE = st.dictionaries(st.sampled_from(["n", "app:n", "user:n", "temp:n", "user:", "a b"]), VALUES, max_size=3)
PARTS = st.one_of(
    st.sampled_from(["zork", "plugh", "zork xyzzy"]).map(lambda text: types.Part(text=text)),
    st.just(types.Part(function_call=types.FunctionCall(id="c", name="look", args={"at": "map"}))),
    st.just(types.Part(function_response=types.FunctionResponse(id="c", name="look", response={"found": None}))),
    st.just(types.Part(inline_data=types.Blob(data=b"\xff\x00", mime_type="image/png"))),
)
EVENTS = st.builds(
    Event,
    id=st.sampled_from(["e1", "e2", "e3"]),
    author=st.sampled_from(["user", "guide"]),
    timestamp=st.sampled_from([1_700_000_000.0, 1_700_000_005.0]),
    partial=st.sampled_from([None, None, True]),
    content=st.none() | st.builds(types.Content, role=st.just("user"), parts=st.lists(PARTS, max_size=2)),
    actions=st.builds(EventActions, state_delta=STATE, transfer_to_agent=st.sampled_from([None, "guide"])),
)
CONFIGS = st.none() | st.builds(
    GetSessionConfig,
    num_recent_events=st.none() | st.integers(0, 3),
    after_timestamp=st.none() | st.integers(1_700_000_000, 1_700_000_009).map(float),
)
CALLS = st.one_of(
    st.tuples(st.just("create_session"), APPS, USERS, SESSIONS, STATE),
    st.tuples(st.just("append_event"), APPS, USERS, SESSIONS, EVENTS),
    st.tuples(st.just("get_session"), APPS, USERS, SESSIONS, CONFIGS),
    st.tuples(st.just("delete_session"), APPS, USERS, SESSIONS),
    st.tuples(st.just("list_sessions"), APPS, USERS | st.none()),
    st.tuples(st.just("get_user_state"), APPS, USERS),
)


async def answer(service: Any, name: str, app: str, user: str, *rest: Any) -> Any:
    """Return the result of a call. Sessions of one time are listed in any order."""
    place = {"app_name": app, "user_id": user}
    if name == "create_session":
        try:
            return await service.create_session(**place, session_id=f" {rest[0]} ", state=rest[1])
        except AlreadyExistsError as error:
            return str(error)
    if name == "append_event":
        session = await service.get_session(**place, session_id=rest[0])
        event = rest[1].model_copy(deep=True)
        return session and (await service.append_event(session, event), event, session)
    if name == "list_sessions":
        return (await service.list_sessions(**place)).sessions
    if name == "get_user_state":
        return await service.get_user_state(**place)
    more = {"config": rest[1]} if name == "get_session" else {}
    return await getattr(service, name)(**place, session_id=rest[0], **more)


@settings(max_examples=30, deadline=None)
@given(st.lists(CALLS, min_size=1, max_size=20))
def test_sessions_are_as_the_in_memory_ones(calls: list[Any]) -> None:
    async def both(cue: BlockingCuebook) -> None:
        ours, theirs = CuebookSessionService(cue), InMemorySessionService()
        for at, call in enumerate(calls):
            platform_time.set_time_provider(lambda at=at: 1_699_999_000.0 + at)
            assert await answer(ours, *call) == await answer(theirs, *call)

    with BlockingCuebook() as cue:
        try:
            asyncio.run(both(cue))
        finally:
            platform_time.reset_time_provider()


def spoken(text: str, author: str, more: list[types.Part]) -> Event:
    """Return an event whose id depends on its content, as different events have different ids."""
    parts = [types.Part(text=text), *more]
    return Event(id=f"{text}-{author}-{len(more)}", author=author, content=types.Content(parts=parts), timestamp=1.7e9)


SPOKEN = st.builds(
    spoken,
    st.sampled_from(["zork", "plugh", "zork xyzzy"]),
    st.sampled_from(["user", "guide"]),
    st.lists(st.just(types.Part(function_call=types.FunctionCall(name="look"))), max_size=2),
)
MEMORIES = st.one_of(
    st.tuples(
        st.just("add_session"), APPS, USERS, SESSIONS, st.lists(SPOKEN, max_size=3, unique_by=lambda each: each.id)
    ),
    st.tuples(st.just("add_events"), APPS, USERS, SESSIONS | st.none(), st.lists(SPOKEN, max_size=3)),
    st.tuples(st.just("delete"), APPS, USERS, SPOKEN.map(lambda each: each.id)),
)


async def call_memory(service: Any, name: str, app: str, user: str, *rest: Any) -> None:
    place = {"app_name": app, "user_id": user}
    if name == "add_session":
        events = [each.model_copy(deep=True) for each in rest[1]]
        await service.add_session_to_memory(Session(**place, id=rest[0], events=events))
    elif name == "add_events":
        await service.add_events_to_memory(**place, session_id=rest[0], events=rest[1])
    else:
        await service.delete_memory(**place, memory_id=rest[0])


async def found_in(service: Any, app: str, user: str, query: str) -> set[Any]:
    found = (await service.search_memory(app_name=app, user_id=user, query=query)).memories
    return {(each.id, each.author, said(each.content), each.timestamp) for each in found}


def said(content: types.Content) -> str:
    """Return the text of a message. Its other lines are the messages nearby."""
    return " ".join(part.text.partition("\n")[0] for part in (content.parts or []) if part.text)


@settings(max_examples=30, deadline=None)
@given(st.lists(MEMORIES, min_size=2, max_size=8))
def test_memory_finds_what_the_in_memory_service_finds(calls: list[Any]) -> None:
    async def both(cue: BlockingCuebook) -> None:
        ours, theirs = CuebookMemoryService(cue), InMemoryMemoryService()
        for call in calls:
            await call_memory(ours, *call)
            await call_memory(theirs, *call)
        for place in {call[1:3] for call in calls}:
            known = await found_in(theirs, *place, "zork plugh xyzzy")
            if len(known) == MOST:
                continue  # there may be more
            for word in ("zork", "plugh", "frobozz"):
                found, wanted = await found_in(ours, *place, word), await found_in(theirs, *place, word)
                assert wanted <= found
                assert found <= (known if wanted else set())  # neighbors of a match may be found too

    with BlockingCuebook() as cue:
        asyncio.run(both(cue))


class Guide(BaseAgent):
    """An agent that answers without a model."""

    async def _run_async_impl(self, ctx: Any) -> Any:
        actions = EventActions(state_delta={"asked": 1, "user:city": "Bergen"})
        content = types.Content(role="model", parts=[types.Part(text="The ferry leaves at 9:45.")])
        yield Event(author=self.name, invocation_id=ctx.invocation_id, content=content, actions=actions)


def test_a_runner_continues_a_session_in_another_process(tmp_path: Path) -> None:
    async def ask(text: str) -> None:
        async with CuebookSessionService(tmp_path / "chats.db") as sessions:
            runner = Runner(
                app_name="trips", agent=Guide(name="guide"), session_service=sessions, auto_create_session=True
            )
            message = types.Content(role="user", parts=[types.Part(text=text)])
            answers = [each async for each in runner.run_async(user_id="ann", session_id="s", new_message=message)]
            assert len(answers) == 1

    async def check() -> None:
        async with CuebookSessionService(tmp_path / "chats.db") as sessions:
            session = await sessions.get_session(app_name="trips", user_id="ann", session_id="s")
            assert session is not None
            assert [each.author for each in session.events] == ["user", "guide"] * 2
            assert session.state == {"asked": 1, "user:city": "Bergen"}

    asyncio.run(ask("When does the ferry to Vlieland leave?"))
    asyncio.run(ask("Again, please."))
    asyncio.run(check())
    with BlockingCuebook(arguments={"store.url": str(tmp_path / "chats.db")}) as cue:
        assert "9:45" in cue.memory.search("When does the ferry leave?", user="ann")[0].text


@pytest.mark.anyio
async def test_a_forgotten_user_is_forgotten_in_sessions_and_memory() -> None:
    place = {"app_name": "trips", "user_id": "ann"}
    entry = MemoryEntry(id="tea", content=types.Content(parts=[types.Part(text="Ann prefers green tea.")]), author="a")
    async with Cuebook.open() as cue:
        sessions, memory = CuebookSessionService(cue), CuebookMemoryService(cue)
        for user in ("ann", "bob"):
            session = await sessions.create_session(
                app_name="trips", user_id=user, session_id="s", state={"user:n": 1, "app:m": 2, "k": 3}
            )
            content = types.Content(role="user", parts=[types.Part(text=f"I am {user} and I like tea.")])
            await sessions.append_event(session, Event(author="user", content=content))
            await memory.add_session_to_memory(session)
        await memory.add_memory(**place, memories=[entry], custom_metadata={"by": "hand"})
        found = (await memory.search_memory(**place, query="tea")).memories
        assert [each.custom_metadata for each in found] in ([{"by": "hand"}, {}], [{}, {"by": "hand"}])
        await memory.delete_memory(**place, memory_id=found[0].id)
        assert [each.id for each in (await memory.search_memory(**place, query="tea")).memories] == [found[1].id]
        await cue.memory.forget(user="ann")
        assert (await memory.search_memory(**place, query="tea")).memories == []
        assert await sessions.get_session(**place, session_id="s") is None
        assert await sessions.get_user_state(**place) == {}
        assert await cue.documents.list((), user="ann", limit=1000) == await cue.documents.list(("none",))
        left = (await sessions.list_sessions(app_name="trips")).sessions
        assert [(each.user_id, each.state) for each in left] == [("bob", {"k": 3, "user:n": 1, "app:m": 2})]
        with pytest.raises(SessionNotFoundError):
            await sessions.append_event(session.model_copy(update={"user_id": "ann"}), Event(author="user"))


def test_a_new_text_of_a_memory_supersedes_the_old_one() -> None:
    def entry(text: str) -> MemoryEntry:
        return MemoryEntry(id="seat", content=types.Content(parts=[types.Part(text=text)]))

    async def talk() -> None:
        async with CuebookMemoryService() as memory:
            for app in ("trips", "other"):
                await memory.add_memory(app_name=app, user_id="ann", memories=[entry(f"Prefers the aisle in {app}.")])
            await memory.add_memory(app_name="trips", user_id="ann", memories=[entry("Prefers the window seat.")])
            for app, text in (("trips", "Prefers the window seat."), ("other", "Prefers the aisle in other.")):
                found = (await memory.search_memory(app_name=app, user_id="ann", query="prefers")).memories
                assert [said(each.content) for each in found] == [text]

    asyncio.run(talk())


@pytest.mark.parametrize("example", examples_of("Google ADK"))
def test_the_documentation_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/integrations.md", "exec"), {"__name__": "example"})  # noqa: S102  # our own page
