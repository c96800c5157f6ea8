"""Prepare and check a PostgreSQL database: its tables, the role of its connections, and the protection of tenants."""

import os
import re
import secrets
from pathlib import Path
from typing import Any

from cuebook.app.setup.compose import KEY_SECRET, database_of, key_file_of, key_of
from cuebook.app.setup.project_files import load_config
from cuebook.config import SERVERS, Config
from cuebook.errors import BackendError, Conflict, InvalidInput, NotFound
from cuebook.providers.clock_and_ids import KEY_BYTES
from cuebook.records.answer import Answer
from cuebook.records.expression import counted
from cuebook.storage.database.copying import Progress, check_begun, copy
from cuebook.storage.database.holders import Holders
from cuebook.storage.database.postgres import is_copying, schema_of, upgrade, user_of
from cuebook.storage.database.postgres_connection import ROLE, connected
from cuebook.storage.database.postgres_queue import abandoned_jobs, has_queue
from cuebook.storage.database.statements import VERSION

_CAN_SWITCH = "SELECT pg_has_role(oid, 'MEMBER') FROM pg_roles WHERE rolname = %s"
#: The start of a URL, also of one with a missing slash.
_URL = re.compile(r"[a-z]{2,}:/+")
_NO_QUEUE = (
    "Workers are not woken, because the job queue is missing or outdated. Install cuebook[workers], and run"
    " `cuebook db migrate`."
)
_PARTIAL = "A copy into the database has not finished. Repeat `cuebook db copy`."
#: Whether a role may vacuum all tables: as the owner of the database, or with a role that PostgreSQL 17 introduced.
_MAY_VACUUM = """SELECT (SELECT pg_has_role(datdba, 'USAGE') FROM pg_database WHERE datname = current_database())
OR EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'pg_maintain' AND pg_has_role(oid, 'USAGE'))"""
#: The version of that role: 17.
_MAINTAIN = 170_000
#: Sessions of users. A role that may not see those of others sees their users.
_OTHERS = """SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND usesysid IS NOT NULL AND pid <> pg_backend_pid()"""
_UNPROTECTED = """SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'tenant'
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
    AND NOT (c.relrowsecurity AND c.relforcerowsecurity) ORDER BY 1"""


class DatabaseCheck(Answer, frozen=True, kw_only=True):
    """A PostgreSQL database. `unprotected` are tables without row-level security; `faults` and `notes` are sentences.

    Servers can use a database with notes.
    """

    server: str
    user: str
    role: str  # of the connections of servers and workers
    schema: int | None
    unprotected: tuple[str, ...]
    faults: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether servers can use the database."""
        return not self.faults

    def lines(self) -> list[str]:
        """Return the lines to print."""
        known = f"schema {self.schema}" if self.schema is not None else "no tables"
        lines = [f"PostgreSQL {self.server}, {known}", f"connected as {self.user}, servers use role {self.role}"]
        return [*lines, *(self.faults or ("tenants are separated by row-level security", *self.notes))]


class DatabaseUpgrade(Answer, frozen=True, kw_only=True):
    """The version of a database's tables before (None: there were none) and after a command."""

    before: int | None
    schema: int
    new_key: bool = False
    new_queue: bool = False

    def __str__(self) -> str:
        if self.before is None:
            return f"created the tables of schema {self.schema}"
        if self.before != self.schema:
            return f"migrated schema {self.before} to {self.schema}"
        return "created the job queue again" if self.new_queue else "no changes: the tables exist"


def init_database(config: Config) -> DatabaseUpgrade:
    """Create the tables, the role of servers and the key, as far as they are missing. Blocks.

    Raises BackendError, and InvalidInput without a place for the key.
    """
    url = server_of(config)
    if not config.settings.secrets.key_file and not os.environ.get(KEY_SECRET):
        msg = f"The database needs a key. Set {KEY_SECRET} to a long secret, or secrets.key_file to a file."
        raise InvalidInput(msg, where="secrets.key_file")
    before, after = upgrade(url)
    new = secrets.token_bytes(KEY_BYTES)
    return DatabaseUpgrade(before=before, schema=after, new_key=key_of(config, new=new) == new)


def has_tables(url: str) -> bool:
    """Return whether a server's database has tables of Cuebook. Blocks. Raises BackendError."""
    with connected(url) as connection:
        return schema_of(connection) is not None


class DatabaseCopy(Answer, frozen=True, kw_only=True):
    """A finished copy: the rows by table, and whether an interrupted copy was continued."""

    rows: dict[str, int]
    continued: bool

    def __str__(self) -> str:
        filled = [count for count in self.rows.values() if count]
        return f"copied {counted(sum(filled), 'row')} of {counted(len(filled), 'table')}; the digests are equal"


def copy_database(
    source: str, target: str, *, with_keys: bool = True, progress: Progress = lambda *_: None
) -> DatabaseCopy:
    """Copy a database with the key of its audit records. Source and target are URLs, SQLite files or project folders.

    Without keys, neither API keys nor that key are copied. Blocks. Raises NotFound, InvalidInput, Conflict.
    """
    old, new = _named(source), _named(target)
    if not database_of(old).startswith(SERVERS) and not Path(database_of(old)).is_file():
        msg = (
            f"There is no database {database_of(old)!r}. Name a project's folder, a SQLite file or a postgresql:// URL."
        )
        raise NotFound(msg)
    check_begun(database_of(old), database_of(new), with_keys=with_keys)
    if with_keys:
        file = key_file_of(old)
        if file is not None and not file.exists():
            msg = f"The source has no key file {str(file)!r}. Put it there, or copy with --without-keys."
            raise NotFound(msg)
        if database_of(new).startswith(SERVERS):
            upgrade(database_of(new))
        key = key_of(old)
        if key_of(new, new=key) != key:
            msg = f"{target!r} has another key. Choose a target without one, or copy with --without-keys."
            raise Conflict(msg)
    copied = copy(database_of(old), database_of(new), with_keys=with_keys, progress=progress)
    return DatabaseCopy(rows=copied.rows, continued=copied.continued)


