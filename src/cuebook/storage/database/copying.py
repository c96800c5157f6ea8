"""Copy all rows of one database to another, from SQLite to PostgreSQL, back, or between two of a kind. Blocks.

The rows are copied in the order of their keys, some thousand per transaction. Each transaction also stores the place
that it has reached, so that an interrupted copy continues there. In the end, digests of all tables are compared.
"""

import json
import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from cuebook.config import SERVERS, without_secret
from cuebook.errors import Conflict, InvalidInput, NotFound
from cuebook.storage.database.postgres import is_copying, schema_of, upgrade
from cuebook.storage.database.postgres_connection import connected
from cuebook.storage.database.sqlite_files import connect, prepare, schema_version
from cuebook.storage.database.statements import FULL_TEXT, VERSION, ddl
from cuebook.storage.database.transaction import ALL, Failpoints

#: Rows per transaction.
AT_ONCE: Final = 2_000
#: The advisory lock of a copy into a server's database.
_COPY: Final = 0x63756563
#: The place of a row's conversation in the number of its full-text row.
_SHIFT: Final = 32
_OTHER: Final = "it has an unfinished copy of another source"
#: The tables that name API keys.
KEY_TABLES: Final = ("api_key",)

Value = str | int | float | bytes | None
Row = tuple[Value, ...]
#: Called after each transaction with a table, and the number of rows copied and in total.
Progress = Callable[[str, int, int], None]


class Table(Struct, frozen=True):
    """A table with its columns. `key` are those that identify a row, in order."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]


class Copied(Struct, frozen=True):
    """A finished copy: the rows of each table, and whether an earlier copy was continued."""

    rows: dict[str, int]
    continued: bool


def tables(*, with_keys: bool = True) -> list[Table]:
    """Return all tables with data, in the order of the schema."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in ddl("sqlite"):
            connection.execute(statement)
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        skipped = ("sqlite_", *(f"{name}_" for name in FULL_TEXT))
        chosen = [name for name in names if not name.startswith(skipped) and name != "schema_version"]
        found = [_table(connection, name) for name in chosen if with_keys or name not in KEY_TABLES]
    return sorted(found, key=lambda each: each.name in FULL_TEXT)  # they need the tenants of conversations and memories


def _table(connection: sqlite3.Connection, name: str) -> Table:
    info = connection.execute(f"PRAGMA table_info({name})").fetchall()
    columns = tuple(row[1] for row in info)
    if name in FULL_TEXT:
        return Table(name, ("rowid", *columns), ("rowid",))
    key = tuple(row[1] for row in sorted(info, key=lambda row: row[5]) if row[5])
    if not key:
        unique = next(row[1] for row in connection.execute(f"PRAGMA index_list({name})") if row[2] and not row[4])
        key = tuple(row[2] for row in connection.execute(f"PRAGMA index_info({unique})"))
    return Table(name, columns, key)


def copy(
    source: str, target: str, *, with_keys: bool = True, progress: Progress = lambda *_: None, at_once: int = AT_ONCE
) -> Copied:
    """Copy all rows of a database file or server to another one, which must be empty or begun by this same copy.

    Raises NotFound without a source, InvalidInput if it is also the target, Conflict if the target has other data, if
    another copy into it is running or if the digests differ in the end.
    """
    if _identity(source, with_keys=True) == _identity(target, with_keys=True):
        msg = f"Source and target are the same database {without_secret(target)!r}. Choose another target."
        raise InvalidInput(msg)
    with _opened(source, is_target=False) as old, _alone(target), _opened(target, is_target=True) as new:
        known = tables(with_keys=with_keys)
        continued = _begin(new, known, target, shown=_identity(source, with_keys=with_keys))
        counts = {}
        for table in known:
            counts[table.name] = _copy_table(old, new, table, progress, at_once)
        for table in known:
            if _digest(old, table) != _digest(new, table):
                msg = f"Table {table.name!r} differs: the source was changed during the copy. Stop all servers and"
                raise Conflict(f"{msg} workers of the source, {_how_to_empty(target)}, and copy again.")
        _end(old, new, known)
        return Copied(counts, continued)


# ---- the two sides --------------------------------------------------------------------------------------------------


