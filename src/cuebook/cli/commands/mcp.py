"""`cuebook mcp`. Loaded only when it is called: the server's packages take a while."""

from typing import Annotated

import typer

from cuebook.cli.group import command, new_app
from cuebook.cli.state import State
from cuebook.server.mcp.pipe import serve_pipe

app = new_app()


@command(app, "cuebook mcp", "cuebook -C book mcp --user ann", name="mcp")
def mcp(
    state: State,
    *,
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="Whose memory it is; without, the tools name users.")
    ] = None,
) -> None:
    """Serve the book to an agent's tools by the Model Context Protocol, on standard input and output.

    An agent's program starts it by itself; `cuebook serve` speaks the same at /mcp. Needs cuebook[mcp].
    """
    serve_pipe(state.project(), user=user)
