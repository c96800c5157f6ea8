"""Tests of CrewAI's storage: its LanceDB storage is the reference."""

import os
import tempfile
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

os.environ["CREWAI_DISABLE_TELEMETRY"] = os.environ["OTEL_SDK_DISABLED"] = "true"  # before CrewAI is imported

import pytest
from crewai.memory.storage.backend import EmbeddingDimensionMismatchError, StorageBackend
from crewai.memory.storage.lancedb_storage import LanceDBStorage
from crewai.memory.types import MemoryRecord
from crewai.memory.unified_memory import Memory
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import examples_of

from cuebook import BlockingCuebook
from cuebook.integrations.crewai import CuebookStorage

BEGIN = datetime(2026, 1, 2)  # noqa: DTZ001  # CrewAI's times have no zone
SCOPES = st.sampled_from(["/", "/crew", "/crew/a_b", "/crew/a%b", "/other/x/y"])
CATEGORIES, FLOATS = st.sampled_from(["red", "blue"]), st.integers(-4, 4).map(lambda each: each / 4)
RECORDS = st.builds(
    dict,
    scope=SCOPES,
    categories=st.lists(CATEGORIES, max_size=2, unique=True),
    metadata=st.dictionaries(st.just("n"), st.integers(0, 2)),
    importance=st.sampled_from([0.25, 0.5]),
    source=st.none() | st.just("form"),
    private=st.booleans(),
    embedding=st.none() | st.lists(FLOATS, min_size=3, max_size=3),
)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "scope_prefix": st.sampled_from(["/", "/crew", "/crew/", "/crew/a_b", "/none"]),
        "categories": st.lists(CATEGORIES, min_size=1, max_size=2),
        "metadata_filter": st.fixed_dictionaries({"n": st.integers(0, 2)}),
    },
)
CALLS = st.one_of(
    st.tuples(st.just("save"), st.lists(RECORDS, min_size=1, max_size=3)),
    st.tuples(st.just("update"), st.integers(0, 5), RECORDS),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("delete_where"), FILTERS, st.none() | st.integers(0, 5)),
    st.tuples(st.just("reset"), st.sampled_from([None, "/", "/other"])),
)


class Pair:
    """The two storages, which get the same calls. Records have numbers, texts and times of their own."""

    def __init__(self, cue: BlockingCuebook, folder: str) -> None:
        self.ours, self.theirs = CuebookStorage(cue, user="ann"), LanceDBStorage(folder, vector_dim=3, compact_every=0)
        self.numbers, self.made = [], 0

    def record(self, fields: dict[str, Any], *, name: str) -> MemoryRecord:
        self.made += 1
        when = BEGIN + timedelta(hours=self.made)
        text = f"text {self.made}, as it is"
        return MemoryRecord(id=name, content=text, created_at=when, last_accessed=when, **fields)

    def call(self, name: str, *rest: Any) -> None:
        if name == "save":
            records = [self.record(each, name=f"it's {self.made}") for each in rest[0]]
            self.numbers += [each.id for each in records]
            self.both("save", records)
        elif name == "update" and rest[0] < len(self.numbers):
            self.both("update", self.record(rest[1], name=self.numbers[rest[0]]))
        elif name == "delete" and rest[0] < len(self.numbers):
            self.both("delete", record_ids=[self.numbers[rest[0]]])
        elif name == "delete_where":
            older = BEGIN + timedelta(hours=rest[1]) if rest[1] is not None else None
            where = {name: each for name, each in rest[0].items() if "categories" in rest[0] or name != "scope_prefix"}
            self.both("delete", **where, older_than=older)  # with only a scope, the reference deletes those of "/" too
        elif name == "reset":
            self.both("reset", *rest)

    def both(self, name: str, *arguments: Any, **options: Any) -> None:
        ours, theirs = (getattr(each, name)(*arguments, **options) for each in (self.ours, self.theirs))
        assert plain(ours) == plain(theirs)


def plain(result: Any) -> Any:
    """Return a result for a comparison: records by their fields, those of one score in any order."""
    if isinstance(result, MemoryRecord):
        return result.model_dump()
    if isinstance(result, list) and result and isinstance(result[0], tuple):
        return sorted(((round(score, 5), record.model_dump()) for record, score in result), key=repr)
    return [plain(each) for each in result] if isinstance(result, list) else result


