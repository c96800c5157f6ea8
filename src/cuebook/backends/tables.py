"""Which tables there are, as Alembic reads them. schema.sql creates new databases; a test holds both equal.

Nothing imports this but a migration: SQLAlchemy is slow to import, and our statements are our own SQL.
"""

from typing import Any, Final

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, Table, Text, text

from cuebook.backends.tables_memory import METADATA, key, needed

__all__ = ["FULL_TEXT", "METADATA", "is_declared"]

#: The full text indexes, whose names begin those of SQLite's shadow tables: no tables SQLAlchemy could declare.
FULL_TEXT: Final = {
    name: f"CREATE VIRTUAL TABLE {name} USING fts5(scope, key, tokenize = 'porter unicode61 remove_diacritics 2')"
    for name in ("post_text", "memory_text")
}


def is_declared(name: str | None, kind: str, _parents: Any) -> bool:
    """Tell Alembic's comparison what to look at: everything but the full text indexes."""
    return kind != "table" or name is None or not f"{name}_".startswith(tuple(f"{each}_" for each in FULL_TEXT))


Table(
    "conversation",
    METADATA,
    key("no", Integer),
    needed("tenant", Text),
    needed("id", Text),
    Column("user_id", Text),
    Column("persona", Text),
    needed("participants", Text),
    needed("speakers", Text),
    needed("metadata", Text),
    needed("head", Integer),
    needed("last_seq", Integer),
    needed("turns", Integer),
    needed("generation", Integer),
    needed("created_at", Float),
    needed("updated_at", Float),
    needed("fence", Integer),
    needed("lease_turn", Integer),
    needed("lease_until", Float),
    needed("open_round", Integer),
    needed("mark", Integer),
    needed("backlog", Integer),
    needed("backlog_tokens", Integer),
    needed("compact_not_before", Float),
    needed("compact_last_at", Float),
    needed("compact_failures", Integer),
    needed("words", Integer),
    Column("lease_holder", Text),
    Column("company", Text, nullable=False, server_default="[]"),
    Index("conversation_id", "tenant", "id", unique=True),
    Index("conversation_recent", "tenant", "updated_at"),
    Index("conversation_backlog", "backlog", sqlite_where=text("backlog > 0")),
    Index("conversation_lease", "lease_until", sqlite_where=text("lease_until > 0")),
    sqlite_autoincrement=True,
)

Table(
    "post",
    METADATA,
    key("tenant", Text),
    key("conversation", Integer),
    key("seq", Integer),
    needed("id", Text),
    needed("parent", Integer),
    needed("run_start", Integer),
    needed("run_parent", Integer),
    needed("round", Integer),
    needed("sender", Text),
    needed("recipient", Text),
    needed("role", Text),
    needed("state", Text),
    Column("message", Text),
    Column("small", Text),
    Column("parts", LargeBinary),
    Column("wire", LargeBinary),
    Column("body", LargeBinary),
    needed("created_at", Float),
    needed("tokens", Integer),
    needed("small_tokens", Integer),
    needed("path_tokens", Integer),
    needed("path_count", Integer),
    needed("digest", LargeBinary),
    Index("post_id", "tenant", "conversation", "id", unique=True),
    Index("post_digest", "tenant", "digest"),
    sqlite_with_rowid=False,
)

Table(
    "turn",
    METADATA,
    key("tenant", Text),
    key("conversation", Integer),
    key("n", Integer),
    needed("round", Integer),
    needed("state", Text),
    needed("waiting", Integer),
    needed("query_seq", Integer),
    needed("reply_seq", Integer),
    needed("steps", Integer),
    needed("fence", Integer),
    needed("metadata", Text),
    needed("created_at", Float),
    Column("closed_at", Float),
    Index("turn_round", "tenant", "conversation", "round"),
    Index("turn_waiting", "tenant", "conversation", sqlite_where=text("waiting > 0")),
    sqlite_with_rowid=False,
)

Table(
    "step",
    METADATA,
    key("tenant", Text),
    key("conversation", Integer),
    key("turn", Integer),
    key("n", Integer),
    needed("state", Text),
    needed("manifest", LargeBinary),
    needed("base", Integer),
    needed("moves_head", Integer),
    Column("partial", LargeBinary),
    needed("reply_seq", Integer),
    Column("reply_usage", LargeBinary),
    needed("error", Text),
    sqlite_with_rowid=False,
)

