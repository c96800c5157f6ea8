"""Command `cuebook mcp`: serve the Model Context Protocol over standard input and output."""

from typing import Annotated

import typer

from cuebook.cli.group import command, new_app
from cuebook.cli.state import State
from cuebook.server.mcp.pipe import serve_pipe

app = new_app()


@command(app, "cuebook mcp", "cuebook -C myproject mcp --user ann", name="mcp")
def mcp(
    state: State,
    *,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="USER", help="Serve only this user. Default: tool calls name the user."),
    ] = None,
) -> None:
    """Serve memory and prompts over the Model Context Protocol on standard input and output.

    MCP clients start this command themselves. `cuebook serve` provides the same tools at /mcp. To install the
    dependencies, run `pip install 'cuebook[mcp]'`.
    """
    serve_pipe(state.project(), user=user)
