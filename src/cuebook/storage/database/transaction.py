"""The database interface: transactions of named statements, and decorators that make store methods of them.

A noun of the store is a subclass of `Noun`. Its methods are written as synchronous functions of a transaction;
`@read` and `@write` turn them into coroutines that run in a thread for a caller's scope, `@read_all` and `@write_all`
into ones over all tenants. A write runs alone in its tenant. Only those marked with `@write_conversation` or
`@write_lease` run at the same time, if of different conversations. What these share, they lock (`Transaction.lock`).
"""

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Final,
    ParamSpec,
    Protocol,
    TypeVar,
    get_type_hints,
)

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from cuebook.errors import BackendError, Conflict, InvalidInput, KeyReused
from cuebook.records.memory import Scope
from cuebook.storage.database.columns import Row, record_maker
from cuebook.storage.database.holders import Holders
from cuebook.storage.database.seals import Changes, SealedTable, note, store_seals
from cuebook.storage.database.statements import ROWS, Statements

T = TypeVar("T")
P = ParamSpec("P")
N = TypeVar("N", bound="Noun")
S = TypeVar("S", bound=Struct)
#: The tenant of a transaction over all tenants, which no tenant can have as its name.
ALL: Final = "*"
#: The result of a statement; psycopg's cursor has the same methods.
Cursor = sqlite3.Cursor

# ---- failpoints -----------------------------------------------------------------------------------------------------


#: All failpoints; a test passes through each of them.
NAMES: Final = (
    "append.begin", "append.stored", "open.begin", "open.stored", "checkpoint.stored", "close.begin",
    "close.stored", "commit.before", "commit.after", "expire.stored", "summary.begin", "summary.stored",
    "head.stored", "delete.stored", "forget.begin", "forget.stored", "forget.mirror", "forget.log",
    "forget.signed", "outcome.folded", "stream.piece", "stream.ended", "compact.read", "compact.made",
    "reflect.read", "reflect.made", "request.finish", "migrate.statement",
)  # fmt: skip
_ACTIONS = ("kill", "raise", "delay", "stop")


class Failpoints:
    """The armed failpoint of this process, if any: a named point where a test kills, fails, stops or delays it.

    The setting `name:kill|raise|delay|stop@n` acts when the point is passed for the n-th time (default: 1). kill =
    SIGKILL to this process, stop = SIGSTOP, raise = a BackendError, delay = half a second.
    """

    def __init__(self, setting: str = "") -> None:
        self._name = ""
        self._left = 0
        self._action = ""
        if setting:
            place, _, action = setting.partition(":")
            action, _, nth = action.partition("@")
            if place not in NAMES or action not in _ACTIONS or not (nth or "1").isdecimal():
                expected = f"NAME:{'|'.join(_ACTIONS)}[@N] with NAME one of {', '.join(NAMES)}"
                msg = f"CUEBOOK_FAILPOINT {setting!r}: expected {expected}"
                raise InvalidInput(msg)
            self._name, self._action, self._left = place, action, int(nth or 1)

    @classmethod
    def from_environment(cls) -> "Failpoints":
        """Return failpoints armed from the environment."""
        return cls(os.environ.get("CUEBOOK_FAILPOINT", ""))

    def __call__(self, name: str) -> None:
        """Act if this failpoint is armed and due."""
        if name != self._name:
            return
        self._left -= 1
        if self._left != 0:
            return
        if self._action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif self._action == "delay":
            time.sleep(0.5)
        else:
            msg = f"failpoint {name}"
            raise BackendError(msg, retryable=True)


# ---- transactions ---------------------------------------------------------------------------------------------------


