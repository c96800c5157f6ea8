"""Priority of foreground calls over background jobs: jobs wait while a call waits for its first token.

Both share one process, and a job would delay streams that are about to start. Between their parts, jobs wait for a
limited time, so that a busy server does not starve them.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

#: Seconds that each part of a job waits for foreground calls at most. Opening a turn takes less.
MAX_WAIT_S = 0.05


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

    def begin(self) -> Callable[[], None]:
        """Count one more waiting call. Return an idempotent function that ends its wait."""
        waits = True

        def over() -> None:
            nonlocal waits
            if waits:
                waits = False
                self._count -= 1
                if not self._count:
                    self._none.set()

        self._count += 1
        self._none.clear()
        return over

    async def wait_until_free(self, most_s: float) -> None:
        """Wait until no call waits for its first token, at most `most_s` seconds."""
        if self._count:
            with suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self._none.wait()
