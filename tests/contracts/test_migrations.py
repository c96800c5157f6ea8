"""schema.sql, the migrations and tables.py say the same, and a migration that is interrupted or raced does no harm."""

import hashlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from cuebook.backends import tables
from cuebook.backends.failpoints import Failpoints
from cuebook.backends.sqlite import migrate, named
from cuebook.backends.sqlite.connect import APPLICATION_ID, REVISION, connect, prepare
from cuebook.errors import BackendError

REVISIONS = sorted(script.revision for script in ScriptDirectory(migrate.FOLDER).walk_revisions())

#: What released revisions say, by a digest of their files.
RELEASED = {"0001": "d558711d16389760"}

WHERE_TO_SAY_IT = """
A change of the tables is said in three places:
  1. src/cuebook/backends/sqlite/schema.sql, for new databases;
  2. the migrations, for old ones: in a new file migrations/versions/v0003_*.py with `down_revision = "0002"` and so
     on, and REVISION in connect.py raised. ALTER TABLE adds a column behind the others, so schema.sql must have it
     there too;
  3. src/cuebook/backends/tables.py, for Alembic (the full text index: FULL_TEXT there).
What differs:
"""

# Two revisions on top of ours, as later versions of Cuebook might bring them: SQL, Alembic's own operations, a table
# that is copied (batch), a change of the rows, and one that commits, which must not count.
LATER = (
    """
def upgrade():
    op.execute("ALTER TABLE conversation ADD COLUMN closed_at FLOAT")
    op.execute("UPDATE conversation SET closed_at = updated_at + 1")
    op.create_index("conversation_closed", "conversation", ["closed_at"], sqlite_where=sa.text("closed_at > 0"))
""",
    """
def upgrade():
    op.create_table("label", sa.Column("name", sa.Text, primary_key=True), sqlite_with_rowid=False)
    op.get_bind().commit()
    op.drop_index("conversation_recent")
    with op.batch_alter_table("blob", recreate="always") as blob:
        blob.add_column(sa.Column("kind", sa.Text, nullable=False, server_default="file"))
""",
)


def raised(steps: int) -> str:
    return f"{int(REVISION) + steps:04d}"


