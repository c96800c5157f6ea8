"""The PostgreSQL database: snapshots, and writes under advisory locks, on a pool of connections, in threads.

A write locks its subject, its tenant or everything before it reads, so that no update is lost. The statements are
those of SQLite with other placeholders; `postgres.sql` replaces the ones that must differ. Each statement sees the rows
of its tenant only: row-level security checks it a second time.
"""

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import sha256
from sqlite3 import Cursor  # psycopg's has the same methods
from typing import Any, Final, TypeVar

from cuebook.errors import BackendError, InvalidInput, StoreFull
from cuebook.records.memory import Scope
from cuebook.storage.database.columns import UNREADABLE
from cuebook.storage.database.holders import Holders
from cuebook.storage.database.postgres_connection import HUNG_S, ROLE, connected, explain, hangs, liveliness
from cuebook.storage.database.postgres_queue import WAKES, prepare_queue
from cuebook.storage.database.statements import (
    MIGRATIONS,
    VERSION,
    Migration,
    Statements,
    ddl,
    prepared_statements,
    translated,
)
from cuebook.storage.database.transaction import ALL, Failpoints, Transaction

T = TypeVar("T")

#: Connections and threads per process.
CONNECTIONS: Final = 8
#: Seconds to wait for a connection. A busy machine may need several.
CONNECT_S: Final = 10.0
#: Connections that a transaction may lose before it fails, each to a server that has restarted.
LOST: Final = CONNECTIONS
#: Seconds for which a write waits for others, as long as SQLite waits for its lock.
PATIENCE_S: Final = 30.0
#: Seconds before a write that lost against another one runs again.
PAUSE_S: Final = 0.01
#: Seconds after which the server ends a transaction without a next statement: of a process that was cut off or stopped,
#: whose locks would delay the others.
SILENT_S: Final = 15
#: Prepared statements per connection: more than there are.
PREPARED: Final = 500
#: Bytes of a database that is rewritten whole, which locks each table for a moment.
LARGE: Final = 64 << 20
#: Milliseconds for which a rewrite waits for other transactions, unless its caller says less.
WAIT_MS: Final = 5_000
#: Seconds between two looks at a call that runs.
LOOK_S: Final = 1.0
#: Seconds between two looks at older transactions.
OLDER_S: Final = 0.01
#: Transactions that run now. One may still see deleted rows, which no vacuum removes before it ends.
_RUNNING: Final = """SELECT virtualtransaction FROM pg_locks JOIN pg_stat_activity USING (pid)
WHERE locktype = 'virtualxid' AND datname = current_database() AND pid <> pg_backend_pid()"""
_TABLES: Final = """SELECT string_agg(quote_ident(relname), ', '), sum(pg_total_relation_size(oid)) FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"""
log: Final = logging.getLogger("cuebook.storage")
#: The advisory lock under which one process creates or migrates the tables.
_CREATE: Final = 0x63756562
_READ: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITE: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
_TENANT: Final = "SELECT set_config('cuebook.tenant', {}, true)"
_ROLE: Final = f", set_config('role', '{ROLE}', true)"
_WAITS: Final = f", set_config('lock_timeout', '{PATIENCE_S}s', true)"
_LOCK: Final = "pg_advisory_xact_lock({})"
_SHARE: Final = "pg_advisory_xact_lock_shared({})"


