"""Measure each memory's utility in the turns that included it, and propose which to drop: `cue.memory.utility`."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from statistics import fmean
from typing import Final, Literal

from msgspec import UNSET, UnsetType

from cuebook.app.reports.prices import Prices
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.services import Services
from cuebook.engine.replay.memory_use import ANSWER, LEAST_CALLS, said_in, scores_by_asking, scores_by_words
from cuebook.errors import BackendError, InvalidInput, NotFound
from cuebook.memory import scopes
from cuebook.memory.scopes import matter_of
from cuebook.memory.tokenizer import words
from cuebook.records.answer import Answer, as_answer
from cuebook.records.conversation import Conversation, is_guest
from cuebook.records.expression import lowered
from cuebook.records.memory import NO_MODEL, NO_MODEL_LABEL, Memory, Scope
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


class MeasuredUse(Answer, frozen=True, kw_only=True):
    """A turn whose prompt contained the memory, and the share of its answer due to it, from 0 to 1."""

    conversation_id: str
    turn: int
    score: float


class UsedMemory(Answer, frozen=True, kw_only=True):
    """A memory and its uses. `said` counts turns whose prompt contained it, `uses` how often it was newly selected.

    `utility` is the mean of the measured `turns`. `verdict`: `useless` is proposed for deletion (`prune`); `useful`; or
    the reason to keep it: `seldom` in prompts, `silent` (an answer follows it without its words), `bound` (health,
    diet, identity), `written` manually, `twin` (duplicates are proposed instead).
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


