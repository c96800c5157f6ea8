"""Versions that were rolled back, and a branch's own events, are found without reading the others."""

from typing import Final

from alembic import op

revision = "0004"
down_revision = "0003"

STATEMENTS: Final = (
    "CREATE INDEX prompt_version_marked ON prompt_version (tenant, slug, branch, number) WHERE rolled_back = 1",
    "ALTER TABLE prompt_event ADD COLUMN branch TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE prompt_event ADD COLUMN kind TEXT NOT NULL DEFAULT ''",
    "UPDATE prompt_event SET branch = json_extract(CAST(body AS TEXT), '$.branch')",
    "UPDATE prompt_event SET kind = json_extract(CAST(body AS TEXT), '$.kind')",
    "CREATE INDEX prompt_event_on ON prompt_event (tenant, slug, branch, no) WHERE kind <> 'label'",
)


def upgrade() -> None:
    """Add columns and indexes; events say in columns what their bodies say."""
    for statement in STATEMENTS:
        op.execute(statement)
