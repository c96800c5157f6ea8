"""Run background jobs in a process of its own, beside the servers of the same database."""

import asyncio
from collections.abc import Collection
from types import TracebackType
from typing import Self

from cuebook.app.cuebook import Cuebook
from cuebook.app.setup.compose import database_of
from cuebook.app.setup.job_queue import JobQueue
from cuebook.config import SERVERS
from cuebook.engine.jobs import JOBS
from cuebook.engine.jobs.worker import Worker
from cuebook.errors import InvalidInput
from cuebook.records.answer import Answer

#: Seconds for which running pieces may go on after a stop.
GRACE_S = 10.0
#: Pieces of work at once by default.
CONCURRENCY = 4


class WorkerHealth(Answer, frozen=True, kw_only=True):
    """The state of a worker: the jobs that it runs, the pieces of work that may run at once, and those that do."""

    status: str
    queues: tuple[str, ...]
    concurrency: int
    running: int


class JobWorker:
    """A worker of a database. `async with JobWorker(cue):` runs due work until the block ends."""

    def __init__(self, cue: Cuebook, *, concurrency: int = CONCURRENCY, queues: Collection[str] = ()) -> None:
        """Create a worker of the named jobs, all by default. Raises InvalidInput for an unknown one."""
        known = tuple(job.name for job in JOBS)
        unknown = sorted({*queues} - {*known})
        if unknown:
            msg = f"Unknown job {unknown[0]!r}. Available: {', '.join(known)}."
            raise InvalidInput(msg, where="queues")
        self.queues = tuple(name for name in known if name in queues or not queues)
        self._cue = cue
        self._concurrency = concurrency
        self._worker = Worker(
            cue.services,
            interval_s=cue.config.settings.work.interval_s,
            jobs=[job for job in JOBS if job.name in self.queues or job.is_local],
            concurrency=concurrency,
        )

        url = database_of(cue.config)
        self._queue: JobQueue | None = None
        if url.startswith(SERVERS):
            self._queue = JobQueue(
                url, self._worker.run_job, names=self.queues, concurrency=concurrency, grace_s=GRACE_S
            )

    async def __aenter__(self) -> Self:
        self._worker.start()
        if self._queue is not None:
            self._queue.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stops = [self._worker.stop(grace_s=GRACE_S)]
        if self._queue is not None:
            stops.append(self._queue.stop())
        await asyncio.gather(*stops)

    async def health(self) -> WorkerHealth:
        """Return the state of the worker. Raises BackendError if the database cannot be reached."""
        await self._cue.services.store.check()
        return WorkerHealth(
            status="alive", queues=self.queues, concurrency=self._concurrency, running=self._worker.running
        )
