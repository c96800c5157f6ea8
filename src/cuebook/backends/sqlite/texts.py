"""How a kept text is let go: a conversation needs it no more, and nobody else does."""

import sqlite3

from cuebook.backends.sqlite.base import one, run


def unuse(connection: sqlite3.Connection, tenant: str, no: int, digest: bytes) -> int:
    """Let a conversation need a text no more, unless it is a post's body; answers with how many texts that ended."""
    values = {"tenant": tenant, "no": no, "digest": digest}
    if one(connection, "text_used", **values) is None:
        run(connection, "text_unuse", **values)
    return run(connection, "text_drop", tenant=tenant, digest=digest).rowcount
