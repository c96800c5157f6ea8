"""Commands `cuebook db …`: prepare, check and copy a PostgreSQL database, and run a local server."""

from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.setup import embedded_postgres
from cuebook.app.setup.database import (
    check_database,
    copy_database,
    has_tables,
    init_database,
    is_in_use,
    migrate_database,
)
from cuebook.cli.group import command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.config import Config

app = new_app(
    "Prepare and copy a PostgreSQL database, and run a local server.",
    "cuebook db init",
    "cuebook db check postgresql://cue@db.example.com/cue",
    "cuebook db start ./postgres",
)

_PLACE = "A project's folder, a SQLite file or a postgresql:// URL."
Url = Annotated[str, typer.Argument(metavar="URL", help="postgresql://… Default: store.url.", show_default=False)]
Data = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the server's data.", show_default=False)]


@command(app, "cuebook db init", "cuebook db init postgresql://cue@db.example.com/cue", name="init")
def init(state: State, url: Url = "") -> None:
    """Create the tables, the role of servers and the key.

    Tables and key that exist stay unchanged.
    """
    done = init_database(_config(state, url))
    state.report(done, f"{done}; {'created the key' if done.new_key else 'the key is unchanged'}")


@command(app, "cuebook db migrate", name="migrate")
def migrate(state: State, url: Url = "") -> None:
    """Migrate the tables to this version of Cuebook.

    Stop all servers and workers of the older version first.
    """
    done = migrate_database(_config(state, url))
    state.report(done, str(done))


@command(app, "cuebook db check", name="check")
def check(state: State, url: Url = "") -> None:
    """Check the server, the role, the tables, the key and the protection of tenants. Exits with 1 if a check fails."""
    found = check_database(_config(state, url))
    state.report(found, *found.lines(), failed=not found.ok)


@command(
    app,
    "cuebook db copy . postgresql://cue@db.example.com/cue",
    "cuebook db copy postgresql://cue@db.example.com/cue backup/cuebook.db --without-keys",
    name="copy",
)
def copy(
    state: State,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=_PLACE, show_default=False)],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="An empty database.", show_default=False)],
    *,
    without_keys: Annotated[
        bool,
        typer.Option("--without-keys", help="Copy neither API keys nor the key that signs receipts and the audit log."),
    ] = False,
) -> None:
    """Copy a database to another one, from SQLite to PostgreSQL or back.

    Stop all servers and workers of the source first. An interrupted copy continues when you repeat the command. In the
    end, the digests of all tables are compared.
    """
    if is_in_use(source):
        screen.complain("Another process uses the source. What it writes from now on is not copied.")
    with screen.progress("copying") as advance:
        done = copy_database(
            source, target, with_keys=not without_keys, progress=lambda _, count, total: advance(count, total)
        )
    state.report(done, str(done))


@command(app, "cuebook db start ./postgres", name="start")
def start(state: State, folder: Data) -> None:
    """Start a PostgreSQL server on this machine, which runs until `cuebook db stop`.

    It accepts connections of this machine only. It needs cuebook[postgres-embedded].
    """
    status = embedded_postgres.start(folder)
    is_new = status.url is not None and not has_tables(status.url)
    state.report(status, str(status), *([f"Next: cuebook db init {status.url!r}"] if is_new else []))


@command(app, "cuebook db stop ./postgres", name="stop")
def stop(state: State, folder: Data) -> None:
    """Stop a server that `cuebook db start` started. Its data stays."""
    embedded_postgres.check_folder(folder)
    was_running = embedded_postgres.status(folder).running
    status = embedded_postgres.stop(folder)
    state.report(status, f"stopped PostgreSQL in {folder}" if was_running else str(status))


@command(app, "cuebook db status ./postgres", name="status")
def status(state: State, folder: Data) -> None:
    """Show whether a server runs in a folder, and its URL. Exits with 1 if none runs."""
    found = embedded_postgres.status(folder)
    state.report(found, str(found), failed=not found.running)


def _config(state: State, url: str) -> Config:
    """Return the settings, with the database that the command names."""
    return state.settings({"store.url": url} if url else None)
