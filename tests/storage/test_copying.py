"""Tests of copying a database between SQLite and PostgreSQL: everything arrives, interrupted copies continue."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cuebook.errors import Conflict, InvalidInput, NotFound
from cuebook.interfaces.store import SearchLook
from cuebook.records.memory import Scope
from cuebook.storage.database.copying import copy, tables
from cuebook.storage.store import Store, open_store, sqlite_store
from storage.contract import StoreContract
from storage.contract.posts import OWNER, say
from storage.makers import draft, drafts


class Filled(StoreContract):
    """The contract's data, in a store of its own."""


@pytest.fixture
async def source(tmp_path: Path) -> str:
    """Return a SQLite file with data of two tenants, a used and deleted number, and binary values."""
    place = str(tmp_path / "source.db")
    store = sqlite_store(place, synchronous="OFF")
    await Filled().store_everything(store)
    for number in range(30):
        await say(store, f"c{number}", *drafts("apples", "pears"), scope=Scope("other", "ann"))
    await say(store, "gone", draft("x", "plums"))
    await store.delete(OWNER, "gone")
    await store.aclose()
    return place


async def loaded(url: str) -> object:
    store = open_store(url)
    try:
        return await Filled().load_everything(store), await _found(store)
    finally:
        await store.aclose()


async def _found(store: Store) -> object:
    found = await store.search(Scope("other", "ann"), SearchLook(text="apples"), conversation=None)
    return sorted((each.conversation, each.text) for each in found.found)


@pytest.mark.slow
async def test_a_copy_to_postgresql_and_back_has_everything(source: str, postgres_url: str, tmp_path: Path) -> None:
    before, back = await loaded(source), str(tmp_path / "back" / "cuebook.db")
    seen: list[tuple[str, int, int]] = []
    done = copy(source, postgres_url, progress=lambda *each: seen.append(each), at_once=7)
    assert await loaded(postgres_url) == before
    assert not done.continued
    assert all(count == total == done.rows[name] for name, count, total in {each[0]: each for each in seen}.values())
    copy(postgres_url, back)
    assert await loaded(back) == before
    store = open_store(postgres_url)
    await say(store, "new", draft("x", "figs"))  # gets a number that the source has not used
    row = await store.database.read(lambda each: each.one("conversation_by_id", tenant=OWNER.tenant, id="new"))
    with closing(sqlite3.connect(source)) as connection, connection:
        [(last,)] = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'conversation'")
    assert row is not None
    assert row["no"] == last + 1
    await store.aclose()


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "target.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


async def test_an_interrupted_copy_continues(
    source: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, calls = await loaded(source), 0

    def stop(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(source, target, progress=stop, at_once=3)
    with pytest.raises(InvalidInput, match="has not finished"):
        open_store(target)
    with pytest.raises(Conflict, match="Repeat that copy first"):
        copy(target, str(tmp_path / "other.db"))
    monkeypatch.chdir(tmp_path)
    assert copy("source.db", target, at_once=3).continued
    assert await loaded(target) == before


async def test_two_copies_into_one_target_do_not_mix(source: str, target: str) -> None:
    def copy_again(name: str, *_: object) -> None:
        if name == "post":
            with pytest.raises(Conflict, match="Another copy into"):
                copy(source, target)

    assert copy(source, target, progress=copy_again).rows["post"]
    assert await loaded(target) == await loaded(source)


async def test_a_copy_from_a_server_continues_with_another_password(
    source: str, postgres_url: str, tmp_path: Path
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    copy(source, postgres_url)
    back, other = str(tmp_path / "back.db"), postgres_url.replace("postgres:@", "postgres:changed@")
    assert other != postgres_url
    with pytest.raises(KeyboardInterrupt):
        copy(postgres_url, back, progress=stop)
    assert copy(other, back).continued


async def test_a_target_with_data_is_refused(source: str, target: str, tmp_path: Path) -> None:
    store = open_store(target)
    await say(store, "c", draft("x", "apples"))
    await store.aclose()
    with pytest.raises(Conflict, match=r"The target is not empty: table '\w+' has rows"):
        copy(source, target)
    with pytest.raises(NotFound):
        copy(str(tmp_path / "none.db"), target)
    with pytest.raises(InvalidInput, match="Source and target are the same database"):
        copy(target, target)


async def test_a_source_that_changes_is_noticed(source: str, target: str) -> None:
    def change(name: str, *_: object) -> None:
        if name == "conversation":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copy(source, target, progress=change)
    with closing(sqlite3.connect(source)) as connection, connection:
        connection.execute("UPDATE conversation SET head = 0")
    with pytest.raises(Conflict, match="Table 'conversation' differs: the source was changed"):
        copy(source, target)


def test_keys_can_stay() -> None:
    assert {each.name for each in tables()} - {each.name for each in tables(with_keys=False)} == {"api_key"}
