"""Replay recorded calls under each summarization profile: the tokens, cache use and summary that each would have had.

Only calls whose client sent its own history are replayed. Summaries are quotes, as without a model, and a pass runs
before the first call for which it is due. Windows are built again as for a what-if question.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from cuebook.app.reports.prices import Prices, load_prices
from cuebook.config import Config
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.compaction import by_quotes, next_pass
from cuebook.engine.replay.recorded_turn import RecordedTurn, plan_again, read_recorded
from cuebook.engine.turn.compare import chunks_of
from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.store import CompactionInput
from cuebook.memory.evidence import DEPTH, answered, clozes, recall
from cuebook.memory.rolling import LOOKAHEAD, CompactionProfile, due
from cuebook.records.answer import added
from cuebook.records.conversation import Conversation, Post
from cuebook.records.memory import Hit, Item, Scope, Summary
from cuebook.records.turn import CLIENT, CacheEstimate, Turn
from cuebook.window.budget import allot
from cuebook.window.cache import CacheSimulator
from cuebook.window.models import CacheRule, rule_for
from cuebook.window.partition import reach

Search = Callable[..., Awaitable[Sequence[Hit]]]
#: Newest calls that a report replays, and the conversations of a page of them.
CALLS: Final = 300
_PAGE: Final = 50
#: Seconds that a replayed call yields to calls waiting for their first token.
MAX_WAIT_S: Final = 0.25
#: Questions about the summarized messages of one conversation.
QUESTIONS: Final = 20
#: Conversations whose figures are cached.
_CACHED: Final = 200


class ProfileFigures(Struct, frozen=True, kw_only=True, rename="camel"):
    """The replayed calls under one profile. `costs` of the input by currency, for the calls of models with a price.

    `client_tokens` are those of the client's own messages. `recall`: the share of tested statements in summarized
    messages whose message is among the first ten that a search finds; None without statements.
    """

    profile: str
    calls: int = 0
    client_tokens: int = 0
    tokens: int = 0
    cache_read: int = 0
    costs: dict[str, float] = {}
    summarized_messages: int = 0
    summarized_tokens: int = 0
    summary_tokens: int = 0
    questions: int = 0
    recall: float | None = None

    def plus(self, other: "ProfileFigures") -> "ProfileFigures":
        """Return the sum with another conversation's figures."""
        hits = (self.recall or 0.0) * self.questions + (other.recall or 0.0) * other.questions
        asked = self.questions + other.questions
        return added(self, other, profile=self.profile, recall=hits / asked if asked else None)


class ProfileReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """The figures of each profile. `left_out` counts calls that could not be replayed; `unpriced` names models."""

    profiles: tuple[ProfileFigures, ...] = ()
    left_out: int = 0
    unpriced: tuple[str, ...] = ()
    uncached: tuple[str, ...] = ()  # models without a cache rule: each token has the full price

    def plus(self, other: "ProfileReport") -> "ProfileReport":
        """Return the sum with another conversation's report."""
        if not self.profiles:
            return other
        return ProfileReport(
            profiles=tuple(one.plus(two) for one, two in zip(self.profiles, other.profiles, strict=True)),
            left_out=self.left_out + other.left_out,
            unpriced=tuple(sorted({*self.unpriced, *other.unpriced})),
            uncached=tuple(sorted({*self.uncached, *other.uncached})),
        )


class CachedReports(Struct):
    """The reports of conversations in this process, each with the state that it was computed from."""

    reports: dict[int, tuple[object, ProfileReport]] = {}  # by the conversation's row number
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one replay at a time


async def profile_report(
    services: Services, config: Config, scope: Scope, conversation: str | None, *, search: Search
) -> ProfileReport:
    """Replay the newest calls of a conversation, or of all that the caller takes part in, under each profile.

    `search` is that of `cue.memory`. Raises NotFound, and InvalidInput for an unreadable price file of the project.
    """
    prices = await asyncio.to_thread(load_prices, config)
    cached = services.caches.progress_of(CachedReports)
    total, left = ProfileReport(), CALLS
    async with cached.lock:
        for each in await _conversations(services, scope, conversation):
            replay = _ConversationReplay(services, config, scope, each, prices=prices, search=search)
            try:
                report = await replay.report(cached.reports, left)
            except NotFound:  # it was deleted meanwhile
                if conversation is not None:
                    raise
                continue
            left -= report.left_out + max((figures.calls for figures in report.profiles), default=0)
            total = total.plus(report)
            if left <= 0:
                break
    return total


