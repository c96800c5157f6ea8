"""Order of turns and priority over background jobs: a FIFO queue per conversation, and a gate that pauses jobs.

Turns and jobs share one process, and a job would delay streams that are about to start. Between their parts, jobs wait
for a limited time, so that a busy server does not starve them.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TypeVar

from cuebook.errors import Busy

T = TypeVar("T")

#: Seconds that each part of a job waits for foreground calls at most. Deciding a turn takes less.
MAX_WAIT_S = 0.05


class ConversationQueue:
    """Queues of this process, one per conversation. Across processes, the store's lease has the same effect."""

    def __init__(self, most: int) -> None:
        """`most` turns may wait in a conversation, in addition to the running one."""
        self._most = most
        self._locks: dict[tuple[str, str, bool], asyncio.Lock] = {}
        self._waiting: dict[tuple[str, str, bool], int] = {}

    @property
    def waiting(self) -> int:
        """Return the number of waiting and running turns."""
        return sum(self._waiting.values())

    @asynccontextmanager
    async def hold(self, tenant: str, conversation: str, *, parallel: bool = False) -> AsyncIterator[None]:
        """Wait for the turn's place in the queue and hold it. Raises Busy if the queue is full.

        Parallel turns have a queue of their own, which they hold only while they open.
        """
        place = (tenant, conversation, parallel)
        lock = self._locks.setdefault(place, asyncio.Lock())
        waiting = self._waiting.get(place, 0)
        if waiting > self._most:
            msg = f"Queue full: {self._most} turns already wait in conversation {conversation!r}. Try again later."
            raise Busy(msg, retry_after=2.0)
        self._waiting[place] = waiting + 1
        try:
            async with lock:
                yield
        finally:
            self._waiting[place] -= 1
            if not self._waiting[place]:
                del self._waiting[place]
                self._locks.pop(place, None)


class ForegroundGate:
    """Counter of calls waiting for their first token."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    @property
    def count(self) -> int:
        """Return the number of waiting calls."""
        return self._count

    def begin(self) -> ExitStack:
        """Count one more waiting call, until the returned context is closed."""
        self._count += 1
        self._none.clear()
        waiting = ExitStack()
        waiting.callback(self._end)
        return waiting

    def _end(self) -> None:
        self._count -= 1
        if not self._count:
            self._none.set()

    async def wait_until_free(self, most_s: float) -> None:
        """Wait until no call waits for its first token, at most `most_s` seconds."""
        if self._count:
            with suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self._none.wait()


@asynccontextmanager
async def closing(pieces: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T], None]:
    """Close an async iterator when reading ends, to release its connection at once."""
    try:
        yield pieces
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
