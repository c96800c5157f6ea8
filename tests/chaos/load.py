"""Writers of a store whose database fails: what was acknowledged, and whether it is stored once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cuebook.errors import BackendError, Conflict
from cuebook.records.memory import Scope
from cuebook.storage.store import Store
from storage.contract.posts import say
from storage.history import losses
from storage.makers import draft

WRITERS = 6
SCOPE = Scope(user="ann")


class Load:
    """Writers that append posts one after the other, and repeat a post that was not acknowledged."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._stopped = False
        self.acknowledged: list[tuple[str, str]] = []
        self.errors: list[BackendError] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        writers = [asyncio.create_task(self._write(f"c{number}")) for number in range(WRITERS)]
        try:
            yield
        finally:
            self._stopped = True
            await asyncio.gather(*writers)

    async def wait_for(self, more: int) -> None:
        """Wait until so many more posts were acknowledged."""
        goal = len(self.acknowledged) + more
        async with asyncio.timeout(90):
            while len(self.acknowledged) < goal:  # noqa: ASYNC110  # many writers
                await asyncio.sleep(0.05)

    async def _write(self, conversation: str) -> None:
        number = 0
        while not self._stopped:
            name = f"{conversation}-{number}"
            try:
                await say(self._store, conversation, draft(name, "apples"), scope=SCOPE)
            except BackendError as error:
                self.errors.append(error)
                await asyncio.sleep(0.1)
                continue  # it may be stored: the same post again
            except Conflict:  # it was stored, although the acknowledgment was lost
                pass
            self.acknowledged.append((conversation, name))
            number += 1

    async def check(self) -> Counter[str]:
        """Check that each acknowledged post is stored once, and that failures said to try again. Return the counts."""
        counts = Counter(acknowledged=len(self.acknowledged))
        for number in range(WRITERS):
            conversation = f"c{number}"
            posts = await self._store.posts(SCOPE, conversation, path=False)
            counts += losses(posts, [name for place, name in self.acknowledged if place == conversation])
        assert counts == Counter(acknowledged=len(self.acknowledged))
        assert all(error.retryable for error in self.errors)
        return counts
