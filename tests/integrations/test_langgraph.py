"""Tests of LangGraph's adapters: its conformance suite, its in-memory store as the reference, and graphs."""

import asyncio
import operator
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, interrupt
from pages import examples_of

from cuebook import BlockingCuebook, Cuebook, CuebookError
from cuebook.integrations.langgraph import CuebookSaver, CuebookStore

#: The tests of `langgraph-checkpoint-conformance`.
CONFORMANCE = 81


def test_the_conformance_suite_passes(tmp_path: Path) -> None:
    @checkpointer_test("cuebook")
    async def saver() -> Any:
        async with CuebookSaver(tmp_path / "chats.db") as made:
            yield made

    report = asyncio.run(validate(saver))
    results = list(report.results.values())
    failures = [failure for each in results for failure in each.failures]
    assert not failures
    assert sum(each.tests_passed for each in results) == CONFORMANCE


class State(TypedDict):
    told: Annotated[list[str], operator.add]


def graph(saver: CuebookSaver, store: CuebookStore | None = None) -> Any:
    def ask(state: State) -> State:
        return {"told": [f"named {interrupt('What is your name?')}"]}

    builder = StateGraph(State)
    builder.add_node("greet", lambda state: {"told": ["hello"]})
    builder.add_node("ask", ask)
    builder.add_edge(START, "greet")
    builder.add_edge("greet", "ask")
    builder.add_edge("ask", END)
    return builder.compile(checkpointer=saver, store=store)


def test_a_graph_resumes_in_another_process(tmp_path: Path) -> None:
    config = {"configurable": {"thread_id": "t1"}}
    with CuebookSaver(tmp_path / "chats.db") as saver:
        graph(saver).invoke({"told": []}, config)
    with CuebookSaver(tmp_path / "chats.db") as saver:
        assert graph(saver).get_state(config).next == ("ask",)
        done = graph(saver).invoke(Command(resume="Ada"), config)
        assert done["told"] == ["hello", "named Ada"]
        states = [each.values.get("told") for each in graph(saver).get_state_history(config)]
        assert states == [["hello", "named Ada"], ["hello"], [], []][: len(states)]
        saver.prune(["t1"])
        assert graph(saver).get_state(config).values["told"] == ["hello", "named Ada"]
        assert len(list(saver.list(config))) == 1
        saver.delete_thread("t1")
        assert graph(saver).get_state(config).values == {}


def test_deleting_leaves_nothing_of_the_threads_and_runs(tmp_path: Path) -> None:
    def runs(cue: BlockingCuebook) -> list[tuple[str, ...]]:
        return [each[2:] for each in cue.documents.spaces(("langgraph", "runs")).spaces]

    with BlockingCuebook(arguments={"store.url": str(tmp_path / "chats.db")}) as cue:
        saver = CuebookSaver(cue)
        for thread in ("t1", "t2"):
            for run in ("r1", "r2"):
                config = {"configurable": {"thread_id": thread}, "metadata": {"run_id": run}}
                graph(saver).invoke({"told": []} if run == "r1" else Command(resume="Ada"), config)
        saver.copy_thread("t2", "t3")
        assert runs(cue) == [("r1",), ("r2",)]
        saver.delete_for_runs(["r1"])
        assert runs(cue) == [("r2",)]
        left = {each.metadata["run_id"] for each in saver.list(None)}
        assert left == {"r2"}
        saver.prune(["t1"])
        assert runs(cue) == [("r2",)]
        for thread in ("t1", "t2", "t3"):
            saver.delete_thread(thread)
        assert list(cue.documents.spaces(("langgraph",)).spaces) == []


def test_a_graph_runs_on_an_open_cuebook(tmp_path: Path) -> None:
    asyncio.run(run_on_an_open_cuebook(tmp_path))


async def run_on_an_open_cuebook(tmp_path: Path) -> None:
    config = {"configurable": {"thread_id": "t1"}}
    async with Cuebook.open(arguments={"store.url": str(tmp_path / "chats.db")}) as cue:
        saver = CuebookSaver(cue, user="ann")
        await graph(saver).ainvoke({"told": []}, config)
        assert (await graph(saver).aget_state(config)).next == ("ask",)
        assert (await graph(CuebookSaver(cue, user="bob")).aget_state(config)).next == ()
        with pytest.raises(CuebookError, match="only asynchronous methods"):
            saver.get_tuple(config)
        await cue.memory.forget(user="ann")
        assert [each async for each in saver.alist(config)] == []


