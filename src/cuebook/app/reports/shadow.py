"""Report shadow mode: compare what Cuebook would have sent with what clients sent, in tokens and cost."""

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from cuebook.app.arguments import Actor, User
from cuebook.app.namespace import Namespace
from cuebook.app.reports.prices import Prices, load_prices
from cuebook.app.reports.profiles import ProfileReport, Search, profile_report
from cuebook.config import Config
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.services import Services
from cuebook.engine.proxy.shadow import Shadow
from cuebook.memory.rolling import RELAY, choose, with_profile
from cuebook.operations import Argument, operation
from cuebook.records.answer import Answer
from cuebook.records.memory import Scope
from cuebook.records.prompt import Version
from cuebook.records.turn import CacheEstimate, ShadowedCall
from cuebook.window.models import RULES

#: Number of example posts missing from all prompts, and characters shown of each.
EXAMPLES, SHOWN = 5, 200
FREE = CacheEstimate()


class ModelCost(Struct, frozen=True, kw_only=True, rename="camel"):
    """The calls of one model. Costs are for input, computed with the cache rule; None without a price or a rule.

    `output_cost` is the same for both prompts; `reported_cost` covers the calls with usage from the provider.
    """

    model: str
    calls: int
    client_tokens: int
    window_tokens: int
    currency: str | None
    client_cost: float | None
    window_cost: float | None
    output_cost: float | None
    reported_cost: float | None


class Example(Struct, frozen=True, kw_only=True, rename="camel"):
    """A post that the client no longer sends (`gone`) or truncates, and that no Cuebook window contains."""

    conversation: str
    seq: int
    role: str
    why: str  # gone | cut short
    text: str


class ShadowReport(Answer, frozen=True, kw_only=True):
    """The figures of each profile, and the totals of all calls recorded in shadow mode.

    Posts are counted at each conversation's newest call. Tokens are by our counter, except the `reported` ones.
    """

    calls: int
    refused_calls: int  # calls that the upstream refused; not in any other figure, like the next
    unanswered_calls: int  # the upstream could not be reached, or the client left before its answer
    conversations: int
    lost: dict[str, int]  # forwarded calls that could not be recorded, by reason
    waiting: int  # calls not yet recorded by this process
    client_tokens: int
    window_tokens: int
    reported_calls: int
    reported_tokens: int  # input, as the provider counted it
    reported_cached: int
    output_tokens: int
    rules: list[str]
    client_read: int  # tokens that the client's own requests would read from the cache
    window_read: int
    prices_as_of: str
    models: list[ModelCost]
    posts: int
    neither: int
    client_alone: int
    condensed: int
    window_alone: int
    truncated: int
    examples: list[Example]
    parted_calls: int  # calls whose messages separate tool calls from their results
    added_ms_p50: float | None
    added_ms_p95: float | None
    profile: str  # the profile behind `/v1`: that of a running server, otherwise the configured one
    serving: bool  # whether a server of this database runs
    replay: ProfileReport  # the newest calls of any mode under each profile


class ProfileChoice(Answer, frozen=True, kw_only=True):
    """The summarization profile behind `/v1`, and the one before the change."""

    profile: str
    before: str


class ShadowCall(Struct, frozen=True, kw_only=True, rename="camel"):
    """A call recorded in shadow mode, and its cost."""

    call: ShadowedCall
    cost: ModelCost


