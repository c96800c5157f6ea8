"""What reads or asks much for one who asks: one of a kind at a time, and few wait for it."""

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
    """Count who watches. Raises Busy where too many do, or too many under one key."""
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
