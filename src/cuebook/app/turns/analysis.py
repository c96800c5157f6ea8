"""Analyze a conversation's posts, compute its token budget, and count what is stored in memory."""

from msgspec import Struct

from cuebook.app.arguments import OWNER, CallerOf, Conversation, OnlyConversation, User
from cuebook.app.namespace import Namespace
from cuebook.engine.core.context_limits import RequestLimits, limits_of, recorded_limits, target_of
from cuebook.engine.jobs.optimizer import analyze
from cuebook.memory.judgement import ActionType
from cuebook.operations import operation
from cuebook.records.memory import Scope
from cuebook.records.tuning import MemoryStats, TuningState
from cuebook.window.budget import allot, untuned


class Suggestion(Struct, frozen=True, kw_only=True, rename="camel"):
    """A suggested action for a post, and the reason."""

    type: ActionType
    post_id: str
    reason: str


class Judgement(Struct, frozen=True, kw_only=True, rename="camel"):
    """The analysis of a conversation's posts: how many there are, how many matter, how many are duplicates."""

    total_entries: int
    relevant_entries: int
    redundant_entries: int
    suggested_actions: tuple[Suggestion, ...]
    token_usage: int  # tokens in prompts of the posts after the summary


class BudgetNumbers(Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings that a budget is computed from (C, "Configuration"), as they apply to the conversation."""

    max_context_tokens: int
    system_prompt_tokens: int
    response_reserve_tokens: int
    max_short_term_tokens: int
    full_message_window: int
    compression_trigger_ratio: float


class Budget(Struct, frozen=True, kw_only=True, rename="camel"):
    """The tokens that posts may use of a prompt, and those a conversation's use; `usage_percent` can exceed 100.

    `model` and `source` name the model and what its context window is known from, "" if the settings apply.
    """

    budget: int
    used: int
    remaining: int
    usage_percent: float
    should_compress: bool
    model: str
    source: str
    config: BudgetNumbers


class MemoryAnalysis(Namespace):
    """The analysis operations of `cue.memory`."""

    @operation(
        "POST /learning/memory/analyze",
        role="viewer",
        cli="memory analyze",
        examples=("cuebook memory analyze c1", "cuebook memory analyze c1 --json"),
    )
    async def analyze(self, conversation: Conversation, *, user: User = None) -> Judgement:
        """Find relevant and redundant posts. Suggests actions and changes nothing. Raises NotFound."""
        analysis = await analyze(self._services, Scope(user=user), conversation)
        actions = tuple(
            Suggestion(type=each.type, post_id=analysis.ledger.ids[each.number], reason=each.reason)
            for each in analysis.judged.actions
        )
        return Judgement(
            total_entries=analysis.judged.total,
            relevant_entries=analysis.judged.relevant,
            redundant_entries=analysis.judged.redundant,
            suggested_actions=actions,
            token_usage=analysis.judged.used,
        )

    @operation(
        "GET /learning/memory/stats",
        role="viewer",
        cli="memory stats",
        examples=("cuebook memory stats", "cuebook memory stats c1"),
    )
    async def stats(
        self, conversation: OnlyConversation = None, *, user: User = None, caller: CallerOf = OWNER
    ) -> MemoryStats:
        """Count posts, items and memories by tier, of a conversation or of all. Raises NotFound."""
        own = None if caller.may("owner") else caller.organizations
        return await self._services.store.tuning.tally(Scope(user=user), conversation, organizations=own)

    @operation(
        "GET /learning/memory/budget",
        role="viewer",
        cli="memory budget",
        examples=("cuebook memory budget", "cuebook memory budget c1 --json"),
    )
    async def budget(self, conversation: OnlyConversation = None, *, user: User = None) -> Budget:
        """Show the token budget for posts and its use, of the model of the newest turn. Raises NotFound."""
        services, scope = self._services, Scope(user=user)
        tuning, used, limits = untuned(services.settings.limits), 0, limits_of(services, target_of(services), "")
        listed = False
        if conversation is not None:
            analysis = await analyze(services, scope, conversation)
            tuning, used = analysis.tuning if services.config.optimizer.enabled else tuning, analysis.judged.used
            for turn in await services.store.turns(scope, conversation, last=1):
                limits = recorded_limits(services, turn.metadata.get("window", {}).get("context", {}))
                listed = any(step.manifest.listed for step in turn.steps)
        return _budget(limits, tuning, used, listed=listed)


def _budget(known: RequestLimits, tuning: TuningState, used: int, *, listed: bool) -> Budget:
    limits = known.limits
    room = allot(limits, front=0, listed=listed).posts
    return Budget(
        budget=room,
        used=used,
        remaining=max(0, room - used),
        usage_percent=round(100 * used / max(1, room), 2),
        should_compress=used > room * tuning.compression_trigger,
        model=known.model,
        source=known.source,
        config=BudgetNumbers(
            max_context_tokens=limits.context_tokens,
            system_prompt_tokens=limits.system_tokens,
            response_reserve_tokens=limits.reply_tokens,
            max_short_term_tokens=limits.max_short_term_tokens,
            full_message_window=tuning.full_message_window,
            compression_trigger_ratio=tuning.compression_trigger,
        ),
    )
