"""Who goes first: what somebody waits for before a first token, before all that is done behind replies.

Both share one process, and whatever runs there takes its time from a stream that has not begun. So work behind stands
back, between its parts and a while at most: it is found in stored state, and a busy book must not let it starve.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

#: Seconds each part of the work behind stands back for those who wait for a first token; opening a turn takes less.
STANDS_BACK_S = 0.05


class Urgent:
    """How many calls wait for their first token because of us."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    @property
    def count(self) -> int:
        """How many there are."""
        return self._count

    def begin(self) -> Callable[[], None]:
        """Count one more; what this answers with says, however often it is called, that it waits no longer."""
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

    async def stand_back(self, most_s: float) -> None:
        """Wait until nobody waits, `most_s` seconds at most."""
        if self._count:
            with suppress(TimeoutError):
                async with asyncio.timeout(most_s):
                    await self._none.wait()
