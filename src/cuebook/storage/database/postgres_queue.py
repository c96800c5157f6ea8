"""The job queue on PostgreSQL: procrastinate's tables in a schema of their own, and the writes that wake workers.

The queue only wakes workers. What is due is the result of queries on stored data, so its tables may be lost anytime.
"""

from collections.abc import Mapping
from importlib import metadata, resources
from importlib.util import find_spec
from typing import Any, Final

#: The schema of procrastinate's tables.
QUEUE: Final = "cuebook_queue"
#: Seconds without a sign of life after which a worker is dead.
DEAD_S: Final = 30.0
_ABANDONED: Final = """SELECT DISTINCT queue_name FROM cuebook_queue.procrastinate_jobs
WHERE status = 'todo' AND NOT EXISTS (
    SELECT 1 FROM cuebook_queue.procrastinate_workers WHERE last_heartbeat > now() - make_interval(secs => %s)
)"""
#: Statements that leave work, and the jobs that find it.
WAKES: Final[Mapping[str, tuple[str, ...]]] = {
    "post_insert": ("compaction", "embedding"),
    "turn_close": ("compaction", "delivery", "reflection"),
    "outcome_note": ("observation",),
    "outcome_give": ("observation",),
    "prompt_observation_insert": ("rollback",),
    "correction_insert": ("correction",),
    "correction_again": ("correction",),
    "delivery_wanted": ("delivery",),
    "delivery_again": ("delivery",),
    "delivery_back": ("delivery",),
    "delivery_anew": ("delivery",),
    "place_said": ("embedding",),
    "outbox_insert": ("sink",),
    "receipt_insert": ("forget",),
    "reflection_ask": ("reflection",),
}


def prepare_queue(connection: Any, role: str) -> None:
    """Create the function that wakes workers, and procrastinate's tables if it is installed and they do not fit.

    Tables of another version of procrastinate are replaced: their jobs cost only time.
    """
    connection.execute(resources.files("cuebook.storage").joinpath("queue.sql").read_text("utf-8"))
    if find_spec("procrastinate") is None or has_queue(connection):
        return
    connection.execute(f"DROP SCHEMA IF EXISTS {QUEUE} CASCADE")
    connection.execute(f"CREATE SCHEMA {QUEUE}")
    connection.execute(f"SET LOCAL search_path TO {QUEUE}")
    connection.execute(resources.files("procrastinate.sql").joinpath("schema.sql").read_text("utf-8"))
    connection.execute("SET LOCAL search_path TO DEFAULT")
    for right, kind in (("ALL", "TABLES"), ("ALL", "SEQUENCES"), ("EXECUTE", "FUNCTIONS")):
        connection.execute(f"GRANT {right} ON ALL {kind} IN SCHEMA {QUEUE} TO {role}")
    connection.execute(f"GRANT USAGE ON SCHEMA {QUEUE} TO {role}")
    connection.execute(f"COMMENT ON SCHEMA {QUEUE} IS '{metadata.version('procrastinate')}'")


def abandoned_jobs(connection: Any) -> list[str]:
    """Return the kinds of work that wait in the queue although no worker runs. The queue must exist."""
    return sorted(name for (name,) in connection.execute(_ABANDONED, (DEAD_S,)))


def has_queue(connection: Any) -> bool:
    """Return whether procrastinate's tables exist, and fit the installed version."""
    query = "SELECT obj_description(to_regnamespace(%s)::oid, 'pg_namespace'), to_regclass(%s)"
    version, table = connection.execute(query, (QUEUE, f"{QUEUE}.procrastinate_jobs")).fetchone()
    return table is not None and (find_spec("procrastinate") is None or version == metadata.version("procrastinate"))
