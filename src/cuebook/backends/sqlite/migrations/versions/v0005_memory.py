"""Memory across conversations: places, memories and their sources, vectors; keys, organizations, tuning, receipts."""

from typing import Final

from alembic import op

revision = "0005"
down_revision = "0004"

#: As schema.sql had it then.
SCHEMA: Final = """\
CREATE TABLE place (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    of_user TEXT,
    generation INTEGER NOT NULL,
    said INTEGER NOT NULL,
    said_at FLOAT NOT NULL,
    PRIMARY KEY (tenant, kind, owner)
) WITHOUT ROWID;
CREATE INDEX place_said ON place (said_at);
CREATE INDEX place_of ON place (tenant, of_user);

CREATE TABLE memory (
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    id TEXT NOT NULL,
    category TEXT NOT NULL,
    name TEXT NOT NULL,
    text TEXT NOT NULL,
    subject TEXT NOT NULL,
    status TEXT NOT NULL,
    trust TEXT NOT NULL,
    confidence FLOAT NOT NULL,
    weight FLOAT NOT NULL,
    uses INTEGER NOT NULL,
    used_at FLOAT NOT NULL,
    decayed_at FLOAT NOT NULL,
    valid_from FLOAT NOT NULL,
    valid_to FLOAT,
    supersedes TEXT,
    ended_by TEXT,
    repeated_at FLOAT NOT NULL,
    written INTEGER NOT NULL,
    said INTEGER NOT NULL,
    created_at FLOAT NOT NULL,
    updated_at FLOAT NOT NULL
);
CREATE UNIQUE INDEX memory_id ON memory (tenant, id, kind, owner);
CREATE INDEX memory_order ON memory (tenant, kind, owner, no);
CREATE UNIQUE INDEX memory_said ON memory (tenant, kind, owner, said);
CREATE INDEX memory_standing ON memory (tenant, kind, owner, confidence) WHERE valid_to IS NULL;
CREATE INDEX memory_idle ON memory (used_at);
CREATE INDEX memory_superseded ON memory (tenant, kind, owner, supersedes) WHERE supersedes IS NOT NULL;
CREATE INDEX memory_ended ON memory (tenant, kind, owner, ended_by) WHERE ended_by IS NOT NULL;

CREATE TABLE memory_source (
    tenant TEXT NOT NULL,
    memory INTEGER NOT NULL,
    conversation INTEGER NOT NULL,
    post TEXT NOT NULL,
    PRIMARY KEY (tenant, memory, conversation, post)
) WITHOUT ROWID;
CREATE INDEX memory_source_of ON memory_source (tenant, conversation);

CREATE VIRTUAL TABLE memory_text USING fts5(scope, key, tokenize = 'porter unicode61 remove_diacritics 2');

CREATE TABLE delivery (
    tenant TEXT NOT NULL,
    conversation INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    version INTEGER NOT NULL,
    due INTEGER NOT NULL,
    PRIMARY KEY (tenant, conversation)
) WITHOUT ROWID;
CREATE INDEX delivery_due ON delivery (tenant, conversation) WHERE due = 1;

CREATE TABLE correction (
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    conversation INTEGER NOT NULL,
    posts TEXT NOT NULL,
    marks TEXT NOT NULL,
    text TEXT NOT NULL,
    due INTEGER NOT NULL
);
CREATE INDEX correction_of ON correction (tenant, conversation, no);
CREATE INDEX correction_due ON correction (tenant, conversation) WHERE due = 1;

CREATE TABLE outbox (
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    conversation INTEGER NOT NULL,
    version INTEGER NOT NULL,
    sink TEXT NOT NULL
);
CREATE INDEX outbox_of ON outbox (tenant, conversation);

CREATE TABLE vector (
    tenant TEXT NOT NULL,
    scope TEXT NOT NULL,
    model TEXT NOT NULL,
    ref INTEGER NOT NULL,
    part INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (tenant, scope, model, ref, part)
) WITHOUT ROWID;

CREATE TABLE embedded (
    tenant TEXT NOT NULL,
    scope TEXT NOT NULL,
    model TEXT NOT NULL,
    owner TEXT NOT NULL,
    upto INTEGER NOT NULL,
    vectors INTEGER NOT NULL,
    began FLOAT NOT NULL,
    PRIMARY KEY (tenant, scope, model)
) WITHOUT ROWID;
CREATE INDEX embedded_owner ON embedded (tenant, owner, model, began);

CREATE TABLE api_key (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    digest BLOB NOT NULL,
    role TEXT NOT NULL,
    user_id TEXT,
    organizations TEXT NOT NULL,
    name TEXT NOT NULL,
    created_at FLOAT NOT NULL,
    expires_at FLOAT,
    revoked_at FLOAT,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX api_key_id ON api_key (id);

CREATE TABLE organization (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    settings TEXT NOT NULL,
    updated_at FLOAT NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE TABLE tuning (
    tenant TEXT NOT NULL,
    conversation INTEGER NOT NULL,
    parameters TEXT NOT NULL,
    seen_seq INTEGER NOT NULL,
    updated_at FLOAT NOT NULL,
    PRIMARY KEY (tenant, conversation)
) WITHOUT ROWID;

CREATE TABLE optimization (
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    tenant TEXT NOT NULL,
    conversation INTEGER NOT NULL,
    body BLOB NOT NULL
);
CREATE INDEX optimization_of ON optimization (tenant, conversation, no);

CREATE TABLE receipt (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    state TEXT NOT NULL,
    body BLOB NOT NULL,
    created_at FLOAT NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;
CREATE INDEX receipt_pending ON receipt (tenant, state) WHERE state = 'pending';

CREATE TABLE participant (
    tenant TEXT NOT NULL,
    user_id TEXT NOT NULL,
    conversation INTEGER NOT NULL,
    PRIMARY KEY (tenant, user_id, conversation)
) WITHOUT ROWID;
CREATE INDEX participant_conversation ON participant (tenant, conversation);

CREATE TABLE hold (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE TABLE epoch (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, owner)
) WITHOUT ROWID;

CREATE TABLE sealed (
    tenant TEXT NOT NULL,
    conversation INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    token TEXT NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (tenant, conversation, seq, token)
) WITHOUT ROWID;

CREATE TABLE vault_key (
    one INTEGER NOT NULL PRIMARY KEY,
    id TEXT NOT NULL
);
"""
#: Who speaks is known from now on where others read along; where they do already, nobody knows since when.
COMPANY: Final = (
    "ALTER TABLE conversation ADD COLUMN company TEXT NOT NULL DEFAULT '[]'",
    "UPDATE conversation SET company = '[[1, 0]]' WHERE json_array_length(participants) > 1",
)
#: A summary knows which corrections it was made after.
CORRECTED: Final = "ALTER TABLE summary ADD COLUMN corrected INTEGER NOT NULL DEFAULT 0"


def upgrade() -> None:
    """Create the tables; a conversation notes when others took part, a summary what was corrected."""
    for statement in (*COMPANY, CORRECTED, *SCHEMA.split(";\n")):
        if statement.strip():
            op.execute(statement)