class Transaction:
    """One snapshot or one transaction of a database, which runs statements by name. Used by one thread at a time.

    A caller's transaction passes the caller's `tenant`, `user` and `proven` to each statement, unless a call names
    others. That of all tenants passes none of them.
    """

    __slots__ = ("_execute", "_prepared", "_scope_values", "_statements", "changes", "failpoint", "scope")

    def __init__(
        self,
        execute: Callable[[str, tuple[Any, ...]], Cursor],
        statements: Statements,
        failpoint: Failpoints,
        scope: Scope | None = None,
    ) -> None:
        self._execute = execute
        self._prepared = statements.prepared
        self._statements = statements
        self._scope_values = asdict(scope) if scope else {}
        self.failpoint = failpoint
        self.scope = scope or Scope("")
        self.changes: Changes = {}

    def within(self, scope: Scope) -> "Transaction":
        """Return this transaction for a caller."""
        transaction = self._of(scope)
        transaction.changes = self.changes
        return transaction

    def _of(self, scope: Scope) -> "Transaction":
        return Transaction(self._execute, self._statements, self.failpoint, scope)

    def run(self, name: str, /, **values: Any) -> Cursor:
        """Run a statement. Return its cursor, with the rows as tuples and the number of changed rows."""
        sql, in_order = self._prepared[name]
        return self._execute(sql, in_order(self._scope_values | values))

    def change(self, table: SealedTable, name: str, before: Iterable[Row] = (), /, **values: Any) -> list[Row]:
        """Run a statement that stores sealed rows, which were `before`. Return them; their seals follow at the end."""
        rows = self.rows(name, **values)
        note(self.changes, table, before, rows)
        return rows

    def update(self, table: SealedTable, name: str, /, **values: Any) -> None:
        """Run an UPDATE of sealed rows."""
        self.change(table, name, self.rows(f"{name}{ROWS}", **values), **values)

    def delete(self, table: SealedTable, name: str, /, **values: Any) -> int:
        """Run a DELETE of sealed rows. Return how many there were."""
        rows = self.rows(name, **values)
        note(self.changes, table, rows, ())
        return len(rows)

    def rows(self, name: str, /, **values: Any) -> list[Row]:
        """Return all rows of a statement by column names."""
        cursor = self.run(name, **values)
        rows = cursor.fetchall()
        names = self._columns(name, cursor, rows[0]) if rows else ()
        return [dict(zip(names, row, strict=True)) for row in rows]

    def one(self, name: str, /, **values: Any) -> Row | None:
        """Return the first row of a statement by column names, None for none."""
        cursor = self.run(name, **values)
        row = cursor.fetchone()
        return None if row is None else dict(zip(self._columns(name, cursor, row), row, strict=True))

    def records(self, kind: type[S], name: str, /, **values: Any) -> list[S]:
        """Return the rows of a statement as records."""
        cursor = self.run(name, **values)
        rows = cursor.fetchall()
        return list(map(self._maker(kind, name, cursor, rows[0]), rows)) if rows else []

    def record(self, kind: type[S], name: str, /, **values: Any) -> S | None:
        """Return the first row of a statement as a record, None for none."""
        cursor = self.run(name, **values)
        row = cursor.fetchone()
        return None if row is None else self._maker(kind, name, cursor, row)(row)

    def _columns(self, name: str, cursor: Cursor, row: Sequence[Any]) -> tuple[str, ...]:
        """Return the names of a row's columns. A newer process may have added some since the last row."""
        key = (name, len(row))
        names = self._statements.columns.get(key)
        if names is None:
            names = self._statements.columns[key] = tuple(column[0] for column in cursor.description or ())
        return names

    def _maker(self, kind: type[S], name: str, cursor: Cursor, row: Sequence[Any]) -> Callable[[Sequence[Any]], S]:
        key = (kind, name, len(row))
        maker = self._statements.makers.get(key)
        if maker is None:
            maker = self._statements.makers[key] = record_maker(kind, self._columns(name, cursor, row))
        return maker

    def value(self, name: str, /, **values: Any) -> Any:
        """Return the first column of a statement's first row, None without rows."""
        row = self.run(name, **values).fetchone()
        return None if row is None else row[0]

    def lock(self, name: str) -> None:
        """Wait until no other write of the tenant has a lock of this name. It ends with the transaction.

        A SQLite file has one writer, which needs none.
        """


# ---- Idempotency-Keys ----------------------------------------------------------------------------------------------


#: First byte of a stored response that has the results of writes. A finished request has its answer as JSON.
_UNFINISHED: Final = b"\x00"
_RUNNING: ContextVar["KeyedRequest | None"] = ContextVar("running", default=None)


class AnsweredError(Conflict):
    """A concurrent run of the same request has stored its answer."""


