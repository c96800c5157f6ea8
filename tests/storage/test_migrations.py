"""Tests of schema migrations: migrated databases equal fresh ones, and an interrupted migration changes nothing."""

import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from cuebook.errors import BackendError
from cuebook.storage.database.postgres import upgrade
from cuebook.storage.database.sqlite_files import APPLICATION_ID, connect, migrate, prepare, schema_version
from cuebook.storage.database.statements import FULL_TEXT, MIGRATIONS, VERSION, ddl
from cuebook.storage.database.transaction import Failpoints
from cuebook.storage.store import open_store
from storage.contract import StoreContract
from storage.contract.posts import OWNER, say
from storage.databases import KINDS, wait_until_unused
from storage.makers import draft

#: A later schema version with one more column, index and table, and the migrations that lead to it.
MORE = (
    "CREATE TABLE mood (tenant TEXT NOT NULL, at REAL, PRIMARY KEY (tenant)) WITHOUT ROWID",
    "CREATE INDEX mood_at ON mood (at)",
)
NEWER = (
    *(each.replace("closed_at REAL,", "closed_at REAL, colour TEXT NOT NULL DEFAULT 'red',") for each in ddl("sqlite")),
    "CREATE INDEX turn_colour ON turn (colour)",
)
STEPS = (
    *MIGRATIONS,
    ("ALTER TABLE turn ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'", "CREATE INDEX turn_colour ON turn (colour)"),
    MORE,
)


class Filled(StoreContract):
    """The contract's data, in a store of its own."""


@contextmanager
def open_database(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(connect(str(path))) as connection:
        yield connection


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a database of the current version that contains a row."""
    path = tmp_path / "old.db"
    with closing(prepare(str(path), synchronous="FULL", failpoints=Failpoints())) as connection:
        connection.execute("INSERT INTO organization VALUES ('default', 'acme', '{}', 1.5)")
    return path


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.slow
async def test_a_running_server_works_while_a_newer_one_adds_columns(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgresql" else str(tmp_path / "c.db")
    store = open_store(url)
    await Filled().store_everything(store)
    before = [await Filled().load_everything(store) for _ in range(6)]  # a driver prepares what it runs often
    tables = "conversation turn summary item prompt_observation api_key memory reflection".split()
    added = tuple(f"ALTER TABLE {table} ADD COLUMN later TEXT NOT NULL DEFAULT 'new'" for table in tables)
    if kind == "postgresql":
        upgrade(url, migrations=(*MIGRATIONS, added))
    else:
        with closing(connect(url)) as connection:
            migrate(connection, Failpoints(), (*MIGRATIONS, added))
    assert await Filled().load_everything(store) == before[-1]
    await say(store, "new", draft("x", "figs"))
    assert [post.id for post in await store.posts(OWNER, "new")] == ["x"]
    await store.aclose()


def dump(connection: sqlite3.Connection) -> list[str]:
    return list(connection.iterdump())


def structure(connection: sqlite3.Connection) -> dict[str, object]:
    """Return what SQLite reports about tables and indexes, independent of the SQL text."""
    found: dict[str, object] = {}
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        found[table] = connection.execute(f"PRAGMA table_xinfo({table})").fetchall()
        for _, index, unique, origin, partial in connection.execute(f"PRAGMA index_list({table})").fetchall():
            columns = connection.execute(f"PRAGMA index_xinfo({index})").fetchall()
            found[index] = (table, unique, origin, partial, [row[2:] for row in columns])
    return found


def test_a_fresh_database_has_version_and_application_id(old: Path) -> None:
    with open_database(old) as connection:
        assert schema_version(connection) == VERSION
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        assert {*FULL_TEXT, "conversation", "outcome"} <= tables


def test_a_migrated_database_equals_a_fresh_one(old: Path) -> None:
    with open_database(old) as connection, closing(sqlite3.connect(":memory:")) as fresh:
        for statement in (*NEWER, *MORE):
            fresh.execute(statement)
        migrate(connection, Failpoints(), STEPS)
        fresh.execute("ANALYZE")
        connection.execute("ANALYZE")
        assert structure(connection) == structure(fresh)
        assert schema_version(connection) == VERSION + 2
        assert connection.execute("SELECT id FROM organization").fetchall() == [("acme",)]
        before = dump(connection)
        migrate(connection, Failpoints(), STEPS)  # no migration is left
        assert dump(connection) == before
        assert not connection.in_transaction


@pytest.mark.parametrize("number", range(1, 6))
def test_a_failed_migration_changes_nothing_and_can_be_repeated(old: Path, number: int) -> None:
    with open_database(old) as connection:
        before = dump(connection)
        with pytest.raises(BackendError, match=r"failpoint migrate\.statement"):
            migrate(connection, Failpoints(f"migrate.statement:raise@{number}"), STEPS)
        assert (dump(connection), connection.in_transaction) == (before, False)
        migrate(connection, Failpoints(), STEPS)
        assert schema_version(connection) == VERSION + 2


def test_a_faulty_statement_raises_and_changes_nothing(old: Path) -> None:
    with open_database(old) as connection:
        before = dump(connection)
        with pytest.raises(sqlite3.OperationalError, match="nowhere"):
            migrate(connection, Failpoints(), (*STEPS, ("CREATE INDEX broken ON nowhere (id)",)))
        assert dump(connection) == before


PROGRAM = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from storage.test_migrations import STEPS, Failpoints, migrate, open_database
with open_database(sys.argv[1]) as connection:
    print("ready", flush=True)
    sys.stdin.readline()
    migrate(connection, Failpoints(sys.argv[2]), STEPS)
"""


def start(path: Path, failpoint: str) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(path), failpoint], text=True, **pipes)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(1, 6))
def test_a_process_killed_during_migration_leaves_the_old_schema(old: Path, number: int) -> None:
    with open_database(old) as connection:
        before = dump(connection)
    copy = old.with_name("copy.db")
    shutil.copy(old, copy)
    with start(copy, f"migrate.statement:kill@{number}") as process:
        process.communicate("go\n")
    assert process.returncode == -signal.SIGKILL
    with open_database(copy) as connection:
        assert dump(connection) == before
        migrate(connection, Failpoints(), STEPS)
        assert schema_version(connection) == VERSION + 2


