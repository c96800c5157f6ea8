"""Which tables there are, as Alembic reads them. schema.sql creates new databases; a test holds both equal.

Nothing imports this but a migration: SQLAlchemy is slow to import, and our statements are our own SQL.
"""

from typing import Any, Final

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text, text
from sqlalchemy.types import TypeEngine

METADATA: Final = MetaData()

#: The full text index and the shadow tables SQLite keeps under its name: no tables SQLAlchemy could declare.
FULL_TEXT_NAME: Final = "post_text"
FULL_TEXT: Final = (
    "CREATE VIRTUAL TABLE post_text USING fts5(scope, key, tokenize = 'porter unicode61 remove_diacritics 2')"
)


def is_declared(name: str | None, kind: str, _parents: Any) -> bool:
    """Tell Alembic's comparison what to look at: everything but the full text index."""
    return kind != "table" or name is None or not f"{name}_".startswith(f"{FULL_TEXT_NAME}_")


def _key(name: str, kind: type[TypeEngine[Any]]) -> Column[Any]:
    return Column(name, kind, primary_key=True, nullable=False)


def _needed(name: str, kind: type[TypeEngine[Any]]) -> Column[Any]:
    return Column(name, kind, nullable=False)


Table(
    "conversation",
    METADATA,
    _key("no", Integer),
    _needed("tenant", Text),
    _needed("id", Text),
    Column("user_id", Text),
    Column("persona", Text),
    _needed("participants", Text),
    _needed("speakers", Text),
    _needed("metadata", Text),
    _needed("head", Integer),
    _needed("last_seq", Integer),
    _needed("turns", Integer),
    _needed("generation", Integer),
    _needed("created_at", Float),
    _needed("updated_at", Float),
    _needed("fence", Integer),
    _needed("lease_turn", Integer),
    _needed("lease_until", Float),
    _needed("open_round", Integer),
    _needed("mark", Integer),
    _needed("backlog", Integer),
    _needed("backlog_tokens", Integer),
    _needed("compact_not_before", Float),
    _needed("compact_last_at", Float),
    _needed("compact_failures", Integer),
    _needed("words", Integer),
    Column("lease_holder", Text),
    Index("conversation_id", "tenant", "id", unique=True),
    Index("conversation_recent", "tenant", "updated_at"),
    Index("conversation_backlog", "backlog", sqlite_where=text("backlog > 0")),
    Index("conversation_lease", "lease_until", sqlite_where=text("lease_until > 0")),
    sqlite_autoincrement=True,
)

Table(
    "post",
    METADATA,
    _key("tenant", Text),
    _key("conversation", Integer),
    _key("seq", Integer),
    _needed("id", Text),
    _needed("parent", Integer),
    _needed("run_start", Integer),
    _needed("run_parent", Integer),
    _needed("round", Integer),
    _needed("sender", Text),
    _needed("recipient", Text),
    _needed("role", Text),
    _needed("state", Text),
    Column("message", Text),
    Column("small", Text),
    Column("parts", LargeBinary),
    Column("wire", LargeBinary),
    Column("body", LargeBinary),
    _needed("created_at", Float),
    _needed("tokens", Integer),
    _needed("small_tokens", Integer),
    _needed("path_tokens", Integer),
    _needed("path_count", Integer),
    _needed("digest", LargeBinary),
    Index("post_id", "tenant", "conversation", "id", unique=True),
    Index("post_digest", "tenant", "digest"),
    sqlite_with_rowid=False,
)

Table(
    "turn",
    METADATA,
    _key("tenant", Text),
    _key("conversation", Integer),
    _key("n", Integer),
    _needed("round", Integer),
    _needed("state", Text),
    _needed("waiting", Integer),
    _needed("query_seq", Integer),
    _needed("reply_seq", Integer),
    _needed("steps", Integer),
    _needed("fence", Integer),
    _needed("metadata", Text),
    _needed("created_at", Float),
    Column("closed_at", Float),
    Index("turn_round", "tenant", "conversation", "round"),
    Index("turn_waiting", "tenant", "conversation", sqlite_where=text("waiting > 0")),
    sqlite_with_rowid=False,
)

Table(
    "step",
    METADATA,
    _key("tenant", Text),
    _key("conversation", Integer),
    _key("turn", Integer),
    _key("n", Integer),
    _needed("state", Text),
    _needed("manifest", LargeBinary),
    _needed("base", Integer),
    _needed("moves_head", Integer),
    Column("partial", LargeBinary),
    _needed("reply_seq", Integer),
    Column("reply_usage", LargeBinary),
    _needed("error", Text),
    sqlite_with_rowid=False,
)