class PostgresDatabase:
    """A database on a PostgreSQL server. `url` is a connection string of libpq; `upgrade` has made its tables."""

    def __init__(
        self,
        url: str,
        *,
        connections: int = CONNECTIONS,
        failpoints: Failpoints | None = None,
        hung_s: float = HUNG_S,
        key: bytes = b"",
    ) -> None:
        """Open it. Raises BackendError if the server cannot be reached, InvalidInput if its tables do not fit."""
        from psycopg_pool import ConnectionPool

        role = inspected(url)
        self.holders, self.key = Holders(None), key
        self.unclean = self.is_full = False
        self._has_refused = False
        self._is_lost = False
        self._answered = time.monotonic()
        self._waiting: set[_Call] = set()  # calls of this process, for an answer or a thread
        self._probe: asyncio.Task[None] | None = None
        self._url, self._hung_s = url, hung_s
        self._failpoints = failpoints or Failpoints()
        self._statements = prepared_statements("postgresql")
        self._role = _ROLE if role else ""
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="cuebook-postgres")
        logging.getLogger("psycopg").setLevel(logging.ERROR)  # each call that fails says it
        self._pool = ConnectionPool(
            url, min_size=1, max_size=connections, timeout=CONNECT_S, reconnect_timeout=CONNECT_S,
            kwargs={"autocommit": True} | liveliness(url), configure=_configure, open=True,
        )  # fmt: skip

    @property
    def shared_snapshots(self) -> bool:
        return True

    def shared(self) -> bool:
        return True

    async def reserve(self) -> None:
        """Do nothing: the server's disk may be another one."""

    def release_reserve(self) -> bool:
        return False

    async def read(self, work: Callable[[Transaction], T], *, lenient: bool = False) -> T:  # noqa: ARG002  # all is UTF-8
        return await self._run(lambda call: self._read(work, call))

    async def write(self, work: Callable[[Transaction], T], *, tenant: str = "", subject: str = "") -> T:
        return await self._run(lambda call: self._write(work, _lock_keys(tenant, subject), call))

    async def _run(self, work: Callable[["_Call"], T]) -> T:
        if self._pool.closed:
            msg = "The store is closed."
            raise BackendError(msg)
        call = _Call()
        call.future = future = self._threads.submit(work, call)
        self._waiting.add(call)
        future.add_done_callback(lambda _: self._waiting.discard(call))
        self._watch(call)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if call.refused is None:
                raise
            raise call.refused from None
        finally:
            if future.done():  # a canceled call may still run
                call.stop_watch()

    def _watch(self, call: "_Call") -> None:
        """Look every second whether a call waits for a server that hangs."""
        if call.future.done():
            return
        loop = asyncio.get_running_loop()
        if call.is_silent(self._hung_s) and (self._probe is None or self._probe.done()):
            self._probe = loop.create_task(self._cut_if_hung())
        timer = loop.call_later(LOOK_S, self._watch, call)
        call.stop_watch = timer.cancel

    async def _cut_if_hung(self) -> None:
        if await asyncio.to_thread(hangs, self._url):
            for call in list(self._waiting):
                call.cut(self._hung_s)

    def _read(self, work: Callable[[Transaction], T], call: "_Call") -> T:
        def attempt(session: _Session) -> T:
            result = work(self._transaction(session))
            session.commit()
            return result

        return self._tried(attempt, _READ, self._role, call=call)

    def _write(self, work: Callable[[Transaction], T], locks: Sequence[int], call: "_Call") -> T:
        from psycopg import OperationalError

        def attempt(session: _Session) -> T:
            result = work(self._transaction(session))
            self._failpoints("commit.before")
            try:
                session.commit()
            except OperationalError as error:
                if session.connection.broken:  # it may be stored
                    raise _unknown(error) from error
                raise
            return result

        *shared, own = locks
        settings = ", ".join((self._role + _WAITS, *map(_SHARE.format, shared), _LOCK.format(own)))
        try:
            result = self._tried(attempt, _WRITE, settings, call=call)
        except StoreFull:
            self.is_full = True
            raise
        self.is_full = False
        self._failpoints("commit.after")
        return result

    def _tried(self, work: Callable[["_Session"], T], begin: str, settings: str, *, call: "_Call") -> T:
        """Run work on a connection; again after a conflict with other writes, or if the connection was lost."""
        from psycopg import Error, OperationalError
        from psycopg.errors import (
            DeadlockDetected,
            FeatureNotSupported,
            LockNotAvailable,
            SerializationFailure,
            UniqueViolation,
        )
        from psycopg_pool import PoolTimeout

        lost, until = 0, time.monotonic() + PATIENCE_S
        while True:
            try:
                with self._pool.connection() as connection, call.on(connection):
                    result = work(_Session(connection, begin, settings, call=call))
                self._note_lost(None)
                return result  # the connection must be given back before
            except (DeadlockDetected, LockNotAvailable, SerializationFailure, UniqueViolation) as error:
                if time.monotonic() > until:
                    msg = f"The store is busy: a write waited for others for {PATIENCE_S:.0f} s. Try again."
                    raise BackendError(msg, retryable=True) from error
                time.sleep(PAUSE_S)
            except PoolTimeout as error:
                self._note_lost(error, hangs=True)
                raise explain(error) from error
            except FeatureNotSupported as error:  # a newer process added a column: prepare the statement again
                lost += 1
                if lost > LOST:
                    raise explain(error) from error
            except OperationalError as error:  # the server ended it, for example because it restarts
                lost += 1
                self._note_lost(error if connection.broken else None, hangs=call.was_cut)
                call.check()
                if lost > LOST or not connection.broken:
                    raise explain(error) from error
            except (Error, *UNREADABLE, UnicodeError, OverflowError) as error:
                raise explain(error) from error

    def _note_lost(self, error: Exception | None, *, hangs: bool = False) -> None:
        """Log once that the database was lost, and once that it is back.

        If it `hangs` for all calls, those that wait for a thread are refused: each would wait as long.
        """
        was_lost, self._is_lost = self._is_lost, error is not None
        if error is None:
            self._answered = time.monotonic()
        elif hangs and time.monotonic() - self._answered > self._hung_s:
            for call in list(self._waiting):
                call.refuse()
        if error is not None and not was_lost:
            log.warning("Connection to the database lost: %s", " ".join(str(error).split()))
        elif was_lost and error is None:
            log.warning("The database answers again.")

    def _transaction(self, session: "_Session") -> "_PostgresTransaction":
        return _PostgresTransaction(session, self._statements, self._failpoints)

    async def clean(self, *, patience_ms: int = 0, large: bool = False) -> bool:
        self.unclean = not await self._run(lambda _: self._clean(patience_ms, large=large))
        return not self.unclean

    def _clean(self, patience_ms: int, *, large: bool) -> bool:
        """Rewrite the tables without erased rows. Those of a large database are vacuumed, which locks no table.

        The planner's statistics contain values too: they are collected anew, and their table is rewritten as well.
        """
        from psycopg import Error
        from psycopg.errors import DeadlockDetected, LockNotAvailable

        patience_ms = max(1, patience_ms or WAIT_MS)
        try:
            with self._pool.connection() as connection:
                names, size = connection.execute(_TABLES).fetchone() or ("", 0)
                if size > LARGE and not large:
                    return False
                connection.execute("SELECT set_config('lock_timeout', %s, false)", (f"{patience_ms}ms",))
                full = "" if size > LARGE else "FULL,"
                try:
                    for command in (f"({full} ANALYZE) {names}", f"({full} ANALYZE FALSE) pg_statistic"):
                        if not _outlived(connection, patience_ms / 1000) or not self._vacuumed(connection, command):
                            return False
                except (LockNotAvailable, DeadlockDetected):
                    return False
                finally:
                    connection.execute("RESET lock_timeout")
        except Error as error:
            raise explain(error) from error
        return True

    def _vacuumed(self, connection: Any, what: str) -> bool:
        """Vacuum tables. Return False if the server leaves some out, which are another role's."""
        notices: list[str] = []

        def note(diagnostic: Any) -> None:
            if diagnostic.severity_nonlocalized == "WARNING":
                notices.append(diagnostic.message_primary)

        connection.add_notice_handler(note)
        try:
            connection.execute(f"VACUUM {what}")
        finally:
            connection.remove_notice_handler(note)
        if notices and not self._has_refused:
            log.warning("Receipts stay pending: %s. Connect as the owner, or run `cuebook db check`.", notices[0])
        self._has_refused = bool(notices)
        return not notices

    async def remains(self) -> str:
        position = await self.read(lambda each: each.value("log_position"))
        place = f"PostgreSQL's write-ahead log up to {position}, replicas that have not replayed it"
        made = "backups and pg_dump files made before"
        return f"{place}, {made}, prompt logs on other machines, and audit mirrors on machines that do not run"

    async def version(self) -> tuple[int, int]:
        def look(transaction: Transaction) -> tuple[int, int]:
            return 0, int(transaction.value("change_mark"))

        return await self.read(look)

    async def check(self, *, whole: bool = False) -> dict[str, Any]:
        row = (await self.read(lambda each: each.rows("server_version")))[0]
        damaged = f"{row['damaged']} damaged pages" if row["damaged"] else "ok"
        return {"kind": "postgresql", "postgresql": row["version"]} | ({"integrity": damaged} if whole else {})

    async def aclose(self) -> None:
        await asyncio.to_thread(self._shut)

    def _shut(self) -> None:
        self._threads.shutdown()
        self._pool.close()


