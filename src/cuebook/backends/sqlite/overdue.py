"""Which turns are over though nobody ended them: their lease ran out, its holder is gone, or nobody renews it.

A lease is told by the clock of who holds it. One that reaches farther than a lease can was given by a clock that was
wrong, and cannot be waited for: whoever sees it stand still for as long as a lease lasts ends it.
"""

import sqlite3

from msgspec import Struct

from cuebook.backends.failpoints import Failpoints
from cuebook.backends.sqlite.base import one, rows
from cuebook.backends.sqlite.holders import Holders
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.turns import end_expired

#: How far the clocks of two processes may lie apart without being wrong, in seconds.
SLACK_S = 1.0


class Seen(Struct, frozen=True):
    """A lease as it stood when it was seen first."""

    fence: int
    until: float
    since: float


class Watch:
    """Leases of clocks that were wrong, as this store has seen them stand."""

    def __init__(self) -> None:
        self._seen: dict[int, Seen] = {}

    def stale(self, held: list[Row], *, now: float, lease_s: float) -> set[int]:
        """Give the conversations whose lease reaches too far and was not renewed for so many seconds."""
        seen: dict[int, Seen] = {}
        for row in held:
            if row["lease_until"] > now + lease_s + SLACK_S:
                before = self._seen.get(row["no"])
                same = before and (before.fence, before.until) == (row["fence"], row["lease_until"])
                since = before.since if before and same and before.since <= now else now
                seen[row["no"]] = Seen(row["fence"], row["lease_until"], since)
        self._seen = seen
        return {no for no, each in seen.items() if now - each.since > lease_s}


def overdue(
    connection: sqlite3.Connection, holders: Holders, watch: Watch, *, now: float, lease_s: float | None, limit: int
) -> list[Row]:
    """Give the conversations whose turn is over, the longest ago first."""
    held = rows(connection, "leases_held")
    names = {row["lease_holder"] for row in held}
    holders.sweep(names)
    gone = {name for name in names if holders.gone(name)}
    stale = watch.stale(held, now=now, lease_s=lease_s) if lease_s else set()
    found = [row for row in held if row["lease_until"] < now or row["lease_holder"] in gone or row["no"] in stale]
    return found[:limit]


def expire(connection: sqlite3.Connection, found: list[Row], *, now: float, failpoints: Failpoints) -> int:
    """End turns found overdue, as interrupted with what their checkpoints had kept, unless they were renewed since."""
    ended = 0
    for due in found:
        row = one(connection, "conversation_by_no", tenant=due["tenant"], no=due["no"])
        if row is not None and (row["fence"], row["lease_until"]) == (due["fence"], due["lease_until"]):
            end_expired(connection, row, now=now)
            ended += 1
    failpoints("expire.stored")
    return ended