class KeyedRequest:
    """A request with an Idempotency-Key: each of its writes happens once, and records its result in its transaction.

    After a crash, the same request runs again. Its writes that are durable return their recorded results instead.
    `key` is the key's stored form, `name` the key itself, `digest` that of the request's content.
    """

    def __init__(self, *, tenant: str, key: str, digest: bytes, name: str, at: float) -> None:
        self.tenant = tenant
        self.subject = f"key {key}"
        self._place = {"tenant": tenant, "key": key}
        self._name = name
        self._digest = digest
        self._at = at
        self._writes = 0
        self._ended = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """Bind the writes of the current task to this request."""
        token = _RUNNING.set(self)
        try:
            yield
        finally:
            _RUNNING.reset(token)
            self._ended = True  # a task that it started may go on

    def answer(self, transaction: Transaction) -> bytes | None:
        """Return the stored answer, None for a new or unfinished request. Raises KeyReused."""
        row = self._row(transaction)
        return None if row is None or row["response"][:1] == _UNFINISHED else bytes(row["response"])

    def replay_or_run(self, transaction: Transaction, work: Callable[[], T], returns: Any) -> T:
        """Run a write and record its result, or return the recorded result of an earlier run.

        Raises KeyReused, and AnsweredError if a concurrent run has finished.
        """
        if self._ended:
            return work()
        transaction.within(Scope(self.tenant)).lock(self.subject)
        row = self._row(transaction)
        if row is not None and row["response"][:1] != _UNFINISHED:
            raise AnsweredError
        results: list[bytes] = msgspec.msgpack.decode(row["response"][1:], type=list[bytes]) if row else []
        number, self._writes = self._writes, self._writes + 1
        if number < len(results):
            recorded: T = msgspec.msgpack.decode(
                results[number], type=returns, dec_hook=lambda kind, value: kind(value)
            )
            return recorded
        result = work()
        written = msgspec.msgpack.encode(result, enc_hook=float)  # a Time
        self._store(transaction, row, _UNFINISHED + msgspec.msgpack.encode([*results, written]))
        return result

    def finish(self, transaction: Transaction, answer: bytes) -> bytes:
        """Store the answer and return it; return that of a concurrent run if it finished first."""
        transaction.failpoint("request.finish")
        stored = self.answer(transaction)
        if stored is not None:
            return stored
        self._store(transaction, self._row(transaction), answer)
        return answer

    def _row(self, transaction: Transaction) -> Row | None:
        row = transaction.one("idempotency_get", **self._place)
        if row is not None and (row["digest"] != self._digest or row["turn"]):
            raise KeyReused(self._name)
        return row

    def _store(self, transaction: Transaction, row: Row | None, response: bytes) -> None:
        values = {"digest": self._digest, "response": response}
        if row is None:
            transaction.run("idempotency_insert", **self._place, **values, no=0, turn=0, now=self._at)
        else:
            transaction.run("idempotency_retell", **self._place, **values)


# ---- databases and nouns -------------------------------------------------------------------------------------------


class Database(Protocol):
    """A database. A write that has returned is durable; a read sees one snapshot. Its `key` seals rows."""

    key: bytes

    @property
    def holders(self) -> Holders:
        """Return the lease holders of this database."""

    @property
    def shared_snapshots(self) -> bool:
        """Return whether reads see only committed data, so that caches may keep what they read."""

    def shared(self) -> bool:
        """Return whether other processes may use the database, and let them know of this one. Blocks."""

    @property
    def unclean(self) -> bool:
        """Return whether files may still contain erased data, as far as this process knows."""

    @property
    def is_full(self) -> bool:
        """Return whether the last write failed because there was no space."""

    async def reserve(self) -> None:
        """Reserve disk space for erasures, as long as the database is open."""

    def release_reserve(self) -> bool:
        """Free the reserved space; return whether there was any. Blocks."""

    async def read(self, work: Callable[[Transaction], T], *, lenient: bool = False) -> T:
        """Run a function in one snapshot, in a thread. If `lenient`, it gets a text that is not UTF-8 as bytes."""

    async def write(self, work: Callable[[Transaction], T], *, tenant: str = "", subject: str = "") -> T:
        """Run a function in one transaction, in a thread. An exception undoes all its changes.

        No other write runs at the same time: none at all, none of the tenant, or none of the tenant about the subject.
        """

    async def clean(self, *, patience_ms: int = 0, large: bool = False) -> bool:
        """Remove erased data from files; return False while another reader uses them.

        Do work of many seconds only if `large`, else return False.
        """

    async def remains(self) -> str:
        """Return where the database's system may still keep erased data after `clean`, "" for nowhere."""

    async def version(self) -> tuple[int, int]:
        """Return a reader and its change mark, which differs after any write."""

    async def check(self, *, whole: bool = False) -> dict[str, Any]:
        """Return the kind of the database and its state; `whole` runs an integrity check."""

    async def aclose(self) -> None:
        """Finish queued writes and close all connections."""


