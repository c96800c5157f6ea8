"""What came of reflecting on turns."""

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
"""


def upgrade() -> None:
    """Create the tables."""
    for statement in SCHEMA.split(";\n"):
        if statement.strip():
            op.execute(statement)
