"""Measure each memory's utility in the turns that included it, and propose which to drop: `cue.memory.utility`."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from statistics import fmean
from typing import Final, Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from cuebook.app.reports.prices import Prices
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.services import Services
from cuebook.engine.replay.memory_use import (
    ANSWER,
    LEAST_CALLS,
    MODEL,
    WORDS,
    Use,
    said_in,
    uses_by_asking,
    uses_by_words,
)
from cuebook.errors import BackendError, InvalidInput, NotFound
from cuebook.memory import scopes
from cuebook.memory.scopes import matter_of
from cuebook.memory.tokenizer import words
from cuebook.records.answer import Answer, as_answer
from cuebook.records.conversation import Conversation
from cuebook.records.expression import lowered
from cuebook.records.memory import NO_MODEL, NO_MODEL_LABEL, Memory, Scope
from cuebook.records.prompt import Version
from cuebook.records.turn import CacheEstimate, Turn
from cuebook.window.post_forms import whole
from cuebook.window.window import text_of

#: Default and maximum number of turns measured per conversation, newest first.
TURNS, MOST_TURNS = 50, 1_000
#: Maximum number of turns examined in all, newest first.
LOOKED_AT: Final = 2_000
#: Default budget of model calls; 0 = ask no model.
BUDGET: Final = 60
#: Minimum number of turns that include a memory before it counts as useless: fewer may all be about other topics.
SAID: Final = 10
#: Maximum number of turns in which a model is asked about a memory.
ENOUGH: Final = 3
#: A memory with at most this utility in every turn is proposed for deletion.
USELESS: Final = 0.05
#: Categories whose memories an answer can follow without repeating their words: words alone cannot prove them useless.
SILENT: Final = ("preferences", "user_preference", "decisions", "open_loops", "todo")
#: Kinds of facts that matter whenever they come up, however rarely: never proposed for deletion.
BOUND: Final = ("health", "diet", "identity")
#: Minimum number of words of an answer for a memory's words to count as missing in it.
LEAST_WORDS: Final = 3
#: Share of the shorter memory's words from which two memories count as duplicates.
_SAME: Final = 0.8
_PAGE = 50


#: Why a memory is proposed for deletion, or not.
Verdict = Literal["useful", "useless", "seldom", "silent", "bound", "written", "twin"]
#: The labels of these reasons.
VERDICTS: Final[dict[Verdict, str]] = {
    "useful": "useful",
    "useless": "not useful",
    "seldom": f"included in fewer than {SAID} measurable turns",
    "silent": "an answer may follow it without repeating its words",
    "bound": "matters whenever it comes up: health, diet, identity",
    "written": "written by hand",
    "twin": "its duplicates are dropped instead",
}


class Utility(Struct, frozen=True, kw_only=True):
    """A memory and its uses in the measured turns; `utility` is their mean, from 0 to 1.

    `said` counts the turns that include it, those that could not be measured too.
    """

    memory: Memory
    uses: tuple[Use, ...]
    said: int
    verdict: Verdict

    @property
    def utility(self) -> float:
        """The mean share of the answers that depended on it."""
        return fmean(each.score for each in self.uses)

    @property
    def prunes(self) -> bool:
        """Return whether the memory is proposed for deletion."""
        return self.verdict == "useless"


class Utilities(Struct, frozen=True, kw_only=True):
    """The measured memories, most useful first; `missed` counts turns with memories that were not measured."""

    items: tuple[Utility, ...]
    by: str
    turns: int
    calls: int = 0
    missed: dict[str, int] = {}


class MeasureCost(Answer, frozen=True, kw_only=True):
    """The cost of a measurement: model calls, their prompt tokens by our counter, and the maximum answer tokens.

    `costs` by currency, without caching; empty if the model's price is unknown or no model is asked.
    """

    model: str
    turns: int
    calls: int
    prompt_tokens: int
    answer_tokens: int
    costs: dict[str, float]

    @property
    def by(self) -> str:
        """The method of the measurement."""
        return MODEL if self.model else WORDS


class MeasuredUse(Answer, frozen=True, kw_only=True):
    """A turn whose prompt contained the memory, and the share of its answer due to it, from 0 to 1."""

    conversation_id: str
    turn: int
    score: float


class UsedMemory(Answer, frozen=True, kw_only=True):
    """A memory and its uses. `said` counts turns whose prompt contained it, `uses` how often it was newly selected.

    `verdict`: `useless` is proposed for deletion (`prune`); `useful`; or the reason to keep it: `seldom` in prompts,
    `silent` (an answer follows it without its words), `bound` (health, diet, identity), `written` manually, `twin`
    (duplicates are proposed instead).
    """

    memory_id: str
    category: str
    text: str
    uses: int
    utility: float
    turns: tuple[MeasuredUse, ...]
    said: int
    verdict: Verdict
    prune: bool


class MemoryUsefulness(Answer, frozen=True, kw_only=True):
    """Memories, most useful first. `missed`: turns that contain one and could not be measured, by reason.

    With `estimate` nothing was measured: `cost` has the maximum cost.
    """

    by: Literal["words", "model"]
    turns: int
    calls: int
    missed: dict[str, int]
    items: tuple[UsedMemory, ...]
    cost: MeasureCost | UnsetType = UNSET


async def leave_one_out(
    services: Services,
    conversations: Sequence[str] = (),
    *,
    user: str | None = None,
    turns: int = TURNS,
    budget: int = BUDGET,
) -> Utilities:
    """Measure memories on the last `turns` turns of the given conversations, or of all; with `user`, of their own.

    With a configured model and a `budget` of at least 3 calls, ask it, newest turns first, until the budget is used
    up; else compare with the actual answers. Stores only the audit records of the calls. Raises NotFound and
    InvalidInput.
    """
    measure = _Measure(services, Scope(user=user), budget)
    await measure.take_all(conversations, turns)
    return await measure.report()


async def cost_of(
    services: Services,
    prices: Prices,
    conversations: Sequence[str] = (),
    *,
    user: str | None = None,
    turns: int = TURNS,
    budget: int = BUDGET,
) -> MeasureCost:
    """Return the model calls and the maximum cost of `leave_one_out`, without calling. Raises the same errors."""
    reckoning = _Measure(services, Scope(user=user), budget, is_dry=True)
    await reckoning.take_all(conversations, turns)
    price = prices.of(services.model.name)
    cost = MeasureCost(
        model=services.model.name if reckoning.asks else "",
        turns=reckoning.turns,
        calls=sum(reckoning.prompts.values()),
        prompt_tokens=sum(tokens * many for tokens, many in reckoning.prompts.items()),
        answer_tokens=ANSWER * sum(reckoning.prompts.values()),
        costs={},
    )
    if price is None or not cost.calls:
        return cost
    spent = 0.0
    for tokens, many in reckoning.prompts.items():
        use = CacheEstimate(uncached=tokens)
        spent += many * (price.of(use, write=1.0) + price.of_output(ANSWER, use))
    return replace(cost, costs={price.currency: spent})


def reason_of(utilities: Utilities) -> str:
    """Return the reason for the receipt when the proposed memories are deleted."""
    return f"not useful in the turns that included it (leave one out, by {utilities.by})"


def usefulness_of(utilities: Utilities, cost: MeasureCost | None = None) -> MemoryUsefulness:
    """Return a measurement, or the cost of one, as an answer."""
    items = tuple(
        UsedMemory(
            memory_id=each.memory.id,
            category=each.memory.category,
            text=each.memory.text,
            uses=each.memory.uses,
            utility=round(each.utility, 4),
            turns=tuple(
                MeasuredUse(conversation_id=use.conversation, turn=use.turn, score=use.score) for use in each.uses
            ),
            said=each.said,
            verdict=each.verdict,
            prune=each.prunes,
        )
        for each in utilities.items
    )
    return as_answer(MemoryUsefulness, utilities, items=items, cost=cost or UNSET)


class _Measure:
    """A running measurement, which collects turns. A dry one counts the prompts by size instead of asking the model."""

    def __init__(self, services: Services, scope: Scope, budget: int, *, is_dry: bool = False) -> None:
        self._services, self._scope, self._budget = services, scope, budget
        self.asks = services.model.name != NO_MODEL and budget >= LEAST_CALLS
        self._uses: dict[str, list[Use]] = {}
        self._said: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()
        self.turns = self._calls = 0
        self._is_dry = is_dry
        self.prompts: Counter[int] = Counter()

    async def take_all(self, conversations: Sequence[str], turns: int) -> None:
        """Measure the last turns of the given conversations, or of all. Raises InvalidInput, NotFound."""
        if not 1 <= turns <= MOST_TURNS:
            msg = f"turns: {turns}. Must be between 1 and {MOST_TURNS}."
            raise InvalidInput(msg, where="turns")
        if not self.asks and self._budget and self._services.model.name != NO_MODEL:
            msg = f"budget: {self._budget} calls are too few. Use at least {LEAST_CALLS}, or 0 to ask no model."
            raise InvalidInput(msg, where="budget")
        async for conversation, turn in _recorded(self._services, self._scope, conversations, turns):
            await self.take(conversation, turn)

    async def take(self, conversation: Conversation, turn: Turn) -> None:
        """Measure a turn that includes memories."""
        lines = [each for each in dict.fromkeys(said_in(turn.steps[-1].manifest)) if await self._memory(each)]
        if not lines:
            return
        self._said.update(lines)
        try:
            uses = await self._ask(conversation, turn, lines) if self.asks else await self._read(conversation, turn)
        except NotFound:
            self._missed["something of it was erased"] += 1
            return
        except InvalidInput:
            self._missed["its window cannot be rebuilt"] += 1
            return
        except BackendError:
            self._missed["the model did not answer it"] += 1
            return
        self.turns += bool(uses)
        for use in uses:
            self._uses.setdefault(use.memory, []).append(use)

    async def report(self) -> Utilities:
        """Return the result."""
        if self._calls:
            context = {"turns": self.turns, "calls": self._calls, "memories": len(self._uses)}
            record = receipt(self._services, Version(slug="eval"), "leave-one-out", context=context)
            await self._services.audit.append(self._scope, [replace(record, selection=None)])
        items = []
        for id_, uses in self._uses.items():
            memory = await self._memory(id_)
            if memory is not None:
                said = self._said[id_]
                verdict = _verdict(memory, uses, said)
                items.append(Utility(memory=memory, uses=tuple(uses), said=said, verdict=verdict))
        items = _without_twins(items)
        items.sort(key=lambda each: (-each.utility, -len(each.uses), each.memory.no))
        by = MODEL if self.asks else WORDS
        return Utilities(items=tuple(items), by=by, turns=self.turns, calls=self._calls, missed=dict(self._missed))

    async def _read(self, conversation: Conversation, turn: Turn) -> list[Use]:
        if self._is_dry:
            return []
        if not turn.reply_seq:
            self._missed["it has no answer"] += 1
            return []
        [reply] = await self._services.store.posts_in(self._scope, conversation.id, [(turn.reply_seq, turn.reply_seq)])
        answer = reply.message or text_of(whole(reply, None))
        if answer.startswith(NO_MODEL_LABEL):
            self._missed["no model answered it: it quotes whatever was recalled"] += 1
            return []
        uses = await uses_by_words(self._services, self._scope, conversation, turn, answer)
        uses = [each for each in uses if await self._memory(each.memory)]
        if len(set(words(answer))) >= LEAST_WORDS:
            return uses
        scored = [each for each in uses if each.score]
        if uses and not scored:
            self._missed["its answer says too little"] += 1
        return scored

    async def _ask(self, conversation: Conversation, turn: Turn, values: Sequence[str]) -> list[Use]:
        left = self._budget - self._calls - 2
        wanted = [each for each in values if len(self._uses.get(each, ())) < ENOUGH][: max(0, left)]
        if not wanted:
            return []
        if len(turn.steps) > 1:
            self._missed["its model called tools"] += 1
            return []
        self._calls += 2 + len(wanted)
        if not self._is_dry:
            return await uses_by_asking(self._services, self._scope, conversation, turn, wanted)
        self.prompts[turn.steps[-1].manifest.tokens] += 2 + len(wanted)
        return [Use(memory=each, conversation=conversation.id, turn=turn.n, score=0.0, by=MODEL) for each in wanted]

    async def _memory(self, id_: str) -> Memory | None:
        """Return a stored memory, None if it is no longer valid."""
        memories = await self._services.store.memories.get(self._scope, id_)
        return next((each for each in memories if each.valid_to is None), None)


def _verdict(memory: Memory, uses: Sequence[Use], said: int) -> Verdict:
    by_words = any(each.by == WORDS for each in uses)
    if max(each.score for each in uses) > USELESS:
        return "useful"
    if memory.written:
        return "written"
    lower = lowered(memory.text)
    if matter_of(memory.text) in BOUND or scopes.BOUND.search(lower):
        return "bound"
    if by_words and memory.category in SILENT:
        return "silent"
    return "seldom" if said < SAID or len(uses) < (SAID if by_words else ENOUGH) else "useless"


def _without_twins(items: Sequence[Utility]) -> list[Utility]:
    """Keep the most confident of several duplicates: each seems useless while the others exist, but one is useful."""
    utilities = sorted(items, key=lambda each: (each.prunes, -each.memory.confidence, -each.memory.no))
    texts = [set(words(each.memory.text)) for each in utilities]
    remaining = [text for each, text in zip(utilities, texts, strict=True) if not each.prunes]
    for number, each in enumerate(utilities):
        if not each.prunes or any(_alike(texts[number], other) for other in remaining):
            continue
        if any(_alike(texts[number], other) for other in texts[number + 1 :]):
            utilities[number] = replace(each, verdict="twin")
            remaining.append(texts[number])
    return utilities


def _alike(one: set[str], other: set[str]) -> bool:
    return len(one & other) >= _SAME * max(1, min(len(one), len(other)))


async def _recorded(
    services: Services, scope: Scope, conversations: Sequence[str], turns: int
) -> AsyncIterator[tuple[Conversation, Turn]]:
    """Yield the newest turns of conversations, at most LOOKED_AT, except those visible only to another first user."""
    left = LOOKED_AT
    async for conversation in _named(services, scope, conversations):
        last = await _last(services, scope, conversation, min(turns, left))
        left -= len(last)
        for turn in last:
            yield conversation, turn
        if not left:
            return


async def _named(services: Services, scope: Scope, names: Sequence[str]) -> AsyncIterator[Conversation]:
    """Yield the given conversations, or all, the most recent first."""
    for name in dict.fromkeys(names):
        yield await services.store.conversation(scope, name)
    cursor, more = None, not names
    while more:
        page = await services.store.conversations(scope, limit=_PAGE, cursor=cursor)
        for conversation in page.items:
            yield conversation
        cursor, more = page.next, page.next is not None


async def _last(services: Services, scope: Scope, conversation: Conversation, turns: int) -> list[Turn]:
    if not conversation.turns or (scope.user is not None and conversation.user not in (None, scope.user)):
        return []
    found = await services.store.turns(scope, conversation.id, last=turns)
    return [each for each in reversed(found) if each.steps and each.state == "finished"]
