"""Background job that delivers finished summaries to sinks through an outbox: queued with the summary, deleted after.

If a process dies between the sink's return and the deletion, the summary is delivered again under the same id.
"""

import logging

from cuebook.engine.core.services import Services
from cuebook.errors import CuebookError, NotFound
from cuebook.interfaces.sink import FinishedSummary, Sink
from cuebook.records.memory import Scope

log = logging.getLogger("cuebook.sink")

#: Summaries in one run.
BATCH = 100


class Outlet:
    """Deliveries of one process to a sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    async def keep(self, services: Services) -> None:
        """Deliver queued summaries in order. After a failure, the next run continues with the failed one."""
        while noted := await services.store.memories.outbox(sinks=[self._sink.name], limit=BATCH):
            for no, _, tenant, conversation, version in noted:
                try:
                    await self._deliver(services, Scope(tenant), conversation, version)
                except (CuebookError, OSError) as error:
                    log.warning("Sink %s failed: %s", self._sink.name, services.writer.clean(str(error)))
                    return
                await services.store.memories.crossed_off([no])

    async def due(self, services: Services) -> int:
        """Count the summaries queued for the sink, up to one run's."""
        return len(await services.store.memories.outbox(sinks=[self._sink.name], limit=BATCH))

    async def _deliver(self, services: Services, scope: Scope, conversation: str, version: int) -> None:
        """Deliver a summary, unless its conversation was erased meanwhile."""
        try:
            known = await services.store.conversation(scope, conversation)
            summary = await services.store.summary(scope, conversation, version=version)
            items = await services.store.items(scope, conversation)
        except NotFound:
            return
        if summary is None:
            return
        passed = FinishedSummary(
            tenant=scope.tenant,
            conversation=conversation,
            no=known.no,
            user=known.user,
            persona=known.persona,
            summary=summary,
            items=tuple(items),
        )
        await self._sink.keep(passed)
