"""Finished passes go to the sinks, behind the reply, each once: noted in the pass's transaction, crossed off after.

A process that dies between a sink's return and the crossing off delivers the pass again, under the same id.
"""

import logging

from cuebook.engine.desk import Desk
from cuebook.errors import CuebookError
from cuebook.ports.sink import Passed, Sink
from cuebook.records.memory import Scope

log = logging.getLogger("cuebook.sink")

#: Passes of one look.
BATCH = 100


class Outlet:
    """One process's deliveries to the book's sinks."""

    def __init__(self, sinks: tuple[Sink, ...]) -> None:
        self._sinks = {sink.name: sink for sink in sinks}

    async def keep(self, desk: Desk) -> None:
        """Deliver what is noted; a sink that fails gets it again next time, and holds up no other."""
        failed: set[str] = set()
        while noted := await desk.store.memories.outbox(sinks=sorted(self._sinks.keys() - failed), limit=BATCH):
            for no, sink, tenant, conversation, version in noted:
                if sink in failed:
                    continue
                try:
                    await self._deliver(desk, Scope(tenant), sink, conversation, version)
                except (CuebookError, OSError) as error:
                    log.warning("sink %s: %s", sink, desk.writer.clean(str(error)))
                    failed.add(sink)
                    continue
                await desk.store.memories.crossed_off([no])

    async def due(self, desk: Desk) -> int:
        """Count passes that are noted for a sink."""
        return len(await desk.store.memories.outbox(sinks=sorted(self._sinks), limit=BATCH))

    async def _deliver(self, desk: Desk, scope: Scope, sink: str, conversation: str, version: int) -> None:
        """Deliver a pass; one whose conversation was forgotten meanwhile is nobody's to have."""
        try:
            known = await desk.store.conversation(scope, conversation)
            summary = await desk.store.summary(scope, conversation, version=version)
        except CuebookError:
            return
        if summary is None:
            return
        items = await desk.store.items(scope, conversation)
        passed = Passed(
            tenant=scope.tenant,
            conversation=conversation,
            user=known.user,
            persona=known.persona,
            summary=summary,
            items=tuple(items),
        )
        await self._sinks[sink].keep(passed)
