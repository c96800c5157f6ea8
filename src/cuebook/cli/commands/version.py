"""Command `cuebook version`: show the installed versions."""

import platform
import sqlite3
from importlib.metadata import version

from cuebook.cli.group import SharedOptions, command, new_app

app = new_app()


@command(app, "cuebook version", name="version")
def show_version(options: SharedOptions) -> None:
    """Show the versions of Cuebook, Python and SQLite."""
    results = {"cuebook": version("cuebook"), "python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    options.report(results, f"cuebook {results['cuebook']} (Python {results['python']}, SQLite {results['sqlite']})")
