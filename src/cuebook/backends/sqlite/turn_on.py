"""Which turn a path last had: what it told holds for what follows it, whatever other branches did meanwhile."""

import json
import sqlite3

from cuebook.backends.sqlite.base import one, rows
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.tree import Runs, on_path
from cuebook.records.turn import TurnOn

#: Turns looked at in each run of a path; one round seldom has more than a few.
_AT_ONCE = 16


def turn_on(connection: sqlite3.Connection, tenant: str, no: int, runs: Runs) -> TurnOn | None:
    """Read the newest turn of a path's newest answered round: of those that answered it, the one whose reply stands.

    Where no reply of theirs stands on the path it is the newest whose query does. A turn that answers what the path
    ends with counts: who answers that anew finds it.
    """
    for first, last in runs:
        for row in rows(connection, "turns_on_run", tenant=tenant, no=no, first=first, last=last, limit=_AT_ONCE):
            if on_path(runs, row["query_seq"]):
                return _chosen(connection, row, runs)
    return None


def _chosen(connection: sqlite3.Connection, newest: Row, runs: Runs) -> TurnOn:
    tenant, no, round_ = newest["tenant"], newest["conversation"], newest["round"]
    if newest["reply_seq"] and on_path(runs, newest["reply_seq"]):
        return read_turn(connection, newest)
    same = rows(connection, "turns_on_run", tenant=tenant, no=no, first=round_, last=round_, limit=_AT_ONCE)
    spoke = (row for row in same if row["reply_seq"] and on_path(runs, row["reply_seq"]))
    return read_turn(connection, next(spoke, newest))


def read_turn(connection: sqlite3.Connection, row: Row) -> TurnOn:
    """Read a turn's row."""
    error = ""
    if row["state"] in ("failed", "interrupted"):
        step = one(connection, "step_last", tenant=row["tenant"], no=row["conversation"], turn=row["n"])
        error = step["error"] if step else ""
    return TurnOn(
        n=row["n"],
        state=row["state"],
        query_seq=row["query_seq"],
        reply_seq=row["reply_seq"],
        error=error,
        metadata=json.loads(row["metadata"]),
    )
