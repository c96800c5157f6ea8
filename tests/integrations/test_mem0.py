"""Tests of mem0's interface: its own `Memory` is the reference, with a store and an embedder in memory."""

import asyncio
import os
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import examples_of

from cuebook import BlockingCuebook, Cuebook
from cuebook.integrations.mem0 import AsyncMemory, Memory

os.environ["MEM0_TELEMETRY"] = "False"
from mem0 import Memory as Reference
from mem0.memory.storage import SQLiteManager


class VectorStore:
    """A vector store without vectors: what mem0 calls for `infer=False`, except for searches."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}

    def insert(self, vectors: Any, ids: list[str], payloads: list[dict[str, Any]]) -> None:
        self.rows.update(zip(ids, payloads, strict=True))

    def get(self, vector_id: str) -> Any:
        row = self.rows.get(vector_id)
        return None if row is None else SimpleNamespace(id=vector_id, payload=deepcopy(row))

    def list(self, filters: dict[str, Any], top_k: int) -> list[list[Any]]:
        fitting = [
            name for name, row in self.rows.items() if all(row.get(key) == each for key, each in filters.items())
        ]
        return [[self.get(name) for name in fitting[:top_k]]]

    def update(self, vector_id: str, vector: Any, payload: dict[str, Any]) -> None:
        self.rows[vector_id] = payload

    def delete(self, vector_id: str) -> None:
        del self.rows[vector_id]


def reference() -> Reference:
    """Return mem0's memory without its models."""

    class Offline(Reference):
        def _link_entities_for_memory(self, *_: Any) -> None: ...
        def _remove_memory_from_entity_store(self, *_: Any) -> None: ...

    memory = Offline.__new__(Offline)
    memory.config = SimpleNamespace(llm=SimpleNamespace(config={}))
    memory.embedding_model = SimpleNamespace(embed=lambda *_: [0.0])
    memory.vector_store, memory.db = VectorStore(), SQLiteManager(":memory:")
    return memory


USERS, AGENTS, RUNS = st.sampled_from(["ann", "bob"]), st.sampled_from([None, "planner"]), st.sampled_from([None, "r1"])
WHERE = st.tuples(USERS, AGENTS, RUNS).map(lambda each: dict(zip(("user_id", "agent_id", "run_id"), each, strict=True)))
METADATA = st.none() | st.fixed_dictionaries(
    {"kind": st.sampled_from(["seat", "meal"])}, optional={"n": st.integers(0, 3)}
)
CALLS = st.one_of(
    st.tuples(st.just("add"), WHERE, METADATA, st.sampled_from([None, "2000-01-01", "2999-01-01"])),
    st.tuples(st.just("add"), WHERE, METADATA, st.none()),
    st.tuples(st.just("update"), st.integers(0, 9), METADATA, st.booleans()),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("delete_all"), WHERE),
    st.tuples(st.just("get_all"), WHERE, METADATA, st.booleans()),
    st.tuples(st.just("history"), st.integers(0, 9)),
)


class Side:
    """One of the two memories, with the ids that it has returned, in order."""

    def __init__(self, memory: Any) -> None:
        self.memory, self.ids = memory, list[str]()

    def call(self, number: int, name: str, *arguments: Any) -> Any:
        try:
            return self.plain(getattr(self, name)(number, *arguments))
        except ValueError:
            return "refused"

    def add(self, number: int, where: dict[str, Any], metadata: Any, expires: str | None) -> Any:
        messages = [
            {"role": "system", "content": "You are helpful."},
            {"role": "user", "content": f"Fact number {number}.", "name": "Ann"},
            {"role": "assistant", "content": f"Noted {number}."},
        ]
        added = self.memory.add(messages, **where, metadata=metadata, expiration_date=expires, infer=False)
        self.ids += [each["id"] for each in added["results"]]
        return added

    def update(self, number: int, at: int, metadata: Any, text: bool) -> Any:
        return self.memory.update(self.id(at), f"Changed by call {number}." if text else None, metadata=metadata)

    def delete(self, _: int, at: int) -> Any:
        return self.memory.delete(self.id(at))

    def delete_all(self, _: int, where: dict[str, Any]) -> Any:
        return self.memory.delete_all(**where)

    def get_all(self, _: int, where: dict[str, Any], metadata: Any, expired: bool) -> Any:
        filters = {name: each for name, each in where.items() if each} | (metadata or {})
        every = [self.memory.get(each) for each in self.ids]
        return self.memory.get_all(filters=filters, top_k=50, show_expired=expired), every

    def history(self, _: int, at: int) -> Any:
        return [] if self.memory.get(self.id(at)) is None else self.memory.history(self.id(at))

    def id(self, at: int) -> str:
        return self.ids[at] if at < len(self.ids) else "none"

    def plain(self, value: Any) -> Any:
        """Return an answer with the ids as numbers, and without times."""
        if isinstance(value, dict):
            return {name: self.plain(each) for name, each in value.items() if not name.endswith("_at") and name != "id"}
        if isinstance(value, list | tuple):
            return [self.plain(each) for each in value]
        return self.ids.index(value) if isinstance(value, str) and value in self.ids else value


