"""Consistency check of a SQLite store's rows: sums along paths, runs, full text, bodies, and no orphans.

It reads the file directly, so it also finds errors that the store's own queries hide.
"""

import sqlite3
from contextlib import closing

#: Tables whose rows belong to a conversation; a key of the prompt book belongs to none, 0.
_OWNED = ("post", "turn", "step", "summary", "item", "blob_use", "idempotency")

_WRONG = {
    "a seq is missing or the last one is not counted": """
        SELECT c.id FROM conversation c LEFT JOIN post p ON p.tenant = c.tenant AND p.conversation = c.no
        GROUP BY c.no HAVING count(p.seq) <> c.last_seq OR coalesce(max(p.seq), 0) <> c.last_seq
            OR coalesce(min(p.seq), 1) <> 1""",
    "a post follows none": """
        SELECT id FROM post p WHERE parent <> 0 AND NOT EXISTS (SELECT 1 FROM post q WHERE q.tenant = p.tenant
            AND q.conversation = p.conversation AND q.seq = p.parent AND q.seq < p.seq)""",
    "sums along the path are wrong": """
        SELECT p.id FROM post p LEFT JOIN post q ON q.tenant = p.tenant AND q.conversation = p.conversation
            AND q.seq = p.parent
        WHERE p.path_tokens <> coalesce(q.path_tokens, 0) + p.tokens
            OR p.path_count <> coalesce(q.path_count, 0) + 1""",
    "a run is wrong": """
        SELECT p.id FROM post p LEFT JOIN post q ON q.tenant = p.tenant AND q.conversation = p.conversation
            AND q.seq = p.parent
        WHERE CASE WHEN q.seq = p.seq - 1 THEN p.run_start <> q.run_start OR p.run_parent <> q.run_parent
            ELSE p.run_start <> p.seq OR p.run_parent <> p.parent END""",
    "the head is no post": """
        SELECT id FROM conversation c WHERE head <> 0 AND NOT EXISTS (SELECT 1 FROM post p WHERE p.tenant = c.tenant
            AND p.conversation = c.no AND p.seq = c.head)""",
    "a summary is ahead of its conversation": """
        SELECT s.version FROM summary s JOIN conversation c ON c.no = s.conversation AND c.tenant = s.tenant
        WHERE s.upto_seq > c.last_seq OR s.upto_seq < 1 OR s.previous >= s.version""",
    "a lease is half": """
        SELECT id FROM conversation WHERE (lease_turn = 0) <> (lease_until = 0) OR lease_turn > turns""",
    "turns are not counted": """
        SELECT c.id FROM conversation c LEFT JOIN turn t ON t.tenant = c.tenant AND t.conversation = c.no
        GROUP BY c.no HAVING count(t.n) <> c.turns OR coalesce(max(t.n), 0) <> c.turns""",
    "steps are not counted": """
        SELECT t.n FROM turn t LEFT JOIN step s ON s.tenant = t.tenant AND s.conversation = t.conversation
            AND s.turn = t.n
        GROUP BY t.tenant, t.conversation, t.n HAVING count(s.n) <> t.steps OR max(s.n) <> t.steps""",
    "a full-text row belongs to no post": """
        SELECT t.rowid FROM post_text t WHERE NOT EXISTS (SELECT 1 FROM conversation c JOIN post p
            ON p.tenant = c.tenant AND p.conversation = c.no
            WHERE c.no = t.rowid >> 32 AND p.seq = t.rowid & 4294967295)""",
    "a body is missing": """
        SELECT p.id FROM post p WHERE p.body IS NOT NULL AND NOT EXISTS (SELECT 1 FROM blob b JOIN blob_use u
            ON u.tenant = b.tenant AND u.digest = b.digest WHERE b.tenant = p.tenant AND b.digest = p.body
            AND u.conversation = p.conversation)""",
    "a body is nobody's": """
        SELECT hex(digest) FROM blob b WHERE NOT EXISTS (SELECT 1 FROM blob_use u WHERE u.tenant = b.tenant
            AND u.digest = b.digest)""",
} | {
    f"a {table} is left over from a conversation that is gone": f"""
        SELECT o.conversation FROM {table} o WHERE o.conversation <> 0 AND NOT EXISTS (SELECT 1 FROM conversation c
            WHERE c.no = o.conversation AND c.tenant = o.tenant)"""  # noqa: S608
    for table in _OWNED
}


def audit(path: str, *, integrity: bool = False) -> list[str]:
    """Return the problems of a store's file. `integrity` checks every page and index too."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA busy_timeout = 30000")
        connection.execute("BEGIN")
        wrong = [
            f"{problem}: {found[:5]}"
            for problem, question in _WRONG.items()
            if (found := connection.execute(question).fetchall())
        ]
        if integrity:
            found = connection.execute("PRAGMA integrity_check").fetchall()
            wrong += [] if found == [("ok",)] else [f"integrity: {found[:5]}"]
        connection.execute("ROLLBACK")
        if integrity:
            connection.execute("INSERT INTO post_text (post_text) VALUES ('integrity-check')")
    return wrong


def full_text(path: str) -> dict[tuple[int, int], tuple[str, str]]:
    """Load all full-text rows: (conversation's number, seq) -> (scope, key)."""
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT rowid >> 32, rowid & 4294967295, scope, key FROM post_text")
        return {(no, seq): (scope, key) for no, seq, scope, key in found}