@pytest.mark.slow
def test_two_concurrent_migrations_both_succeed(old: Path) -> None:
    with start(old, "migrate.statement:delay@2") as one, start(old, "migrate.statement:delay@2") as two:
        assert [process.stdout and process.stdout.readline() for process in (one, two)] == ["ready\n", "ready\n"]
        for process in (one, two):
            assert process.stdin
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in (one, two):
            assert (*process.communicate(timeout=60), process.returncode) == ("", "", 0)
    with open_database(old) as connection:
        assert schema_version(connection) == VERSION + 2


ON_SERVER = """
import sys
from cuebook.storage.database.postgres import upgrade
from cuebook.storage.database.statements import MIGRATIONS
upgrade(sys.argv[1], migrations=(*MIGRATIONS, ("ALTER TABLE turn ADD COLUMN colour TEXT", "SELECT pg_sleep(2)")))
"""


@pytest.mark.slow
def test_a_process_killed_during_migration_leaves_the_old_schema_of_a_server(postgres_url: str) -> None:
    sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(2)' AND state = 'active'"
    columns = "SELECT count(*) FROM information_schema.columns WHERE column_name = 'colour'"
    with subprocess.Popen([sys.executable, "-c", ON_SERVER, postgres_url]) as process:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            while connection.execute(sleeping).fetchone() == (0,):
                assert process.poll() is None
        process.kill()
    wait_until_unused(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        assert connection.execute(columns).fetchone() == (0,)
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(VERSION,)]
        steps = (*MIGRATIONS, ("ALTER TABLE turn ADD COLUMN colour TEXT",))
        assert upgrade(postgres_url, migrations=steps) == (VERSION, VERSION + 1)
        assert connection.execute(columns).fetchone() == (1,)
