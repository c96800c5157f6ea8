"""Limit what clients use (429): requests and bytes per minute of a key, live connections, expensive requests."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from cuebook.config import ServerConfig
from cuebook.errors import Busy
from cuebook.server.caller import AnyRequest, caller_of, cue_of

#: Retry-After of rejected requests, in seconds.
RETRY_S = 10.0


class KeyRates:
    """Requests and bytes of each API key in this process: buckets that refill within a minute."""

    def __init__(self, limits: ServerConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = {"requests": limits.requests_per_minute, "bytes": limits.bytes_per_minute}
        self._clock = clock
        self._left: dict[tuple[str, str], tuple[float, float]] = {}  # by key and kind: what is left, and when

    def admit(self, key: str) -> None:
        """Count a request of a key, "" for none. Raises Busy if a bucket is empty."""
        for kind, most in self._most.items():
            left = self._left_of(key, kind)
            if key and most and left < 1:
                limit = f"server.{kind}_per_minute allows {most:,}"
                msg = f"Too many {kind} of this API key: {limit}. Send fewer, or raise the limit."
                raise Busy(msg, retry_after=(1 - left) * 60 / most)
        self._take(key, "requests", 1)

    def charge(self, key: str, amount: int) -> None:
        """Count the bytes of a request. They are known only afterwards, so they may exceed what is left."""
        self._take(key, "bytes", amount)

    def _take(self, key: str, kind: str, amount: int) -> None:
        if key and self._most[kind]:
            self._left[key, kind] = (self._left_of(key, kind) - amount, self._clock())

    def _left_of(self, key: str, kind: str) -> float:
        most = self._most[kind]
        left, at = self._left.get((key, kind), (float(most), self._clock()))
        return min(float(most), left + (self._clock() - at) * most / 60)


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
