"""Finished passes go to the sinks, behind the reply, each once: noted in the pass's transaction, crossed off after.

A process that dies between a sink's return and the crossing off delivers the pass again, under the same id.
"""

import logging

from cuebook.engine.core.desk import Desk
from cuebook.errors import CuebookError, NotFound
from cuebook.interfaces.sink import Passed, Sink
from cuebook.records.memory import Scope

log = logging.getLogger("cuebook.sink")

#: Passes of one look.
BATCH = 100


class Outlet:
    """One process's deliveries to a sink."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    async def keep(self, desk: Desk) -> None:
        """Deliver what is noted, in its order; from the pass on that fails it is done again next time."""
        while noted := await desk.store.memories.outbox(sinks=[self._sink.name], limit=BATCH):
            for no, _, tenant, conversation, version in noted:
                try:
                    await self._deliver(desk, Scope(tenant), conversation, version)
                except (CuebookError, OSError) as error:
                    log.warning("sink %s: %s", self._sink.name, desk.writer.clean(str(error)))
                    return
                await desk.store.memories.crossed_off([no])

    async def due(self, desk: Desk) -> int:
        """Count passes that are noted for the sink, a look's worth at most."""
        return len(await desk.store.memories.outbox(sinks=[self._sink.name], limit=BATCH))

    async def _deliver(self, desk: Desk, scope: Scope, conversation: str, version: int) -> None:
        """Deliver a pass; one whose conversation was forgotten meanwhile is nobody's to have."""
        try:
            known = await desk.store.conversation(scope, conversation)
            summary = await desk.store.summary(scope, conversation, version=version)
            items = await desk.store.items(scope, conversation)
        except NotFound:
            return
        if summary is None:
            return
        passed = Passed(
            tenant=scope.tenant,
            conversation=conversation,
            no=known.no,
            user=known.user,
            persona=known.persona,
            summary=summary,
            items=tuple(items),
        )
        await self._sink.keep(passed)
