"""Consistency check of a store's rows: sums along paths, runs, full text, bodies, and no orphans.

It reads the database directly, so it also finds errors that the store's own queries hide. Both databases run the same
statements.
"""

import sqlite3
from contextlib import closing

from storage.databases import on_server, snapshot

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
        SELECT digest FROM blob b WHERE NOT EXISTS (SELECT 1 FROM blob_use u WHERE u.tenant = b.tenant
            AND u.digest = b.digest)""",
} | {
    f"a {table} is left over from a conversation that is gone": f"""
        SELECT o.conversation FROM {table} o WHERE o.conversation <> 0 AND NOT EXISTS (SELECT 1 FROM conversation c
            WHERE c.no = o.conversation AND c.tenant = o.tenant)"""  # noqa: S608
    for table in _OWNED
}


#: Pages that PostgreSQL found damaged. Its checksums do for a file what SQLite's integrity check does.
_DAMAGED = "SELECT checksum_failures FROM pg_stat_database WHERE datname = current_database() AND checksum_failures > 0"


def audit(url: str, *, integrity: bool = False) -> list[str]:
    """Return the problems of a SQLite file or PostgreSQL database. `integrity` checks every page and index too."""
    with snapshot(url) as rows:
        wrong = [f"{problem}: {found[:5]}" for problem, question in _WRONG.items() if (found := rows(question))]
        if integrity:
            found = rows(_DAMAGED if on_server(url) else "PRAGMA integrity_check")
            wrong += [] if found in ([], [("ok",)]) else [f"integrity: {found[:5]}"]
    if integrity and not on_server(url):
        with closing(sqlite3.connect(url, isolation_level=None)) as connection:
            connection.execute("PRAGMA busy_timeout = 30000")
            connection.execute("INSERT INTO post_text (post_text) VALUES ('integrity-check')")
    return wrong


def full_text(url: str) -> dict[tuple[int, int], tuple[str, str]]:
    """Load all full-text rows: (conversation's number, seq) -> (scope, key)."""
    with snapshot(url) as rows:
        found = rows("SELECT rowid >> 32, rowid & 4294967295, scope, key FROM post_text")
        return {(no, seq): (scope, key) for no, seq, scope, key in found}