class _Side:
    """A connection to a database, with the statements that copying needs."""

    def __init__(self, connection: Any, mark: str) -> None:
        self.connection = connection
        self.mark = mark
        self.is_server = mark == "%s"
        self._tenants: dict[str, dict[Value, str]] = {}

    def query(self, statement: str, values: Sequence[Value] = ()) -> Iterator[Row]:
        """Return the rows of a statement, with `?` for its values."""
        return iter(self.connection.execute(statement.replace("?", self.mark), tuple(values)))

    def stream(self, statement: str) -> Iterator[Row]:
        """Return the rows of a statement, some thousand at a time."""
        if not self.is_server:
            yield from self.query(statement)
            return
        with self.connection.cursor(name="rows") as cursor:
            cursor.itersize = AT_ONCE
            yield from cursor.execute(statement)

    def value(self, statement: str, values: Sequence[Value] = ()) -> Any:
        """Return the first value of a statement, None without rows."""
        return next(self.query(statement, values), (None,))[0]

    def insert(self, table: Table, rows: Sequence[Row]) -> None:
        """Insert rows. Raises InvalidInput for a value that the database cannot store."""
        columns, marks = list(table.columns), [self.mark] * len(table.columns)
        if self.is_server and table.name in FULL_TEXT:
            columns, marks = ["tenant", *columns], [self.mark, *marks]
            rows = [(self._tenant_of(table.name, row[0]), *row) for row in rows]
        statement = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({', '.join(marks)})"  # noqa: S608
        cursor = self.connection.cursor()
        try:
            cursor.executemany(statement, rows)
        except (ValueError, UnicodeError) as error:
            raise InvalidInput(f"A row of table {table.name!r} cannot be stored ({error}).") from error

    def _tenant_of(self, name: str, rowid: Value) -> str:
        """Return the tenant of a full-text row."""
        owner = "conversation" if name == "post_text" else "memory"
        if owner not in self._tenants:
            self._tenants[owner] = dict(self.query(f"SELECT no, tenant FROM {owner}"))  # type: ignore[arg-type]  # noqa: S608
        number = rowid >> _SHIFT if owner == "conversation" and isinstance(rowid, int) else rowid
        return self._tenants[owner].get(number, "")


@contextmanager
def _opened(place: str, *, is_target: bool) -> Iterator[_Side]:
    if place.startswith(SERVERS):
        if is_target:
            upgrade(place)
        with connected(place) as connection:
            if schema_of(connection) != VERSION:
                msg = f"The database of the source has schema {schema_of(connection)}, not {VERSION}. Migrate it first."
                raise InvalidInput(msg)
            if not is_target:
                _check_source(place, is_partial=is_copying(connection))
                connection.rollback()
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute("SELECT set_config('cuebook.tenant', %s, false)", (ALL,))
            yield _Side(connection, "%s")
        return
    file = Path(place)
    if is_target:
        prepare(place, synchronous="FULL", failpoints=Failpoints(), copying=True).close()
    elif not file.is_file():
        msg = f"There is no database {place!r}."
        raise NotFound(msg)
    with closing(connect(place, read_only=not is_target)) as connection:
        if schema_version(connection) != VERSION:
            msg = f"{place!r} has schema {schema_version(connection)}, not {VERSION}. Open it once to migrate it."
            raise InvalidInput(msg)
        connection.execute("BEGIN IMMEDIATE" if is_target else "BEGIN")
        if not is_target:
            begun = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'copying'").fetchone()
            _check_source(place, is_partial=begun is not None)
        yield _Side(connection, "?")
        if connection.in_transaction:
            connection.commit()


def _check_source(place: str, *, is_partial: bool) -> None:
    """Raise Conflict for a source that is the target of an unfinished copy."""
    if is_partial:
        msg = f"A copy into the source {without_secret(place)!r} has not finished. Repeat that copy first."
        raise Conflict(msg)


