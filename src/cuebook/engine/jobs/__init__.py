"""Background jobs: find due work in stored state and run it until nothing is left."""

from typing import Any

from cuebook.engine.jobs.audit_mirror import AUDIT_MIRROR
from cuebook.engine.jobs.compaction import COMPACTION, CORRECTION
from cuebook.engine.jobs.delivery import DELIVERY, MEMORY_FILES, SINK
from cuebook.engine.jobs.embedding import EMBEDDING, TASK_EXAMPLES
from cuebook.engine.jobs.erasure import FORGET, RETENTION
from cuebook.engine.jobs.job import Job
from cuebook.engine.jobs.observation import OBSERVATION
from cuebook.engine.jobs.optimizer import OPTIMIZER
from cuebook.engine.jobs.reflection import REFLECTION
from cuebook.engine.jobs.rollback import ROLLBACK

#: All background jobs, in the order of each round. The worker runs them, and `settle` waits for them.
JOBS: tuple[Job[Any], ...] = (
    COMPACTION,
    OBSERVATION,
    ROLLBACK,
    CORRECTION,
    REFLECTION,
    DELIVERY,
    SINK,
    OPTIMIZER,
    RETENTION,
    FORGET,
    AUDIT_MIRROR,
    MEMORY_FILES,
    EMBEDDING,
    TASK_EXAMPLES,
)
