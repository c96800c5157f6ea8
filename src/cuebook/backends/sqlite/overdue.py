"""Which turns are over though nobody ended them: their lease ran out, its holder is gone, or nobody renews it.

So is one that waits for the results of its tools where nothing was said for long.

A lease is told by the clock of who holds it. One that reaches farther than a lease can was given by a clock that was
wrong, and cannot be waited for: whoever sees it stand still for as long as a lease lasts ends it.
"""

import sqlite3
from itertools import compress

from msgspec import Struct

from cuebook.backends.failpoints import Failpoints
from cuebook.backends.sqlite.base import one, rows
from cuebook.backends.sqlite.holders import Holders
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.turns import end_expired
from cuebook.backends.sqlite.writes import leave_waiting

#: How far the clocks of two processes may lie apart without being wrong, in seconds.
SLACK_S = 1.0


class Terms(Struct, frozen=True, kw_only=True):
    """When a turn is over: how long a lease lasts, and how long results are waited for; None does not ask."""

    now: float
    lease_s: float | None
    wait_s: float | None
    limit: int


class Overdue(Struct, frozen=True):
    """Conversations whose turn is over: by their lease, and by what they wait for."""

    leases: list[Row]
    left: list[Row]


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


def overdue(connection: sqlite3.Connection, holders: Holders, watch: Watch, terms: Terms) -> Overdue:
    """Find turns that are over, of leases those that ended first."""
    held = rows(connection, "leases_held")
    names = {row["lease_holder"] for row in held}
    holders.sweep(names)
    gone = {name for name in names if holders.gone(name)}
    stale = watch.stale(held, now=terms.now, lease_s=terms.lease_s) if terms.lease_s else set()
    ended = (row["lease_until"] < terms.now or row["lease_holder"] in gone or row["no"] in stale for row in held)
    return Overdue(list(compress(held, ended))[: terms.limit], _left(connection, terms))


def _left(connection: sqlite3.Connection, terms: Terms) -> list[Row]:
    """Find turns that wait in vain. A conversation changed at a time to come was changed by a clock that was wrong."""
    if terms.wait_s is None:
        return []
    before, after = terms.now - terms.wait_s, terms.now + terms.wait_s
    return rows(connection, "turns_left", before=before, after=after, limit=terms.limit)


def expire(connection: sqlite3.Connection, found: Overdue, terms: Terms, failpoints: Failpoints) -> int:
    """End turns found overdue, as interrupted with what their checkpoints had kept, unless they went on since."""
    ended, now = 0, terms.now
    for due in found.leases:
        row = one(connection, "conversation_by_no", tenant=due["tenant"], no=due["no"])
        if row is not None and (row["fence"], row["lease_until"]) == (due["fence"], due["lease_until"]):
            end_expired(connection, row, now=now)
            ended += 1
    for due in _left(connection, terms) if found.left else ():
        ended += leave_waiting(connection, due, now=now)
    failpoints("expire.stored")
    return ended
