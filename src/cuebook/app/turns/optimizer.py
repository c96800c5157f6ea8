"""The optimizer, which tunes memory parameters per conversation: show its status and history, and run it by hand."""

from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from cuebook.app.arguments import Cursor, IdempotencyKey, OnlyConversation, User
from cuebook.app.namespace import Namespace
from cuebook.app.paging import short_page
from cuebook.app.reports.prices import UNKNOWN, money
from cuebook.engine.jobs.optimizer import run_once
from cuebook.errors import InvalidInput
from cuebook.operations import operation
from cuebook.records.answer import Answer, Page, Time, as_answer
from cuebook.records.expression import counted
from cuebook.records.memory import Scope
from cuebook.records.tuning import Snapshot, TuningState
from cuebook.records.turn import WorkUsage
from cuebook.window.budget import LEAST_POSTS, untuned

#: Maximum number of snapshots per call, and kept per conversation.
MOST = 500
#: The fields of a run that several runs add up.
_SUMS = ("tokens_before", "tokens_after", "entries_compressed", "entries_dropped", "entries_promoted")


class Parameters(Struct, frozen=True, kw_only=True, rename="camel"):
    """The four tuned parameters."""

    compression_trigger: float
    full_message_window: int
    min_relevance: float
    target_usage_ratio: float


class OptimizerStatus(Answer, frozen=True, kw_only=True, omit_defaults=True):
    """The totals of all runs; `currentParameters` are those of the given conversation, else the last tuned ones.

    `work` is the usage of models by background work: summaries, sentiment, moods and selections of experiences.
    """

    total_optimizations: int
    total_tokens_saved: int
    avg_savings_per_run: int
    current_parameters: Parameters
    work: tuple[WorkUsage, ...] = ()

    def __str__(self) -> str:
        now = self.current_parameters
        return (
            f"{counted(self.total_optimizations, 'run')} saved {counted(self.total_tokens_saved, 'token')}, "
            f"{self.avg_savings_per_run:,} on average\n"
            f"compression trigger {now.compression_trigger:g} · kept verbatim {now.full_message_window} posts · "
            f"minimum relevance {now.min_relevance:g} · target usage {now.target_usage_ratio:g}"
            + "".join(map(_work_line, self.work))
        )


def _work_line(work: WorkUsage) -> str:
    cost = money(work.costs) if work.costs else UNKNOWN
    tokens = f"{work.input_tokens:,} input tokens ({work.cached_tokens:,} cached), {work.output_tokens:,} output tokens"
    return f"\nbackground work: {work.task} by {work.model}, {counted(work.calls, 'call')}, {tokens}, {cost}"


class OptimizerRun(Snapshot, Answer, frozen=True, kw_only=True, omit_defaults=True):
    """An optimizer run; `conversationId` is null for a sum of several, `untuned` explains why nothing was tuned.

    `served` is the mean score of the newest rounds with feedback; below 0.5 no step compresses more.
    """

    COLUMNS: ClassVar = (
        "timestamp", "conversation_id", "tokens_before", "tokens_after", "entries_compressed", "entries_dropped",
        "entries_promoted", "compression_trigger_ratio", "full_message_window", "min_relevance_score",
    )  # fmt: skip

    conversation_id: str | None  # type: ignore[assignment]
    timestamp: Time

    def __str__(self) -> str:
        return f"no parameter changed: {self.untuned}" if self.untuned else Answer.__str__(self)


class Optimizer(Namespace):
    """The optimizer of a project's conversations."""

    @operation(
        "GET /learning/optimizer/status",
        role="viewer",
        cli="optimizer status",
        examples=("cuebook optimizer status", "cuebook optimizer status c1 --json"),
    )
    async def status(self, conversation: OnlyConversation = None, *, user: User = None) -> OptimizerStatus:
        """Return the totals of all optimizer runs, and the current parameters. Raises NotFound."""
        runs, saved, current = await self._services.store.tuning.totals(Scope(user=user), conversation)
        return OptimizerStatus(
            total_optimizations=runs,
            total_tokens_saved=saved,
            avg_savings_per_run=round(saved / runs) if runs else 0,
            work=tuple(await self._services.store.tuning.work(Scope(user=user), conversation)),
            current_parameters=as_answer(Parameters, current or untuned(self._services.settings.limits)),
        )

    @operation(
        "POST /learning/optimizer/run",
        role="editor",
        cli="optimizer run",
        stores=True,
        examples=("cuebook optimizer run", "cuebook optimizer run c1"),
    )
    async def run(
        self, conversation: OnlyConversation = None, *, user: User = None, idempotency_key: IdempotencyKey = None
    ) -> OptimizerRun:
        """Run the optimizer on a conversation, or on all that changed since their last run. Waits for the result.

        For several conversations the answer has the sums of tokens and entries, and the last run's parameters.
        Conversations with fewer than ten posts are skipped; `untuned` has the reason. Raises NotFound, and InvalidInput
        if the optimizer is off.
        """
        if not self._services.config.optimizer.enabled:
            msg = "The optimizer is disabled. Set enabled = true under [optimizer]."
            raise InvalidInput(msg, where="optimizer.enabled")
        scope = Scope(user=user)
        if conversation is not None:
            return _run(await run_once(self._services, scope, conversation))
        now, seen = self._services.clock.now(), set[str]()
        snapshots: list[Snapshot] = []
        while changeds := await self._services.store.tuning.changed(
            least=LEAST_POSTS, since=0.0, before=now, scope=scope
        ):
            left = [each for _, each in changeds if each not in seen]
            if not left:
                break
            for each in left:
                seen.add(each)
                snapshots.append(await run_once(self._services, scope, each))
        return _run(_sum(snapshots, untuned(self._services.settings.limits), now))

    @operation(
        "GET /learning/optimizer/history",
        role="viewer",
        cli="optimizer history",
        examples=("cuebook optimizer history", "cuebook optimizer history c1 --limit 5"),
        none="no runs yet. The optimizer runs when a conversation with at least ten posts changes.",
    )
    async def history(
        self,
        conversation: OnlyConversation = None,
        *,
        user: User = None,
        limit: Annotated[int, Meta(ge=1, le=MOST, description="Return at most N runs.")] = 20,
        cursor: Cursor = None,
    ) -> Page[OptimizerRun]:
        """Return optimizer runs, newest first; 500 are kept per conversation. Raises NotFound."""
        found = await self._services.store.tuning.history(Scope(user=user), conversation, limit=MOST)
        page = short_page(found, f"runs {conversation}", limit=limit, cursor=cursor, grows=True)
        return Page(items=tuple(map(_run, page.items)), next=page.next)


def _sum(snapshots: list[Snapshot], untuned: TuningState, now: float) -> Snapshot:
    if len(snapshots) == 1:
        return snapshots[0]
    sums: dict[str, Any] = {name: sum(getattr(each, name) for each in snapshots) for name in _SUMS}
    sums |= {"conversation_id": "", "timestamp": now}
    if snapshots:
        return replace(snapshots[-1], **sums, untuned="")
    return Snapshot(
        **sums,
        compression_trigger_ratio=untuned.compression_trigger,
        full_message_window=untuned.full_message_window,
        min_relevance_score=untuned.min_relevance,
        untuned=f"no conversation of {LEAST_POSTS} posts or more changed since its last run",
    )


def _run(value: Snapshot) -> OptimizerRun:
    return as_answer(OptimizerRun, value, conversation_id=value.conversation_id or None)
