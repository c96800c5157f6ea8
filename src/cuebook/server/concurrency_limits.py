"""Limit concurrency: live connections per server and key, and a short queue for expensive requests (429)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from cuebook.errors import Busy
from cuebook.records.expression import counted
from cuebook.server.authorization import AnyRequest, book_of, caller_of

# ---- watchers -------------------------------------------------------------------------------------------------------


#: Seconds after which who was refused may try again.
RETRY_S = 10.0


@contextmanager
def seat(request: AnyRequest) -> Iterator[None]:
    """Count a live connection. Raises Busy if the server or the key has too many."""
    watching: Counter[str] = request.app.state.watching
    limits, key = book_of(request).config.settings.server, caller_of(request).key
    for many, most, setting in (
        (watching.total(), limits.watchers, "server.watchers"),
        (watching[key] if key else 0, limits.watchers_of_key, "server.watchers_of_key"),
    ):
        if many >= most:
            msg = f"{counted(many, 'watcher')} are here, and {setting} allows {most}; end one, or raise it"
            raise Busy(msg, retry_after=RETRY_S)
    watching[key] += 1
    try:
        yield
    finally:
        watching[key] -= 1
        if not watching[key]:
            del watching[key]


#: Requests of a kind that may wait while one is at it, and seconds after which who was refused may try again.
WAITING: Final = 8
_RETRY_S: Final = 10.0


class Measures:
    """Runs one expensive request of each kind at a time, to its end even if the client disconnects."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._asked: Counter[str] = Counter()

    @asynccontextmanager
    async def hold(self, kind: str) -> AsyncIterator[None]:
        """Wait for the lock of a kind. Raises Busy if the queue is full."""
        if self._asked[kind] > WAITING:
            msg = f"{kind} takes long, and {WAITING} requests wait for one already; try again later"
            raise Busy(msg, retry_after=_RETRY_S)
        self._asked[kind] += 1
        try:
            async with self._locks.setdefault(kind, asyncio.Lock()):
                yield
        finally:
            self._asked[kind] -= 1
