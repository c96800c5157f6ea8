"""The contract of claims: one worker has a piece of work, and a claim ends with its work or after its time."""

import asyncio
import time

from cuebook.storage.claims import Claim
from cuebook.storage.store import Store


def claims(holder: str, *pieces: str, tenant: str = "here") -> list[Claim]:
    return [Claim(tenant=tenant, job="j", piece=piece, holder=holder) for piece in pieces]


async def take(store: Store, holder: str, *pieces: str, lease_s: float = 60.0, ended=()) -> int | None:
    return await store.claims.take(claims(holder, *pieces), lease_s=lease_s, ended=ended)


class ClaimsContract:
    """Claims of background work."""

    async def test_a_claimed_piece_is_left_to_its_holder(self, store: Store) -> None:
        assert await take(store, "a", "p1", "p2") == 0
        assert await take(store, "b", "p1", "p2") == 1
        assert await take(store, "c", "p1", "p2") is None
        assert await take(store, "a", "p1") == 0
        assert await store.claims.take(claims("b", "p1", tenant="there"), lease_s=60.0, ended=()) == 0

    async def test_unfinished_work_is_free_at_once_and_finished_work_later(self, store: Store) -> None:
        assert await take(store, "a", "p1") == 0
        await store.claims.end([(claims("b", "p1")[0], False)])
        assert await take(store, "b", "p1") is None, "only its holder ends a claim"
        await store.claims.end([(claims("a", "p1")[0], False)])
        assert await take(store, "b", "p1") == 0
        assert await take(store, "b", "p2", ended=[(claims("b", "p1")[0], True)]) == 0
        assert await take(store, "a", "p1") is None
        store.claims.rest_s = 0.0
        await asyncio.sleep(0.05)
        assert await take(store, "a", "p1") == 0

    async def test_a_claim_ends_after_its_time(self, store: Store) -> None:
        store.claims.rest_s = 0.0
        assert await take(store, "a", "p1", lease_s=0.01) == 0
        await asyncio.sleep(0.1)
        await store.claims.renew("a", lease_s=60.0)
        while True:
            began = time.monotonic()
            assert await take(store, "b", "p1", lease_s=1.0) == 0
            await store.claims.renew("b", lease_s=60.0)
            if time.monotonic() - began < 1.0:
                break
            await store.claims.end([(claims("b", "p1")[0], False)])  # the machine is busy: the claim may have ended
        await asyncio.sleep(1.1)
        await store.claims.sweep()
        assert await take(store, "a", "p1") is None

    async def test_concurrent_workers_take_different_pieces(self, store: Store) -> None:
        other = await self.reopen()  # type: ignore[attr-defined]
        pieces = [f"p{n}" for n in range(6)]
        takers = [take(each, f"w{n}", *pieces) for n, each in enumerate([store, other or store] * 3)]
        assert sorted(await asyncio.gather(*takers)) == [0, 1, 2, 3, 4, 5]
        if other is not None:
            await other.aclose()