def is_in_use(place: str) -> bool:
    """Return whether other processes use a database that a command names. Blocks. Raises BackendError, InvalidInput."""
    database = database_of(_named(place))
    if database.startswith(SERVERS):
        with connected(database) as connection:
            return bool(connection.execute(_OTHERS).fetchone()[0])
    if not Path(database).is_file():
        return False
    holders = Holders(Path(database))
    try:
        return holders.has_others()
    finally:
        holders.close()


def _named(place: str) -> Config:
    """Return the settings of a database that a command names."""
    if Path(place).is_dir():
        return load_config(place)
    if (shown := _URL.match(place)) and not place.startswith((*SERVERS, "sqlite:///")):
        start = shown[0]  # the rest may contain a password
        msg = f"Not a database: a URL that begins with {start!r}. Name a project's folder, a SQLite file or a"
        raise InvalidInput(f"{msg} postgresql:// URL.", where="store.url")
    url = place if shown else str(Path(place).resolve())
    return load_config(None, arguments={"store.url": url})


def migrate_database(config: Config) -> DatabaseUpgrade:
    """Migrate the tables to this version of Cuebook. Blocks. Raises BackendError, InvalidInput."""
    url = server_of(config)
    with connected(url) as connection:
        if is_copying(connection):
            raise Conflict(_PARTIAL)
        had_queue = has_queue(connection)
    before, after = upgrade(url)
    with connected(url) as connection:
        return DatabaseUpgrade(before=before, schema=after, new_queue=has_queue(connection) and not had_queue)


def server_of(config: Config) -> str:
    """Return the URL of the database's server. Raises InvalidInput for another database than PostgreSQL."""
    url = database_of(config)
    if not url.startswith(SERVERS):
        msg = f"{config.settings.store.url!r} is not a PostgreSQL database. Set store.url, or name a postgresql:// URL."
        raise InvalidInput(msg, where="store.url")
    return url


def check_database(config: Config) -> DatabaseCheck:
    """Check the server, its tables and roles. Blocks. Raises BackendError if it cannot be reached, InvalidInput."""
    with connected(server_of(config)) as connection:
        found = schema_of(connection)
        user, strong = user_of(connection)
        can_switch = connection.execute(_CAN_SWITCH, (ROLE,)).fetchone()
        tables = connection.execute(_UNPROTECTED).fetchall()
        [server] = connection.execute("SELECT current_setting('server_version')").fetchone()
        is_partial = is_copying(connection)
        waiting = () if found is None else _job_note(config, connection)
        notes = (*waiting, *_owner_note(connection))
    unprotected = tuple(name for (name,) in tables)
    faults = []
    if is_partial:
        faults.append(_PARTIAL)
    if found is None:
        faults.append("The tables are missing. Run `cuebook db init`.")
    elif found > VERSION:
        faults.append(f"A newer version of Cuebook made the tables (schema {found}, here {VERSION}). Update Cuebook.")
    elif found < VERSION:
        faults.append(f"The tables have schema {found}, not {VERSION}. Run `cuebook db migrate`.")
    if unprotected:
        faults.append(f"Row-level security is off for {', '.join(unprotected)}. Run `cuebook db migrate`.")
    if found is not None and strong and not (can_switch and can_switch[0]):
        faults.append(f"{user} bypasses row-level security and cannot switch to {ROLE}. Run `cuebook db init`.")
    if found is not None:
        try:
            key_of(config)
        except (InvalidInput, BackendError) as error:
            faults.append(str(error))
    return DatabaseCheck(
        server=server, user=user, role=ROLE if strong else user, schema=found, unprotected=unprotected,
        faults=tuple(faults), notes=notes,
    )  # fmt: skip


def owner_note(config: Config) -> str:
    """Return why receipts stay pending, for a role that may not vacuum its server's database; else "". Blocks."""
    if not database_of(config).startswith(SERVERS):
        return ""
    with connected(database_of(config)) as connection:
        return "".join(_owner_note(connection))


def _owner_note(connection: Any) -> tuple[str, ...]:
    if connection.execute(_MAY_VACUUM).fetchone()[0]:
        return ()
    user = user_of(connection)[0]
    note = f"{user} may not vacuum the database. Receipts of forgetting stay pending until a worker or `cuebook settle`"
    if connection.info.server_version < _MAINTAIN:
        return (f"{note} runs as the owner.",)
    return (f"{note} runs as the owner, or an administrator runs GRANT pg_maintain TO {user}.",)


def _job_note(config: Config, connection: Any) -> tuple[str, ...]:
    """Return why background jobs are late, if they are."""
    if not has_queue(connection):
        return (_NO_QUEUE,)
    waiting = abandoned_jobs(connection) if config.settings.work.where == "workers" else []
    msg = f'Background jobs wait ({", ".join(waiting)}): work.where is "workers", but no worker runs.'
    return (f"{msg} Start `cuebook worker`.",) if waiting else ()
