"""The PostgreSQL database: snapshots and serializable transactions on a pool of connections, in threads.

A write that conflicts with another one is run again, so that no update is lost. The statements are those of SQLite with
other placeholders; `postgres.sql` replaces the ones that must differ.
"""

import asyncio
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from cuebook.errors import BackendError, InvalidInput
from cuebook.storage.database.holders import Holders
from cuebook.storage.database.statements import VERSION, ddl, prepared_statements
from cuebook.storage.database.transaction import Failpoints, Transaction

T = TypeVar("T")

#: Connections and threads per process.
CONNECTIONS: Final = 8
#: Attempts of a write that conflicts with others.
ATTEMPTS: Final = 20
#: The longest pause before the second attempt, in seconds; it doubles up to half a second.
PAUSE_S: Final = 0.005
#: The advisory lock under which one process creates the tables.
_CREATE: Final = 0x63756562


class PostgresDatabase:
    """A database on a PostgreSQL server. `url` is a connection string of libpq."""

    def __init__(self, url: str, *, connections: int = CONNECTIONS, failpoints: Failpoints | None = None) -> None:
        from psycopg import ClientCursor
        from psycopg_pool import ConnectionPool

        self.holders = Holders(None)
        self.unclean = False
        self._failpoints = failpoints or Failpoints()
        self._statements = prepared_statements("postgresql")
        self._threads = ThreadPoolExecutor(connections, thread_name_prefix="cuebook-postgres")
        options = {"cursor_factory": ClientCursor}  # binds values in the client, where NULL needs no type
        self._pool = ConnectionPool(url, min_size=1, max_size=connections, kwargs=options, open=True)
        self._write(_create)

    @property
    def shared_snapshots(self) -> bool:
        return True

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._run(lambda: self._read(work))

    async def write(self, work: Callable[[Transaction], T]) -> T:
        return await self._run(lambda: self._write(lambda connection: work(self._on(connection))))

    async def _run(self, work: Callable[[], T]) -> T:
        if self._pool.closed:
            msg = "The store is closed."
            raise BackendError(msg)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _on(self, connection: Any) -> Transaction:
        return Transaction(connection.execute, self._statements, self._failpoints)

    def _read(self, work: Callable[[Transaction], T]) -> T:
        from psycopg import Error, IsolationLevel

        try:
            with self._pool.connection() as connection:
                connection.isolation_level, connection.read_only = IsolationLevel.REPEATABLE_READ, True
                return work(self._on(connection))
        except (Error, UnicodeError, OverflowError) as error:
            raise explain(error) from error

    def _write(self, work: Callable[[Any], T]) -> T:
        from psycopg import Error
        from psycopg.errors import DeadlockDetected, SerializationFailure, UniqueViolation

        for attempt in range(ATTEMPTS):
            try:
                return self._attempt(work)
            except (DeadlockDetected, SerializationFailure, UniqueViolation):  # two transactions used the same number
                time.sleep(random.random() * min(0.5, PAUSE_S * 2**attempt))  # noqa: S311  # not a secret
            except (Error, UnicodeError, OverflowError) as error:
                raise explain(error) from error
        msg = f"The store is busy: {ATTEMPTS} attempts of a write conflicted with other writes. Try again."
        raise BackendError(msg, retryable=True)

    def _attempt(self, work: Callable[[Any], T]) -> T:
        from psycopg import IsolationLevel

        with self._pool.connection() as connection:
            connection.isolation_level, connection.read_only = IsolationLevel.SERIALIZABLE, False
            result = work(connection)
            self._failpoints("commit.before")
            connection.commit()
        self._failpoints("commit.after")
        return result

    async def clean(self, *, patience_ms: int = 0, large: bool = False) -> bool:  # noqa: ARG002
        """Return True: the server's vacuum removes erased rows."""
        return True

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


def explain(error: BaseException) -> BaseException:
    """Return the Cuebook error for any exception inside the store."""
    from psycopg import DataError, Error, OperationalError

    if isinstance(error, DataError | UnicodeError | OverflowError):
        return InvalidInput(f"A value cannot be stored ({error}). Send valid Unicode and smaller numbers.")
    if isinstance(error, Error):
        return BackendError(f"The store failed ({error}).", retryable=isinstance(error, OperationalError))
    return error


def _create(connection: Any) -> None:
    """Create the tables once, even if two processes start at the same time."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATE,))
    if connection.execute("SELECT to_regclass('schema_version')").fetchone()[0] is None:
        for statement in ddl("postgresql"):
            connection.execute(statement)
        connection.execute("INSERT INTO schema_version VALUES (%s)", (VERSION,))
