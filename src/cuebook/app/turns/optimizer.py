"""The optimizer, which tunes memory parameters per conversation: show its status and history, and run it by hand."""

from typing import Any

import msgspec
from msgspec import Struct

from cuebook.app.json_shapes import Wire, iso
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.optimizer import run_once
from cuebook.errors import InvalidInput
from cuebook.records.memory import Scope
from cuebook.records.tuning import Snapshot, TuningState
from cuebook.window.budget import LEAST_POSTS, untuned

#: Maximum number of snapshots per call, and kept per conversation.
MOST = 500


class Parameters(Struct, frozen=True, kw_only=True, rename="camel"):
    """The four tuned parameters."""

    compression_trigger: float
    full_message_window: int
    min_relevance: float
    target_usage_ratio: float


class OptimizerStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """The totals of all runs; `current_parameters` are those of the given conversation, else the last tuned ones."""

    total_optimizations: int
    total_tokens_saved: int
    avg_savings_per_run: int
    current_parameters: Parameters


class Optimizer:
    """The optimizer of a project's conversations."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def status(self, conversation: str | None = None, *, user: str | None = None) -> OptimizerStatus:
        """Return the totals of the runs so far, of a conversation or of all. Raises NotFound."""
        totals = await self._services.store.tuning.totals(Scope(user=user), conversation)
        return OptimizerStatus(
            total_optimizations=totals.runs,
            total_tokens_saved=totals.tokens_saved,
            avg_savings_per_run=round(totals.tokens_saved / totals.runs) if totals.runs else 0,
            current_parameters=_parameters(totals.current or untuned(self._services.settings.limits)),
        )

    async def run(self, conversation: str | None = None, *, user: str | None = None) -> Snapshot:
        """Run now, regardless of the interval: for a conversation, else for all that changed since their last run.

        For several conversations the snapshot has the sums of tokens and entries, and the last run's parameters.
        Conversations with fewer than ten posts are skipped; `untuned` has the reason. Raises NotFound, and InvalidInput
        if the optimizer is off.
        """
        if not self._services.settings.tunes:
            msg = "The optimizer is disabled. Set enabled = true under [optimizer]."
            raise InvalidInput(msg, where="optimizer.enabled")
        scope = Scope(user=user)
        if conversation is not None:
            return await run_once(self._services, scope, conversation)
        now, seen = self._services.clock.now(), set[str]()
        snapshots: list[Snapshot] = []
        while changeds := await self._services.store.tuning.changed(
            least=LEAST_POSTS, since=0.0, before=now, scope=scope
        ):
            left = [each.conversation for each in changeds if each.conversation not in seen]
            if not left:
                break
            for each in left:
                seen.add(each)
                snapshots.append(await run_once(self._services, scope, each))
        return _sum(snapshots, untuned(self._services.settings.limits), now)

    async def history(
        self, conversation: str | None = None, *, user: str | None = None, limit: int = 20
    ) -> list[Snapshot]:
        """Return the snapshots of the runs, newest first; 500 are kept per conversation. Raises NotFound."""
        if not 1 <= limit <= MOST:
            msg = f"limit: {limit}. Must be between 1 and {MOST}."
            raise InvalidInput(msg, where="limit")
        return await self._services.store.tuning.history(Scope(user=user), conversation, limit=limit)


def _parameters(tuning: TuningState) -> Parameters:
    return Parameters(
        compression_trigger=tuning.compression_trigger,
        full_message_window=tuning.full_message_window,
        min_relevance=tuning.min_relevance,
        target_usage_ratio=tuning.target_usage_ratio,
    )


def _sum(snapshots: list[Snapshot], untuned: TuningState, now: float) -> Snapshot:
    if len(snapshots) == 1:
        return snapshots[0]
    return Snapshot(
        conversation_id="",
        tokens_before=sum(each.tokens_before for each in snapshots),
        tokens_after=sum(each.tokens_after for each in snapshots),
        entries_compressed=sum(each.entries_compressed for each in snapshots),
        entries_dropped=sum(each.entries_dropped for each in snapshots),
        entries_promoted=sum(each.entries_promoted for each in snapshots),
        compression_trigger_ratio=snapshots[-1].compression_trigger_ratio if snapshots else untuned.compression_trigger,
        full_message_window=snapshots[-1].full_message_window if snapshots else untuned.full_message_window,
        min_relevance_score=snapshots[-1].min_relevance_score if snapshots else untuned.min_relevance,
        timestamp=now,
        untuned="" if snapshots else f"no conversation of {LEAST_POSTS} posts or more changed since its last run",
    )


def snapshot(value: Snapshot) -> Wire:
    """Return a snapshot in BrowserOS's shape, with its conversation (null for several) and the reason for no change."""
    data: dict[str, Any] = msgspec.to_builtins(value)
    return data | {"conversationId": value.conversation_id or None, "timestamp": iso(value.timestamp)}
