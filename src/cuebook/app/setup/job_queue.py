"""The job queue of workers on PostgreSQL: procrastinate's listener, schedule and pool.

A job of the queue only names a kind of work to look for. So a job that is lost, doubled or left by a dead worker costs
only time, and while the queue fails the worker looks for work by itself.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection
from importlib.util import find_spec
from typing import Any, Final

from cuebook.errors import BackendError
from cuebook.storage.database.postgres_connection import explain, liveliness
from cuebook.storage.database.postgres_queue import DEAD_S, QUEUE

#: A handler of exceptions that no task handles.
Handler = Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object]
log = logging.getLogger("cuebook.worker")
#: Every 30 seconds: minute, hour, day, month, weekday, second.
SWEEPS: Final = "* * * * * */30"
#: Seconds between two attempts to use a queue that failed.
RETRY_S: Final = 15.0
#: Connections of the queue, one of which listens.
CONNECTIONS: Final = 3


class JobQueue:
    """A worker's use of the job queue. `run_job` runs the due work of one kind."""

    def __init__(
        self,
        url: str,
        run_job: Callable[[str], Awaitable[None]],
        *,
        names: Collection[str],
        concurrency: int,
        grace_s: float,
    ) -> None:
        """Create it; running jobs have `grace_s` seconds to finish after `stop`."""
        self._url = url
        self._run_job = run_job
        self._names = names
        self._concurrency = concurrency
        self._grace_s = grace_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to run jobs of the queue."""
        if find_spec("procrastinate") is None:
            log.warning("Workers are not woken: procrastinate is not installed. Install cuebook[workers].")
        elif self._task is None:
            logging.getLogger("procrastinate").setLevel(logging.CRITICAL)  # this module reports its errors
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(_without_queue_errors(loop.get_exception_handler()))
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop. A server that does not answer delays it by some seconds."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=self._grace_s + RETRY_S)
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                await self._use()
            except Exception as error:  # noqa: BLE001  # outermost loop of the queue: its failures cost only time
                cause = explain(error.__cause__ or error)
                advice = "" if isinstance(cause, BackendError) and cause.retryable else " Run `cuebook db migrate`."
                log.warning("Workers are not woken, and look for work every few seconds: %s%s", cause, advice)
            await asyncio.sleep(RETRY_S)

    async def _use(self) -> None:
        """Run jobs until the queue fails."""
        app = self._app()
        async with app.open_async():
            await sweep(app, self._names)
            await app.run_worker_async(
                queues=[*self._names, "sweep"],
                concurrency=self._concurrency + 1,  # a sweep must not wait for long work
                install_signal_handlers=False,
                delete_jobs="always",
                shutdown_graceful_timeout=self._grace_s,
                stalled_worker_timeout=DEAD_S,
            )

    def _app(self) -> Any:
        from procrastinate import App, PsycopgConnector

        options = {"options": f"-c search_path={QUEUE}"} | liveliness(self._url)
        app = App(
            connector=PsycopgConnector(
                conninfo=self._url, kwargs=options, min_size=1, max_size=CONNECTIONS, timeout=10.0
            )
        )

        @app.task(name="cuebook.work")
        async def work(kind: str) -> None:
            await self._run_job(kind)

        @app.periodic(cron=SWEEPS)
        @app.task(name="cuebook.sweep", queue="sweep")
        async def look(timestamp: int) -> None:  # noqa: ARG001  # procrastinate passes it
            await sweep(app, self._names)

        return app


def _without_queue_errors(handler: Handler | None) -> Handler:
    """Return an exception handler that ignores procrastinate's failed jobs, whose tasks nobody waits for."""
    from procrastinate.exceptions import ConnectorException

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), ConnectorException):
            log.debug("The job queue failed: %s", context["exception"])
        elif handler is not None:
            handler(loop, context)
        else:
            loop.default_exception_handler(context)

    return handle


async def sweep(app: Any, kinds: Collection[str]) -> None:
    """Retry the jobs of dead workers, and defer one of each kind."""
    from procrastinate.exceptions import AlreadyEnqueued, ConnectorException
    from procrastinate.jobs import Status

    for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=DEAD_S):
        try:
            await app.job_manager.retry_job(job)
        except ConnectorException:  # another job of its kind waits
            with contextlib.suppress(ConnectorException):
                await app.job_manager.finish_job(job, Status.FAILED, delete_job=True)
    for kind in kinds:
        with contextlib.suppress(AlreadyEnqueued):
            await app.configure_task("cuebook.work", queue=kind, queueing_lock=kind).defer_async(kind=kind)
