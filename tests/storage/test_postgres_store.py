"""Runs the store contract on a real PostgreSQL server."""

import asyncio
import json
import os
import re
import shutil
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from cuebook.app.setup.embedded_postgres import start, stop
from cuebook.errors import BackendError, InvalidInput
from cuebook.memory.query import match_values, read_query
from cuebook.records.key import LongTermMemoryChange, OrganizationMemoryChange
from cuebook.storage.database.postgres import CONNECT_S, CONNECTIONS, PostgresDatabase, upgrade
from cuebook.storage.database.statements import FULL_TEXT, ddl, load_statements, prepared
from cuebook.storage.database.transaction import Transaction
from cuebook.storage.memories import place_token
from cuebook.storage.search import Words, rarest_words
from cuebook.storage.store import Store, open_store
from cuebook.testing.doubles import BEGINNING
from storage.contract import StoreContract
from storage.contract.keys import HERE, KEY, NOW
from storage.contract.places import ANN, BOB, memory, put
from storage.contract.posts import OWNER, say
from storage.databases import NOT_SYNCED, wait_until_waiting
from storage.makers import draft, drafts

_COLUMNS = r"""SELECT t.name, c.name, c."notnull" FROM sqlite_master t JOIN pragma_table_info(t.name) c
WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND t.name NOT LIKE '%\_text%' ESCAPE '\'"""
with closing(sqlite3.connect(":memory:")) as _sqlite:
    for _statement in ddl("sqlite"):
        _sqlite.execute(_statement)
    #: Table, column and whether it refuses NULL, as SQLite has them, and the names of its indexes.
    DECLARED = {(table, column, bool(required)) for table, column, required in _sqlite.execute(_COLUMNS)}
    INDEXES = {
        name for (name,) in _sqlite.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
    }
_TABLES = sorted({table for table, _, _ in DECLARED} - {"schema_version"} | {*FULL_TEXT})


