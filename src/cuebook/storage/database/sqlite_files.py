"""Open a SQLite database: check owner and schema version, set pragmas, create, migrate, and lock leases."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from shutil import disk_usage, rmtree
from tempfile import mkdtemp
from typing import Any

from cuebook.errors import BackendError, InvalidInput
from cuebook.storage.database.holders import lock
from cuebook.storage.database.statements import FULL_TEXT, MIGRATIONS, VERSION, Migration, ddl
from cuebook.storage.database.transaction import Failpoints

#: "cueb", so that `file` and other programs can identify the database.
APPLICATION_ID = 0x63756562

MEMORY = ":memory:"
#: Most bytes of a file that an erasure rewrites before it returns: about half a second of work (7 s a GB).
LARGE = 64 * 1024 * 1024
#: Pages that a copy reads between two reports of its progress: 8 MB.
_STEP = 1024
#: Bytes that are overwritten at once.
_BLOCK = 1 << 20
#: Beginning of the name of the folder in which a backup copies a project. Left ones are erased, so no other program may
#: use it.
COPIES = ".cuebook-backup-"
#: Share of the free space that a reserve file takes, and its least and most bytes.
_SHARE, _LEAST, _MOST = 100, 1 << 20, 64 << 20
#: Milliseconds for which a write waits for another process.
PATIENCE = 30000
#: Seconds between two retries of operations for which SQLite does not wait.
PAUSE = 0.02


def connect(path: str, *, synchronous: str = "FULL", read_only: bool = False) -> sqlite3.Connection:
    """Open a connection to a Cuebook database and set pragmas. Transactions are started explicitly."""
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


def prepare(path: str, *, synchronous: str, failpoints: Failpoints, copying: bool = False) -> sqlite3.Connection:
    """Open the write connection; create or migrate the database first if needed.

    Raises InvalidInput for the target of an unfinished copy, unless `copying`.
    """
    if path != MEMORY:
        _check_folder(Path(path))
        _make(path)
    connection = _open(path)
    try:
        tables = _look(
            connection, path, copying=copying
        )  # before pragmas are set: other programs' files are not changed
        _set_up(connection, path, synchronous)
        _prepare_schema(connection, path, tables, failpoints)
        _empty_log(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _open(path: str) -> sqlite3.Connection:
    """Open an existing file. A connection must not create a removed database again, as an empty one."""
    name = path if path == MEMORY else f"{Path(path).absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(name, uri=True, isolation_level=None, check_same_thread=False, cached_statements=256)
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
    """Switch to the write-ahead log. If several processes start at once, SQLite refuses instead of waiting."""
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
        msg = f"Database {str(path)!r} is a folder. Use a file."
        raise InvalidInput(msg)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"The folder of database {str(path)!r} cannot be created ({error.strerror}). Use a writable folder."
        raise BackendError(msg) from error


def _make(path: str) -> None:
    """Create a file readable by its owner only, whatever the umask; SQLite's log gets the same mode."""
    with suppress(OSError):  # it exists, or SQLite reports the problem
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _look(connection: sqlite3.Connection, path: str, *, copying: bool) -> set[str]:
    """Return the existing tables; refuse a database of another program, or of an unfinished copy unless `copying`."""
    tables = _tables(connection)
    if tables and connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        msg = f"Database {path!r} belongs to another program. Use another file."
        raise InvalidInput(msg)
    if "copying" in tables and not copying:
        msg = f"A copy into database {path!r} has not finished. Repeat `cuebook db copy`, or delete the file."
        raise InvalidInput(msg)
    return tables


def _prepare_schema(connection: sqlite3.Connection, path: str, tables: set[str], failpoints: Failpoints) -> None:
    if not tables:
        if path == MEMORY:
            _empty().backup(connection)
        else:
            _create(connection)
    version = schema_version(connection)
    if version is None or version < 1:
        msg = f"Database {path!r} has no valid schema version. It is damaged: restore it from a backup."
        raise BackendError(msg)
    if version > VERSION:
        msg = (
            f"Database {path!r} was written by a newer Cuebook (schema {version}; this version supports {VERSION}). "
            "Upgrade Cuebook, or restore an older backup."
        )
        raise InvalidInput(msg)
    if version < VERSION:
        migrate(connection, failpoints)


def schema_version(connection: sqlite3.Connection) -> int | None:
    """Return the version of a database's schema, None if it has no valid one."""
    try:
        row = connection.execute("SELECT version FROM schema_version").fetchone()
    except sqlite3.OperationalError:  # no such table, or a text that is not UTF-8
        return None
    return row[0] if row is not None and isinstance(row[0], int) else None