def _outlived(connection: Any, patience_s: float) -> bool:
    """Wait until the transactions have ended that run now. Return False if one still runs after `patience_s`."""
    until = time.monotonic() + patience_s
    running = set(connection.execute(_RUNNING).fetchall())
    while running and time.monotonic() < until:
        time.sleep(OLDER_S)
        running.intersection_update(connection.execute(_RUNNING).fetchall())
    return not running


def _configure(connection: Any) -> None:
    """Let a connection prepare frequent statements. The server infers the types of numbers."""
    from psycopg.types.numeric import FloatDumper

    class Number(FloatDumper):
        oid = 0

        def dump(self, obj: float) -> bytes:
            return (int if isinstance(obj, int) else float).__repr__(obj).encode()

    for kind in (int, float, bool):
        connection.adapters.register_dumper(kind, Number)
    connection.prepared_max = PREPARED
    connection.execute(f"SET idle_in_transaction_session_timeout = '{SILENT_S}s'")


class _Call:
    """A call that runs in a thread. Another thread can cut its connection, which then is not used again."""

    future: Future[Any]

    def __init__(self) -> None:
        self.stop_watch: Callable[[], None] = lambda: None
        self.refused: BackendError | None = None
        self._connection: Any = None
        self._answered = time.monotonic()
        self._cut_after_s = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def on(self, connection: Any) -> Iterator[None]:
        """Note the connection that the call uses."""
        self.proceed()
        self._connection = connection
        try:
            yield
        finally:
            with self._lock:
                self._connection = None

    def proceed(self) -> None:
        """Note that the server has answered."""
        self._answered = time.monotonic()

    def is_silent(self, seconds: float) -> bool:
        """Return whether the server has not answered for some seconds."""
        return self._connection is not None and time.monotonic() - self._answered > seconds

    def cut(self, seconds: float) -> None:
        """End the connection, which wakes the thread, if the server has not answered for some seconds."""
        with self._lock, suppress(OSError):
            if self.is_silent(seconds) and not self._connection.closed:
                self._cut_after_s = time.monotonic() - self._answered
                with socket.fromfd(self._connection.fileno(), socket.AF_INET, socket.SOCK_STREAM) as copy:
                    copy.shutdown(socket.SHUT_RDWR)

    def refuse(self) -> None:
        """End the call with an error, unless it runs."""
        if not self.future.done():
            self.refused = BackendError("The database does not answer. Repeat the request later.", retryable=True)
            if not self.future.cancel():
                self.refused = None

    @property
    def was_cut(self) -> bool:
        """Return whether the connection was cut."""
        return self._cut_after_s > 0

    def check(self) -> None:
        """Raise BackendError if the connection was cut."""
        if self.was_cut:
            msg = f"The database did not answer for {self._cut_after_s:.0f} s. Repeat the request later."
            raise BackendError(msg, retryable=True)


