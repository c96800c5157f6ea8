"""Tests of Strands' adapters: its file sessions and its test store are the references."""

import asyncio
import copy
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import examples_of
from strands import Agent
from strands.memory import MemoryManager
from strands.models import Model
from strands.session.file_session_manager import FileSessionManager
from strands.session.repository_session_manager import RepositorySessionManager
from strands.types.exceptions import SessionException
from strands.types.session import Session, SessionAgent, SessionMessage, SessionType
from strands.vended_memory_stores.test_memory_store import TestMemoryStore

from cuebook import BlockingCuebook, Cuebook, CuebookError
from cuebook.integrations.strands import CuebookMemoryStore, CuebookSessionRepository

NAMES, TIME = st.sampled_from(["s", "é %"]), "2026-01-02T03:04:05+00:00"
CONTENT = st.one_of(
    st.fixed_dictionaries({"text": st.text(max_size=9)}),
    st.just({"toolUse": {"toolUseId": "t", "name": "look", "input": {"at": None}}}),
    st.just({"toolResult": {"toolUseId": "t", "status": "success", "content": [{"text": "found"}]}}),
    st.just({"image": {"format": "png", "source": {"bytes": b"\xff\x00"}}}),
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "content": st.lists(CONTENT, max_size=2)}
)
STORED = st.builds(
    SessionMessage,
    message=MESSAGES,
    message_id=st.integers(0, 12),
    redact_message=st.none() | MESSAGES,
    created_at=st.just(TIME),
    updated_at=st.just(TIME),
)
STATE = st.dictionaries(st.sampled_from(["a", "b"]), st.none() | st.integers() | st.just(b"\x00"), max_size=2)
AGENTS = st.builds(
    SessionAgent,
    agent_id=NAMES,
    state=STATE,
    conversation_manager_state=STATE,
    _internal_state=STATE,
    created_at=st.sampled_from([TIME, "2025"]),
    updated_at=st.just(TIME),
)
CALLS = st.one_of(
    st.tuples(st.just("create_session"), NAMES),
    st.tuples(st.just("read_session"), NAMES),
    st.tuples(st.just("delete_session"), NAMES),
    st.tuples(st.sampled_from(["create_agent", "update_agent"]), NAMES, AGENTS),
    st.tuples(st.just("read_agent"), NAMES, NAMES),
    st.tuples(st.sampled_from(["create_message", "create_message", "update_message"]), NAMES, NAMES, STORED),
    st.tuples(st.just("read_message"), NAMES, NAMES, st.integers(0, 3)),
    st.tuples(st.just("list_messages"), NAMES, NAMES, st.none() | st.integers(0, 3), st.integers(0, 3)),
)


def answer(repository: Any, name: str, session: str, *rest: Any) -> Any:
    """Return the result of a call, or the error's type. Agents are only made in sessions, messages only for agents."""
    if name == "create_session":
        rest, session = (), Session(session, SessionType.AGENT, created_at=TIME, updated_at=TIME)
    elif name not in ("read_session", "delete_session") and repository.read_session(session) is None:
        return None
    if name.endswith("message") and repository.read_agent(session, rest[0]) is None:
        return None
    try:
        return getattr(repository, name)(session, *copy.deepcopy(rest))
    except SessionException:
        return SessionException


@settings(max_examples=50, deadline=None)
@given(st.lists(CALLS, min_size=1, max_size=20))
def test_sessions_are_as_those_in_files(calls: list[Any]) -> None:
    calls = [("create_session", "s"), ("create_agent", "s", SessionAgent("s", {}, {}, {}, TIME, TIME)), *calls]
    with tempfile.TemporaryDirectory() as folder, BlockingCuebook() as cue:
        ours, theirs = CuebookSessionRepository(cue, user="ann"), FileSessionManager("other", folder)
        for call in calls:
            assert answer(ours, *call) == answer(theirs, *call)


WORDS = st.lists(st.sampled_from(["zork", "plugh", "frobozz", "Zork,"]), min_size=1, max_size=3).map(" ".join)


