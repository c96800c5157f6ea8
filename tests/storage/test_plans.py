"""Tests of query plans: no statement scans a whole table or all rows of a tenant, except listed ones."""

import re
import sqlite3
from contextlib import closing

from cuebook.storage.database.statements import ddl, load_statements

#: Statements that scan a whole table, and why that is intended.
WHOLE = {
    # an erasure may have to reach any row
    "answers_drop", "audit_naming", "conversations_heard", "conversations_of_user", "delete_idempotency",
    "embedded_of_user", "keys_of_user", "memories_of_user", "memory_forgets", "observations_naming",
    "places_of_user", "windows_naming",
    # a restore may have to erase any row
    "conversation_names", "memory_names", "user_names",
    # a receipt names all exports
    "audit_exports",
    # a verification reads all rows
    "audit_heads", "audit_of_event", "receipts_all", "seals_delete_all", "seals_of", "tenants_all",
    # a tenant has one row
    "seal_total_get", "seal_total_put",
    # counts and short lists of all rows
    "audit_checkpoints", "conversation_counts", "embedded_counts", "key_any", "key_prune", "keys_of",
    "optimizations", "outsiders", "place_changes", "place_generations", "prompt_observed", "prompt_tenants",
    "receipts_last",
    "shadow_calls", "tally_items", "tally_memories", "tally_posts", "tally_promoted",
    "tuning_latest", "tuning_totals", "work_totals",
    # the newest rows in the order of an index, up to a limit
    "answers_at_heads", "token_reports",
    # queues: each row is pending work
    "claims_count", "claims_drop", "claims_of", "claims_renew",
    "conversations_idle", "corrections_due", "deliveries_due", "embedded_due", "memories_untouched", "outbox_of",
    "outcomes_due", "places_due",
    "leases_held", "receipts_pending", "reflections_due", "tuning_changed", "turns_left",
}  # fmt: skip
_OTHERS = ("json_each", "VIRTUAL TABLE", "CONSTANT ROW", "(subquery")


def test_only_listed_statements_scan_a_whole_table():
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(";\n".join(ddl("sqlite")))
        whole = {name for name, sql in load_statements().items() if any(map(_is_whole, _plan(connection, sql)))}
    assert sorted(whole - WHOLE) == []
    assert sorted(WHOLE - whole) == [], "these statements no longer scan a table: remove them from WHOLE"


def test_a_waiting_turn_is_found_without_reading_all_turns_of_its_conversation():
    statements = load_statements()
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(";\n".join(ddl("sqlite")))
        for name in ("turn_waiting", "conversation_grow"):
            assert any("INDEX turn_waiting (" in step for step in _plan(connection, statements[name])), name


def _plan(connection, sql):
    names = re.findall(r"(?<!:):(\w+)", sql)
    values = dict.fromkeys(names) if names else [None] * sql.count("?")
    return [detail for *_, detail in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def _is_whole(step):
    scans = step.startswith("SCAN") and not any(other in step for other in _OTHERS)
    return scans or step.endswith(" (tenant=?)")
