"""Background worker: find due jobs in stored state and run them until nothing is due."""

import asyncio
import contextlib
import logging
from typing import NamedTuple

from cuebook.engine.core.foreground_gate import MAX_WAIT_S
from cuebook.engine.core.services import Job, Services
from cuebook.engine.jobs.compaction import FAILURES, Outcome, compact_once
from cuebook.engine.turn.summary_correction import correct_summary
from cuebook.errors import CuebookError
from cuebook.interfaces.store import DueConversation
from cuebook.memory.profiles import CompactionProfile, choose
from cuebook.memory.rolling import backoff_s, least_backlog
from cuebook.memory.rolling import due as due_for
from cuebook.records.memory import Scope
from cuebook.window.budget import allot

log = logging.getLogger("cuebook.worker")

#: How long an Idempotency-Key is valid.
KEYS_S = 48 * 3600.0
#: Conversations that may be due, loaded in one batch.
BATCH = 100
#: Seconds between two scans of a dozen reads each. Turns that end in between trigger one scan.
REST_S = 0.25


class ConversationKey(NamedTuple):
    """Tenant and id of a conversation."""

    tenant: str
    conversation: str


class Worker:
    """Background worker of one process. Any number may run: each write checks the rows that it was derived from."""

    def __init__(self, services: Services, *, interval_s: float) -> None:
        self._services = services
        self._interval = interval_s
        self._wakeup = services.wakeup
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
            self._wakeup.clear()
            try:
                await self._until_idle()
            except Exception:  # outermost loop of background jobs: log and go on
                log.exception("Background worker failed; it will retry")
            await asyncio.sleep(REST_S)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(
                    self._interval
                ):  # `wait_for` of 3.11 can lose a cancellation: stop would hang
                    await self._wakeup.wait()

    async def _until_idle(self) -> None:
        done = 1
        while done:
            done = await self.work(hurry=False)

    async def work(self, *, hurry: bool, conversation: str | None = None) -> int:
        """Run due jobs, one pass per conversation. Return the number done. `hurry` ignores cool-downs."""
        async with self._working:
            done = await self._services.expire()
            await self._services.store.forget_keys(before=self._services.clock.now() - KEYS_S)
            for due, profile in await self._due(hurry=hurry, conversation=conversation):
                await self._services.foreground.wait_until_free(MAX_WAIT_S)
                done += await self._pass(due, profile) == "stored"
            for job in self._services.jobs:
                await self._services.foreground.wait_until_free(MAX_WAIT_S)
                await self._do(job)
        return done

    async def _do(self, job: Job) -> None:
        """Run a job. A failed one is retried next time and does not block the others."""
        try:
            await job.run()
        except CuebookError as error:
            log.warning("%s", self._services.writer.clean(str(error)))
        except Exception:  # a sink is user code: no exception of it may block other jobs
            log.exception("Background job %s failed; it will be retried", job.name)

    async def _whole(self, job: Job) -> None:
        """Repeat a job until nothing of it is due, or a run changes nothing."""
        await self._do(job)
        left = await job.due()
        while left:
            await self._do(job)
            before, left = left, await job.due()
            if left >= before:
                return

    async def settle(self, *, timeout_s: float, conversation: str | None = None) -> dict[str, int]:
        """Run jobs until nothing is due or the timeout ends. Return the remaining counts by kind, empty when done.

        A failed pass is retried at once, in the end by rules. A pass that would save nothing is skipped.
        """
        tries: dict[ConversationKey, int] = {}
        refused: set[ConversationKey] = set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s), self._working:
                await self._services.expire()
                while dues := [
                    each
                    for each in await self._due(hurry=True, conversation=conversation)
                    if place_of(each[0]) not in refused and tries.get(place_of(each[0]), 0) <= FAILURES
                ]:
                    for due, profile in dues:
                        outcome = await self._pass(due, profile)
                        place = place_of(due)
                        tries[place] = 0 if outcome == "stored" else tries.get(place, 0) + 1
                        refused |= {place} if outcome == "refused" else set()
                for job in self._services.jobs:
                    await self._whole(job)
        results = await self._due(hurry=True, conversation=conversation)
        left = [due for due, _ in results if place_of(due) not in refused]
        counts = {"compaction": len(left)} | {job.name: await job.due() for job in self._services.jobs}
        return {kind: count for kind, count in counts.items() if count}

    async def _pass(self, due: DueConversation, profile: CompactionProfile) -> Outcome:
        """Run one pass. An error postpones only this conversation."""
        services, scope = self._services, Scope(due.tenant)
        try:
            await correct_summary(services, scope, due.conversation)
            return await compact_once(services, scope, due.conversation, profile)
        except CuebookError as error:
            log.warning(
                "Summarization failed for conversation %s: %s", due.conversation, services.writer.clean(str(error))
            )
        except Exception:
            log.exception("Summarization failed for conversation %s; it will be retried", due.conversation)
        until = services.clock.now() + backoff_s(due.failures, profile.cooldown_ms)
        await services.store.postpone(scope, due.conversation, until=until, failed=True, mark=due.mark)
        return "failed"

    async def _due(self, *, hurry: bool, conversation: str | None) -> list[tuple[DueConversation, CompactionProfile]]:
        """Return the due conversations, largest backlog first."""
        least = least_backlog(self._services.settings.compaction)
        results: list[tuple[DueConversation, CompactionProfile]] = []
        last: DueConversation | None = None
        while True:
            page = await self._services.store.due(limit=BATCH, least=least, after=last, conversation=conversation)
            profiles = ((due, self.profile_if_due(due, hurry=hurry)) for due in page)
            results += [(due, profile) for due, profile in profiles if profile is not None]
            if len(page) < BATCH:
                return results
            last = page[-1]

    def profile_if_due(self, due: DueConversation, *, hurry: bool) -> CompactionProfile | None:
        """Return a conversation's compaction profile if a pass is due now."""
        services = self._services
        profile = choose(services.settings.compaction, due.mode or None)
        verdict = due_for(
            profile,
            backlog=due.backlog,
            backlog_tokens=due.backlog_tokens,
            room=allot(services.settings.limits, front=0).posts,
            trigger_ratio=due.trigger
            if services.settings.tunes and due.trigger
            else services.settings.limits.trigger_ratio,
            now=services.clock.now(),
            last_at=due.last_at,
            not_before=due.not_before,
            hurry=hurry,
        )
        return profile if verdict.reason == "due" else None


def place_of(due: DueConversation) -> ConversationKey:
    """Return the key of a due conversation."""
    return ConversationKey(due.tenant, due.conversation)
