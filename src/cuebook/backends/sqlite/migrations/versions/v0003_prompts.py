"""The prompt book: versions, branches, labels, what was done and observed; and the audit's chain of records."""

from typing import Final

from alembic import op

revision = "0003"
down_revision = "0002"

#: As schema.sql had it then.
SCHEMA: Final = """\
CREATE TABLE prompt_branch (
    tenant TEXT NOT NULL,
    slug TEXT NOT NULL,
    name TEXT NOT NULL,
    head INTEGER NOT NULL,
    active INTEGER NOT NULL,
    PRIMARY KEY (tenant, slug, name)
) WITHOUT ROWID;

CREATE TABLE prompt_version (
    tenant TEXT NOT NULL,
    slug TEXT NOT NULL,
    branch TEXT NOT NULL,
    number INTEGER NOT NULL,
    body BLOB NOT NULL,
    rolled_back INTEGER NOT NULL,
    weight FLOAT NOT NULL,
    observations INTEGER NOT NULL,
    evidence BLOB NOT NULL
);
CREATE UNIQUE INDEX prompt_version_place ON prompt_version (tenant, slug, branch, number);

CREATE TABLE prompt_label (
    tenant TEXT NOT NULL,
    slug TEXT NOT NULL,
    name TEXT NOT NULL,
    branch TEXT NOT NULL,
    number INTEGER NOT NULL,
    moved_by TEXT NOT NULL,
    moved_at FLOAT NOT NULL,
    PRIMARY KEY (tenant, slug, name)
) WITHOUT ROWID;

CREATE TABLE prompt_event (
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    slug TEXT NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX prompt_event_of ON prompt_event (tenant, slug, no);

CREATE TABLE prompt_observation (
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    slug TEXT NOT NULL,
    branch TEXT NOT NULL,
    number INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    counted FLOAT NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX prompt_observation_of ON prompt_observation (tenant, slug, branch, number, no);

CREATE TABLE audit_record (
    tenant TEXT NOT NULL,
    seq INTEGER NOT NULL,
    hash TEXT NOT NULL,
    body BLOB NOT NULL,
    texts BLOB NOT NULL
);
CREATE UNIQUE INDEX audit_record_place ON audit_record (tenant, seq);

CREATE TABLE audit_checkpoint (
    tenant TEXT NOT NULL,
    size INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (tenant, size)
) WITHOUT ROWID;
"""


def upgrade() -> None:
    """Create the tables."""
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