NAMES = st.sampled_from(["a", "b", "a%", "A", "é_"])
SPACES = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
VALUES = st.dictionaries(
    st.sampled_from(["n", "kind"]), st.integers(0, 3) | st.sampled_from(["red", "blue"]), max_size=2
)
CONDITIONS = st.tuples(
    st.sampled_from(["prefix", "suffix"]), st.lists(NAMES | st.just("*"), min_size=1, max_size=2).map(tuple)
).map(lambda each: MatchCondition(*each))
FILTERS = (
    st.none() | st.fixed_dictionaries({"kind": st.sampled_from(["red", "blue"])}) | st.just({"kind": {"$ne": "red"}})
)
OPS = st.one_of(
    st.tuples(SPACES, NAMES, VALUES | st.none()).map(lambda each: PutOp(*each)),
    st.tuples(SPACES, NAMES).map(lambda each: GetOp(*each)),
    st.tuples(st.lists(NAMES, max_size=2).map(tuple), FILTERS).map(lambda each: SearchOp(*each, limit=100)),
    st.tuples(st.lists(NAMES, max_size=1).map(tuple), st.sampled_from(["red", "n", "blue kind"])).map(
        lambda each: SearchOp(each[0], query=each[1], limit=100)
    ),
    st.tuples(
        st.none() | st.lists(CONDITIONS, min_size=1, max_size=2).map(tuple),
        st.none() | st.integers(1, 3),
        st.integers(1, 5) | st.just(100),
        st.integers(0, 2),
    ).map(lambda each: ListNamespacesOp(*each)),
)


def embed(texts: list[str]) -> list[list[float]]:
    """Return the counts of some letters of each text."""
    return [[1.0 + Counter(text)[letter] for letter in "rednblukigy"] for text in texts]


def plain(result: Any) -> Any:
    """Return a result without times, and an unordered one sorted."""
    if isinstance(result, list):
        if result and isinstance(result[0], tuple):
            return result
        return sorted((plain(each) for each in result), key=repr)
    if result is None:
        return None
    score = getattr(result, "score", None)
    return (result.namespace, result.key, result.value, None if score is None else round(score, 6))


class Reference(InMemoryStore):
    """The in-memory store without the empty namespaces that it keeps after a read or a delete (#8734)."""

    def batch(self, ops: Any) -> list[Any]:
        results = super().batch(ops)
        for namespace in [each for each, items in self._data.items() if not items]:
            del self._data[namespace]
        return results


@settings(max_examples=60, deadline=None)
@given(st.lists(OPS, min_size=1, max_size=20))
def test_the_store_answers_as_the_in_memory_store(ops: list[Any]) -> None:
    reference = Reference(index={"dims": 11, "embed": embed, "fields": ["$"]})
    with BlockingCuebook() as cue:
        store = CuebookStore(cue, embedder=embed)
        for op in ops:  # one by one: the reference fails for equal texts in a batch
            assert plain(store.batch([op])[0]) == plain(reference.batch([op])[0])


def test_an_index_in_place_of_an_embedder_is_refused() -> None:
    with pytest.raises(CuebookError, match=r"embedder: not an embedding model: an object\. .* `embed` of LangGraph's"):
        CuebookStore(embedder={"dims": 11, "embed": embed})


def test_a_batch_reads_first_and_its_last_write_counts() -> None:
    with CuebookStore() as store:
        ops = [PutOp(("a",), "k", {"n": 1}), GetOp(("a",), "k"), SearchOp(("a",)), PutOp(("a",), "k", {"n": 2})]
        for each in (store, InMemoryStore()):
            assert each.batch(ops) == [None, None, [], None]
            assert each.get(("a",), "k").value == {"n": 2}


def test_an_item_lives_on_when_it_is_read(tmp_path: Path) -> None:
    with CuebookStore(tmp_path / "chats.db", ttl={"default_ttl": 10, "refresh_on_read": True}) as store:
        store.put(("a",), "k", {"x": 1})
        first = store.get(("a",), "k")
        again = store.search(("a",))[0]
        assert first is not None
        assert (again.value, again.updated_at) == ({"x": 1}, first.updated_at)
        with pytest.raises(CuebookError, match="control character"):
            store.put(("a\x1f",), "k", {"x": 1})


@pytest.mark.parametrize("example", examples_of("LangGraph"))
def test_the_documentation_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/integrations.md", "exec"), {"__name__": "example"})  # noqa: S102  # our own page