class _Session:
    """A transaction of a connection, begun with its first statement. `settings` and locks follow that of the tenant."""

    def __init__(self, connection: Any, begin: str, settings: str, *, call: _Call) -> None:
        self.connection = connection
        self._call = call
        self._begin, self._settings = f"{begin}; ", settings
        self._tenant = ""
        self.kinds: set[str] = set()  # of the work that it leaves

    def execute(self, sql: str, values: tuple[Any, ...], *, tenant: str) -> Cursor:
        """Run a statement for a tenant, or for ALL."""
        self._call.proceed()
        if tenant != self._tenant:
            self._send(self._begin + _TENANT.format(self._literal(tenant)) + self._settings)
            self._begin, self._settings, self._tenant = "", "", tenant
        cursor: Cursor = self.connection.execute(sql, values, binary=True)
        return cursor

    def commit(self) -> None:
        """Commit, and wake the workers for the work that it leaves."""
        wake = f"SELECT wake({self._literal(sorted(self.kinds))}); " if self.kinds else ""
        if self._tenant:
            self._send(f"{wake}COMMIT")

    def _send(self, statements: str) -> None:
        """Run statements in one round trip, which only those without placeholders can share."""
        self.connection.execute(statements, prepare=False)

    def _literal(self, value: str | list[str]) -> str:
        from psycopg.sql import Literal

        return Literal(value).as_string(self.connection)


