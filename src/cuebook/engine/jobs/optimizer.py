"""Optimizer job (C, "Adaptive Optimizer"): score a conversation's posts, mark the least useful ones, and tune its
parameters by one step.

Marks apply when the front of the prompt changes anyway, to keep the provider's cache valid.
"""

from statistics import fmean

import msgspec
from msgspec import Struct

from cuebook.engine.core.judgement_cache import BATCH, aside
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.job import DueQuery, DueWork, Job, of_conversations
from cuebook.errors import Conflict
from cuebook.memory.judgement import JudgementResult, PathJudgement
from cuebook.records.conversation import Conversation
from cuebook.records.memory import Scope
from cuebook.records.tuning import Snapshot, TuningState
from cuebook.window.budget import LEAST_POSTS, allot, tuned, untuned

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


async def _due(services: Services, query: DueQuery) -> list[DueWork[str]]:
    """Return the conversations that changed since their last run, at most once per interval."""
    settings, now = services.config.optimizer, services.clock.now()
    if not settings.enabled:
        return []
    caches, every = services.caches, settings.interval_ms / 1000
    since = max(0.0, min(caches.optimizer_idle_at, now) - every)  # a clock may be set back
    changed = await services.store.tuning.changed(least=LEAST_POSTS, since=since, before=now - every, limit=query.limit)
    if not changed:
        caches.optimizer_idle_at = now
    return of_conversations(changed)


async def analyze(services: Services, scope: Scope, conversation: str) -> Analysis:
    """Score the posts of a conversation. Raises NotFound."""
    store = services.store.tuning
    last, updated = await store.tuned(scope, conversation) or (None, 0.0)
    tuning = last if last and last.runs else untuned(services.settings.limits)
    found, ledger = await services.caches.judgements.read(store, scope, conversation)
    judged = await aside(len(ledger) > BATCH, ledger.judge, tuning, now=services.clock.now(), mark=found.mark)
    lately = await services.store.outcomes.lately(scope, conversation, limit=ROUNDS)
    served = fmean(each.score for each in lately) if len(lately) >= FEWEST else None
    return Analysis(conversation=found, tuning=tuning, updated_at=updated, ledger=ledger, judged=judged, served=served)


async def run_once(services: Services, scope: Scope, conversation: str) -> Snapshot:
    """Run once. Raises NotFound, and Conflict if other processes keep running in this conversation.

    A path with fewer than LEAST_POSTS posts stays unchanged, and the run is not counted.
    """
    for _ in range(TRIES):
        analysis = await analyze(services, scope, conversation)
        tuning, snapshot = _made(services, analysis)
        before = analysis.updated_at
        now = max(services.clock.now(), before + 1e-3)  # distinguishes two runs at the same instant
        store = services.store.tuning
        if await store.keep(scope, analysis.conversation, tuning, snapshot, before=before, now=now):
            if snapshot is not None:
                return snapshot
            few = f"conversation {conversation!r} has {analysis.judged.total} of the {LEAST_POSTS} posts required"
            same = _snapshot(services, analysis, analysis.tuning, analysis.judged.used)
            return msgspec.structs.replace(same, untuned=few)
    raise Conflict(f"Other processes keep tuning conversation {conversation!r}. Try again.")


OPTIMIZER = Job(name="optimizer", due=_due, run=run_once)


def _made(services: Services, analysis: Analysis) -> tuple[TuningState, Snapshot | None]:
    """Compute the result of a run."""
    judged, ledger = analysis.judged, analysis.ledger
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
    return tuning, snapshot


def _snapshot(services: Services, analysis: Analysis, tuning: TuningState, after: int) -> Snapshot:
    before = analysis.tuning
    return Snapshot(
        conversation_id=analysis.conversation.id,
        tokens_before=analysis.judged.used,
        tokens_after=after,
        entries_compressed=analysis.ledger.shortened(tuning) - analysis.ledger.shortened(before),
        entries_dropped=len(tuning.dropped) - len(before.dropped),
        entries_promoted=len(tuning.promoted) - len(before.promoted),
        compression_trigger_ratio=tuning.compression_trigger,
        full_message_window=tuning.full_message_window,
        min_relevance_score=tuning.min_relevance,
        timestamp=services.clock.now(),
        served=analysis.served,
    )