@contextmanager
def _alone(target: str) -> Iterator[None]:
    """Let no other copy into the same target run. Raises Conflict."""
    msg = f"Another copy into {without_secret(target)!r} is running. Wait until it ends."
    if target.startswith(SERVERS):
        with connected(target) as connection:
            if not connection.execute("SELECT pg_try_advisory_lock(%s)", (_COPY,)).fetchone()[0]:
                raise Conflict(msg)
            connection.commit()  # the lock belongs to the session
            yield
        return
    lock = Path(f"{target}-copying")
    lock.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(lock, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            raise Conflict(msg) from error
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _how_to_empty(target: str) -> str:
    """Return the instruction to empty a target."""
    if target.startswith(SERVERS):
        return "empty the target (drop its database and create it again)"
    return f"delete the target ({target!r}, with the files {target + '-wal'!r} and {target + '.key'!r} if they exist)"


def _identity(place: str, *, with_keys: bool) -> str:
    """Return a digest that recognizes a copy: of the source's host and database, or of its file."""
    name = str(Path(place).resolve())
    if place.startswith(SERVERS):
        from psycopg.conninfo import conninfo_to_dict

        parts = conninfo_to_dict(place)
        name = f"{parts.get('hostaddr') or parts.get('host')} {parts.get('port') or 5432} {parts.get('dbname')}"
    return sha256(f"{name} {with_keys}".encode()).hexdigest()


def check_begun(source: str, target: str, *, with_keys: bool) -> None:
    """Raise Conflict if a server's database has an unfinished copy of another source. Blocks."""
    if target.startswith(SERVERS):
        with connected(target) as connection:
            if not is_copying(connection):
                return
            begun = connection.execute("SELECT source FROM copying LIMIT 1").fetchone()
        if begun and begun[0] != _identity(source, with_keys=with_keys):
            raise Conflict(_not_empty(_OTHER, target))


def _not_empty(why: str, target: str) -> str:
    return f"The target is not empty: {why}. Choose an empty database, or {_how_to_empty(target)}."


# ---- the copy -------------------------------------------------------------------------------------------------------


def _begin(new: _Side, known: Sequence[Table], target: str, *, shown: str) -> bool:
    """Prepare the target; return whether this copy had begun before. Raises Conflict if it has other data."""
    new.query("CREATE TABLE IF NOT EXISTS copying (source TEXT NOT NULL, name TEXT NOT NULL, place TEXT NOT NULL)")
    begun = new.value("SELECT source FROM copying LIMIT 1")
    if begun == shown:
        return True
    full = [each.name for each in known if new.value(f"SELECT 1 FROM {each.name} LIMIT 1")]  # noqa: S608
    if begun or full:
        new.connection.rollback()
        raise Conflict(_not_empty(_OTHER if begun else f"table {full[0]!r} has rows", target))
    new.query("INSERT INTO copying VALUES (?, '', '[]')", (shown,))
    _commit(new)
    return False


def _copy_table(old: _Side, new: _Side, table: Table, progress: Progress, at_once: int) -> int:
    """Copy the rows after the place that an earlier copy reached; return the number of rows of the table."""
    total = old.value(f"SELECT count(*) FROM {table.name}")  # noqa: S608
    done = new.value(f"SELECT count(*) FROM {table.name}")  # noqa: S608
    place = new.value("SELECT place FROM copying WHERE name = ?", (table.name,))
    if place is None:
        new.query("INSERT INTO copying SELECT source, ?, '[]' FROM copying WHERE name = ''", (table.name,))
    after = _read_place(place or "[]")
    keys = ", ".join(table.key)
    while True:
        where = f"WHERE ({keys}) > ({', '.join('?' * len(after))}) " if after else ""
        statement = f"SELECT {', '.join(table.columns)} FROM {table.name} {where}ORDER BY {keys} LIMIT {at_once}"  # noqa: S608
        rows = [tuple(map(_plain, row)) for row in old.query(statement, after)]
        if not rows:
            progress(table.name, done, total)
            return int(done)
        new.insert(table, rows)
        after = tuple(rows[-1][table.columns.index(name)] for name in table.key)
        new.query("UPDATE copying SET place = ? WHERE name = ?", (_write_place(after), table.name))
        _commit(new)
        done += len(rows)
        progress(table.name, done, total)


def _commit(side: _Side) -> None:
    side.connection.commit()
    if not side.is_server:
        side.connection.execute("BEGIN IMMEDIATE")


def _plain(value: Any) -> Value:
    return bytes(value) if isinstance(value, memoryview) else value


def _write_place(key: Row) -> str:
    return json.dumps([["b", b64encode(each).decode()] if isinstance(each, bytes) else ["", each] for each in key])


def _read_place(text: str) -> Row:
    return tuple(b64decode(value) if kind else value for kind, value in json.loads(text))


def _digest(side: _Side, table: Table) -> int:
    """Return a digest of a table's rows that does not depend on their order."""
    total = 0
    rows = side.stream(f"SELECT {', '.join(table.columns)} FROM {table.name}")  # noqa: S608
    while batch := list(islice(rows, AT_ONCE)):
        for row in batch:
            encoded = msgspec.msgpack.encode([_plain(value) for value in row])
            total += int.from_bytes(sha256(encoded).digest())
    return total % (1 << 256)


def _end(old: _Side, new: _Side, known: Sequence[Table]) -> None:
    """Let new rows get numbers that the source has never used, and remove the place of the copy."""
    for table in known:
        if table.key != ("no",):
            continue
        if old.is_server:
            last = old.value(f"SELECT last_value FROM pg_sequences WHERE sequencename = '{table.name}_no_seq'") or 0  # noqa: S608
        else:
            last = old.value("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,)) or 0
        if not last:
            continue
        if new.is_server:
            new.query(f"SELECT setval('{table.name}_no_seq', ?)", (last,))
        else:
            new.query("DELETE FROM sqlite_sequence WHERE name = ?", (table.name,))
            new.query("INSERT INTO sqlite_sequence VALUES (?, ?)", (table.name, last))
    new.query("DROP TABLE copying")
    _commit(new)
