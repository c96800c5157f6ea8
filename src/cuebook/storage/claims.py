"""Store claims of background work, so that several workers do not run the same piece. They save repeated work only.

A claim ends with its work or after its time, by the clock of the database.
"""

import json
import secrets
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from cuebook.storage.database.transaction import ALL, Database, Noun, Transaction

T = TypeVar("T")

#: Seconds that finished work stays claimed: other workers may use a list of due work that still contains it.
REST_S: Final = 2.0


class Claim(Struct, frozen=True, kw_only=True):
    """A claim of a worker. `piece` identifies the work among that of the job and tenant."""

    tenant: str
    job: str
    piece: str
    holder: str


class ClaimStore(Noun):
    """Stores claims of background work."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.rest_s = REST_S
        self.process = secrets.token_hex(8)

    async def take(self, claims: Sequence[Claim], *, lease_s: float, ended: Sequence[tuple[Claim, bool]]) -> int | None:
        """Store the first claim whose work no other worker has, and return its position; None if there is none.

        In the same transaction, end others; see `end`.
        """

        def run(transaction: Transaction) -> int | None:
            now = _end(transaction, ended)
            held = {
                (tenant, job, piece): (holder, until)
                for tenant, job, piece, holder, until in transaction.run(
                    "claims_of", jobs=json.dumps([*{each.job for each in claims}])
                )
            }
            for place, each in enumerate(claims):
                holder, until = held.get((each.tenant, each.job, each.piece), (each.holder, 0.0))
                if holder == each.holder or until + self.rest_s < now:
                    transaction.run("claim_put", **_values(each), until=now + lease_s)
                    return place
            return None

        return await self._write(run)

    async def renew(self, holder: str, *, lease_s: float) -> None:
        """Extend the claims of a worker, unless their time is over."""

        def run(transaction: Transaction) -> None:
            now = transaction.value("claims_now")
            transaction.run("claims_renew", holder=holder, now=now, until=now + lease_s)

        await self._write(run)

    async def end(self, ended: Sequence[tuple[Claim, bool]]) -> None:
        """End claims. Work that is finished stays claimed for REST_S, other work is free at once."""
        await self._write(lambda transaction: _end(transaction, ended))

    async def sweep(self) -> None:
        """Delete claims whose time is over."""
        if await self.database.read(lambda transaction: transaction.value("claims_count")):
            await self._write(
                lambda transaction: transaction.run("claims_drop", before=transaction.value("claims_now") - self.rest_s)
            )

    async def _write(self, work: Callable[[Transaction], T]) -> T:
        return await self.database.write(work, tenant=ALL, subject="claims")


def _end(transaction: Transaction, ended: Sequence[tuple[Claim, bool]]) -> float:
    """End claims. Return the time of the database."""
    now: float = transaction.value("claims_now")
    for claim, finished in ended:
        if finished:
            transaction.run("claim_end", **_values(claim), now=now)
        else:
            transaction.run("claim_drop", **_values(claim))
    return now


def _values(claim: Claim) -> dict[str, str]:
    return {"tenant": claim.tenant, "job": claim.job, "piece": claim.piece, "holder": claim.holder}
