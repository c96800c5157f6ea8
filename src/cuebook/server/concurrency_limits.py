"""Limit concurrency: live connections per server and key, and a short queue for expensive requests (429)."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from cuebook.errors import Busy
from cuebook.server.caller import AnyRequest, caller_of, cue_of

#: Retry-After of rejected requests, in seconds.
RETRY_S = 10.0


@contextmanager
def seat(request: AnyRequest) -> Iterator[None]:
    """Count a live connection. Raises Busy if the server or the key has too many."""
    watching: Counter[str] = request.app.state.watching
    limits, key = cue_of(request).config.settings.server, caller_of(request).key
    for many, most, setting in (
        (watching.total(), limits.watchers, "server.watchers"),
        (watching[key] if key else 0, limits.watchers_of_key, "server.watchers_of_key"),
    ):
        if many >= most:
            msg = f"Too many live connections: {many:,}, and {setting} allows {most:,}. Close one, or raise the limit."
            raise Busy(msg, retry_after=RETRY_S)
    watching[key] += 1
    try:
        yield
    finally:
        watching[key] -= 1
        if not watching[key]:
            del watching[key]


#: Requests of a kind that may wait while one runs.
WAITING: Final = 8


class Measures:
    """Runs one expensive request of each kind at a time, to its end even if the client disconnects."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._asked: Counter[str] = Counter()

    @asynccontextmanager
    async def hold(self, kind: str) -> AsyncIterator[None]:
        """Wait for the lock of a kind. Raises Busy if the queue is full."""
        if self._asked[kind] > WAITING:
            msg = f"Too many requests: {WAITING} are already waiting for {kind}. Try again later."
            raise Busy(msg, retry_after=RETRY_S)
        self._asked[kind] += 1
        try:
            async with self._locks.setdefault(kind, asyncio.Lock()):
                yield
        finally:
            self._asked[kind] -= 1
