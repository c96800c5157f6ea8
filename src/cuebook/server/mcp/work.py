"""Work that somebody waits for, who hears that it goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

#: Seconds between two words that it goes on.
PAUSE_S: Final = 1.0

#: Says how far work is, a number that grows, and in words.
Tell = Callable[[float, str], Awaitable[None]]


async def at_work(work: Awaitable[T], tell: Tell, title: str) -> T:
    """Do work, and say each second that it goes on; when nobody waits any more it ends."""
    task = asyncio.ensure_future(work)
    seconds = 0.0
    try:
        while not (await asyncio.wait((task,), timeout=PAUSE_S))[0]:
            seconds += PAUSE_S
            await tell(seconds, f"{title}: {seconds:.0f} s")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
