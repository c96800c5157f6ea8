"""How a transcript is read page by page: so many posts behind one of them, oldest first, at the cost of the page."""

import sqlite3

from cuebook.backends.sqlite import base
from cuebook.backends.sqlite.base import SQL
from cuebook.backends.sqlite.reads import whole_posts
from cuebook.backends.sqlite.tree import after as runs_after
from cuebook.backends.sqlite.tree import runs_to
from cuebook.records.conversation import Post
from cuebook.records.memory import Scope


def posts_behind(
    connection: sqlite3.Connection,
    scope: Scope,
    conversation: str,
    *,
    path: bool,
    head: int | None,
    after: int,
    limit: int,
) -> list[Post]:
    """Read `limit` posts of a path (the head's unless named), or of all branches, behind seq `after`."""
    row = base.need(connection, scope, conversation)
    tenant, no = row["tenant"], row["no"]
    runs = runs_to(connection, tenant, no, row["head"] if head is None else head) if path else [(1, row["last_seq"])]
    found: list[Post] = []
    for first, last in reversed(runs_after(runs, after)):
        span = {"tenant": tenant, "no": no, "first": first, "last": min(last, first + limit - len(found) - 1)}
        found += whole_posts(connection, tenant, connection.execute(SQL["posts_stretch"], span).fetchall())
        if len(found) == limit:
            break
    return found
