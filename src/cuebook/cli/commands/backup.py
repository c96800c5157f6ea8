"""Commands `cuebook backup|restore`: copy a project to one file while it is in use, and restore it."""

import os
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.backup import back_up, receipts_in, restore
from cuebook.app.setup.archive import is_encrypted
from cuebook.cli.group import command, new_app, read_input
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.errors import InvalidInput

app = new_app()
#: The environment variable of the passphrase.
PASSPHRASE = "CUEBOOK_BACKUP_PASSPHRASE"  # noqa: S105  # the variable's name

Archive = Annotated[Path, typer.Argument(metavar="FILE", help="Backup file.", show_default=False)]


@command(
    app,
    "cuebook backup nightly.backup",
    "cuebook backup -C myproject --encrypt /mnt/backups/$(date +%F).backup",
    name="backup",
)
def backup(
    state: State,
    file: Archive,
    *,
    without_keys: Annotated[
        bool,
        typer.Option("--without-keys", help="Leave out API keys and the key that signs receipts and the audit log."),
    ] = False,
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help=f"Encrypt with the passphrase in {PASSPHRASE}, or ask for one.")
    ] = False,
) -> None:
    """Write a backup of the project to a new file: database, settings, prompts, personas, experiences and keys.

    Servers and workers may keep running. A PostgreSQL database needs pg_dump.
    """
    config = state.project()
    passphrase = _passphrase(new=True) if encrypt else ""
    with screen.progress("copying the database") as advance:
        done = back_up(
            config, file, settings=state.config, with_keys=not without_keys, passphrase=passphrase, progress=advance
        )
    state.report(done, str(done))
    for each in done.outside:
        screen.complain(f"Not in the backup, because it is outside the project: {each}")
    if done.with_keys and not done.encrypted:
        screen.complain("The backup contains the keys. Keep it secret, or use --encrypt or --without-keys.")


@command(
    app,
    "cuebook restore nightly.backup --into myproject",
    "cuebook restore nightly.backup --into myproject --replace --receipts receipts.json",
    "cuebook restore nightly.backup --into myproject --database postgresql://cue@db.example.com/new",
    name="restore",
)
def restore_(
    state: State,
    file: Archive,
    *,
    into: Annotated[
        Path | None, typer.Option("--into", metavar="DIR", help="Restore into this directory. Default: the project's.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Restore into a directory that is not empty. Keep the old one beside it.")
    ] = False,
    receipts: Annotated[
        str | None,
        typer.Option(
            "--receipts", metavar="FILE", help="Repeat erasures from `memory receipt list --json`; - for stdin."
        ),
    ] = None,
    database: Annotated[
        str, typer.Option("--database", metavar="URL", help="New PostgreSQL database. Default: store.url.")
    ] = "",
) -> None:
    """Check a backup and restore it. Stop the servers and workers of the replaced project first.

    Erasures since the backup are repeated if the replaced project or --receipts has their receipts.
    """
    repeated = receipts_in(read_input(receipts)) if receipts else ()
    passphrase = _passphrase(new=False) if is_encrypted(file) else ""
    folder = into or (state.config.parent if state.config else state.folder) or Path()
    done = restore(file, folder, replace=replace, receipts=repeated, database=database, passphrase=passphrase)
    state.report(done, *done.lines())


def _passphrase(*, new: bool) -> str:
    """Return the passphrase from the environment, or ask for it."""
    if passphrase := os.environ.get(PASSPHRASE, ""):
        return passphrase
    if not screen.on_terminal():
        msg = f"The passphrase is missing. Set {PASSPHRASE}."
        raise InvalidInput(msg, where="passphrase")
    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=new))
