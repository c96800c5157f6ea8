"""How an older database is brought to the newest schema: Alembic's revisions, all of them in one transaction.

SQLite's DDL is transactional, so whatever interrupts us leaves the old schema. Alembic and SQLAlchemy take half a
second to import: only here, and only when there is something to migrate.
"""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from cuebook.backends.failpoints import Failpoints
from cuebook.errors import BackendError

FOLDER: Final = Path(__file__).with_name("migrations")
HEAD: Final = "head"

#: Alembic keeps the migration it runs in its module (`alembic.context`, `alembic.op`): one at a time in a process.
_ALEMBIC: Final = threading.Lock()


def upgrade(connection: sqlite3.Connection, failpoints: Failpoints, *, folder: Path = FOLDER, to: str = HEAD) -> None:
    """Migrate to the newest revision. Interrupted, the old schema stands and the next start goes on.

    The connection must begin no transactions by itself (`isolation_level` None). Who comes second waits for the first
    as long as its busy timeout allows, and then finds nothing left to do.
    """
    with _ALEMBIC:
        _run(connection, failpoints, folder, to)


def create_by_alembic(path: str | Path, *, to: str = HEAD) -> None:
    """Create a database by the revisions alone, as schema.sql would: for the test that holds both equal."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        upgrade(connection, Failpoints(), to=to)


def _run(connection: sqlite3.Connection, failpoints: Failpoints, folder: Path, to: str) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError
    from sqlalchemy import create_engine, event
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.pool import NullPool

    engine = create_engine("sqlite://", creator=lambda: _Lent(connection), poolclass=NullPool)

    @event.listens_for(engine, "before_cursor_execute")
    def _pass_failpoint(*_: Any) -> None:
        failpoints("migrate.statement")

    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    try:
        # Alembic reads the stored revision inside, so what another process has done meanwhile counts.
        with _exclusive(connection, failpoints), engine.connect() as config.attributes["connection"]:
            command.upgrade(config, to)
    except CommandError as error:
        msg = f"no migration leads from this schema to {to!r} ({error}); upgrade cuebook or restore a backup"
        raise BackendError(msg) from error
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            raise error.orig from None  # what the store translates
        raise


@contextmanager
def _exclusive(connection: sqlite3.Connection, failpoints: Failpoints) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        failpoints("migrate.statement")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite itself gives up on a full disk
            connection.execute("ROLLBACK")
        raise


class _Lent:
    """The caller's connection as SQLAlchemy may have it: to run statements, not to commit or close."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def cursor(self) -> sqlite3.Cursor:
        return self._connection.cursor()

    def create_function(self, *_args: Any, **_options: Any) -> None:
        """Leave out what SQLAlchemy adds to every connection (regexp, floor): it would stay there."""

    def commit(self) -> None:
        """Leave it to `_exclusive`."""

    def rollback(self) -> None:
        """Leave it to `_exclusive`."""

    def close(self) -> None:
        """Leave it to who opened it."""
