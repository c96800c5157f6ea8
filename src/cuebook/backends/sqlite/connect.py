"""How a SQLite file is opened: the check that it is ours and of a schema we know, pragmas, creation and migration."""

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from cuebook.backends.failpoints import Failpoints
from cuebook.backends.sqlite import migrate, named
from cuebook.errors import BackendError, InvalidInput

#: The newest migration in migrations/versions; a test holds it equal.
REVISION = "0006"
#: "cueb", so that `file` and a stranger can tell whose database this is.
APPLICATION_ID = 0x63756562

MEMORY = ":memory:"
#: Bytes up to which who forgets waits for a file to be written anew: about half a second of work.
LARGE = 64 * 1024 * 1024
#: How long a write waits for another process's, in milliseconds.
PATIENCE = 30000
#: Seconds between two tries at what SQLite does not wait for itself.
PAUSE = 0.02


def connect(path: str, *, synchronous: str = "FULL", read_only: bool = False) -> sqlite3.Connection:
    """Open a connection to a database of ours, with our pragmas. Transactions are begun by us alone."""
    connection = _open(path)
    try:
        if read_only:
            connection.execute("PRAGMA query_only = ON")
        else:
            _set_up(connection, path, synchronous)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(path: str, *, synchronous: str, failpoints: Failpoints) -> sqlite3.Connection:
    """Open the writing connection, creating or migrating the database first where needed."""
    if path != MEMORY:
        _check_folder(Path(path))
        _make(path)
    connection = _open(path)
    try:
        tables = _look(connection, path)  # before anything is set: a stranger's file is left as it is
        _set_up(connection, path, synchronous)
        _prepare_schema(connection, path, tables, failpoints)
        _empty_log(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _open(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    connection.execute(f"PRAGMA busy_timeout = {PATIENCE}")
    return connection


def _set_up(connection: sqlite3.Connection, path: str, synchronous: str) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA page_size = 8192")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    if path != MEMORY:
        _log_ahead(connection)
        connection.execute("PRAGMA journal_size_limit = 67108864")


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Use the write-ahead log. When several processes begin at once, SQLite refuses this instead of waiting."""
    end = time.monotonic() + PATIENCE / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > end:
                raise
            time.sleep(PAUSE)
        else:
            return


def _check_folder(path: Path) -> None:
    if path.is_dir():
        msg = f"database {str(path)!r} is a folder; name a file"
        raise InvalidInput(msg)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = (
            f"the folder of database {str(path)!r} cannot be made ({error.strerror}); name a place that can be written"
        )
        raise BackendError(msg) from error


def _make(path: str) -> None:
    """Make a new file its owner's alone, whatever the umask: SQLite gives its log the same rights. Others stay."""
    with suppress(OSError):  # it is there, or SQLite says what is wrong
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _look(connection: sqlite3.Connection, path: str) -> set[str]:
    """Give the tables there are; refuse a file that is not ours."""
    tables = _tables(connection)
    if tables and connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        msg = f"{path!r} is a SQLite database but not Cuebook's; name another file"
        raise InvalidInput(msg)
    return tables


def _prepare_schema(connection: sqlite3.Connection, path: str, tables: set[str], failpoints: Failpoints) -> None:
    if not tables:
        _create(connection)
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    if row is None:
        msg = f"{path!r} says nothing of its schema, it is damaged; restore it from a backup"
        raise BackendError(msg)
    revision = row[0]
    if revision > REVISION:
        msg = (
            f"{path!r} was written by a newer Cuebook (schema {revision}, this one knows {REVISION}); upgrade cuebook,"
            " or use a copy made before"
        )
        raise InvalidInput(msg)
    if revision < REVISION:
        migrate.upgrade(connection, failpoints)


def _tables(connection: sqlite3.Connection) -> set[str]:
    try:
        return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorname", "") != "SQLITE_NOTADB":
            raise
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
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _empty_log(connection: sqlite3.Connection) -> None:
    """Empty the write-ahead log a killed process left: what it had just forgotten would stay in there."""
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError:
        return  # others work with the file: the last of them to close it empties the log
    finally:
        connection.execute(f"PRAGMA busy_timeout = {PATIENCE}")


def is_large(path: str) -> bool:
    """Whether writing a file anew takes so long that nobody should wait for it (0.4 s for 56 MB, about 7 s a GB)."""
    return Path(path).stat().st_size > LARGE


def rewritten(connection: sqlite3.Connection) -> bool:
    """Write a file anew, so that no page of it holds a copy of what is gone; False while somebody else writes it.

    `secure_delete` zeroes what is deleted, and not the copy SQLite leaves in a page's unused space where it moves a row
    to another page (measured: one forget of six under load). Other writers wait for as long as it takes.
    """
    try:
        connection.execute("VACUUM")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return False
        raise
    return True


def truncated(connection: sqlite3.Connection) -> bool:
    """Empty the write-ahead log; False where another process still reads it."""
    try:
        busy: int = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return False
        raise
    return not busy