Table(
    "summary",
    METADATA,
    key("tenant", Text),
    key("conversation", Integer),
    key("version", Integer),
    needed("previous", Integer),
    needed("upto_seq", Integer),
    needed("upto_at", Float),
    needed("path_digest", LargeBinary),
    needed("markdown", Text),
    needed("memory_json", Text),
    needed("tainted", Text),
    needed("profile", Text),
    needed("made_by", Text),
    needed("tokens", Integer),
    needed("created_at", Float),
    Column("corrected", Integer, nullable=False, server_default=text("0")),
    sqlite_with_rowid=False,
)

Table(
    "item",
    METADATA,
    key("tenant", Text),
    key("conversation", Integer),
    key("id", Text),
    key("made_in", Integer),
    Column("ended_in", Integer),
    needed("category", Text),
    needed("text", Text),
    needed("subject", Text),
    needed("name", Text),
    needed("status", Text),
    needed("sources", Text),
    needed("trust", Text),
    needed("confidence", Float),
    needed("weight", Float),
    needed("valid_from", Float),
    Column("valid_to", Float),
    Column("supersedes", Text),
    needed("seq", Integer),
    sqlite_with_rowid=False,
)

Table(
    "blob",
    METADATA,
    needed("tenant", Text),
    needed("digest", LargeBinary),
    needed("body", LargeBinary),
    Index("blob_digest", "tenant", "digest", unique=True),
)

Table(
    "blob_use",
    METADATA,
    key("tenant", Text),
    key("digest", LargeBinary),
    key("conversation", Integer),
    Index("blob_use_conversation", "tenant", "conversation"),
    sqlite_with_rowid=False,
)

Table(
    "idempotency",
    METADATA,
    key("tenant", Text),
    key("key", Text),
    needed("digest", LargeBinary),
    needed("conversation", Integer),
    needed("turn", Integer),
    needed("response", LargeBinary),
    needed("created_at", Float),
    Index("idempotency_age", "created_at"),
    sqlite_with_rowid=False,
)

Table(
    "prompt_branch",
    METADATA,
    key("tenant", Text),
    key("slug", Text),
    key("name", Text),
    needed("head", Integer),
    needed("active", Integer),
    sqlite_with_rowid=False,
)

Table(
    "prompt_version",
    METADATA,
    needed("tenant", Text),
    needed("slug", Text),
    needed("branch", Text),
    needed("number", Integer),
    needed("body", LargeBinary),
    needed("rolled_back", Integer),
    needed("weight", Float),
    needed("observations", Integer),
    needed("evidence", LargeBinary),
    Index("prompt_version_place", "tenant", "slug", "branch", "number", unique=True),
    Index("prompt_version_marked", "tenant", "slug", "branch", "number", sqlite_where=text("rolled_back = 1")),
)

Table(
    "prompt_label",
    METADATA,
    key("tenant", Text),
    key("slug", Text),
    key("name", Text),
    needed("branch", Text),
    needed("number", Integer),
    needed("moved_by", Text),
    needed("moved_at", Float),
    sqlite_with_rowid=False,
)

Table(
    "prompt_event",
    METADATA,
    key("no", Integer),
    needed("tenant", Text),
    needed("slug", Text),
    needed("body", LargeBinary),
    Column("branch", Text, nullable=False, server_default=""),
    Column("kind", Text, nullable=False, server_default=""),
    Index("prompt_event_of", "tenant", "slug", "no"),
    Index("prompt_event_on", "tenant", "slug", "branch", "no", sqlite_where=text("kind <> 'label'")),
    sqlite_autoincrement=True,
)

Table(
    "prompt_observation",
    METADATA,
    key("no", Integer),
    needed("tenant", Text),
    needed("slug", Text),
    needed("branch", Text),
    needed("number", Integer),
    needed("user_id", Text),
    needed("counted", Float),
    needed("body", LargeBinary),
    Column("revised", Integer, nullable=False, server_default=text("0")),
    Index("prompt_observation_of", "tenant", "slug", "branch", "number", "no"),
    Index("prompt_observation_revised", "tenant", "slug", "branch", "revised", sqlite_where=text("revised > 0")),
    sqlite_autoincrement=True,
)

Table(
    "audit_record",
    METADATA,
    needed("tenant", Text),
    needed("seq", Integer),
    needed("hash", Text),
    needed("body", LargeBinary),
    needed("texts", LargeBinary),
    Index("audit_record_place", "tenant", "seq", unique=True),
)

Table(
    "audit_checkpoint",
    METADATA,
    key("tenant", Text),
    key("size", Integer),
    needed("body", LargeBinary),
    sqlite_with_rowid=False,
)
