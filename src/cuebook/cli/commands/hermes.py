"""Command `cuebook hermes install`: keep the memory of the Hermes agent in a Cuebook server."""

import os
from pathlib import Path
from typing import Annotated

import typer

from cuebook.cli.group import command, new_app
from cuebook.cli.state import State
from cuebook.errors import NotFound
from cuebook.integrations.hermes import install

app = new_app("Install the memory plugin of the Hermes agent.", "cuebook hermes install")


@command(
    app, "cuebook hermes install", "cuebook hermes install --url https://cue.example.com --user ann", name="install"
)
def install_(
    state: State,
    *,
    url: Annotated[
        str, typer.Option("--url", metavar="URL", help="Cuebook server that stores the memory.")
    ] = "http://127.0.0.1:21200",
    user: Annotated[
        str | None,
        typer.Option(
            "--user", metavar="USER", help="Owner of the memory. Default: the platform's user, or the profile."
        ),
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option("--home", metavar="DIR", help="Directory of Hermes. Default: $HERMES_HOME, or ~/.hermes."),
    ] = None,
) -> None:
    """Write the memory plugin to the directory of Hermes. An installed plugin is replaced.

    The plugin calls a Cuebook server: start one with `cuebook serve`. If the server has API keys, set CUEBOOK_API_KEY
    in the environment of Hermes.
    """
    home = home or Path(os.environ.get("HERMES_HOME") or Path.home() / ".hermes")
    if not home.is_dir():
        msg = f"No directory of Hermes: {home}. Install Hermes first, or name its directory with --home."
        raise NotFound(msg)
    written = [str(each) for each in install(home, url=url, user=user)]
    lines = [*(f"Wrote {each}." for each in written), "Activate it: hermes config set memory.provider cuebook"]
    state.report({"files": written}, "\n".join(lines))