class _PostgresTransaction(Transaction):
    """A transaction whose statements run for its caller's tenant."""

    __slots__ = ("session",)

    def __init__(
        self, session: _Session, statements: Statements, failpoint: Failpoints, scope: Scope | None = None
    ) -> None:
        tenant = (scope.tenant if scope else "") or ALL
        super().__init__(lambda sql, values: session.execute(sql, values, tenant=tenant), statements, failpoint, scope)
        self.session = session

    def run(self, name: str, /, **values: Any) -> Cursor:
        if name in WAKES:
            self.session.kinds.update(WAKES[name])
        return super().run(name, **values)

    def _of(self, scope: Scope) -> Transaction:
        return _PostgresTransaction(self.session, self._statements, self.failpoint, scope)

    def lock(self, name: str) -> None:
        self._execute(f"SELECT {_LOCK.format('%s')}", (_lock_key(self.scope.tenant, name),))


def _lock_keys(tenant: str, subject: str) -> list[int]:
    """Return the locks of a write about everything, a tenant or a subject of it: shared ones, and its own last."""
    names = ((), (tenant,), (tenant, subject))
    return [_lock_key(*each) for each in names[: 1 + bool(tenant) + bool(subject)]]


def _lock_key(*names: str) -> int:
    """Return the number of a lock: 64 bits of a hash of its names."""
    digest = sha256("\0".join(names).encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big", signed=True)


def _unknown(error: BaseException) -> BackendError:
    """Return the error of a commit whose result is unknown."""
    msg = f"The database ended the connection while it stored data ({type(error).__name__}). Repeat the request with"
    return BackendError(f"{msg} the same Idempotency-Key: what is stored is not stored twice.", retryable=True)


# ---- the tables -----------------------------------------------------------------------------------------------------


def upgrade(url: str, *, migrations: tuple[Migration, ...] = MIGRATIONS) -> tuple[int | None, int]:
    """Create the tables and the role of servers, or migrate the tables. Return their version before and after. Blocks.

    The role's rights and the policies are set again in any case. Several processes may call it beside running servers:
    after a conflict with one, it begins again. Raises BackendError, and InvalidInput for an older server or newer
    tables.
    """
    from psycopg.errors import DeadlockDetected, InsufficientPrivilege, InternalError_

    passing = (DeadlockDetected, InternalError_)  # InternalError_: a table's entry was changed by a vacuum
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return _upgraded(url, migrations)
        except BackendError as error:
            if isinstance(error.__cause__, InsufficientPrivilege):
                msg = f"The tables cannot be created or migrated ({error.__cause__.diag.message_primary}). Connect as"
                raise BackendError(f"{msg} the owner of the database.") from error
            if not isinstance(error.__cause__, passing) or time.monotonic() > until:
                raise


def _upgraded(url: str, migrations: tuple[Migration, ...]) -> tuple[int | None, int]:
    with connected(url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE,))
        before, after = schema_of(connection), 1 + len(migrations)
        check_version(before or after)
        _make_role(connection)
        for statement in ddl("postgresql") if before is None else translated(migrations[before - 1 :]):
            connection.execute(statement)
        connection.execute("DELETE FROM schema_version")
        connection.execute("INSERT INTO schema_version VALUES (%s)", (after,))
        prepare_queue(connection, ROLE)
        return before, after


