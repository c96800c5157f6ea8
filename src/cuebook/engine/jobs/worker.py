"""Background worker: poll for due jobs, and run all of them on request (`settle`)."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from cuebook.engine.core.services import Services
from cuebook.engine.jobs import JOBS
from cuebook.engine.jobs.claims import Claims
from cuebook.engine.jobs.job import DueQuery, Job, RunResult, run_due
from cuebook.errors import BackendError

log = logging.getLogger("cuebook.worker")

#: How long an Idempotency-Key is valid.
KEYS_S = 48 * 3600.0
#: Seconds between two scans of a dozen reads each. Turns that end in between trigger one scan.
REST_S = 0.25
#: Seconds that a job starts new work before the others get their turn.
TURN_S = 2.0
#: Most pieces of due work that `settle` counts for a job.
COUNTED = 10_000


class Worker:
    """Background worker of one process. Any number may run: each write checks the rows that it was derived from.

    Where several workers use a database, they claim each piece before they run it, so that they do not repeat work.
    """

    def __init__(
        self, services: Services, *, interval_s: float, jobs: Sequence[Job[Any]] = JOBS, concurrency: int = 1
    ) -> None:
        self._services = services
        self._interval = interval_s
        self._jobs = self._polled = jobs
        self._concurrency = concurrency
        self._free = list(range(concurrency))  # numbers of pieces that may run now
        self._places = asyncio.Semaphore(concurrency)
        self._is_stopping = False
        self._tasks: list[asyncio.Task[None]] = []
        self._problem = ""

    @property
    def running(self) -> int:
        """Return the number of pieces that may be running."""
        return self._concurrency - len(self._free)

    def start(self, *, local_only: bool = False) -> None:
        """Start to poll for jobs, or for those that each process must run itself."""
        if not self._tasks:
            self._is_stopping = False
            self._polled = [job for job in self._jobs if job.is_local or not local_only]
            self._tasks = [asyncio.create_task(self._run()) for _ in range(self._concurrency)]

    async def stop(self, *, grace_s: float = 0.0) -> None:
        """Stop. Running pieces have `grace_s` seconds to finish; the next worker finds unfinished jobs again."""
        tasks, self._tasks, self._is_stopping = self._tasks, [], True
        self._services.notify_jobs()
        if tasks and grace_s:
            await asyncio.wait(tasks, timeout=grace_s)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(self) -> None:
        while not self._is_stopping:
            self._services.wakeup.clear()
            more = False
            try:
                more = (await self._round(DueQuery(), patience_s=TURN_S, jobs=self._polled)).is_cut
            except BackendError as error:
                if str(error) != self._problem:  # as long as it lasts, log it once
                    self._problem = str(error)
                    log.warning("Background jobs wait for the database, and will continue by themselves: %s", error)
            except Exception:  # outermost loop of background jobs: log and go on
                log.exception("Background worker failed; it will retry")
            else:
                self._problem = ""
            if not more and not self._is_stopping:
                await asyncio.sleep(REST_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(
                        self._interval
                    ):  # `wait_for` of 3.11 can lose a cancellation: stop would hang
                        await self._services.wakeup.wait()

    async def work(self) -> int:
        """Run what is due now, once. Return the number of pieces done."""
        return (await self._round(DueQuery(), patience_s=TURN_S)).done

    async def run_job(self, name: str) -> None:
        """Run what is due of one job, as far as no other worker runs it."""
        services = self._services
        async with self._place() as claims:
            for job in self._jobs:
                if job.name == name:
                    await run_due(
                        services,
                        job,
                        patience_s=TURN_S,
                        claims=None if job.is_local else claims,
                        is_stopping=lambda: self._is_stopping,
                    )
        services.notify_jobs()  # for what it left, and for work that follows from it

    async def settle(self, *, timeout_s: float, conversation: str | None = None) -> dict[str, int]:
        """Run jobs until a round does nothing or the timeout ends. Return the remaining counts by job, empty when done.

        Cool-downs are ignored. A failed piece is retried in the next round; a summary is written by rules in the end.
        Waits for pieces that other workers run.
        """
        query = DueQuery(hurry=True, conversation=conversation)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while (result := await self._round(query)).done or result.claimed:
                    if not result.done:
                        await asyncio.sleep(REST_S)
                if not result.is_left:
                    return {}
        counts = await self.backlog(replace(query, limit=COUNTED))
        return {name: count for name, count in counts.items() if count}

    async def backlog(self, query: DueQuery) -> dict[str, int]:
        """Return the pending work of each job, at most the query's limit, as far as this process knows it."""
        jobs = [job for job in self._jobs if not job.remembers or job in self._polled]
        return {job.name: sum(each.count for each in await job.due(self._services, query)) for job in jobs}

    async def _round(
        self, query: DueQuery, *, patience_s: float = float("inf"), jobs: Sequence[Job[Any]] | None = None
    ) -> RunResult:
        """Run each job in turn."""
        services = self._services
        async with self._place() as claims:
            result = RunResult(done=await services.expire())
            await services.store.forget_keys(before=services.clock.now() - KEYS_S)
            for job in self._jobs if jobs is None else jobs:
                own = None if job.is_local else claims
                result += await run_due(
                    services, job, query, patience_s=patience_s, claims=own, is_stopping=lambda: self._is_stopping
                )
        return result

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[Claims | None]:
        """Wait until another piece may run. Yield its claims, None if no other worker uses the database."""
        store = self._services.store
        async with self._places:
            number = self._free.pop()
            try:
                if self._concurrency == 1 and not await asyncio.to_thread(store.database.shared):
                    yield None
                    return
                claims = Claims(store.claims, number=number, lease_s=self._services.config.work.lease_s)
                await store.claims.sweep()
                try:
                    yield claims
                finally:
                    await claims.close()
            finally:
                self._free.append(number)
