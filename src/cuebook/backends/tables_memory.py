"""The tables of memory across conversations, and of what stands beside it; the others stand in `tables`."""

from typing import Any, Final

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, MetaData, Table, Text, text
from sqlalchemy.types import TypeEngine

METADATA: Final = MetaData()


def key(name: str, kind: type[TypeEngine[Any]]) -> Column[Any]:
    """Declare a column of the primary key."""
    return Column(name, kind, primary_key=True, nullable=False)


def needed(name: str, kind: type[TypeEngine[Any]]) -> Column[Any]:
    """Declare a column that is never null."""
    return Column(name, kind, nullable=False)


Table(
    "place",
    METADATA,
    key("tenant", Text),
    key("kind", Text),
    key("owner", Text),
    Column("of_user", Text),
    needed("generation", Integer),
    needed("said", Integer),
    needed("said_at", Float),
    Index("place_said", "said_at"),
    Index("place_of", "tenant", "of_user"),
    sqlite_with_rowid=False,
)

Table(
    "memory",
    METADATA,
    key("no", Integer),
    needed("tenant", Text),
    needed("kind", Text),
    needed("owner", Text),
    needed("id", Text),
    needed("category", Text),
    needed("name", Text),
    needed("text", Text),
    needed("subject", Text),
    needed("status", Text),
    needed("trust", Text),
    needed("confidence", Float),
    needed("weight", Float),
    needed("uses", Integer),
    needed("used_at", Float),
    needed("decayed_at", Float),
    needed("valid_from", Float),
    Column("valid_to", Float),
    Column("supersedes", Text),
    Column("ended_by", Text),
    needed("repeated_at", Float),
    needed("written", Integer),
    needed("said", Integer),
    needed("created_at", Float),
    needed("updated_at", Float),
    Index("memory_id", "tenant", "id", "kind", "owner", unique=True),
    Index("memory_order", "tenant", "kind", "owner", "no"),
    Index("memory_said", "tenant", "kind", "owner", "said", unique=True),
    Index("memory_standing", "tenant", "kind", "owner", "confidence", sqlite_where=text("valid_to IS NULL")),
    Index("memory_idle", "used_at"),
    Index("memory_superseded", "tenant", "kind", "owner", "supersedes", sqlite_where=text("supersedes IS NOT NULL")),
    Index("memory_ended", "tenant", "kind", "owner", "ended_by", sqlite_where=text("ended_by IS NOT NULL")),
    sqlite_autoincrement=True,
)

Table(
    "memory_source",
    METADATA,
    key("tenant", Text),
    key("memory", Integer),
    key("conversation", Integer),
    key("post", Text),
    Index("memory_source_of", "tenant", "conversation"),
    sqlite_with_rowid=False,
)

Table(
    "delivery",
    METADATA,
    key("tenant", Text),
    key("conversation", Integer),
    needed("seq", Integer),
    needed("version", Integer),
    needed("due", Integer),
    Index("delivery_due", "tenant", "conversation", sqlite_where=text("due = 1")),
    sqlite_with_rowid=False,
)

Table(
    "correction",
    METADATA,
    key("no", Integer),
    needed("tenant", Text),
    needed("conversation", Integer),
    needed("posts", Text),
    needed("marks", Text),
    needed("text", Text),
    needed("due", Integer),
    Index("correction_of", "tenant", "conversation", "no"),
    Index("correction_due", "tenant", "conversation", sqlite_where=text("due = 1")),
    sqlite_autoincrement=True,
)

Table(
    "outbox",
    METADATA,
    key("no", Integer),
    needed("tenant", Text),
    needed("conversation", Integer),
    needed("version", Integer),
    needed("sink", Text),
    Index("outbox_of", "tenant", "conversation"),
    sqlite_autoincrement=True,
)

Table(
    "vector",
    METADATA,
    key("tenant", Text),
    key("scope", Text),
    key("model", Text),
    key("ref", Integer),
    key("part", Integer),
    needed("body", LargeBinary),
    sqlite_with_rowid=False,
)

Table(
    "embedded",
    METADATA,
    key("tenant", Text),
    key("scope", Text),
    key("model", Text),
    needed("owner", Text),
    needed("upto", Integer),
    needed("vectors", Integer),
    needed("began", Float),
    Index("embedded_owner", "tenant", "owner", "model", "began"),
    sqlite_with_rowid=False,
)

Table(
    "api_key",
    METADATA,
    key("tenant", Text),
    key("id", Text),
    needed("digest", LargeBinary),
    needed("role", Text),
    Column("user_id", Text),
    needed("organizations", Text),
    needed("name", Text),
    needed("created_at", Float),
    Column("expires_at", Float),
    Column("revoked_at", Float),
    Index("api_key_id", "id", unique=True),
    sqlite_with_rowid=False,
)

Table(
    "organization",
    METADATA,
    key("tenant", Text),
    key("id", Text),
    needed("settings", Text),
    needed("updated_at", Float),
    sqlite_with_rowid=False,
)

Table(
    "tuning",
    METADATA,
    key("tenant", Text),
    key("conversation", Integer),
    needed("parameters", Text),
    needed("seen_seq", Integer),
    needed("updated_at", Float),
    sqlite_with_rowid=False,
)

Table(
    "optimization",
    METADATA,
    key("no", Integer),
    needed("tenant", Text),
    needed("conversation", Integer),
    needed("body", LargeBinary),
    Index("optimization_of", "tenant", "conversation", "no"),
    sqlite_autoincrement=True,
)

Table(
    "receipt",
    METADATA,
    key("tenant", Text),
    key("id", Text),
    needed("state", Text),
    needed("body", LargeBinary),
    needed("created_at", Float),
    Index("receipt_pending", "tenant", "state", sqlite_where=text("state = 'pending'")),
    sqlite_with_rowid=False,
)

Table(
    "participant",
    METADATA,
    key("tenant", Text),
    key("user_id", Text),
    key("conversation", Integer),
    Index("participant_conversation", "tenant", "conversation"),
    sqlite_with_rowid=False,
)

Table(
    "hold",
    METADATA,
    key("tenant", Text),
    key("id", Text),
    needed("body", LargeBinary),
    sqlite_with_rowid=False,
)

Table(
    "epoch",
    METADATA,
    key("tenant", Text),
    key("kind", Text),
    key("owner", Text),
    needed("epoch", Integer),
    sqlite_with_rowid=False,
)

Table(
    "sealed",
    METADATA,
    key("tenant", Text),
    key("conversation", Integer),
    key("seq", Integer),
    key("token", Text),
    needed("body", LargeBinary),
    sqlite_with_rowid=False,
)

Table("vault_key", METADATA, key("one", Integer), needed("id", Text))

Table(
    "reflection",
    METADATA,
    key("tenant", Text),
    key("conversation", Integer),
    key("turn", Integer),
    key("n", Integer),
    needed("due", Integer),
    needed("calls", Text),
    Column("body", Text),
    Index("reflection_due", "tenant", "conversation", sqlite_where=text("due = 1")),
    sqlite_with_rowid=False,
)

Table(
    "outcome",
    METADATA,
    key("tenant", Text),
    key("conversation", Integer),
    key("turn", Integer),
    needed("due", Integer),
    needed("revision", Integer),
    needed("user_id", Text),
    needed("body", LargeBinary),
    needed("taught", LargeBinary),
    Index("outcome_due", "tenant", "conversation", "turn", sqlite_where=text("due = 1")),
    sqlite_with_rowid=False,
)