@pytest.fixture(scope="module")
def url(postgres_server: str) -> Iterator[str]:
    """Return the URL of a database of this module: the server's own one is the template of others."""
    parts = urlsplit(postgres_server)
    with psycopg.connect(parts._replace(path="/postgres").geturl(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE contract TEMPLATE {parts.path[1:]}")
        yield parts._replace(path="/contract").geturl()
        connection.execute("DROP DATABASE contract WITH (FORCE)")


def empty_store(url: str) -> Store:
    """Return a store without data."""
    store = postgres_store(url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(SQL(";").join(SQL("DELETE FROM {}").format(Identifier(name)) for name in _TABLES))
    return store


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    """Yield an empty store."""
    store = empty_store(url)
    yield store
    await store.aclose()


def postgres_store(url: str) -> Store:
    return Store(PostgresDatabase(f"{url}{'&' if '?' in url else '?'}{NOT_SYNCED}"))


class TestPostgres(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, url: str) -> None:
        self.url = url

    async def make_store(self) -> Store:
        return empty_store(self.url)

    async def reopen(self) -> Store:
        return postgres_store(self.url)


async def test_the_schema_has_equal_tables_and_indexes(store: Store, url: str) -> None:
    with psycopg.connect(url) as connection:
        columns = connection.execute(
            "SELECT table_name, column_name, is_nullable = 'NO' FROM information_schema.columns"
            " WHERE table_schema = 'public'"
        ).fetchall()
        indexes = {name for (name,) in connection.execute("SELECT indexname FROM pg_indexes").fetchall()}
    assert {row for row in columns if row[0] not in {*FULL_TEXT, "wrapped_key"}} == DECLARED
    assert indexes >= INDEXES


async def test_another_object_reads_the_stored_keys(store: Store, url: str) -> None:
    await store.keys.add(HERE, KEY, b"digest")
    other = postgres_store(url)
    assert (await other.keys.present("k1"))[1] == KEY
    await other.aclose()


async def test_a_failed_write_stores_nothing(store: Store) -> None:
    def fail(transaction: Transaction) -> None:
        transaction.run("organization_put", tenant="here", id="acme", settings="{}", now=NOW)
        raise KeyError("internal error")

    with pytest.raises(KeyError):
        await store.database.write(fail)
    assert await store.database.read(lambda each: each.one("organization_get", tenant="here", id="acme")) is None


async def test_concurrent_changes_of_an_organization_are_all_stored(store: Store) -> None:
    fields = ("enabled", "allow_writes", "default_retrieval_enabled")
    changes = [OrganizationMemoryChange(long_term_memory=LongTermMemoryChange(**{each: False})) for each in fields]
    await asyncio.gather(*(store.keys.change_organization(HERE, "acme", each, now=NOW) for each in changes))
    memory = (await store.keys.organization(HERE, "acme")).memory.long_term_memory
    assert (memory.enabled, memory.allow_writes, memory.default_retrieval_enabled) == (False, False, False)


@pytest.mark.parametrize(
    ("tenant", "subject", "waits"), [(OWNER.tenant, "a", False), (OWNER.tenant, "", True), ("", "", True)]
)
async def test_a_write_waits_only_for_writes_that_may_concern_it(
    store: Store, url: str, tenant: str, subject: str, *, waits: bool
) -> None:
    inside, leave = threading.Event(), threading.Event()

    def stay(transaction: Transaction) -> None:
        transaction.value("claims_count")
        inside.set()
        leave.wait(30)

    first = asyncio.create_task(store.database.write(stay, tenant=tenant, subject=subject))
    await asyncio.to_thread(inside.wait, 30)
    others = [asyncio.create_task(say(store, name, draft("x", "apples"))) for name in ("a", "b")]
    if not waits:
        await others[1]
    await asyncio.to_thread(wait_until_waiting, url, 1 + waits)
    assert not others[0].done()
    leave.set()
    await asyncio.gather(first, *others)
    assert (await store.check())["conversations"] == 2


async def test_a_text_that_cannot_be_stored_is_invalid_input(store: Store) -> None:
    with pytest.raises(InvalidInput):
        await store.keys.add(HERE, msgspec.structs.replace(KEY, name="\x00"), b"digest")


def numbered(sql: str) -> str:
    """Return a statement with the placeholders of the server."""
    number = count(1)
    return re.sub("%s", lambda _: f"${next(number)}", prepared(sql, "postgresql")[0]).replace("%%", "%")


def test_the_server_infers_the_type_of_each_value(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for name, sql in load_statements("postgresql").items():
            connection.execute(f"PREPARE {name} AS {numbered(sql)}".encode())


@pytest.mark.parametrize(
    "name",
    [
        "search_posts",
        "search_posts_of_owner",
        "search_posts_of_tenant",
        "search_counts",
        "memory_find",
        "memory_find_among",
        "memory_counts",
    ],
)
def test_a_search_for_words_needs_no_scan_of_a_table_under_policies(url: str, name: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("SET LOCAL ROLE cuebook_app")
        connection.execute("SET LOCAL enable_seqscan = off")  # only a plan without an alternative scans a table
        sql = numbered(load_statements("postgresql")[name])
        plan = connection.execute(f"EXPLAIN (GENERIC_PLAN) {sql}".encode()).fetchall()
    assert not [step for (step,) in plan if "Seq Scan on" in step]


async def test_memories_with_cached_words_are_ranked_like_those_of_a_search(store: Store) -> None:
    texts = ("ripe apples", "apples and apples", "pears", "green pears with apples", "plums")
    ended = memory(ANN, "ended", "old apples", valid_to=BEGINNING + 1)
    await put(store, ended, *(memory(ANN, text, text) for text in texts))
    await put(store, memory(BOB, "bob", "apples of bob"))
    words, query = Words(0, len(texts)), read_query("apples, pears or cherries?")

    def look(transaction: Transaction) -> list[object]:
        within, token = transaction.within(OWNER), place_token(OWNER.tenant, ANN)
        found: list[object] = []
        for _ in range(2):
            reduced, counts, among = rarest_words(within, words, query, token)
            found.append((counts, among))
        values = {**(match_values(reduced, token) or {}), "token": token, "at": None, "limit": 9}
        ranked = within.run("memory_find", **values).fetchall()
        assert within.run("memory_find_among", **values, nos=json.dumps(among)).fetchall() == ranked
        return [*found, len(ranked)]

    first, again, count = await store.database.read(look)
    assert isinstance(first, tuple)
    assert (first, count) == (again, 4)
    assert (sorted(first[0].values()), len(first[1])) == ([0, 2, 4], 5)


def test_a_superuser_lets_policies_use_the_index_of_words(url: str) -> None:
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT proleakproof FROM pg_proc WHERE proname = 'ts_match_vq'").fetchone() == (
            True,
        )


def test_no_join_uses_a_cast_value_which_row_level_security_checks_after_reading_all_rows() -> None:
    statements = load_statements("postgresql").items()
    assert not [name for name, sql in statements if re.search(r"(= |IN \(SELECT )CAST\((\w\.)?value", sql)]


async def test_a_statement_that_is_often_run_is_prepared(store: Store, url: str) -> None:
    def often(transaction: Transaction) -> int:
        for _ in range(9):
            transaction.rows("organization_get", tenant="here", id="acme")
        return len(transaction._execute("SELECT name FROM pg_prepared_statements", ()).fetchall())  # noqa: SLF001

    assert await store.database.read(often)


async def test_a_closed_store_fails(url: str) -> None:
    store = postgres_store(url)
    await store.aclose()
    with pytest.raises(BackendError):
        await store.keys.present("k1")


async def test_a_read_only_database_is_readable_and_explains_failed_writes(postgres_url: str) -> None:
    store = open_store(f"{postgres_url}&options=-cdefault_transaction_read_only%3Don")
    assert (await store.conversations(OWNER, limit=9)).items == ()
    with pytest.raises(BackendError, match="The database is read-only") as error:
        await say(store, "c", *drafts("apples"))
    assert error.value.retryable
    await store.aclose()


@pytest.mark.slow
async def test_a_hung_server_is_an_error_and_its_connection_is_not_used_again(caplog: pytest.LogCaptureFixture) -> None:
    folder = Path(tempfile.mkdtemp(prefix="cuebook-postgres-"))
    folder.chmod(0o711)  # noqa: ASYNC240  # the server runs as another user
    url = start(folder / "data").url or ""
    upgrade(url)
    database = PostgresDatabase(url, hung_s=0.2)
    await database.version()
    with psycopg.connect(url) as connection:
        processes = [pid for (pid,) in connection.execute("SELECT pid FROM pg_stat_activity")]
    processes = [int((folder / "data/postmaster.pid").read_text().split()[0]), *processes]
    try:
        signal_all(processes, signal.SIGSTOP)
        started = time.monotonic()
        errors = await asyncio.gather(*(database.version() for _ in range(3 * CONNECTIONS)), return_exceptions=True)
        assert time.monotonic() - started < CONNECT_S + 5  # those that wait too
        assert {type(each) for each in errors} == {BackendError}
        assert all(each.retryable for each in errors if isinstance(each, BackendError))
        assert any(re.match(r"The database did not answer for \d+ s\. Repeat", str(each)) for each in errors)
        signal_all(processes, signal.SIGCONT)
        assert await database.version()
    finally:
        signal_all(processes, signal.SIGCONT)
        await database.aclose()
        stop(folder / "data")
        shutil.rmtree(folder)
    messages = [each.getMessage().split(":")[0] for each in caplog.records if each.name == "cuebook.storage"]
    assert messages == ["Connection to the database lost", "The database answers again."]


def signal_all(processes: list[int], number: int) -> None:
    for each in processes:
        with suppress(ProcessLookupError):
            os.kill(each, number)


async def test_the_check_names_the_server(store: Store) -> None:
    data = await store.check()
    assert (data["kind"], data["conversations"], data["posts"]) == ("postgresql", 0, 0)


def test_placeholders_are_translated_outside_literals() -> None:
    statement = "SELECT ':a', b::text FROM t WHERE a = :a AND b LIKE 'x%' AND c % 2 = :long_name AND d = :a"
    sql, in_order = prepared(statement, "postgresql")
    assert sql == "SELECT ':a', b::text FROM t WHERE a = %s AND b LIKE 'x%%' AND c %% 2 = %s AND d = %s"
    assert in_order({"a": 1, "long_name": 2, "more": 3}) == (1, 2, 1)
    assert prepared(statement, "sqlite")[0].count("?") == 3
    assert [prepared(each, "sqlite")[1]({"a": 1}) for each in ("SELECT 1", "SELECT :a")] == [(), (1,)]


@pytest.mark.slow
async def test_many_new_conversations_at_once_are_all_stored(postgres_url: str) -> None:
    stores = [postgres_store(postgres_url) for _ in range(3)]
    limit = asyncio.Semaphore(24)

    async def begin(number: int) -> None:
        async with limit:
            await say(stores[number % 3], f"c{number}", draft("x", "apples"))

    await asyncio.gather(*(begin(number) for number in range(400)))
    assert (await stores[0].check())["conversations"] == 400
    for each in stores:
        await each.aclose()