class ShadowCalls(Namespace):
    """The calls recorded in shadow mode."""

    def __init__(
        self, services: Services, config: Config, shadow: Shadow | None, search: Search, *, peers: Sequence[Services]
    ) -> None:
        """`peers` are all services of the caller's tenant, those of background jobs too."""
        super().__init__(services)
        self._peers = peers
        self._search = search
        self._config = config
        self._shadow = shadow

    @operation(
        "GET /api/shadow",
        role="viewer",
        cli="shadow report",
        examples=("cuebook shadow report", "cuebook shadow report --conversation c1 --json"),
    )
    async def report(
        self,
        conversation: Annotated[
            str | None,
            Meta(min_length=1, description="Report on this conversation. Default: all conversations."),
            Argument(flag="conversation", metavar="ID"),
        ] = None,
        *,
        user: User = None,
    ) -> ShadowReport:
        """Return what each summarization profile would have sent, and the totals of shadow calls.

        The newest calls are replayed under each profile: tokens, cost, summarized messages, and their recall. The
        totals are those of shadow mode: tokens, cost, added latency, and posts that either prompt lacks. Raises
        NotFound, and InvalidInput for an unreadable price file of the project.
        """
        scope, shadow = Scope(user=user), self._shadow
        passed = await self._services.store.talks.shadow_calls(scope, conversation)
        calls = _answered(passed)
        prices = await asyncio.to_thread(load_prices, self._config)
        profile, serving = await self._profile_in_use()
        newest = list({call.conversation: call for call in calls}.values())
        reported = [call.usage for call in calls if call.usage is not None and call.usage.input is not None]
        added = sorted(call.entry.added_ms for call in calls)
        models = sorted({call.entry.model for call in calls})
        own_lost = shadow.lost if shadow is not None and conversation is None and user is None else {}
        lost = sum((Counter(call.entry.lost) for call in passed), Counter(own_lost))
        truncated = {(call.conversation, seq) for call in calls for seq in call.entry.truncated_seqs}
        return ShadowReport(
            calls=len(calls),
            refused_calls=sum(1 for call in passed if call.entry.refused),
            unanswered_calls=sum(1 for call in passed if call.entry.unanswered),
            conversations=len(newest),
            lost=dict(lost),
            waiting=shadow.waiting if shadow is not None else 0,
            client_tokens=sum(call.entry.client_tokens for call in calls),
            window_tokens=sum(call.entry.window_tokens for call in calls),
            reported_calls=len(reported),
            reported_tokens=sum(usage.input or 0 for usage in reported),
            reported_cached=sum(usage.cache_read or 0 for usage in reported),
            output_tokens=sum(map(_output, calls)),
            rules=sorted({call.entry.rule for call in calls} - {""}),
            client_read=sum(call.entry.client.read for call in calls if call.entry.client),
            window_read=sum(call.entry.ours.read for call in calls if call.entry.ours),
            prices_as_of=prices.as_of,
            models=[_cost(model, [each for each in calls if each.entry.model == model], prices) for model in models],
            posts=sum(call.entry.path for call in newest),
            neither=sum(call.entry.neither for call in newest),
            client_alone=sum(call.entry.client_alone for call in newest),
            condensed=sum(call.entry.condensed for call in newest),
            window_alone=sum(call.entry.ours_alone for call in newest),
            truncated=len(truncated),
            examples=await self._examples(scope, newest, sorted(truncated)),
            parted_calls=sum(1 for call in calls if call.entry.parted),
            added_ms_p50=_percentile(added, 0.5),
            added_ms_p95=_percentile(added, 0.95),
            profile=profile,
            serving=serving,
            replay=await profile_report(self._services, self._config, scope, conversation, search=self._search),
        )

    @operation(
        "PUT /api/shadow/profile",
        role="owner",
    )
    async def use_profile(
        self,
        profile: Annotated[str, Meta(min_length=1, description="Summarization profile, such as fit or budget.")],
        *,
        by: Actor = "",
    ) -> ProfileChoice:
        """Use a summarization profile for all conversations at once, until this server restarts.

        To keep it, set `profile` under `[memory]`. The audit log records the change. Raises InvalidInput.
        """
        services = self._services
        compaction = with_profile(services.settings.compaction, profile, where="profile")
        before = self.profile
        record = receipt(services, Version(slug="memory.profile"), "profile", agent=by,
                         context={"profile": profile, "before": before})  # fmt: skip
        await services.audit.append(Scope(), [record])
        for each in self._peers:
            each.settings = replace(each.settings, compaction=compaction, profile=profile)
        if services.store.announces:
            await self.announce()
        services.notify_jobs()
        return ProfileChoice(profile=profile, before=before)

    @property
    def profile(self) -> str:
        """The summarization profile behind `/v1` in this process."""
        return choose(self._services.settings.compaction, RELAY).id

    async def announce(self) -> None:
        """Let reports of other processes show the profile that this process uses. A server calls it when it starts."""
        await self._services.store.announce(self.profile)

    async def calls(self, conversation: str | None = None, *, user: str | None = None) -> list[ShadowCall]:
        """Return the answered calls of a conversation, or of all that the caller takes part in, oldest first.

        Raises NotFound, and InvalidInput for an unreadable price file of the project.
        """
        shadowed_calls = await self._services.store.talks.shadow_calls(Scope(user=user), conversation)
        prices = await asyncio.to_thread(load_prices, self._config)
        return [
            ShadowCall(call=each, cost=_cost(each.entry.model, [each], prices)) for each in _answered(shadowed_calls)
        ]

    async def _profile_in_use(self) -> tuple[str, bool]:
        """Return the profile behind `/v1`, and whether a server uses it."""
        store, profiles = self._services.store, self._services.settings.compaction.profiles
        if not store.announces:
            for profile in await store.announced():
                if profile in profiles:
                    return profile, True
        return self.profile, store.announces

    async def _examples(
        self, scope: Scope, newest: Sequence[ShadowedCall], truncated: Sequence[tuple[str, int]]
    ) -> list[Example]:
        gone = [(call.conversation, seq, "gone") for call in reversed(newest) for seq in call.entry.neither_seqs]
        cut = [(conversation, seq, "cut short") for conversation, seq in truncated]
        examples: list[Example] = []
        for conversation, seq, why in [*gone[:EXAMPLES], *cut][:EXAMPLES]:
            for post in await self._services.store.posts_in(scope, conversation, [(seq, seq)]):
                text = (post.message or "")[:SHOWN]
                examples.append(Example(conversation=conversation, seq=seq, role=post.role, why=why, text=text))
        return examples


