"""Lock a conversation: its FIFO queue runs one turn at a time and bounds the number of waiting turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cuebook.errors import Busy


class ConversationQueue:
    """Queues of this process, one per conversation. Across processes, the store's lease has the same effect."""

    def __init__(self, most: int) -> None:
        """`most` turns may wait in a conversation, in addition to the running one."""
        self._most = most
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._waiting: dict[tuple[str, str], int] = {}

    @asynccontextmanager
    async def hold(self, tenant: str, conversation: str) -> AsyncIterator[None]:
        """Wait for the turn's place in the queue and hold it. Raises Busy if the queue is full."""
        place = (tenant, conversation)
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