def migrate(
    connection: sqlite3.Connection, failpoints: Failpoints, migrations: tuple[Migration, ...] = MIGRATIONS
) -> None:
    """Run the missing migrations in one transaction: after an interruption the old schema remains.

    A second process waits for the first, up to its busy timeout, and then finds nothing left to do.
    """
    with _transaction(connection):
        version = schema_version(connection) or 1  # `_prepare_schema` refused any other version
        for migration in migrations[version - 1 :]:
            for statement in migration:
                failpoints("migrate.statement")
                connection.execute(statement)
        failpoints("migrate.statement")
        connection.execute("UPDATE schema_version SET version = ?", (len(migrations) + 1,))


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself rolls back on a full disk
            connection.execute("ROLLBACK")
        raise


def rows_in(path: str, statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement on a database file that is not open. Raises BackendError if it cannot be read."""
    try:
        with closing(connect(path, read_only=True)) as connection:
            return connection.execute(statement).fetchall()
    except sqlite3.Error as error:
        msg = f"Database {path!r} cannot be read ({error})."
        raise BackendError(msg) from error


def snapshot(
    path: str, target: str, *, with_keys: bool = True, progress: Callable[[int, int], None] = lambda *_: None
) -> int | None:
    """Copy a database as of one moment to a new file, while others write. Return its schema version. Blocks.

    `progress` gets the copied pages and their total. Raises BackendError.
    """
    _make(target)
    try:
        with closing(connect(path, read_only=True)) as source, closing(_open(target)) as copy:
            source.execute("BEGIN")
            version = schema_version(source)  # from here on it reads one state, so that no write restarts the copy
            source.backup(copy, pages=_STEP, progress=lambda _, left, total: progress(total - left, total))
            copy.execute("PRAGMA journal_mode = DELETE")  # one file
            if not with_keys:
                copy.execute("PRAGMA secure_delete = ON")
                copy.execute("DELETE FROM api_key")
            return version
    except sqlite3.Error as error:
        msg = f"The database {path!r} cannot be copied ({error})."
        raise BackendError(msg) from error


def _tables(connection: sqlite3.Connection) -> set[str]:
    try:
        return {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorname", "") != "SQLITE_NOTADB":
            raise
        msg = f"The file is not a SQLite database ({error}). Use another file, or restore it from a backup."
        raise BackendError(msg) from error


@cache
def _empty() -> sqlite3.Connection:
    """Return a database in memory without rows. Copying it takes a tenth of the time that creating the schema does."""
    connection = _open(MEMORY)
    _set_up(connection, MEMORY, "OFF")  # both need the same page size
    _create(connection)
    return connection


def _create(connection: sqlite3.Connection) -> None:
    """Create the schema once, even if two processes start at the same time."""
    with _transaction(connection):
        if not _tables(connection):
            for statement in ddl("sqlite"):
                connection.execute(statement)
            connection.execute("INSERT INTO schema_version VALUES (?)", (VERSION,))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


def _empty_log(connection: sqlite3.Connection) -> None:
    """Truncate the write-ahead log of a killed process, which may contain erased data."""
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError:
        return  # other processes use the file: the last one to close it truncates the log
    finally:
        connection.execute(f"PRAGMA busy_timeout = {PATIENCE}")


def rewritten(connection: sqlite3.Connection) -> bool:
    """Rewrite a file (VACUUM), so that no page contains a copy of erased data; return False while another writes.

    `secure_delete` zeroes deleted rows, but not the copy that SQLite leaves in a page's unused space when it moves a
    row to another page (measured: one of six erasures under load). Other writers wait meanwhile.
    """
    return _run_alone(connection, "VACUUM") is not None


def truncated(connection: sqlite3.Connection) -> bool:
    """Truncate the write-ahead log; return False if another process still reads it."""
    results = _run_alone(connection, "PRAGMA wal_checkpoint(TRUNCATE)")
    return results is not None and not results[0][0]


def _run_alone(connection: sqlite3.Connection, statement: str) -> list[Any] | None:
    """Run a statement that needs the file for itself; return None while another process uses it."""
    try:
        return connection.execute(statement).fetchall()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return None
        raise


@contextmanager
def folder_for_copies(home: Path) -> Iterator[Path]:
    """Create a folder for the copies of a backup, which is removed at the end. Remove those of killed backups first."""
    remove_copies(home)
    with ExitStack() as closing_later:
        folder = _locked_folder(home, closing_later)
        closing_later.callback(rmtree, folder)
        yield folder


def _locked_folder(home: Path, closing_later: ExitStack) -> Path:
    """Create a folder and lock it. If another process removes it before it is locked, create another one."""
    while True:
        folder = Path(mkdtemp(prefix=COPIES, dir=home))
        try:
            descriptor = os.open(folder, os.O_RDONLY)
            closing_later.callback(os.close, descriptor)
            lock(descriptor)
        except (FileNotFoundError, BlockingIOError):
            continue
        except OSError:  # Windows cannot open folders
            return folder
        if folder.exists():
            return folder


def remove_copies(home: Path) -> None:
    """Remove the copies of a project that killed backups left, with their bytes: no process has a lock on them."""
    for folder in home.glob(f"{COPIES}*"):
        with suppress(OSError), ExitStack() as closing_later:
            descriptor = os.open(folder, os.O_RDONLY)
            closing_later.callback(os.close, descriptor)
            lock(descriptor)
            for file in folder.rglob("*"):
                if file.is_file() and not file.is_symlink():
                    _blank(file)
            rmtree(folder)


def _blank(file: Path) -> None:
    with file.open("r+b") as opened:
        for start in range(0, file.stat().st_size, _BLOCK):
            opened.write(bytes(min(_BLOCK, file.stat().st_size - start)))
        opened.flush()
        os.fsync(opened.fileno())


# ---- damaged values -------------------------------------------------------------------------------------------------


def text_or_bytes(value: bytes) -> str | bytes:
    """Return a stored text, or its bytes if it is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def damaged_cell(connection: sqlite3.Connection) -> str:
    """Return the first value that is not of its column's type, or not UTF-8, "" for none. SQLite checks neither."""
    connection.text_factory = text_or_bytes
    try:
        tables = [name for name in sorted(_tables(connection)) if not name.startswith((*FULL_TEXT, "sqlite"))]
        return next((found for table in tables if (found := _damaged_in(connection, table))), "")
    finally:
        connection.text_factory = str


def _damaged_in(connection: sqlite3.Connection, table: str) -> str:
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    kinds = {name: kind.lower() for _, name, kind, *_ in columns}
    keys = [name for _, name, _, _, _, key in columns if key] or ["rowid"]
    texts = [name for name, kind in kinds.items() if kind == "text"]
    wrong = " ".join(f"WHEN typeof({name}) NOT IN ('null', '{kind}') THEN '{name}'" for name, kind in kinds.items())
    sql = f"SELECT CASE {wrong} END, {', '.join((*keys, *texts))} FROM {table}"  # noqa: S608  # names of the schema
    for bad, *values in connection.execute(sql):
        damaged = [name for name, value in zip(texts, values[len(keys) :], strict=True) if isinstance(value, bytes)]
        if bad or damaged:
            row = ", ".join(f"{name} {value!r}" for name, value in zip(keys, values, strict=False))
            return f"column {bad or damaged[0]!r} of the row of {table!r} with {row}"
    return ""


# ---- files that change under an open database -----------------------------------------------------------------------


class OpenFiles:
    """The files of an open database by device and inode. What is written to a file without its path is lost."""

    def __init__(self, path: str) -> None:
        """Store the identities of the database, its write-ahead log and the index of that log."""
        self._path = path
        self._files = {each: found for ending in ("", "-wal", "-shm") if (found := _identity(each := path + ending))}

    def check(self, *, writes: bool = True) -> None:
        """Raise BackendError if a file was removed or replaced since it was opened, or for `writes` is read-only."""
        for file, identity in self._files.items():
            found = _identity(file)
            if found != identity:
                state = "replaced" if found else "removed"
                msg = f"The database was {state} while it was open: {Path(file).name!r}. Nothing of this request was"
                raise BackendError(f"{msg} stored. Stop all processes that use it, restore the file, and start again.")
        if writes and not (os.access(self._path, os.W_OK) and Path(self._path).stat().st_mode & 0o222):
            msg = f"The store cannot be opened or written ({Path(self._path).name!r} is read-only). Check"
            raise BackendError(f"{msg} the permissions of the file and its folder.")


def _identity(file: str) -> tuple[int, int] | None:
    try:
        status = os.stat(file)  # noqa: PTH116  # Path.stat takes twice as long, and each commit calls it
    except OSError:
        return None
    return status.st_dev, status.st_ino


def make_reserve(path: str) -> None:
    """Create the reserve file beside a database: space for an erasure when the disk is full.

    It takes a hundredth of the free space, at most 64 MB. There is none where that is less than 1 MB.
    """
    reserve = Path(f"{path}-reserve")
    with suppress(OSError):  # it exists, or there is no space
        size = min(_MOST, disk_usage(reserve.parent).free // _SHARE)
        if size >= _LEAST:
            with os.fdopen(os.open(reserve, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(bytes(size))


def free_reserve(path: str) -> bool:
    """Delete the reserve file; return whether there was one."""
    try:
        Path(f"{path}-reserve").unlink()
    except OSError:
        return False
    return True
