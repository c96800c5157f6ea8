"""Command `cuebook worker`: run background jobs in a process of its own."""

from typing import Annotated

import typer

from cuebook.app.workers import CONCURRENCY, JobWorker
from cuebook.cli.group import command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.errors import InvalidInput
from cuebook.records.expression import counted
from cuebook.server.worker import run_worker

app = new_app()


@command(
    app,
    "cuebook worker",
    "cuebook worker --concurrency 8 --port 8761",
    "cuebook worker --queues compaction,reflection",
    name="worker",
)
def worker(
    state: State,
    *,
    concurrency: Annotated[
        int, typer.Option("--concurrency", metavar="N", min=1, max=64, help="Pieces of work at once.")
    ] = CONCURRENCY,
    queues: Annotated[
        str | None,
        typer.Option("--queues", metavar="A,B", help="Run only these jobs.  [default: all]", show_default=False),
    ] = None,
    host: Annotated[str, typer.Option("--host", metavar="H", help="Address of /healthz.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="P", min=0, max=65535, help="Port of /healthz; 0 selects a free one."),
    ] = None,
) -> None:
    """Run background jobs until Ctrl-C or SIGTERM, beside the servers of the same database.

    Any number of workers may run. Servers also run background jobs, unless `where = "workers"` under [work]. A stopping
    worker finishes the work in hand, or gives it up after a few seconds; another one then does it.
    """

    def started(worker: JobWorker, address: str) -> None:
        if state.json:
            screen.say_json({"queues": [*worker.queues], "concurrency": concurrency, "health": address or None})
        else:
            screen.say(f"Worker is running up to {counted(concurrency, 'piece')} of work at once")
            screen.say(f"  Jobs    {', '.join(worker.queues)}")
            screen.say(f"  Health  {address}" if address else "  Health  set --port to answer /healthz")
            screen.say("Press Ctrl-C to stop.")

    names = [name.strip() for name in (queues or "").split(",") if name.strip()]
    if queues is not None and not names:
        msg = f"--queues: {queues!r} names no job. Name jobs such as compaction,reflection, or omit it to run all."
        raise InvalidInput(msg, where="queues")
    run_worker(state.settings(), concurrency=concurrency, queues=names, host=host, port=port, started=started)
