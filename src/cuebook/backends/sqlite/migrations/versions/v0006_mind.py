"""What came of reflecting on turns, and of turns themselves; observations that are corrected afterwards."""

from typing import Final

from alembic import op

revision = "0006"
down_revision = "0005"

#: As schema.sql had it then.
SCHEMA: Final = """\
CREATE TABLE reflection (
    tenant TEXT NOT NULL,
    conversation INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    n INTEGER NOT NULL,
    due INTEGER NOT NULL,
    calls TEXT NOT NULL,
    body TEXT,
    PRIMARY KEY (tenant, conversation, turn, n)
) WITHOUT ROWID;
CREATE INDEX reflection_due ON reflection (tenant, conversation) WHERE due = 1;

ALTER TABLE prompt_observation ADD COLUMN revised INTEGER NOT NULL DEFAULT 0;
CREATE INDEX prompt_observation_revised ON prompt_observation (tenant, slug, branch, revised) WHERE revised > 0;

CREATE TABLE outcome (
    tenant TEXT NOT NULL,
    conversation INTEGER NOT NULL,
    turn INTEGER NOT NULL,
    due INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    user_id TEXT NOT NULL,
    body BLOB NOT NULL,
    taught BLOB NOT NULL,
    PRIMARY KEY (tenant, conversation, turn)
) WITHOUT ROWID;
CREATE INDEX outcome_due ON outcome (tenant, conversation, turn) WHERE due = 1;
"""


def upgrade() -> None:
    """Create the tables; an observation notes that it was corrected."""
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