@settings(max_examples=25, deadline=None)
@given(st.lists(CALLS, min_size=1, max_size=8), FILTERS, st.lists(FLOATS, min_size=3, max_size=3))
def test_the_storage_answers_as_the_lancedb_storage(
    calls: list[Any], where: dict[str, Any], query: list[float]
) -> None:
    with BlockingCuebook() as cue, tempfile.TemporaryDirectory() as folder:
        pair = Pair(cue, folder)
        for call in calls:
            pair.call(*call)
        pair.both("search", query, **where, limit=50, min_score=0.3)
        for scope in (None, "/", "/crew", "/crew/a_b", "/none"):
            pair.both("list_records", scope)
            pair.both("count", scope)
            pair.both("list_categories", scope)
        for scope in ("/", "/crew", "/other", "/none"):
            pair.both("get_scope_info", scope)
            pair.both("list_scopes", scope)
        pair.both("list_records", None, 2, 1)
        for name in pair.numbers:
            pair.both("get_record", name)


def embed(texts: list[str]) -> list[list[float]]:
    """Return the counts of some letters of each text."""
    return [[float(text.lower().count(letter)) for letter in "abefilrt"] for text in texts]


def test_a_memory_of_crewai_remembers_in_another_process(tmp_path: Path) -> None:
    def memory(storage: CuebookStorage) -> Memory:
        assert isinstance(storage, StorageBackend)
        return Memory(storage=storage, embedder=embed, llm=None)

    where = tmp_path / "chats.db"
    with CuebookStorage(where, user="ann") as storage:
        fields: Any = {"scope": "/trip", "categories": ["travel"], "importance": 0.5}
        memory(storage).remember("The ferry to Vlieland leaves at 9:45.", **fields)
        memory(storage).remember("Ann prefers the aisle.", **fields)
    with CuebookStorage(where, user="ann") as storage, CuebookStorage(where, user="bob") as other:
        found = memory(storage).recall("The ferry to Vlieland leaves!", depth="shallow", limit=1)
        assert [each.record.content for each in found] == ["The ferry to Vlieland leaves at 9:45."]
        before = storage.get_record(found[0].record.id)
        storage.touch_records([found[0].record.id])
        after = storage.get_record(found[0].record.id)
        assert after.last_accessed > before.last_accessed
        assert other.count() == 0
    with BlockingCuebook(arguments={"store.url": str(where)}) as cue:
        assert "9:45" in cue.memory.search("When does the ferry leave?", user="ann")[0].text


def test_a_record_is_forgotten_with_its_memory_and_its_user() -> None:
    with BlockingCuebook() as cue:
        storage, other = CuebookStorage(cue, user="ann"), CuebookStorage(cue, user="bob")
        for each in (storage, other):
            each.save(
                [MemoryRecord(id=name, content=text) for name, text in (("1", "Tea."), ("2", "Tea."), ("3", "Milk."))]
            )
        storage.delete(record_ids=["1"])
        assert storage.get_record("2").content == "Tea."  # both records had one memory
        storage.delete(record_ids=["2"])
        assert [each.text for each in cue.memory.search("tea milk", user="ann")] == ["Milk."]
        storage.save([MemoryRecord(id="4", content="Tea.")])
        assert storage.get_record("4").content == "Tea."
        cue.memory.forget(memories=[cue.memory.search("milk", user="ann")[0].memory_id])
        assert [each.id for each in storage.list_records()] == ["4"]
        cue.memory.forget(user="ann")
        assert (storage.count(), other.count()) == (0, 3)
        assert list(cue.documents.list(user="ann")) == []


def test_vectors_of_another_dimension_are_refused_until_a_reset() -> None:
    with CuebookStorage() as storage:
        storage.save([MemoryRecord(content="one", embedding=[1.0, 0.0])])
        with pytest.raises(EmbeddingDimensionMismatchError):
            storage.save([MemoryRecord(content="two", embedding=[1.0])])
        with pytest.raises(EmbeddingDimensionMismatchError):
            storage.search([1.0])
        storage.reset()
        storage.save([MemoryRecord(content="two", embedding=[1.0])])
        assert [each.content for each, _ in storage.search([1.0])] == ["two"]


@pytest.mark.parametrize("example", examples_of("CrewAI"))
def test_the_documentation_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/integrations.md", "exec"), {"__name__": "example"})  # noqa: S102  # our own page