@settings(max_examples=30, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=8))
def test_memory_finds_what_the_test_store_finds(texts: list[str]) -> None:
    async def both(cue: BlockingCuebook) -> None:
        ours, theirs = CuebookMemoryStore(cue, user="ann"), TestMemoryStore(name="notes", persist=False)
        for text in texts:
            for each in (ours, theirs):
                await each.add(text, {"words": len(text.split())})
        for query in ("zork", "plugh", "xyzzy", "", "frobozz"):
            found = [
                {(each.content, each.metadata["words"]) for each in await store.search(query)}
                for store in (ours, theirs)
            ]
            assert found[0] == found[1]
        assert len(await ours.search(texts[0], {"max_search_results": 1})) == 1

    with BlockingCuebook() as cue:
        asyncio.run(both(cue))


class Parrot(Model):
    """A model that repeats the last message."""

    stateful = False

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> Any:
        text = " / ".join(each["text"] for each in messages[-1]["content"] if "text" in each)
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockDelta": {"delta": {"text": f"You said: {text}"}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def test_an_agent_continues_in_another_process(tmp_path: Path) -> None:
    where = tmp_path / "chats.db"

    def ask(text: str) -> Agent:
        with CuebookSessionRepository(where, user="ann") as sessions, CuebookMemoryStore(where, user="ann") as memory:
            asyncio.run(memory.add("The ferry to Vlieland leaves at 9:45."))
            agent = Agent(
                model=Parrot(),
                agent_id="guide",
                session_manager=RepositorySessionManager("trip", sessions),
                memory_manager=MemoryManager(stores=[memory]),
                callback_handler=None,
            )
            agent(text)
            return agent

    first = ask("When does the ferry to Vlieland leave?")
    assert "9:45" in first.messages[-1]["content"][0]["text"]  # the manager has put the memory into the message
    again = ask("And back?")
    assert len(again.messages) == 4
    with BlockingCuebook(arguments={"store.url": str(where)}) as cue:
        hits = cue.memory.search("When does the ferry leave?", user="ann")
        assert {"knowledge", "post"} <= {each.kind for each in hits}


@pytest.mark.anyio
async def test_messages_given_to_the_store_are_stored_once_and_forgotten_with_the_user() -> None:
    async with Cuebook.open() as cue:
        store, closed = CuebookMemoryStore(cue, user="ann"), CuebookMemoryStore(cue, user="ann", writable=False)
        message: Any = {"role": "user", "content": [{"text": "My locker is number 12."}], "tracking_id": "m1"}
        for _ in range(2):
            await store.add_messages([message, {"role": "user", "content": []}])
        await store.add("Lockers open at nine. " + "They are blue. " * 40, {"by": "hand"})
        found = await store.search("locker")
        assert sorted(each.metadata["kind"] for each in found) == ["knowledge", "post"]
        assert all(each.content.startswith(("My locker", "Lockers")) for each in found)
        assert await CuebookMemoryStore(cue, user="bob").search("locker") == []
        with pytest.raises(ValueError, match="not writable"):
            await closed.add("x")
        with pytest.raises(CuebookError, match="only asynchronous methods"):
            CuebookSessionRepository(cue).read_session("s")
        await cue.memory.forget(user="ann")
        assert await store.search("locker") == []
        assert list(await cue.documents.list(user="ann")) == []


def test_a_forgotten_user_is_forgotten_in_sessions() -> None:
    with BlockingCuebook() as cue:
        for user in ("ann", "bob"):
            sessions = CuebookSessionRepository(cue, user=user)
            agent = Agent(
                model=Parrot(),
                agent_id="a",
                session_manager=RepositorySessionManager("s", sessions),
                callback_handler=None,
            )
            agent(f"I am {user}.")
        cue.memory.forget(user="ann")
        for user, left in (("ann", False), ("bob", True)):
            sessions = CuebookSessionRepository(cue, user=user)
            assert (sessions.read_session("s") is not None) == left
            assert (sessions.read_agent("s", "a") is not None) == left
            assert (sessions.read_message("s", "a", 0) is not None) == left


@pytest.mark.parametrize("example", examples_of("Strands Agents"))
def test_the_documentation_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/integrations.md", "exec"), {"__name__": "example"})  # noqa: S102  # our own page
