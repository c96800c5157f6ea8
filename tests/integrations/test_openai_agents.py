"""Tests of the OpenAI Agents SDK's sessions: its own SQLite session is the reference."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents.memory.session import Session, is_openai_responses_compaction_aware_session
from agents.memory.sqlite_session import SQLiteSession
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import examples_of

from cuebook import BlockingCuebook
from cuebook.integrations.openai_agents import CuebookCompactingSession, CuebookSession

TEXTS = st.text(max_size=9) | st.just("a\0b")
ITEMS = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "developer"]), "content": TEXTS}),
    st.fixed_dictionaries(
        {
            "type": st.just("message"),
            "role": st.just("assistant"),
            "content": st.lists(
                st.fixed_dictionaries({"type": st.just("output_text"), "text": TEXTS, "annotations": st.just([])}),
                max_size=2,
            ),
        }
    ),
    st.fixed_dictionaries({"type": st.just("function_call"), "call_id": TEXTS, "name": TEXTS, "arguments": TEXTS}),
    st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": TEXTS, "output": TEXTS}),
    st.fixed_dictionaries(
        {"type": st.just("reasoning"), "id": TEXTS, "summary": st.just([]), "encrypted_content": TEXTS}
    ),
)
CALLS = st.one_of(
    st.tuples(st.just("add_items"), st.lists(ITEMS, max_size=3)),
    st.tuples(st.just("get_items"), st.none() | st.integers(0, 4)),
    st.just(("pop_item",)),
    st.just(("clear_session",)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(CALLS, min_size=1, max_size=12))
def test_a_session_answers_as_the_sqlite_session(calls: list[Any]) -> None:
    async def both(cue: BlockingCuebook) -> None:
        ours, theirs = CuebookSession("s", cue, user="ann"), SQLiteSession("s")
        for name, *arguments in calls:
            assert await getattr(ours, name)(*arguments) == await getattr(theirs, name)(*arguments)
        assert await ours.get_items() == await theirs.get_items()

    with BlockingCuebook() as cue:
        asyncio.run(both(cue))


def test_a_session_is_a_conversation_that_search_finds(tmp_path: Path) -> None:
    async def talk() -> None:
        async with CuebookSession("s", tmp_path / "chats.db", user="ann") as session:
            assert isinstance(session, Session)
            assert not is_openai_responses_compaction_aware_session(session)
            await session.add_items([{"role": "user", "content": "The ferry to Vlieland leaves at 9:45."}])
        async with CuebookSession("s", tmp_path / "chats.db", user="bob") as other:
            assert await other.get_items() == []
            await other.add_items([{"role": "user", "content": "Bob has the same session."}])
            assert len(await other.get_items()) == 1

    asyncio.run(talk())
    with BlockingCuebook(arguments={"store.url": str(tmp_path / "chats.db")}) as cue:
        assert "9:45" in cue.memory.search("When does the ferry leave?", user="ann")[0].text


def test_a_compacting_session_begins_with_a_summary(tmp_path: Path) -> None:
    async def talk() -> list[Any]:
        async with CuebookCompactingSession("s", tmp_path / "chats.db") as session:
            assert is_openai_responses_compaction_aware_session(session)
            for n in range(60):
                text = f"My locker number {n} is beside the window of room {n}, and I keep my {n} keys in it."
                await session.add_items(
                    [{"role": "user", "content": text * 5}, {"role": "assistant", "content": "Noted."}]
                )
            await session.run_compaction()
            items = await session.get_items()
            assert await session.get_items(2) == items[-2:]
            return items

    items = asyncio.run(talk())
    assert items[0]["role"] == "developer"
    assert "locker" in items[0]["content"]
    assert len(items) < 121


@pytest.mark.parametrize("example", examples_of("OpenAI Agents SDK"))
def test_the_documentation_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/integrations.md", "exec"), {"__name__": "example"})  # noqa: S102  # our own page
