"""Command `cuebook version`: show the installed versions."""

import platform
import sqlite3
from importlib.metadata import version

from cuebook.cli.group import command, new_app
from cuebook.cli.state import State

app = new_app()


@command(app, "cuebook version", name="version")
def show_version(state: State) -> None:
    """Show the versions of Cuebook, Python and SQLite."""
    results = {"cuebook": version("cuebook"), "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    state.report(results, f"cuebook {results['cuebook']} (Python {results['python']}, SQLite {results['sqlite']})")