def _answered(calls: Sequence[ShadowedCall]) -> list[ShadowedCall]:
    return [call for call in calls if not (call.entry.refused or call.entry.unanswered)]


def _output(call: ShadowedCall) -> int:
    counted = call.usage.output if call.usage is not None else None
    return call.reply_tokens if counted is None else counted


def _cost(model: str, calls: Sequence[ShadowedCall], prices: Prices) -> ModelCost:
    price = prices.of(model)
    client = window = output = reported = None
    if price is not None:
        if all(call.entry.rule for call in calls):
            client = sum(price.of(call.entry.client or FREE, write=_write(call.entry.rule)) for call in calls)
            window = sum(price.of(call.entry.ours or FREE, write=_write(call.entry.rule)) for call in calls)
        output = sum(price.of_output(_output(call), call.entry.client or FREE) for call in calls)
        counted = [usage for call in calls if (usage := call.usage) is not None and usage.input is not None]
        if counted:
            read = [(usage.input or 0, usage.cache_read or 0) for usage in counted]
            reported = sum(price.of(CacheEstimate(tokens - cached, cached), write=1.0) for tokens, cached in read)
    return ModelCost(
        model=model,
        calls=len(calls),
        client_tokens=sum(call.entry.client_tokens for call in calls),
        window_tokens=sum(call.entry.window_tokens for call in calls),
        currency=price.currency if price is not None else None,
        client_cost=client,
        window_cost=window,
        output_cost=output,
        reported_cost=reported,
    )


def _write(rule: str) -> float:
    return RULES[rule].write if rule in RULES else 1.0


def _percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the nearest-rank percentile of sorted values; None if there are none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None
