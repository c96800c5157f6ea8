"""Claims of one worker: it claims a piece of due work before it runs it, and extends the claim while it works."""

import asyncio
from collections.abc import Awaitable, Sequence
from hashlib import blake2b
from typing import TypeVar

from cuebook.storage.claims import Claim, ClaimStore

R = TypeVar("R")


class Claims:
    """The claims of a worker, of which it has one at a time."""

    def __init__(self, store: ClaimStore, *, number: int, lease_s: float) -> None:
        """Create them; `number` distinguishes the workers of this process."""
        self._store = store
        self._holder = f"{store.process}-{number}"
        self._lease_s = lease_s
        self._claim: Claim | None = None
        self._ended: list[tuple[Claim, bool]] = []

    async def take(self, pieces: Sequence[tuple[str, str, str]]) -> int | None:
        """Claim the first free piece, given by job, tenant and subject. Return its position, None for none."""
        claims = [
            Claim(tenant=tenant, job=job, piece=_digest(subject), holder=self._holder)
            for job, tenant, subject in pieces
        ]
        ended, self._ended = self._ended, []
        place = await self._store.take(claims, lease_s=self._lease_s, ended=ended)
        self._claim = None if place is None else claims[place]
        return place

    async def run(self, work: Awaitable[R]) -> R:
        """Run claimed work and return its result. The claim ends with the next `take` or `close`.

        Work without a true result is free for others at once.
        """
        renewing, finished = asyncio.create_task(self._renew()), False
        try:
            result = await work
            finished = bool(result)
        finally:
            renewing.cancel()
            if self._claim is not None:
                self._ended.append((self._claim, finished))
                self._claim = None
        return result

    async def close(self) -> None:
        """End all claims."""
        ended, self._ended = self._ended, []
        if self._claim is not None:
            ended.append((self._claim, False))
            self._claim = None
        if ended:
            await self._store.end(ended)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / 3)
            await self._store.renew(self._holder, lease_s=self._lease_s)


def _digest(subject: str) -> str:
    """Return the digest of a subject: the table of claims contains no names."""
    return blake2b(subject.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
