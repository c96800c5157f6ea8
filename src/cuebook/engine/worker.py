"""The work behind the reply: found in stored state, done again until nothing is due (DESIGN §1)."""

import asyncio
import contextlib
import logging
import time

from cuebook.assembly.budget import allot
from cuebook.engine.compact import compact_once
from cuebook.engine.desk import Desk
from cuebook.errors import CuebookError
from cuebook.memory.profiles import CompactionProfile, choose
from cuebook.memory.rolling import due as due_for
from cuebook.ports.store import Due
from cuebook.records.memory import Scope

log = logging.getLogger("cuebook.worker")

#: Conversations looked at in one round of work.
BATCH = 100


class Worker:
    """One process's worker. Any number of them may run: every effect is guarded by the rows it was derived from."""

    def __init__(self, desk: Desk, *, interval_s: float) -> None:
        self._desk = desk
        self._interval = interval_s
        self._stirred = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        desk.stirred = self._stirred.set

    def start(self) -> None:
        """Begin to look for work."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """End; what was under way is found again by whoever looks next."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                while await self.work(hurry=False):
                    await asyncio.sleep(0)
            except Exception:  # the outermost loop of the work behind: it records and goes on
                log.exception("work behind failed; it is found again")
            self._stirred.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), self._interval)

    async def work(self, *, hurry: bool, conversation: str | None = None) -> int:
        """Do what is due, one pass a conversation; answers with how much was done. `hurry` ignores cool-downs."""
        done = await self._desk.store.expire(now=self._desk.clock.now())
        for due in await self._desk.store.due(limit=BATCH):
            if conversation is not None and due.conversation != conversation:
                continue
            profile = self.profile_if_due(due, hurry=hurry)
            if profile is None:
                continue
            try:
                done += await compact_once(self._desk, Scope(due.tenant), due.conversation, profile)
            except CuebookError as error:
                log.warning("compaction of %s: %s", due.conversation, error)
        return done

    def profile_if_due(self, due: Due, *, hurry: bool) -> CompactionProfile | None:
        """Give the profile of a conversation whose pass is due now."""
        desk = self._desk
        profile = choose(desk.compaction, due.mode or None)
        room = allot(desk.limits, front=0).posts
        verdict = due_for(
            profile,
            backlog=due.backlog,
            backlog_tokens=due.backlog_tokens,
            room=room,
            trigger_ratio=desk.limits.trigger_ratio,
            now=desk.clock.now(),
            last_at=due.last_at,
            not_before=due.not_before,
            hurry=hurry,
        )
        return profile if verdict.reason == "due" else None

    async def settle(self, *, timeout_s: float, conversation: str | None = None) -> dict[str, int]:
        """Work until nothing is due, or the time is over; answers with what is still due by kind, empty when settled."""
        until = time.monotonic() + timeout_s
        while True:
            done = await self.work(hurry=True, conversation=conversation)
            if not done:
                return await self._left(conversation)
            if time.monotonic() >= until:
                return await self._left(conversation)

    async def _left(self, conversation: str | None) -> dict[str, int]:
        dues = [
            due
            for due in await self._desk.store.due(limit=BATCH)
            if (conversation is None or due.conversation == conversation) and self.profile_if_due(due, hurry=True)
        ]
        return {"compaction": len(dues)} if dues else {}
