"""Optimizer job (C, "Adaptive Optimizer"): score a conversation's posts, mark the least useful ones, and tune its
parameters by one step.

Marks apply when the front of the prompt changes anyway, to keep the provider's cache valid.
"""

from collections.abc import Sequence
from statistics import fmean

import msgspec
from msgspec import Struct

from cuebook.engine.core.foreground_gate import MAX_WAIT_S
from cuebook.engine.core.judgement_cache import BATCH, aside
from cuebook.engine.core.services import Services
from cuebook.errors import Conflict
from cuebook.interfaces.reflections import ChangedConversation, TuningRun
from cuebook.memory.judgement import JudgementResult, PathJudgement
from cuebook.records.conversation import Conversation
from cuebook.records.memory import Scope
from cuebook.records.tuning import Snapshot, TuningState
from cuebook.window.budget import LEAST_POSTS, allot, tuned, untuned

#: Conversations in one run of the job.
CONVERSATIONS = 100
#: Newest turns whose signals count, and the fewest signals that are enough.
ROUNDS, FEWEST = 5, 3
#: Retries after another process ran first.
TRIES = 3


class Analysis(Struct, frozen=True, kw_only=True):
    """A conversation with its tuning and the scores of its posts."""

    conversation: Conversation
    tuning: TuningState
    updated_at: float  # time of the last run, 0 before the first
    ledger: PathJudgement
    judged: JudgementResult
    served: float | None = None  # mean score of the newest turns, None with too few signals


class Tuner:
    """Optimizer of one process. Several can run: results are stored by compare-and-set on their input."""

    def __init__(self, *, interval_s: float) -> None:
        self._interval_s = interval_s
        self._looked = 0.0

    async def keep(self, services: Services) -> None:
        """Run for each conversation that changed since its last run, at most once per interval."""
        now = services.clock.now()
        if not services.settings.tunes:
            return
        while changeds := await self._changed(services, since=max(0.0, self._looked - self._interval_s)):
            for each in changeds:
                await services.foreground.wait_until_free(MAX_WAIT_S)
                await run_once(services, Scope(each.tenant), each.conversation)
            if len(changeds) < CONVERSATIONS:
                break
        self._looked = now

    async def due(self, services: Services) -> int:
        """Count the conversations due for a run."""
        return len(await self._changed(services, since=0.0)) if services.settings.tunes else 0

    async def _changed(self, services: Services, *, since: float) -> Sequence[ChangedConversation]:
        before = services.clock.now() - self._interval_s
        return await services.store.tuning.changed(least=LEAST_POSTS, since=since, before=before, limit=CONVERSATIONS)


async def analyze(services: Services, scope: Scope, conversation: str) -> Analysis:
    """Score the posts of a conversation. Raises NotFound."""
    store = services.store.tuning
    stands = await store.tuned(scope, conversation)
    tuning = stands.tuning if stands and stands.tuning.runs else untuned(services.settings.limits)
    found, ledger = await services.caches.judgements.read(store, scope, conversation)
    judged = await aside(len(ledger) > BATCH, ledger.judge, tuning, now=services.clock.now(), mark=found.mark)
    updated = stands.updated_at if stands else 0.0
    lately = await services.store.outcomes.lately(scope, conversation, limit=ROUNDS)
    served = fmean(each.score for each in lately) if len(lately) >= FEWEST else None
    return Analysis(conversation=found, tuning=tuning, updated_at=updated, ledger=ledger, judged=judged, served=served)


async def run_once(services: Services, scope: Scope, conversation: str) -> Snapshot:
    """Run once. Raises NotFound, and Conflict if other processes keep running in this conversation.

    A path with fewer than LEAST_POSTS posts stays unchanged, and the run is not counted.
    """
    for _ in range(TRIES):
        analysis = await analyze(services, scope, conversation)
        tuning_run = _made(services, analysis)
        if await services.store.tuning.keep(scope, conversation, tuning_run):
            return tuning_run.snapshot or _untuned(services, analysis)
    msg = f"Other processes keep tuning conversation {conversation!r}. Try again."
    raise Conflict(msg)


def _made(services: Services, analysis: Analysis) -> TuningRun:
    """Compute the result of a run."""
    now, judged, ledger = services.clock.now(), analysis.judged, analysis.ledger
    tuning, snapshot = analysis.tuning, None
    if judged.total >= LEAST_POSTS:
        mark = analysis.conversation.mark
        marked = ledger.marked(analysis.tuning, judged.actions, mark=mark)
        after = ledger.used(marked, mark=mark)
        saved = judged.used - after
        usage = judged.used / max(1, allot(services.settings.limits, front=0).posts)
        tuning = tuned(marked, usage=usage, savings=saved / max(1, judged.used), served=analysis.served)
        tuning = msgspec.structs.replace(tuning, tokens_saved=tuning.tokens_saved + saved)
        snapshot = _snapshot(services, analysis, tuning, after)
    return TuningRun(
        no=analysis.conversation.no,
        seen_seq=analysis.conversation.last_seq,
        before=analysis.updated_at,
        now=max(now, analysis.updated_at + 1e-3),  # distinguishes two runs at the same instant
        tuning=tuning,
        snapshot=snapshot,
    )


def _untuned(services: Services, analysis: Analysis) -> Snapshot:
    """Return the snapshot of a run that changes nothing, with the reason."""
    few = f"conversation {analysis.conversation.id!r} has {analysis.judged.total} of the {LEAST_POSTS} posts required"
    return msgspec.structs.replace(_snapshot(services, analysis, analysis.tuning, analysis.judged.used), untuned=few)


def _snapshot(services: Services, analysis: Analysis, tuning: TuningState, after: int) -> Snapshot:
    before = analysis.tuning
    return Snapshot(
        conversation_id=analysis.conversation.id,
        tokens_before=analysis.judged.used,
        tokens_after=after,
        entries_compressed=len(tuning.compressed) - len(before.compressed),
        entries_dropped=len(tuning.dropped) - len(before.dropped),
        entries_promoted=len(tuning.promoted) - len(before.promoted),
        compression_trigger_ratio=tuning.compression_trigger,
        full_message_window=tuning.full_message_window,
        min_relevance_score=tuning.min_relevance,
        timestamp=services.clock.now(),
        served=analysis.served,
    )