def _make_role(connection: Any) -> None:
    """Create the role of servers, with the user of the connection as a member. Raises InvalidInput if it may not."""
    from psycopg.errors import InsufficientPrivilege

    try:
        if not connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (ROLE,)).fetchone():
            connection.execute(f"CREATE ROLE {ROLE}")
        if not connection.execute("SELECT pg_has_role(%s, 'MEMBER')", (ROLE,)).fetchone()[0]:
            connection.execute(f"GRANT {ROLE} TO CURRENT_USER")
    except InsufficientPrivilege as error:
        user = connection.info.user
        msg = f"store.url: {user} may not create the role {ROLE}. Let an administrator of the server run, once:"
        raise InvalidInput(f"{msg} CREATE ROLE {ROLE}; GRANT {ROLE} TO {user};", where="store.url") from error


def inspected(url: str) -> bool:
    """Check a database before use. Return whether its connections must switch to the role of servers. Blocks.

    Raises BackendError if it cannot be reached, InvalidInput if its tables are missing or of another version.
    """
    with connected(url) as connection:
        version = schema_of(connection)
        name, strong = user_of(connection)
        is_partial = is_copying(connection)
    if is_partial:
        msg = "store.url: a copy into this database has not finished. Repeat `cuebook db copy`."
        raise InvalidInput(msg, where="store.url")
    if version is None:
        raise no_tables()
    check_version(version)
    if version < VERSION:
        msg = f"store.url: the database has schema {version}, not {VERSION}. Run `cuebook db migrate`."
        raise InvalidInput(msg, where="store.url")
    return strong and name != ROLE


def no_tables() -> InvalidInput:
    """Return the error of a database without tables."""
    msg = "store.url: the database has no tables of Cuebook. Run `cuebook db init`."
    return InvalidInput(msg, where="store.url")


def check_version(version: int) -> None:
    """Raise InvalidInput for tables of a newer version."""
    if version > VERSION:
        msg = f"store.url: a newer version of Cuebook made the database (schema {version}, here {VERSION}). Update."
        raise InvalidInput(msg, where="store.url")


def is_copying(connection: Any) -> bool:
    """Return whether a copy into a database has begun and not ended."""
    return connection.execute("SELECT to_regclass('copying')").fetchone()[0] is not None


def schema_of(connection: Any) -> int | None:
    """Return the version of a database's tables, None if it has none."""
    if connection.execute("SELECT to_regclass('schema_version')").fetchone()[0] is None:
        return None
    row = connection.execute("SELECT version FROM schema_version").fetchone()
    return int(row[0]) if row else None


def user_of(connection: Any) -> tuple[str, bool]:
    """Return the user of a connection, and whether it bypasses row-level security."""
    statement = "SELECT current_user, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
    name, strong = connection.execute(statement).fetchone()
    return str(name), bool(strong)
