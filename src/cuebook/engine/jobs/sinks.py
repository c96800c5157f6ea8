"""Background job that delivers finished summaries to sinks through an outbox: queued with the summary, deleted after.

Each sink gets its summaries in order. If a process dies between the sink's return and the deletion, the summary is
delivered again under the same id.
"""

from cuebook.engine.core.services import Services
from cuebook.engine.jobs.job import DueQuery, DueWork, Job
from cuebook.errors import NotFound
from cuebook.interfaces import FinishedSummary
from cuebook.records.memory import Scope

#: A queued summary: its number, sink, conversation and version.
Queued = tuple[int, str, str, int]


async def _due(services: Services, query: DueQuery) -> list[DueWork[Queued]]:
    """Return the oldest queued summary of each sink."""
    results: list[DueWork[Queued]] = []
    for name in services.sinks:
        queued = await services.store.memories.outbox(sinks=[name], limit=query.limit)
        for no, _, tenant, conversation, version in queued[:1]:
            results.append(DueWork(tenant, f"sink {name}", (no, name, conversation, version), len(queued)))
    return results


async def _run(services: Services, due: DueWork[Queued]) -> bool:
    """Deliver a summary, unless its conversation was erased meanwhile."""
    no, name, conversation, version = due.work
    passed = await _finished(services, Scope(due.tenant), conversation, version)
    if passed is not None:
        await services.sinks[name].keep(passed)
    await services.store.memories.crossed_off([no])
    return True


async def _finished(services: Services, scope: Scope, conversation: str, version: int) -> FinishedSummary | None:
    try:
        known = await services.store.conversation(scope, conversation)
        summary = await services.store.summary(scope, conversation, version=version)
        items = await services.store.items(scope, conversation)
    except NotFound:
        return None
    if summary is None:
        return None
    return FinishedSummary(
        tenant=scope.tenant,
        conversation=conversation,
        no=known.no,
        user=known.user,
        persona=known.persona,
        summary=summary,
        items=tuple(items),
    )


SINK = Job(name="sink", due=_due, run=_run)