class Noun:
    """The stored data of one noun: methods over a database. A lenient one also reads damaged texts, as bytes."""

    lenient: ClassVar[bool] = False

    def __init__(self, database: Database) -> None:
        self.database = database


def read_all(
    method: Callable[Concatenate[N, Transaction, P], T],
) -> Callable[Concatenate[N, P], Coroutine[Any, Any, T]]:
    """Make a method of a noun read in one snapshot of all tenants."""

    @wraps(method)
    async def call(noun: N, /, *args: P.args, **values: P.kwargs) -> T:
        return await noun.database.read(
            lambda transaction: method(noun, transaction, *args, **values), lenient=noun.lenient
        )

    return call


def write_all(
    method: Callable[Concatenate[N, Transaction, P], T],
) -> Callable[Concatenate[N, P], Coroutine[Any, Any, T]]:
    """Make a method of a noun write in one transaction, once for each request with an Idempotency-Key."""
    return _writing(method, lambda *_: ("", ""))


def write_lease(
    method: Callable[Concatenate[N, Transaction, P], T],
) -> Callable[Concatenate[N, P], Coroutine[Any, Any, T]]:
    """Make a method of a noun write about the conversation of a lease, its first argument."""
    return _writing(method, lambda lease, *_: (lease.scope.tenant, lease.conversation))


def _writing(
    method: Callable[Concatenate[N, Transaction, P], T], subject_of: Callable[..., tuple[str, str]]
) -> Callable[Concatenate[N, P], Coroutine[Any, Any, T]]:
    returns = cache(lambda: get_type_hints(method)["return"])

    @wraps(method)
    async def call(noun: N, /, *args: P.args, **values: P.kwargs) -> T:
        tenant, subject = subject_of(*args)
        request = _RUNNING.get()

        def sealed(transaction: Transaction) -> T:
            result = method(noun, transaction, *args, **values)
            store_seals(transaction.run, transaction.changes, noun.database.key)
            return result

        def work(transaction: Transaction) -> T:
            if request is None:
                return sealed(transaction)
            return request.replay_or_run(transaction, lambda: sealed(transaction), returns())

        return await noun.database.write(work, tenant=tenant, subject=subject)

    return call


def read(
    method: Callable[Concatenate[N, Transaction, P], T],
) -> Callable[Concatenate[N, Scope, P], Coroutine[Any, Any, T]]:
    """Make a method of a noun read in one snapshot of a caller, whose scope is its first argument."""
    return read_all(_scoped(method))


def write(
    method: Callable[Concatenate[N, Transaction, P], T],
) -> Callable[Concatenate[N, Scope, P], Coroutine[Any, Any, T]]:
    """Make a method of a noun write in one transaction of a caller, whose scope is its first argument."""
    return _writing(_scoped(method), lambda scope, *_: (scope.tenant, ""))


def write_conversation(
    method: Callable[Concatenate[N, Transaction, P], T],
) -> Callable[Concatenate[N, Scope, P], Coroutine[Any, Any, T]]:
    """Make a method of a noun write about one conversation: that of its first argument after the scope."""

    def subject_of(scope: Scope, about: Any, *_: Any) -> tuple[str, str]:
        conversation = getattr(about, "conversation", about)
        return scope.tenant, getattr(conversation, "id", conversation)

    return _writing(_scoped(method), subject_of)


def _scoped(method: Callable[Concatenate[N, Transaction, P], T]) -> Callable[Concatenate[N, Transaction, Scope, P], T]:
    @wraps(method)
    def call(noun: N, transaction: Transaction, scope: Scope, /, *args: P.args, **values: P.kwargs) -> T:
        return method(noun, transaction.within(scope), *args, **values)

    return call