@settings(max_examples=40, deadline=None)
@given(st.lists(CALLS, min_size=1, max_size=10))
def test_without_inference_it_answers_as_mem0(calls: list[Any]) -> None:
    with BlockingCuebook() as cue:
        ours, theirs = Side(Memory(cue)), Side(reference())
        for number, call in enumerate(calls):
            assert ours.call(number, *call) == theirs.call(number, *call)


def test_a_search_returns_what_matches_and_fits_the_filters(tmp_path: Path) -> None:
    with Memory(tmp_path / "notes.db") as memory:
        memory.add("I prefer the aisle seat.", user_id="ann", run_id="trip", metadata={"n": 1})
        memory.add("My seat cushion is blue.", user_id="ann", metadata={"n": 5, "topic": "Home"})
        memory.add("I prefer the window seat.", user_id="bob")
        memory.add("My dog likes biscuits.", agent_id="vet")

        def found(query: str, **filters: Any) -> list[str]:
            results = memory.search(query, filters=filters)["results"]
            assert [each["score"] for each in results] == sorted((each["score"] for each in results), reverse=True)
            return sorted(each["memory"] for each in results)

        aisle, cushion = "I prefer the aisle seat.", "My seat cushion is blue."
        assert found("Which seat?", user_id="ann") == [aisle, cushion]
        assert found("Which seat?", user_id="ann", run_id="trip") == [aisle]
        assert found("Which seat?", user_id="ann", n={"gte": 2}) == [cushion]
        assert found("Which seat?", user_id="ann", NOT=[{"topic": "*"}]) == [aisle]
        assert found("Which seat?", user_id="ann", OR=[{"n": {"in": [1]}}, {"topic": {"icontains": "home"}}]) == [
            aisle,
            cushion,
        ]
        assert found("Which seat?", user_id="ann", AND=[{"n": {"ne": 1}}, {"n": {"lt": 6}}]) == [cushion]
        assert found("dog", agent_id="vet") == ["My dog likes biscuits."]
        assert found("quantum chromodynamics", user_id="ann") == []
        assert memory.search("seat", filters={"user_id": "ann"}, threshold=1)["results"] != []
        assert len(memory.search("seat", filters={"user_id": "ann"}, top_k=1)["results"]) == 1


def test_inference_stores_what_the_user_says_once() -> None:
    with Memory() as memory:
        said = [{"role": "user", "content": "I live in Oslo."}, {"role": "assistant", "content": "Nice!"}]
        first = memory.add(said, user_id="ann")["results"]
        assert [(each["memory"], each["event"]) for each in first] == [("I live in Oslo.", "ADD")]
        assert memory.add(said, user_id="ann") == {"results": []}
        assert [each["memory"] for each in memory.get_all(filters={"user_id": "ann"})["results"]] == ["I live in Oslo."]


def test_wrong_arguments_are_refused() -> None:
    with Memory() as memory:
        for wrong in (
            lambda: memory.add("x"),
            lambda: memory.add("x", user_id=" "),
            lambda: memory.add("x", user_id="a b"),
            lambda: memory.add(7, user_id="ann"),
            lambda: memory.add("x", user_id="ann", expiration_date="soon"),
            lambda: memory.search("x"),
            lambda: memory.search(" ", filters={"user_id": "ann"}),
            lambda: memory.search("x", filters={"user_id": "ann"}, threshold=2),
            lambda: memory.get_all(filters={"kind": "seat"}),
            lambda: memory.get_all(filters={"user_id": "ann"}, top_k=-1),
            memory.delete_all,
            lambda: memory.update("none", "x"),
            lambda: memory.delete("none"),
        ):
            with pytest.raises(ValueError):  # noqa: PT011  # each has its own message
                wrong()
        assert memory.get("none") is None
        memory.add("x y", user_id="ann")
        with pytest.raises(ValueError, match="Unsupported metadata filter operator: like"):
            memory.get_all(filters={"user_id": "ann", "n": {"like": 1}})


def test_an_erased_memory_leaves_no_text_behind(tmp_path: Path) -> None:
    async def run() -> None:
        async with Cuebook.open(arguments={"store.url": str(tmp_path / "notes.db")}) as cue:
            memory = AsyncMemory(cue)
            [added] = (await memory.add("I like quokkas.", user_id="ann"))["results"]
            await memory.update(added["id"], "I like wombats.")
            assert [each["old_memory"] for each in await memory.history(added["id"])] == [None, "I like quokkas."]
            await cue.memory.delete(added["id"])
            assert await memory.get_all(filters={"user_id": "ann"}) == {"results": []}
            assert await memory.history(added["id"]) == []
            assert not (await cue.documents.list(user="ann")).items

    asyncio.run(run())


@pytest.mark.parametrize("text", examples_of("mem0"))
def test_the_documentation_runs(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(text, "docs/integrations.md", "exec"), {"__name__": "example"})  # noqa: S102  # our own page
