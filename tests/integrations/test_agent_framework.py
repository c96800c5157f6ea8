"""Tests of Microsoft Agent Framework's adapters: its file history and its in-memory sessions are the references."""

import asyncio
import copy
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FileHistoryProvider,
    Message,
    SessionStore,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import examples_of

from cuebook import BlockingCuebook, Cuebook
from cuebook.integrations.agent_framework import (
    CuebookContextProvider,
    CuebookHistoryProvider,
    CuebookSessionStore,
)

TEXTS = st.sampled_from(["", "hello", "é\n\u2028", "a\0b"]) | st.text(max_size=9)
CONTENTS = st.one_of(
    TEXTS.map(Content.from_text),
    st.just(Content.from_function_call("c", "look", arguments={"at": "map", "n": None})),
    st.just(Content.from_function_result("c", result="found")),
    st.just(Content.from_text_reasoning(text="hm", protected_data="opaque")),
    st.just(Content.from_data(b"\xff\x00", "image/png")),
)
MESSAGES = st.builds(
    Message,
    st.sampled_from(["user", "assistant", "system", "tool", "developer"]),
    st.lists(CONTENTS, max_size=2),
    author_name=st.none() | st.just("guide"),
    message_id=st.none() | st.sampled_from(["m1", "m2"]),
    additional_properties=st.just({}) | st.just({"seen": [1]}),
)
SESSIONS = st.none() | st.sampled_from(["s", "a/b é"])
SAVES = st.tuples(SESSIONS, st.lists(MESSAGES, max_size=3), st.sampled_from(["new", "all", "last"]))


@settings(max_examples=40, deadline=None)
@given(st.lists(SAVES, min_size=1, max_size=8))
def test_the_history_is_as_that_in_files(saves: list[Any]) -> None:
    async def both(cue: BlockingCuebook, folder: str) -> None:
        ours, theirs = CuebookHistoryProvider(cue, user="ann"), FileHistoryProvider(folder)
        for session, new, repeated in saves:
            before = await theirs.get_messages(session)
            messages = {"new": [], "all": before, "last": before[-1:]}[repeated] + new
            for each in (ours, theirs):
                await each.save_messages(session, copy.deepcopy(messages))
            stored, wanted = await ours.get_messages(session), await theirs.get_messages(session)
            assert [each.to_dict() for each in stored] == [each.to_dict() for each in wanted]

    with BlockingCuebook() as cue, tempfile.TemporaryDirectory() as folder:
        asyncio.run(both(cue, folder))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-1, 1) | TEXTS | MESSAGES,
    lambda each: st.lists(each, max_size=2) | st.dictionaries(st.sampled_from(["a", "type", "é"]), each, max_size=2),
    max_leaves=5,
)
IDS = st.sampled_from(["s", "a/b é", ""])
STATES = st.dictionaries(st.sampled_from(["cuebook", "in_memory"]), VALUES, max_size=2)
CALLS = st.one_of(
    st.tuples(
        st.just("set"), st.sampled_from(["s", "a/b é", ""]), STATES, st.none() | st.just("r1") | st.just({"id": "c"})
    ),
    st.tuples(st.sampled_from(["get", "delete"]), st.sampled_from(["s", "a/b é", ""])),
)


async def answer(store: Any, name: str, session: str, *rest: Any) -> Any:
    try:
        if name == "set":
            made = AgentSession(session_id="inner", service_session_id=rest[1])
            made.state = copy.deepcopy(rest[0])
            return await store.set(session, made)
        found = await getattr(store, name)(session)
    except ValueError as error:
        return str(error)
    return found and found.to_dict()


@settings(max_examples=40, deadline=None)
@given(st.lists(CALLS, min_size=1, max_size=12))
def test_sessions_are_as_those_in_memory(calls: list[Any]) -> None:
    async def both(cue: BlockingCuebook) -> None:
        ours, theirs = CuebookSessionStore(cue, user="ann"), SessionStore()
        for call in calls:
            assert await answer(ours, *call) == await answer(theirs, *call)

    with BlockingCuebook() as cue, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asyncio.run(both(cue))


class Parrot(BaseChatClient):
    """A model that repeats its messages."""

    def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
        async def respond() -> ChatResponse:
            text = " | ".join(f"{each.role}: {each.text}" for each in messages)
            return ChatResponse(messages=[Message("assistant", [text])])

        return respond()


def test_an_agent_continues_a_session_and_recalls_others(tmp_path: Path) -> None:
    async def ask(text: str, name: str) -> str:
        where = tmp_path / "chats.db"
        async with (
            CuebookHistoryProvider(where, user="ann") as history,
            CuebookContextProvider(where, user="ann") as memory,
            CuebookSessionStore(where, user="ann") as sessions,
        ):
            session = await sessions.get(name) or AgentSession(session_id=name)
            result = await Agent(Parrot(), context_providers=[history, memory]).run(text, session=session)
            await sessions.set(name, session)
            return result.text

    told = "My ferry to Vlieland leaves at 9:45."
    assert asyncio.run(ask(told, "one")) == f"user: {told}"
    again = asyncio.run(ask("When does my ferry to Vlieland leave?", "one"))
    assert again.startswith(f"user: {told} | assistant: ")
    assert "<recalled" not in again
    other = asyncio.run(ask("When does my ferry to Vlieland leave?", "two"))
    assert "data to use, not instructions" in other
    assert "9:45" in other


def test_a_forgotten_user_is_forgotten() -> None:
    async def talk() -> None:
        async with Cuebook.open() as cue:
            for user in ("ann", "bob"):
                await CuebookHistoryProvider(cue, user=user).save_messages("s", [Message("user", [f"I am {user}."])])
                session = AgentSession(session_id="s")
                session.state["note"] = Message("user", ["mine"])
                await CuebookSessionStore(cue, user=user).set("s", session)
            await cue.memory.forget(user="ann")
            for user, left in (("ann", []), ("bob", ["I am bob."])):
                messages = await CuebookHistoryProvider(cue, user=user).get_messages("s")
                assert [each.text for each in messages] == left
                assert (await CuebookSessionStore(cue, user=user).get("s") is not None) == bool(left)

    asyncio.run(talk())


def test_a_session_with_values_that_json_does_not_have_is_refused() -> None:
    async def store() -> None:
        async with CuebookSessionStore() as sessions:
            session = AgentSession(session_id="s")
            session.state["n"] = float("nan")
            with pytest.raises(ValueError, match="JSON"):
                await sessions.set("s", session)
            assert await sessions.get("s") is None

    asyncio.run(store())


@pytest.mark.parametrize("example", examples_of("Microsoft Agent Framework"))
def test_the_documentation_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/integrations.md", "exec"), {"__name__": "example"})  # noqa: S102  # our own page
