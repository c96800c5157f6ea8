"""Which summary a path is read behind, and so where the posts of its window begin."""

import sqlite3

from cuebook.backends.sqlite import corrections
from cuebook.backends.sqlite.base import SQL, one
from cuebook.backends.sqlite.rows import Row
from cuebook.backends.sqlite.tree import Runs, backlog, mark_on, on_path, tip_at
from cuebook.ports.store import Look


def read_mark(connection: sqlite3.Connection, row: Row, runs: Runs, look: Look, *, shown: int) -> tuple[int, int]:
    """Return seq and version of the summary a path is read behind, (0, 0) for none.

    `shown` is the version that the last window showed: it stays while few posts lie behind it, so that a provider's
    prompt cache keeps the front of the prompt.
    """
    if not look.use_summary or look.summary_version == 0:
        return 0, 0
    if look.summary_version is not None:
        return _named(connection, row, runs, look.summary_version)
    mark, version = _newest(connection, row, runs)
    if 0 < shown < version and look.steady_posts:
        steady = _named(connection, row, runs, shown)
        if steady[0] and _serves(connection, row, runs, look, steady):
            return steady
    return mark, version


def _newest(connection: sqlite3.Connection, row: Row, runs: Runs) -> tuple[int, int]:
    if not runs or runs[0][1] != row["head"]:
        return mark_on(connection, row["tenant"], row["no"], runs)
    if not row["mark"]:  # the head's mark is kept in its row
        return 0, 0
    return row["mark"], connection.execute(SQL["summary_ending"], row).fetchone()[0]


def _named(connection: sqlite3.Connection, row: Row, runs: Runs, version: int) -> tuple[int, int]:
    found = one(connection, "summary_get", tenant=row["tenant"], no=row["no"], version=version)
    return (found["upto_seq"], found["version"]) if found and on_path(runs, found["upto_seq"]) else (0, 0)


def _serves(connection: sqlite3.Connection, row: Row, runs: Runs, look: Look, steady: tuple[int, int]) -> bool:
    """Whether an earlier summary knows of all corrections, and few posts follow it."""
    tenant, no, (mark, version) = row["tenant"], row["no"], steady
    posts, tokens = backlog(connection, tenant, no, tip_at(connection, tenant, no, runs[0][1]), mark)
    if posts > look.steady_posts or tokens > look.full_tokens // 2:
        return False
    found = one(connection, "summary_get", tenant=tenant, no=no, version=version)
    return found is not None and bool(found["corrected"] >= corrections.last(connection, tenant, no))
