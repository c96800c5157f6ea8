"""Run a worker process until SIGINT or SIGTERM, with its own `/healthz`."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import uvicorn
from litestar import Litestar, Response, get

from cuebook import Config, Cuebook
from cuebook.app.workers import JobWorker
from cuebook.errors import CuebookError
from cuebook.records.answer import to_wire
from cuebook.server.app import listen


def run_worker(
    config: Config,
    *,
    concurrency: int,
    queues: Collection[str] = (),
    host: str = "127.0.0.1",
    port: int | None = None,
    started: Callable[[JobWorker, str], None] | None = None,
) -> None:
    """Run due work until SIGINT or SIGTERM. `started` is called with the address of `/healthz`, "" without `port`.

    Running pieces have a few seconds to finish, and are given up after that. Raises InvalidInput, BackendError.
    """
    sockets = [] if port is None else listen(host, port, keyed=True)
    try:
        asyncio.run(_run(config, concurrency, queues, sockets, started))
    finally:
        for each in sockets:
            each.close()


async def _run(
    config: Config,
    concurrency: int,
    queues: Collection[str],
    sockets: list[socket.socket],
    started: Callable[[JobWorker, str], None] | None,
) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError, RuntimeError):  # Windows, and threads of tests
            loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as running:
        cue = await running.enter_async_context(Cuebook.open(config, worker=False))
        worker = await running.enter_async_context(JobWorker(cue, concurrency=concurrency, queues=queues))
        await running.enter_async_context(_answering(worker, sockets))
        if started is not None:
            started(worker, _address(sockets[0]) if sockets else "")
        await stop.wait()


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/healthz"


class _HealthServer(uvicorn.Server):
    """A server that leaves signals to the worker."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def _answering(worker: JobWorker, sockets: list[socket.socket]) -> Any:
    """Answer `/healthz` on the sockets: 200 while the worker can reach the database, else 503."""

    @get("/healthz")
    async def healthz() -> Response[Any]:
        try:
            return Response(to_wire(await worker.health()))
        except CuebookError as error:
            return Response({"status": "failing", "detail": str(error)}, status_code=503)

    if not sockets:
        yield
        return
    app = Litestar([healthz], openapi_config=None, logging_config=None)
    server = _HealthServer(uvicorn.Config(app, access_log=False, lifespan="off", log_config=None, server_header=False))
    serving = asyncio.create_task(server.serve(sockets=sockets))
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait((serving,))