async def _conversations(services: Services, scope: Scope, conversation: str | None) -> Sequence[Conversation]:
    if conversation is not None:
        return [await services.store.conversation(scope, conversation)]
    page = await services.store.conversations(scope, limit=_PAGE)
    return [each for each in page.items if each.turns]


class _ProfilePass(Struct, frozen=True):
    """A summarization pass: its summary, and the conversation's items after it."""

    summary: Summary
    items: list[Item]


class _ProfileState(Struct, kw_only=True):
    """A profile's passes over a conversation so far, and its simulated provider caches by model."""

    profile: CompactionProfile
    figures: ProfileFigures
    passes: list[_ProfilePass] = field(default_factory=list)  # on all branches
    shown: Summary | None = None  # that of the last window
    summarized: dict[int, Post] = field(default_factory=dict)  # by seq
    last_at: float = 0.0
    caches: dict[str, CacheSimulator] = field(default_factory=dict)

    def newest(self, path: Sequence[Post]) -> _ProfilePass | None:
        """Return the newest pass whose summary ends on a path."""
        seqs = {post.seq for post in path}
        return next((each for each in reversed(self.passes) if each.summary.upto_seq in seqs), None)


class _ConversationReplay:
    """Replays the calls of one conversation."""

    def __init__(
        self,
        services: Services,
        config: Config,
        scope: Scope,
        conversation: Conversation,
        *,
        prices: Prices,
        search: Search,
    ) -> None:
        self._services, self._config, self._scope = services, config, scope
        self._conversation, self._prices, self._search = conversation, prices, search
        self._posts: dict[int, Post] = {}  # of all branches, by seq
        self._unpriced: set[str] = set()
        self._uncached: set[str] = set()

    async def report(self, cached: dict[int, tuple[object, ProfileReport]], most: int) -> ProfileReport:
        """Return the figures of the newest `most` calls, from the cache if nothing has changed. Raises NotFound."""
        turns, known = (
            await self._services.store.turns(self._scope, self._conversation.id, last=most),
            self._conversation,
        )
        profiles = self._services.settings.compaction.profiles
        state = (known.generation, known.updated_at, len(turns), profiles, self._prices)
        entry = cached.pop(known.no, None)
        cached[known.no] = entry if entry and entry[0] == state else (state, await self._run(turns, most))
        while len(cached) > _CACHED:
            del cached[next(iter(cached))]
        return cached[known.no][1]

    async def _run(self, turns: Sequence[Turn], most: int) -> ProfileReport:
        """Replay the newest `most` calls of some turns, oldest first. Calls of clients go first."""
        posts = await self._services.store.posts(self._scope, self._conversation.id, path=False)
        self._posts = {post.seq: post for post in posts}
        calls = [(turn, step.n) for turn in turns for step in turn.steps if step.state in ("finished", "interrupted")]
        profiles = self._services.settings.compaction.profiles.values()
        states = [_ProfileState(profile=each, figures=ProfileFigures(profile=each.id)) for each in profiles]
        left_out = 0
        for turn, step in calls[-most:]:
            await self._services.foreground.wait_until_free(MAX_WAIT_S)
            try:
                recorded = await read_recorded(self._services, self._scope, self._conversation, turn, step=step)
            except NotFound:  # a part of its window was erased
                left_out += 1
                continue
            if not recorded.request.listed:
                left_out += 1
                continue
            query, path = turn.query_seq, recorded.request.path
            before = [self._posts[post.seq] for post in path if post.seq < query and post.seq in self._posts]
            for state in states:
                await self._summarize(state, recorded, before)
                await asyncio.sleep(0)  # a window takes up to 20 ms: do not block others
                self._plan(state, recorded, before)
        return ProfileReport(
            profiles=tuple([await self._finished(state) for state in states]),
            left_out=left_out,
            unpriced=tuple(sorted(self._unpriced)),
            uncached=tuple(sorted(self._uncached)),
        )

    async def _summarize(self, state: _ProfileState, recorded: RecordedTurn, path: Sequence[Post]) -> None:
        """Run the passes that are due before a call over the path before its query."""
        limits, now = recorded.request.limits.limits, recorded.turn.created_at
        last = state.newest(path)
        ahead = [post for post in path if last is None or post.seq > last.summary.upto_seq]
        while ahead:
            verdict = due(
                state.profile,
                backlog=len(ahead),
                backlog_tokens=sum(post.tokens for post in ahead),
                room=allot(limits, front=0, listed=True).posts,
                trigger_ratio=limits.trigger,
                now=now,
                last_at=state.last_at,
                not_before=0.0,
            )
            source = CompactionInput(
                conversation=replace(self._conversation, backlog=len(ahead)),
                scope=self._scope,
                posts=tuple(ahead[: state.profile.most + state.profile.tail + LOOKAHEAD]),
                previous=last.summary if last else None,
                items=tuple(last.items) if last else (),
                before=self._posts[last.summary.upto_seq] if last else None,
                speakers=tuple(dict.fromkeys(post.sender for post in self._posts.values())),
            )
            planned = next_pass(self._services, source, state.profile) if verdict == "due" else None
            if planned is None:
                return
            values = (planned, self._services.count, self._services.clock.now())
            summary, (kept, added) = await self._services.offload.compute(by_quotes, *values)
            last = _ProfilePass(summary, [*kept, *added])
            state.passes.append(last)
            state.last_at = now
            state.summarized |= {post.seq: post for post in planned.posts}
            ahead = ahead[len(planned.posts) :]

    def _plan(self, state: _ProfileState, recorded: RecordedTurn, before: Sequence[Post]) -> None:
        """Build a call's window with the profile's summary, and add its tokens and its cost."""
        if not self._serves(state, recorded, before):
            newest = state.newest(before)
            state.shown = newest.summary if newest else None
        changed = replace(
            recorded,
            scene=replace(recorded.scene, summary=state.shown),
            request=replace(recorded.request, keeps_all=state.profile.trigger == "overflow"),
        )
        try:
            window = plan_again(self._services, changed).window
        except InvalidInput:  # no window of this call fits: it was not sent either
            return
        manifest, model = recorded.manifest, model_of(recorded.turn)
        own = sum(text.tokens for text in manifest.front if text.source == CLIENT)
        rule = self._rule(model)
        cache = CacheEstimate(uncached=window.tokens)
        if rule is not None:
            simulator = state.caches.setdefault(model, CacheSimulator(rule))
            use = simulator.request(chunks_of(window, tools=recorded.request.tools), recorded.turn.created_at)
            cache = CacheEstimate(use.uncached_tokens, use.read_tokens, use.write_tokens)
        price = self._prices.of(model)
        if price is None:
            self._unpriced.add(model)
        elif rule is None:
            self._uncached.add(model)
        call = ProfileFigures(
            profile=state.profile.id,
            calls=1,
            client_tokens=sum(post.tokens for post in recorded.request.path) + own + manifest.tools_tokens,
            tokens=window.tokens,
            cache_read=cache.read,
            costs={} if price is None else {price.currency: price.of(cache, write=rule.write if rule else 1.0)},
        )
        state.figures = state.figures.plus(call)

    def _serves(self, state: _ProfileState, recorded: RecordedTurn, path: Sequence[Post]) -> bool:
        """Return whether the last window's summary is used again (`storage.reads.read_mark`)."""
        profile, mark = state.profile, state.shown.upto_seq if state.shown else 0
        if profile.trigger != "posts" or all(post.seq != mark for post in path):
            return False
        after = [post.tokens for post in path if post.seq > mark]
        far = reach(recorded.request.limits.limits, recorded.request.token_budget)
        return len(after) <= profile.tail + profile.most and sum(after) <= far.full // 2

    def _rule(self, model: str) -> CacheRule | None:
        if self._services.settings.cache_rule is None:
            return None
        return rule_for(model, self._config.settings.upstream.url) or self._services.settings.cache_rule

    async def _finished(self, state: _ProfileState) -> ProfileFigures:
        """Return a profile's figures with what it summarized at the end, and the recall of that.

        Recall is measured as by `cuebook eval`, on statements of the user.
        """
        conversation, user = self._conversation.id, self._scope.user
        questions = list(clozes([(post.id, post.message) for post in state.summarized.values() if post.role == "user"]))
        step = -(-len(questions) // QUESTIONS) or 1
        shares = [
            answered(each, await self._search(each.text, conversation=conversation, user=user, limit=DEPTH))
            for each in questions[::step]
        ]
        found = recall("cloze", shares, there_are=len(questions))
        return replace(
            state.figures,
            summarized_messages=len(state.summarized),
            summarized_tokens=sum(post.tokens for post in state.summarized.values()),
            summary_tokens=self._services.count(state.passes[-1].summary.markdown) if state.passes else 0,
            questions=found.questions,
            recall=found.at10,
        )


def model_of(turn: Turn) -> str:
    """Return the model that answered a turn, as the provider or else the client named it, "" if unknown."""
    named: Mapping[str, str] = turn.metadata.get("answer") or {}
    asked: Mapping[str, str] = (turn.metadata.get("window") or {}).get("context") or {}
    return named.get("model") or asked.get("model") or ""
