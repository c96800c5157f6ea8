"""What reads or asks much for one who asks: one of a kind at a time, and few wait for it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from cuebook.errors import Busy

#: Requests of a kind that may wait while one is at it, and seconds after which who was refused may try again.
WAITING: Final = 8
_RETRY_S: Final = 10.0


class Measures:
    """The long measures of a server, by kind. One goes on to its end though its client went away, so few may wait."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._asked: Counter[str] = Counter()

    @asynccontextmanager
    async def hold(self, kind: str) -> AsyncIterator[None]:
        """Wait for our turn. Raises Busy where many wait."""
        if self._asked[kind] > WAITING:
            msg = f"{kind} takes long, and {WAITING} requests wait for one already; try again later"
            raise Busy(msg, retry_after=_RETRY_S)
        self._asked[kind] += 1
        try:
            async with self._locks.setdefault(kind, asyncio.Lock()):
                yield
        finally:
            self._asked[kind] -= 1
