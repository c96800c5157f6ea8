"""Background worker: poll for due jobs, and run all of them on request (`settle`)."""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from cuebook.engine.core.services import Services
from cuebook.engine.jobs import JOBS
from cuebook.engine.jobs.job import DueQuery, Job, run_due

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
    """Background worker of one process. Any number may run: each write checks the rows that it was derived from."""

    def __init__(self, services: Services, *, interval_s: float, jobs: Sequence[Job[Any]] = JOBS) -> None:
        self._services = services
        self._interval = interval_s
        self._jobs = jobs
        self._working = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to poll for jobs."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop. The next worker finds unfinished jobs again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None

    async def _run(self) -> None:
        while True:
            self._services.wakeup.clear()
            more = False
            try:
                async with self._working:
                    _, more = await self._round(DueQuery(), patience_s=TURN_S)
            except Exception:  # outermost loop of background jobs: log and go on
                log.exception("Background worker failed; it will retry")
            if not more:
                await asyncio.sleep(REST_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(
                        self._interval
                    ):  # `wait_for` of 3.11 can lose a cancellation: stop would hang
                        await self._services.wakeup.wait()

    async def work(self) -> int:
        """Run what is due now, once. Return the number of pieces done."""
        async with self._working:
            done, _ = await self._round(DueQuery(), patience_s=TURN_S)
        return done

    async def settle(self, *, timeout_s: float, conversation: str | None = None) -> dict[str, int]:
        """Run jobs until a round does nothing or the timeout ends. Return the remaining counts by job, empty when done.

        Cool-downs are ignored. A failed piece is retried in the next round; a summary is written by rules in the end.
        """
        query = DueQuery(hurry=True, conversation=conversation)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._working:
                while (await self._round(query))[0]:
                    pass
        query = replace(query, limit=COUNTED)
        counts = {job.name: sum(each.count for each in await job.due(self._services, query)) for job in self._jobs}
        return {name: count for name, count in counts.items() if count}

    async def _round(self, query: DueQuery, *, patience_s: float = float("inf")) -> tuple[int, bool]:
        """Run each job. Return the number of pieces done, and whether a job ran out of time."""
        services = self._services
        done, more = await services.expire(), False
        await services.store.forget_keys(before=services.clock.now() - KEYS_S)
        for job in self._jobs:
            count, is_cut = await run_due(services, job, query, patience_s=patience_s)
            done, more = done + count, more or is_cut
        return done, more
