"""How a SQLite file is opened: pragmas, the check that it is ours and of a schema we know, creation and migration."""

import sqlite3
from pathlib import Path

from cuebook.backends.failpoints import Failpoints
from cuebook.backends.sqlite import migrate, named
from cuebook.errors import BackendError, InvalidInput

#: The newest migration in migrations/versions; a test holds it equal.
REVISION = "0001"
#: "cueb", so that `file` and a stranger can tell whose database this is.
APPLICATION_ID = 0x63756562

MEMORY = ":memory:"


def connect(path: str, *, synchronous: str = "FULL", read_only: bool = False) -> sqlite3.Connection:
    """Open a connection with our pragmas. Transactions are begun by us alone (`isolation_level` None)."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    connection.row_factory = None
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("PRAGMA foreign_keys = ON")
    if not read_only:
        connection.execute("PRAGMA page_size = 8192")
        connection.execute("PRAGMA secure_delete = ON")
        if path != MEMORY:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA journal_size_limit = 67108864")
    else:
        connection.execute("PRAGMA query_only = ON")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return connection


def prepare(path: str, *, synchronous: str, failpoints: Failpoints) -> sqlite3.Connection:
    """Open the writing connection, creating or migrating the database first where needed."""
    if path != MEMORY:
        _check_folder(Path(path))
    connection = connect(path, synchronous=synchronous)
    try:
        _prepare_schema(connection, path, failpoints)
    except BaseException:
        connection.close()
        raise
    return connection


def _check_folder(path: Path) -> None:
    if path.is_dir():
        msg = f"database {str(path)!r} is a folder; name a file"
        raise InvalidInput(msg)
    path.parent.mkdir(parents=True, exist_ok=True)


def _prepare_schema(connection: sqlite3.Connection, path: str, failpoints: Failpoints) -> None:
    tables = _tables(connection)
    if not tables:
        _create(connection)
        return
    if "alembic_version" not in tables:
        msg = f"{path!r} is a SQLite database but not Cuebook's; name another file"
        raise InvalidInput(msg)
    revision = connection.execute("SELECT version_num FROM alembic_version").fetchone()[0]
    if revision != REVISION:
        if revision > REVISION:
            msg = (
                f"{path!r} was written by a newer Cuebook (schema {revision}, this one knows {REVISION}); upgrade cuebook, or use a copy"
                " made before"
            )
            raise InvalidInput(msg)
        migrate.upgrade(connection, failpoints)


def _tables(connection: sqlite3.Connection) -> set[str]:
    try:
        return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError as error:
        msg = f"the file is no SQLite database ({error}); name another file or restore it from a backup"
        raise BackendError(msg) from error


def _create(connection: sqlite3.Connection) -> None:
    """Create the newest schema, once, also when two processes begin at the same time."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not _tables(connection):
            for statement in named.schema().split(";\n"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)")
            connection.execute("INSERT INTO alembic_version VALUES (?)", (REVISION,))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