Table(
    "summary",
    METADATA,
    _key("tenant", Text),
    _key("conversation", Integer),
    _key("version", Integer),
    _needed("previous", Integer),
    _needed("upto_seq", Integer),
    _needed("upto_at", Float),
    _needed("path_digest", LargeBinary),
    _needed("markdown", Text),
    _needed("memory_json", Text),
    _needed("tainted", Text),
    _needed("profile", Text),
    _needed("made_by", Text),
    _needed("tokens", Integer),
    _needed("created_at", Float),
    sqlite_with_rowid=False,
)

Table(
    "item",
    METADATA,
    _key("tenant", Text),
    _key("conversation", Integer),
    _key("id", Text),
    _key("made_in", Integer),
    Column("ended_in", Integer),
    _needed("category", Text),
    _needed("text", Text),
    _needed("subject", Text),
    _needed("name", Text),
    _needed("status", Text),
    _needed("sources", Text),
    _needed("trust", Text),
    _needed("confidence", Float),
    _needed("weight", Float),
    _needed("valid_from", Float),
    Column("valid_to", Float),
    Column("supersedes", Text),
    _needed("seq", Integer),
    sqlite_with_rowid=False,
)

Table(
    "blob",
    METADATA,
    _needed("tenant", Text),
    _needed("digest", LargeBinary),
    _needed("body", LargeBinary),
    Index("blob_digest", "tenant", "digest", unique=True),
)

Table(
    "blob_use",
    METADATA,
    _key("tenant", Text),
    _key("digest", LargeBinary),
    _key("conversation", Integer),
    Index("blob_use_conversation", "tenant", "conversation"),
    sqlite_with_rowid=False,
)

Table(
    "idempotency",
    METADATA,
    _key("tenant", Text),
    _key("key", Text),
    _needed("digest", LargeBinary),
    _needed("conversation", Integer),
    _needed("turn", Integer),
    _needed("response", LargeBinary),
    _needed("created_at", Float),
    Index("idempotency_age", "created_at"),
    sqlite_with_rowid=False,
)

Table(
    "prompt_branch",
    METADATA,
    _key("tenant", Text),
    _key("slug", Text),
    _key("name", Text),
    _needed("head", Integer),
    _needed("active", Integer),
    sqlite_with_rowid=False,
)

Table(
    "prompt_version",
    METADATA,
    _needed("tenant", Text),
    _needed("slug", Text),
    _needed("branch", Text),
    _needed("number", Integer),
    _needed("body", LargeBinary),
    _needed("rolled_back", Integer),
    _needed("weight", Float),
    _needed("observations", Integer),
    _needed("evidence", LargeBinary),
    Index("prompt_version_place", "tenant", "slug", "branch", "number", unique=True),
    Index("prompt_version_marked", "tenant", "slug", "branch", "number", sqlite_where=text("rolled_back = 1")),
)

Table(
    "prompt_label",
    METADATA,
    _key("tenant", Text),
    _key("slug", Text),
    _key("name", Text),
    _needed("branch", Text),
    _needed("number", Integer),
    _needed("moved_by", Text),
    _needed("moved_at", Float),
    sqlite_with_rowid=False,
)

Table(
    "prompt_event",
    METADATA,
    _key("no", Integer),
    _needed("tenant", Text),
    _needed("slug", Text),
    _needed("body", LargeBinary),
    Column("branch", Text, nullable=False, server_default=""),
    Column("kind", Text, nullable=False, server_default=""),
    Index("prompt_event_of", "tenant", "slug", "no"),
    Index("prompt_event_on", "tenant", "slug", "branch", "no", sqlite_where=text("kind <> 'label'")),
    sqlite_autoincrement=True,
)

Table(
    "prompt_observation",
    METADATA,
    _key("no", Integer),
    _needed("tenant", Text),
    _needed("slug", Text),
    _needed("branch", Text),
    _needed("number", Integer),
    _needed("user_id", Text),
    _needed("counted", Float),
    _needed("body", LargeBinary),
    Index("prompt_observation_of", "tenant", "slug", "branch", "number", "no"),
    sqlite_autoincrement=True,
)

Table(
    "audit_record",
    METADATA,
    _needed("tenant", Text),
    _needed("seq", Integer),
    _needed("hash", Text),
    _needed("body", LargeBinary),
    _needed("texts", LargeBinary),
    Index("audit_record_place", "tenant", "seq", unique=True),
)

Table(
    "audit_checkpoint",
    METADATA,
    _key("tenant", Text),
    _key("size", Integer),
    _needed("body", LargeBinary),
    sqlite_with_rowid=False,
)