class Measure:
    """A measurement, which collects turns. A dry one counts the prompts by size instead of asking the model.

    With a configured model and a `budget` of at least 3 calls, it asks the model, newest turns first, until the budget
    is used up; else it compares with the actual answers. It stores only the audit record of the calls.
    """

    def __init__(self, services: Services, scope: Scope, budget: int, *, is_dry: bool = False) -> None:
        self._services, self._scope, self._budget = services, scope, budget
        self._asks = services.model.name != NO_MODEL and budget >= LEAST_CALLS
        self._by: Literal["model", "words"] = "model" if self._asks else "words"
        self._uses: dict[str, list[MeasuredUse]] = {}
        self._said: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()
        self._turns = self._calls = 0
        self._is_dry = is_dry
        self._prompts: Counter[int] = Counter()

    async def take_all(self, conversations: Sequence[str], turns: int) -> None:
        """Measure the last turns of the given conversations, or of all. Raises InvalidInput, NotFound."""
        if not 1 <= turns <= MOST_TURNS:
            msg = f"turns: {turns}. Must be between 1 and {MOST_TURNS}."
            raise InvalidInput(msg, where="turns")
        if not self._asks and self._budget and self._services.model.name != NO_MODEL:
            msg = f"budget: {self._budget} calls are too few. Use at least {LEAST_CALLS}, or 0 to ask no model."
            raise InvalidInput(msg, where="budget")
        async for conversation, turn in _recorded(self._services, self._scope, conversations, turns):
            try:
                await self._take(conversation, turn)
            except NotFound:
                self._missed["something of it was erased"] += 1
            except InvalidInput:
                self._missed["its window cannot be rebuilt"] += 1
            except BackendError:
                self._missed["the model did not answer it"] += 1

    async def _take(self, conversation: Conversation, turn: Turn) -> None:
        lines = [each for each in dict.fromkeys(said_in(turn.steps[-1].manifest)) if await self._memory(each)]
        if not lines:
            return
        self._said.update(lines)
        scores = await self._ask(conversation, turn, lines) if self._asks else await self._read(conversation, turn)
        self._turns += bool(scores)
        for memory, score in scores.items():
            use = MeasuredUse(conversation_id=conversation.id, turn=turn.n, score=round(score, 4))
            self._uses.setdefault(memory, []).append(use)

    async def report(self, may_know: Callable[[Memory], bool]) -> MemoryUsefulness:
        """Return the memories that the caller may know."""
        if self._calls:
            context = {"turns": self._turns, "calls": self._calls, "memories": len(self._uses)}
            record = receipt(self._services, "eval", "leave-one-out", context=context)
            await self._services.audit.append(self._scope, [record])
        found = [(await self._memory(name), uses) for name, uses in self._uses.items()]
        known = [(memory, uses) for memory, uses in found if memory is not None]
        verdicts = {each.id: self._verdict(each, uses) for each, uses in known}
        _keep_one_of_twins([each for each, _ in known], verdicts)
        known.sort(key=lambda each: (-_mean(each[1]), -len(each[1]), each[0].no))
        items = [
            as_answer(
                UsedMemory,
                memory,
                memory_id=memory.id,
                utility=round(_mean(uses), 4),
                turns=tuple(uses),
                said=self._said[memory.id],
                verdict=verdicts[memory.id],
                prune=verdicts[memory.id] == "useless",
            )
            for memory, uses in known
            if may_know(memory)
        ]
        return MemoryUsefulness(
            by=self._by,
            turns=self._turns,
            calls=self._calls,
            missed=dict(self._missed),
            items=tuple(items),
        )

    def estimate(self, prices: Prices) -> MemoryUsefulness:
        """Return the model calls and their maximum cost."""
        calls, costs = self._prompts.total(), {}
        price = prices.of(self._services.model.name)
        if price is not None and calls:
            uses = [(CacheEstimate(uncached=tokens), many) for tokens, many in self._prompts.items()]
            spent = sum(many * (price.of(use, write=1.0) + price.of_output(ANSWER, use)) for use, many in uses)
            costs = {price.currency: spent}
        cost = MeasureCost(
            model=self._services.model.name if self._asks else "",
            turns=self._turns,
            calls=calls,
            prompt_tokens=sum(tokens * many for tokens, many in self._prompts.items()),
            answer_tokens=ANSWER * calls,
            costs=costs,
        )
        return MemoryUsefulness(by=self._by, turns=self._turns, calls=0, missed={}, items=(), cost=cost)

    async def _read(self, conversation: Conversation, turn: Turn) -> dict[str, float]:
        if self._is_dry:
            return {}
        if not turn.reply_seq:
            self._missed["it has no answer"] += 1
            return {}
        [reply] = await self._services.store.posts_in(self._scope, conversation.id, [(turn.reply_seq, turn.reply_seq)])
        answer = reply.message or text_of(whole(reply, None))
        if answer.startswith(NO_MODEL_LABEL):
            self._missed["no model answered it: it quotes whatever was recalled"] += 1
            return {}
        scores = await scores_by_words(self._services, self._scope, conversation, turn, answer)
        scores = {name: score for name, score in scores.items() if await self._memory(name)}
        if len(set(words(answer))) >= LEAST_WORDS:
            return scores
        if scores and not any(scores.values()):
            self._missed["its answer says too little"] += 1
        return {name: score for name, score in scores.items() if score}

    async def _ask(self, conversation: Conversation, turn: Turn, values: Sequence[str]) -> dict[str, float]:
        left = self._budget - self._calls - 2
        wanted = [each for each in values if len(self._uses.get(each, ())) < ENOUGH][: max(0, left)]
        if not wanted:
            return {}
        if len(turn.steps) > 1:
            self._missed["its model called tools"] += 1
            return {}
        self._calls += 2 + len(wanted)
        if not self._is_dry:
            return await scores_by_asking(self._services, self._scope, conversation, turn, wanted)
        self._prompts[turn.steps[-1].manifest.tokens] += 2 + len(wanted)
        return dict.fromkeys(wanted, 0.0)

    async def _memory(self, id_: str) -> Memory | None:
        """Return a stored memory, None if it is no longer valid."""
        memories = await self._services.store.memories.get(self._scope, id_)
        return next((each for each in memories if each.valid_to is None), None)

    def _verdict(self, memory: Memory, uses: Sequence[MeasuredUse]) -> Verdict:
        if max(each.score for each in uses) > USELESS:
            return "useful"
        if memory.written:
            return "written"
        if matter_of(memory.text) in BOUND or scopes.BOUND.search(lowered(memory.text)):
            return "bound"
        if not self._asks and memory.category in SILENT:
            return "silent"
        return "seldom" if self._said[memory.id] < SAID or len(uses) < (ENOUGH if self._asks else SAID) else "useless"


def _mean(uses: Sequence[MeasuredUse]) -> float:
    return fmean(each.score for each in uses)


def _keep_one_of_twins(memories: Sequence[Memory], verdicts: dict[str, Verdict]) -> None:
    """Keep the most confident of several duplicates: each seems useless while the others exist, but one is useful."""
    useless = [each for each in memories if verdicts[each.id] == "useless"]
    useless.sort(key=lambda each: (-each.confidence, -each.no))
    texts = [set(words(each.text)) for each in useless]
    remaining = [set(words(each.text)) for each in memories if verdicts[each.id] != "useless"]
    for number, (each, text) in enumerate(zip(useless, texts, strict=True)):
        if not any(_alike(text, other) for other in remaining) and any(
            _alike(text, other) for other in texts[number + 1 :]
        ):
            verdicts[each.id] = "twin"
            remaining.append(text)


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
    if not conversation.turns or is_guest(conversation, scope.user):
        return []
    found = await services.store.turns(scope, conversation.id, last=turns)
    return [each for each in reversed(found) if each.steps and each.state == "finished"]
