"""The database interface: transactions of named statements, and decorators that make store methods of them.

A noun of the store is a subclass of `Noun`. Its methods are written as synchronous functions of a transaction;
`@read` and `@write` turn them into coroutines that run in a thread.
"""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from cuebook.storage.database.holders import Holders
from cuebook.storage.database.record import S, record_maker
from cuebook.storage.database.statements import Statements
from cuebook.storage.failpoints import Failpoints

T = TypeVar("T")
P = ParamSpec("P")
N = TypeVar("N", bound="Noun")

#: A row by column names.
Row = dict[str, Any]


class Cursor(Protocol):
    """The part of a DB-API cursor that the store uses. Rows are tuples."""

    @property
    def description(self) -> Sequence[Sequence[Any]] | None: ...
    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchmany(self, size: int, /) -> list[Any]: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Transaction:
    """One snapshot or one transaction of a database, which runs statements by name. Used by one thread at a time."""

    __slots__ = ("_execute", "_prepared", "_statements", "failpoint")

    def __init__(
        self, execute: Callable[[str, tuple[Any, ...]], Cursor], statements: Statements, failpoint: Failpoints
    ) -> None:
        self._execute = execute
        self._prepared = statements.prepared
        self._statements = statements
        self.failpoint = failpoint

    def run(self, name: str, /, **values: Any) -> Cursor:
        """Run a statement. Return its cursor, with the rows as tuples and the number of changed rows."""
        sql, in_order = self._prepared[name]
        return self._execute(sql, in_order(values))

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        """Return all rows of a statement by column names."""
        cursor = self.run(name, **values)
        names = self._columns(name, cursor)
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def one(self, name: str, /, **values: Any) -> Row | None:
        """Return the first row of a statement by column names, None for none."""
        cursor = self.run(name, **values)
        row = cursor.fetchone()
        return None if row is None else dict(zip(self._columns(name, cursor), row, strict=True))

    def records(self, kind: type[S], name: str, /, **values: Any) -> list[S]:
        """Return the rows of a statement as records."""
        cursor = self.run(name, **values)
        return list(map(self._maker(kind, name, cursor), cursor))

    def record(self, kind: type[S], name: str, /, **values: Any) -> S | None:
        """Return the first row of a statement as a record, None for none."""
        cursor = self.run(name, **values)
        row = cursor.fetchone()
        return None if row is None else self._maker(kind, name, cursor)(row)

    def _columns(self, name: str, cursor: Cursor) -> tuple[str, ...]:
        names = self._statements.columns.get(name)
        if names is None:
            names = self._statements.columns[name] = tuple(column[0] for column in cursor.description or ())
        return names

    def _maker(self, kind: type[S], name: str, cursor: Cursor) -> Callable[[Sequence[Any]], S]:
        maker = self._statements.makers.get((kind, name))
        if maker is None:
            maker = self._statements.makers[kind, name] = record_maker(kind, self._columns(name, cursor))
        return maker

    def value(self, name: str, /, **values: Any) -> Any:
        """Return the first column of a statement's first row, None without rows."""
        row = self.run(name, **values).fetchone()
        return None if row is None else row[0]


class Database(Protocol):
    """A database. A write that has returned is durable; a read sees one snapshot."""

    @property
    def holders(self) -> Holders:
        """Return the lease holders of this database."""
        ...

    @property
    def shared_snapshots(self) -> bool:
        """Return whether reads see only committed data, so that caches may keep what they read."""
        ...

    @property
    def unclean(self) -> bool:
        """Return whether files may still contain erased data, as far as this process knows."""
        ...

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run a function in one snapshot, in a thread."""
        ...

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run a function in one transaction, in a thread. An exception undoes all its changes."""
        ...

    async def clean(self, *, patience_ms: int = 0, large: bool = False) -> bool:
        """Remove erased data from files; return False while another reader uses them.

        Do work of many seconds only if `large`, else return False.
        """
        ...

    async def version(self) -> tuple[int, int]:
        """Return a reader and its change mark, which differs after any write."""
        ...

    async def check(self, *, whole: bool = False) -> dict[str, Any]:
        """Return the kind of the database and its state; `whole` runs an integrity check."""
        ...

    async def aclose(self) -> None:
        """Finish queued writes and close all connections."""
        ...


class Noun:
    """The stored data of one noun: methods over a database."""

    def __init__(self, database: Database) -> None:
        self.database = database


def read(method: Callable[Concatenate[N, Transaction, P], T]) -> Callable[Concatenate[N, P], Coroutine[Any, Any, T]]:
    """Make a method of a noun read in one snapshot."""

    @wraps(method)
    async def call(noun: N, /, *args: P.args, **values: P.kwargs) -> T:
        return await noun.database.read(lambda transaction: method(noun, transaction, *args, **values))

    return call


def write(method: Callable[Concatenate[N, Transaction, P], T]) -> Callable[Concatenate[N, P], Coroutine[Any, Any, T]]:
    """Make a method of a noun write in one transaction."""

    @wraps(method)
    async def call(noun: N, /, *args: P.args, **values: P.kwargs) -> T:
        return await noun.database.write(lambda transaction: method(noun, transaction, *args, **values))

    return call