@pytest.fixture(scope="session")
def later(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our migrations folder with the later revisions in it; a % in its path, which Alembic's settings would expand."""
    folder = tmp_path_factory.mktemp("later%s") / "migrations"
    shutil.copytree(migrate.FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for step, body in enumerate(LATER, start=1):
        write_revision(folder, step, body)
    return folder


def write_revision(folder: Path, step: int, body: str) -> None:
    head = f"revision = {raised(step)!r}\ndown_revision = {raised(step - 1)!r}\n"
    text = f"import sqlalchemy as sa\nfrom alembic import op\n{head}{body}"
    (folder / "versions" / f"v{raised(step)}_later.py").write_text(text, encoding="utf-8")


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """Open as the store does: WAL, and 30 s of patience for who migrates first."""
    with closing(connect(str(path))) as connection:
        yield connection


def make_old(path: Path) -> Path:
    """Make a database of today's schema with a row or two: old for the later revisions."""
    prepare(str(path), synchronous="FULL", failpoints=Failpoints()).close()
    with opened(path) as connection:
        columns = connection.execute("PRAGMA table_info(conversation)").fetchall()
        values = [{"INTEGER": 7, "FLOAT": 7.0, "TEXT": "seven"}[column[2]] for column in columns]
        marks = ", ".join("?" for _ in values)
        connection.execute(f"INSERT INTO conversation VALUES ({marks})", values)  # noqa: S608 - question marks
        connection.execute("INSERT INTO post_text (scope, key) VALUES ('seven', 'lamps in the harbour')")
        connection.execute("INSERT INTO blob VALUES ('seven', x'07', x'0707')")
    return path


def check_is_new(connection: sqlite3.Connection) -> None:
    assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(raised(2),)]
    assert connection.execute("SELECT id, updated_at, closed_at FROM conversation").fetchall() == [("seven", 7, 8)]
    assert connection.execute("SELECT scope FROM post_text WHERE post_text MATCH 'lamp'").fetchall() == [("seven",)]
    assert connection.execute("SELECT * FROM blob").fetchall() == [("seven", b"\7", b"\7\7", "file")]
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def dump(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """Everything a migration could change."""
    names = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    schema = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()
    rows = [
        (name, row)
        for name in ("alembic_version", "conversation", "blob")
        if name in names
        for row in connection.execute(f"SELECT * FROM {name}")  # noqa: S608 - three names of ours
    ]
    return [*schema, *rows, *connection.execute("PRAGMA application_id")]


# ---------------------------------------------------------------- the three descriptions


def texts(connection: sqlite3.Connection) -> dict[str, str]:
    """Each statement SQLite keeps, without comments, quotes and white space; the version table is Alembic's."""
    kept = connection.execute(
        "SELECT type || ' ' || name, sql FROM sqlite_master WHERE sql NOT NULL AND tbl_name <> 'alembic_version'"
    )
    return {name: normal(sql) for name, sql in kept}


def normal(sql: str) -> str:
    bare = " ".join(re.sub(r"--[^\n]*", "", sql).replace('"', "").split())
    return re.sub(r" ?([(),]) ?", r"\1", bare).casefold()


def facts(connection: sqlite3.Connection) -> dict[str, str]:
    """Say what PRAGMA tells of every table of ours, one fact per table, column and index."""
    found: dict[str, str] = {}
    listing = (
        "SELECT name, wr FROM pragma_table_list WHERE type = 'table' AND schema = 'main' AND name NOT LIKE 'sqlite_%'"
    )
    for table, without_rowid in connection.execute(listing).fetchall():
        if table == "alembic_version":
            continue
        sql = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
        found[f"table {table}"] = f"without rowid {without_rowid}, autoincrement {'AUTOINCREMENT' in sql}"
        for place, name, kind, needed, default, key in connection.execute(f"PRAGMA table_info({table})"):
            found[f"column {table}.{name}"] = f"no. {place}: {kind}, not null {needed}, default {default}, key {key}"
        for _, name, unique, origin, partial in connection.execute(f"PRAGMA index_list({table})").fetchall():
            columns = [row[2:5] for row in connection.execute(f"PRAGMA index_xinfo({name})") if row[5]]
            (text,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (name,)).fetchone() or ("",)
            where = normal(text or "").partition("where ")[2]
            found[f"index {name}"] = f"on {table} {columns}, unique {unique}, {origin}, partial {partial} {where}"
    return found


def differences(ours: dict[str, str], theirs: dict[str, str], *, called: tuple[str, str]) -> str:
    lines = [
        f"  {key}\n    {called[0]}: {ours.get(key, 'missing')}\n    {called[1]}: {theirs.get(key, 'missing')}"
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    ]
    return WHERE_TO_SAY_IT + "\n".join(lines) if lines else ""


def fail_if(difference: str) -> None:
    if difference:
        pytest.fail(difference, pytrace=False)


@pytest.fixture
def declared(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """What schema.sql creates, as a new store does it."""
    path = tmp_path / "declared.db"
    prepare(str(path), synchronous="FULL", failpoints=Failpoints()).close()
    with opened(path) as connection:
        yield connection


@pytest.fixture
def migrated(tmp_path: Path) -> Path:
    path = tmp_path / "migrated.db"
    migrate.create_by_alembic(path)
    return path


def test_schema_sql_equals_the_migrations(declared: sqlite3.Connection, migrated: Path) -> None:
    called = ("schema.sql", "migrations")
    with opened(migrated) as connection:
        fail_if(differences(facts(declared), facts(connection), called=called))
        fail_if(differences(texts(declared), texts(connection), called=called))
        assert all(
            held.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,) for held in (declared, connection)
        )
    assert len(facts(declared)) > 100, "the comparison has lost sight of the tables"


def test_tables_equal_the_migrations(migrated: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{migrated}", poolclass=sqlalchemy.pool.NullPool)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": tables.is_declared})
        found = compare_metadata(context, tables.METADATA)
    fail_if(WHERE_TO_SAY_IT + "\n".join(f"  {row}" for row in found) if found else "")


def test_tables_equal_schema_sql_in_what_alembic_does_not_compare(declared: sqlite3.Connection, tmp_path: Path) -> None:
    """Rowids, AUTOINCREMENT, the order of columns and the conditions of partial indexes."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'tables.db'}", poolclass=sqlalchemy.pool.NullPool)
    tables.METADATA.create_all(engine)
    with opened(tmp_path / "tables.db") as connection:
        fail_if(differences(facts(declared), facts(connection), called=("schema.sql", "tables.py")))


def test_the_full_text_indexes_are_the_only_tables_apart(declared: sqlite3.Connection) -> None:
    listing = declared.execute("SELECT name, type FROM pragma_table_list WHERE type IN ('virtual', 'shadow')")
    apart = dict(listing.fetchall())
    assert {name for name, kind in apart.items() if kind == "virtual"} == set(tables.FULL_TEXT)
    assert not any(tables.is_declared(name, "table", {}) for name in apart)
    assert all(tables.is_declared(name, "table", {}) for name in tables.METADATA.tables)
    for name, text in tables.FULL_TEXT.items():
        assert texts(declared)[f"table {name}"] == normal(text), WHERE_TO_SAY_IT


def test_a_forgotten_column_is_told(declared: sqlite3.Connection, migrated: Path) -> None:
    declared.execute("ALTER TABLE turn ADD COLUMN mood TEXT")
    with opened(migrated) as connection:
        told = differences(facts(declared), facts(connection), called=("schema.sql", "migrations"))
    assert told.startswith(WHERE_TO_SAY_IT)
    assert re.search(r"column turn\.mood\n    schema\.sql: no\. \d+: TEXT.*\n    migrations: missing$", told)


# ---------------------------------------------------------------- revisions


def test_revision_is_the_head() -> None:
    assert ScriptDirectory(migrate.FOLDER).get_heads() == [REVISION], "raise REVISION in connect.py"


def test_revisions_are_numbered_from_0001_without_gaps_in_files_of_that_number() -> None:
    """connect.py compares them as text."""
    scripts = list(ScriptDirectory(migrate.FOLDER).walk_revisions())
    assert [script.revision for script in reversed(scripts)] == [f"{n:04d}" for n in range(1, len(scripts) + 1)]
    assert all(Path(script.path).name.startswith(f"v{script.revision}_") for script in scripts)


def test_a_released_revision_stands_as_it_was() -> None:
    """Databases were made by it, and nobody makes them again: what changes goes into a new revision."""
    for revision, digest in RELEASED.items():
        [file] = (migrate.FOLDER / "versions").glob(f"v{revision}_*.py")
        assert hashlib.sha256(file.read_bytes()).hexdigest()[:16] == digest, WHERE_TO_SAY_IT


def test_keys_that_lie_open_go_with_their_revision(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    migrate.create_by_alembic(path, to="0001")
    with opened(path) as connection:
        connection.execute("INSERT INTO idempotency VALUES ('default', 'my key', x'01', 1, 0, x'', 1.0)")
    with closing(prepare(str(path), synchronous="FULL", failpoints=Failpoints())) as connection:
        assert connection.execute("SELECT count(*) FROM idempotency").fetchone() == (0,)
    assert not [file for file in tmp_path.iterdir() if b"my key" in file.read_bytes()]


@pytest.mark.parametrize("revision", REVISIONS)
def test_a_database_of_each_released_revision_comes_up(
    revision: str, tmp_path: Path, declared: sqlite3.Connection
) -> None:
    path = tmp_path / "old.db"
    migrate.create_by_alembic(path, to=revision)
    with closing(prepare(str(path), synchronous="FULL", failpoints=Failpoints())) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(REVISION,)]
        fail_if(differences(texts(declared), texts(connection), called=("schema.sql", revision)))


def test_an_older_database_comes_up_with_its_rows(later: Path, tmp_path: Path) -> None:
    with opened(make_old(tmp_path / "old.db")) as connection:
        migrate.upgrade(connection, Failpoints(), folder=later)
        check_is_new(connection)
        before = dump(connection)
        migrate.upgrade(connection, Failpoints(), folder=later)
        assert dump(connection) == before


def test_the_connection_stays_the_callers(later: Path, tmp_path: Path) -> None:
    """Open, without a transaction, and with no function of SQLAlchemy's on it."""
    with opened(make_old(tmp_path / "old.db")) as connection:
        functions = connection.execute("SELECT name, narg FROM pragma_function_list ORDER BY 1, 2").fetchall()
        migrate.upgrade(connection, Failpoints(), folder=later)
        assert not connection.in_transaction
        assert connection.execute("SELECT name, narg FROM pragma_function_list ORDER BY 1, 2").fetchall() == functions


def test_a_schema_no_migration_leads_from_is_refused(tmp_path: Path) -> None:
    with opened(make_old(tmp_path / "old.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0000'")
        before = dump(connection)
        with pytest.raises(BackendError, match="'0000'"):
            migrate.upgrade(connection, Failpoints())
        assert not connection.in_transaction
        assert dump(connection) == before


def test_a_failing_statement_is_the_drivers_error_and_changes_nothing(later: Path, tmp_path: Path) -> None:
    folder = tmp_path / "migrations"
    shutil.copytree(later, folder)
    write_revision(folder, 3, 'def upgrade():\n    op.execute("CREATE INDEX broken ON nowhere (id)")\n')
    with opened(make_old(tmp_path / "old.db")) as connection:
        before = dump(connection)
        with pytest.raises(sqlite3.OperationalError, match="nowhere"):
            migrate.upgrade(connection, Failpoints(), folder=folder)
        assert not connection.in_transaction
        assert dump(connection) == before


def test_an_interrupted_migration_can_be_run_again_on_the_same_connection(later: Path, tmp_path: Path) -> None:
    with opened(make_old(tmp_path / "old.db")) as connection:
        before = dump(connection)
        with pytest.raises(BackendError, match=r"failpoint migrate\.statement"):
            migrate.upgrade(connection, Failpoints("migrate.statement:raise@6"), folder=later)
        assert dump(connection) == before
        migrate.upgrade(connection, Failpoints(), folder=later)
        check_is_new(connection)


# ---------------------------------------------------------------- processes

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "CUEBOOK_FAILPOINT"}

# Copies DATABASE to N.db in its folder, migrates the copy in a child that kills itself before the N-th statement, and
# so on until a child lives. Forks, since importing Alembic takes longer than all the rest.
KILLER = """
import os, shutil, sys
from pathlib import Path

import alembic.command, alembic.op, sqlalchemy.dialects.sqlite

from cuebook.backends.failpoints import Failpoints
from cuebook.backends.sqlite import connect, migrate

database, folder = map(Path, sys.argv[1:])
for number in range(1, 1000):
    copy = database.with_name(f"{number}.db")
    shutil.copy(database, copy)
    child = os.fork()
    if child == 0:
        connection = connect.connect(str(copy))
        migrate.upgrade(connection, Failpoints(f"migrate.statement:kill@{number}"), folder=folder)
        connection.close()
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, flush=True)
    if code != -9:
        break
"""

RACER = """
import sys
from pathlib import Path

import alembic.command, sqlalchemy.dialects.sqlite

from cuebook.backends.failpoints import Failpoints
from cuebook.backends.sqlite import connect, migrate

connection = connect.connect(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
migrate.upgrade(connection, Failpoints("migrate.statement:delay@2"), folder=Path(sys.argv[2]))
connection.close()
"""


def kill_at_each_statement(database: Path, folder: Path) -> list[Path]:
    """Give the killed copies in the order of the statements; the last copy was not killed."""
    ran = subprocess.run(
        [sys.executable, "-c", KILLER, database, folder], env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    codes = [int(line) for line in ran.stdout.split()]
    assert (ran.returncode, ran.stderr, codes[-1]) == (0, "", 0)
    assert set(codes[:-1]) == {-signal.SIGKILL}
    return [database.with_name(f"{number}.db") for number in range(1, len(codes) + 1)]


def test_kill_at_each_statement_leaves_old_or_new_and_the_next_start_completes(later: Path, tmp_path: Path) -> None:
    old = make_old(tmp_path / "old.db")
    with opened(old) as connection:
        before = dump(connection)
    *killed, lived = kill_at_each_statement(old, later)
    with opened(lived) as connection:
        check_is_new(connection)
        after = dump(connection)
    assert len(killed) >= 9  # 3 + 4 statements of ours or more, as Alembic also reads and copies, and the COMMIT
    for path in killed:
        with opened(path) as connection:
            assert dump(connection) in (before, after), path.name
            migrate.upgrade(connection, Failpoints(), folder=later)
            check_is_new(connection)


def test_kill_at_each_shipped_statement_leaves_nothing_or_all(declared: sqlite3.Connection, tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    with opened(old):
        pass
    *killed, lived = kill_at_each_statement(old, migrate.FOLDER)
    with opened(lived) as connection:
        after = dump(connection)
    assert len(killed) > named.schema().count(";\n")
    for path in killed:
        with opened(path) as connection:
            assert dump(connection) in ([(0,)], after), path.name
            migrate.upgrade(connection, Failpoints(), folder=migrate.FOLDER)
            assert dump(connection) == after
            fail_if(differences(texts(declared), texts(connection), called=("schema.sql", path.name)))


def test_two_processes_upgrading_at_once_both_succeed(later: Path, tmp_path: Path) -> None:
    """Each would sleep inside its transaction, so the second is sure to wait for the first."""
    old = make_old(tmp_path / "old.db")
    command = [sys.executable, "-c", RACER, old, later]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with (
        subprocess.Popen(command, env=ENVIRONMENT, text=True, **pipes) as one,
        subprocess.Popen(command, env=ENVIRONMENT, text=True, **pipes) as two,
    ):
        assert [racer.stdout.readline() for racer in (one, two)] == ["ready\n", "ready\n"]
        for racer in (one, two):
            racer.stdin.write("go\n")
            racer.stdin.flush()
        for racer in (one, two):
            assert (*racer.communicate(timeout=60), racer.returncode) == ("", "", 0)
    with opened(old) as connection:
        check_is_new(connection)


def test_two_stores_of_one_process_may_upgrade_at_once(later: Path, tmp_path: Path) -> None:
    """Alembic knows one running migration per process; two databases must not meet there."""

    def run(path: Path) -> None:
        with opened(path) as connection:
            migrate.upgrade(connection, Failpoints("migrate.statement:delay@2"), folder=later)
            check_is_new(connection)

    paths = [make_old(tmp_path / f"{name}.db") for name in "ab"]
    with ThreadPoolExecutor(len(paths)) as threads:
        assert list(threads.map(run, paths)) == [None, None]


def test_opening_a_database_of_today_imports_neither_alembic_nor_sqlalchemy(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from cuebook.backends.failpoints import Failpoints\n"
        "from cuebook.backends.sqlite.connect import prepare\n"
        "prepare(sys.argv[1], synchronous='FULL', failpoints=Failpoints()).close()\n"
        "print({'alembic', 'sqlalchemy'} & set(sys.modules))\n"
    )
    command = [sys.executable, "-c", program, make_old(tmp_path / "today.db")]
    ran = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("set()\n", "")
