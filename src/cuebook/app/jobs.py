"""List the background jobs, besides compaction, that the worker runs in each round and that `settle` waits for."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from cuebook.config import Config
from cuebook.engine.core.services import Job, Services
from cuebook.engine.jobs.audit_mirror import Mirror
from cuebook.engine.jobs.delivery import deliver_due
from cuebook.engine.jobs.delivery import due as deliveries_due
from cuebook.engine.jobs.embedding import embedding_jobs
from cuebook.engine.jobs.erasure import Retention, finish_all, pending
from cuebook.engine.jobs.observation import due as outcomes_due
from cuebook.engine.jobs.observation import observe_due
from cuebook.engine.jobs.optimizer import Tuner
from cuebook.engine.jobs.reflection import due as reflections_due
from cuebook.engine.jobs.reflection import reflect_due
from cuebook.engine.jobs.rollback import Watches
from cuebook.engine.jobs.sinks import Outlet
from cuebook.engine.turn.summary_correction import correct_due
from cuebook.engine.turn.summary_correction import due as corrections_due
from cuebook.engine.turn.task_examples import due as kinds_due
from cuebook.engine.turn.task_examples import embed_kinds
from cuebook.errors import InvalidInput
from cuebook.interfaces.sink import Sink
from cuebook.providers.file_sink import FileSink


def jobs_of(
    services: Services, config: Config, mirror: Mirror, sinks: Sequence[Sink], *, of: Callable[[str], Services]
) -> list[Job]:
    """Return the background jobs in the order they run; `of` returns the services of a tenant."""
    retention_config = config.settings.retention
    watch = Watches(of)
    retention = Retention(
        conversations_days=retention_config.conversations_days, memories_days=retention_config.memories_days
    )
    tuner = Tuner(interval_s=config.settings.optimizer.interval_ms / 1000)
    outlets = [(sink.name, Outlet(sink)) for sink in sinks]
    return [
        Job(name="observation", run=lambda: observe_due(services, of), due=lambda: outcomes_due(services)),
        Job(name="rollback", run=lambda: watch.keep(services), due=lambda: watch.due(services)),
        Job(name="correction", run=lambda: correct_due(services), due=lambda: corrections_due(services)),
        Job(name="reflection", run=lambda: reflect_due(services), due=lambda: reflections_due(services)),
        Job(name="delivery", run=lambda: deliver_due(services), due=lambda: deliveries_due(services)),
        *(
            Job(name=f"sink {name}", run=partial(outlet.keep, services), due=partial(outlet.due, services))
            for name, outlet in outlets
        ),
        Job(name="optimizer", run=lambda: tuner.keep(services), due=lambda: tuner.due(services)),
        Job(name="retention", run=lambda: retention.keep(services), due=lambda: retention.due(services)),
        Job(name="forget", run=lambda: finish_all(services), due=lambda: pending(services)),
        Job(name="audit", run=lambda: mirror.keep_up(services), due=lambda: mirror.due(services)),
        *embedding_jobs(services),
        Job(name="kinds", run=lambda: embed_kinds(services), due=lambda: kinds_due(services)),
    ]


def sinks_of(config: Config, given: Sequence[Sink]) -> tuple[Sink, ...]:
    """Return the given sinks and the one of the settings' file. Raises InvalidInput for a duplicate name."""
    label = config.settings.memory.sink
    sinks = (*given, *([FileSink(Path(config.folder) / label)] if label else []))
    names = [each.name for each in sinks]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        msg = f"sinks: duplicate name {twice!r}. Give each sink its own name."
        raise InvalidInput(msg, where="sinks")
    return sinks
