"""Of what use each memory was in the turns that said it, and which to let go: `book.memory.utility`."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from statistics import fmean
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.shapes import Wire
from cuebook.assembly.forms import whole
from cuebook.assembly.readable import text_of
from cuebook.engine.desk import Desk
from cuebook.engine.receipts import receipt
from cuebook.engine.utility import LEAST_CALLS, MODEL, WORDS, Use, said_in, uses_by_asking, uses_by_words
from cuebook.errors import BackendError, InvalidInput, NotFound
from cuebook.memory.personal import PERSONAL, matter_of
from cuebook.memory.words import words
from cuebook.records.conversation import Conversation
from cuebook.records.expression import lowered
from cuebook.records.memory import NO_MODEL, NO_MODEL_LABEL, Memory, Scope
from cuebook.records.prompt import Version
from cuebook.records.turn import Turn

#: Newest turns of each conversation that are measured, and the most there may be.
TURNS, MOST_TURNS = 50, 1_000
#: Newest turns of the book that are looked at where no conversation is named.
LOOKED_AT: Final = 2_000
#: Calls of the model that a measure may take unless said otherwise; 0 = none is asked.
BUDGET: Final = 60
#: Turns that must say a memory before it is judged to be of no use: fewer may all have been about something else.
SAID: Final = 10
#: Turns in which a model is asked about a memory.
ENOUGH: Final = 3
#: A memory of no more use than this in any turn is proposed to be let go.
USELESS: Final = 0.05
#: What an answer follows, or waits for its day, without repeating its words; words alone say nothing against it.
SILENT: Final = ("preferences", "user_preference", "decisions", "open_loops", "todo")
#: What somebody is or may not: it matters when it comes up, however seldom, and is never proposed.
BOUND: Final = ("health", "diet", "identity")
#: Words of an answer that say enough for those of a memory to be missed in it; a shorter one still may hold them.
LEAST_WORDS: Final = 3
#: Share of the words of the shorter of two memories that say the same.
_SAME: Final = 0.8
_PAGE = 50


#: Why a memory is proposed to be let go, or not.
Verdict = Literal["useful", "useless", "seldom", "silent", "bound", "written", "twin"]
#: The same in words.
VERDICTS: Final[dict[Verdict, str]] = {
    "useful": "of use",
    "useless": "of no use",
    "seldom": f"said in fewer than {SAID} turns that can tell",
    "silent": "an answer may follow it without a word of it",
    "bound": "it matters when it comes up: health, diet, who somebody is",
    "written": "written by hand",
    "twin": "others that say the same are let go",
}


class Utility(Struct, frozen=True, kw_only=True):
    """A memory and its uses in the turns measured; `utility` is their mean, from 0 to 1.

    `said` counts the turns that say it, those that could not be measured too.
    """

    memory: Memory
    uses: tuple[Use, ...]
    said: int
    verdict: Verdict

    @property
    def utility(self) -> float:
        """How much of the answers came of it."""
        return fmean(each.score for each in self.uses)

    @property
    def prunes(self) -> bool:
        """Whether it is proposed to be let go."""
        return self.verdict == "useless"


class Utilities(Struct, frozen=True, kw_only=True):
    """What a measure found, the most useful first; `missed` counts turns that say a memory and were not measured."""

    items: tuple[Utility, ...]
    by: str
    turns: int
    calls: int = 0
    missed: dict[str, int] = {}


async def leave_one_out(
    desk: Desk, conversations: Sequence[str] = (), *, user: str | None = None, turns: int = TURNS, budget: int = BUDGET
) -> Utilities:
    """Measure memories on the last `turns` of the conversations named, or of all; of a user's only with `user`.

    With a configured model and a `budget` of at least 3 calls by asking it, newest turns first, until that is used up;
    else by the answers that were given. Nothing is stored but the audit's record that it was asked. Raises NotFound
    and InvalidInput.
    """
    if not 1 <= turns <= MOST_TURNS:
        msg = f"turns: {turns} is not between 1 and {MOST_TURNS}"
        raise InvalidInput(msg, where="turns")
    measure = _Measure(desk, Scope(user=user), budget)
    if not measure.asks and budget and desk.model.name != NO_MODEL:
        msg = f"budget: {budget} calls are too few: a turn takes {LEAST_CALLS}; 0 asks no model"
        raise InvalidInput(msg, where="budget")
    async for conversation, turn in _recorded(desk, Scope(user=user), conversations, turns):
        await measure.take(conversation, turn)
    return await measure.report()


def reason_of(found: Utilities) -> str:
    """Give why what a measure proposes is forgotten, for the receipt."""
    return f"of no use in the turns that said it (leave one out, by {found.by})"


def to_wire(found: Utilities) -> Wire:
    """Give it as JSON."""
    return {
        "by": found.by,
        "turns": found.turns,
        "calls": found.calls,
        "missed": found.missed,
        "items": [
            {
                "memoryId": each.memory.id,
                "category": each.memory.category,
                "text": each.memory.text,
                "uses": each.memory.uses,
                "utility": round(each.utility, 4),
                "turns": [
                    {"conversationId": use.conversation, "turn": use.turn, "score": use.score} for use in each.uses
                ],
                "said": each.said,
                "verdict": each.verdict,
                "prune": each.prunes,
            }
            for each in found.items
        ],
    }


class _Measure:
    """A measure while turns come to it."""

    def __init__(self, desk: Desk, scope: Scope, budget: int) -> None:
        self._desk, self._scope, self._budget = desk, scope, budget
        self.asks = desk.model.name != NO_MODEL and budget >= LEAST_CALLS
        self._uses: dict[str, list[Use]] = {}
        self._said: Counter[str] = Counter()
        self._missed: Counter[str] = Counter()
        self._turns = self._calls = 0

    async def take(self, conversation: Conversation, turn: Turn) -> None:
        """Measure a turn that says memories."""
        said = [each for each in dict.fromkeys(said_in(turn.steps[-1].manifest)) if await self._memory(each)]
        if not said:
            return
        self._said.update(said)
        try:
            found = await self._ask(conversation, turn, said) if self.asks else await self._read(conversation, turn)
        except NotFound:
            self._missed["something of it was erased"] += 1
            return
        except InvalidInput:
            self._missed["its window cannot be made again"] += 1
            return
        except BackendError:
            self._missed["the model did not answer it"] += 1
            return
        self._turns += bool(found)
        for use in found:
            self._uses.setdefault(use.memory, []).append(use)

    async def report(self) -> Utilities:
        """Give what was found."""
        if self._calls:
            context = {"turns": self._turns, "calls": self._calls, "memories": len(self._uses)}
            told = receipt(self._desk, Version(slug="eval"), "leave-one-out", context=context)
            await self._desk.audit.append(self._scope, [replace(told, selection=None)])
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
        return Utilities(items=tuple(items), by=by, turns=self._turns, calls=self._calls, missed=dict(self._missed))

    async def _read(self, conversation: Conversation, turn: Turn) -> list[Use]:
        if not turn.reply_seq:
            self._missed["it has no answer"] += 1
            return []
        [reply] = await self._desk.store.posts_in(self._scope, conversation.id, [(turn.reply_seq, turn.reply_seq)])
        answer = reply.message or text_of(whole(reply, None))
        if answer.startswith(NO_MODEL_LABEL):
            self._missed["no model answered it: it quotes whatever was recalled"] += 1
            return []
        uses = await uses_by_words(self._desk, self._scope, conversation, turn)
        uses = [each for each in uses if await self._memory(each.memory)]
        if len(set(words(answer))) >= LEAST_WORDS:
            return uses
        told = [each for each in uses if each.score]
        if uses and not told:
            self._missed["its answer says too little"] += 1
        return told

    async def _ask(self, conversation: Conversation, turn: Turn, said: Sequence[str]) -> list[Use]:
        left = self._budget - self._calls - 2
        wanted = [each for each in said if len(self._uses.get(each, ())) < ENOUGH][: max(0, left)]
        if not wanted:
            return []
        if len(turn.steps) > 1:
            self._missed["its model called tools"] += 1
            return []
        self._calls += 2 + len(wanted)
        return await uses_by_asking(self._desk, self._scope, conversation, turn, wanted)

    async def _memory(self, id_: str) -> Memory | None:
        """Give a memory as it is kept, None where it holds no longer."""
        found = await self._desk.store.memories.get(self._scope, id_)
        return next((each for each in found if each.valid_to is None), None)


def _verdict(memory: Memory, uses: Sequence[Use], said: int) -> Verdict:
    by_words = any(each.by == WORDS for each in uses)
    if max(each.score for each in uses) > USELESS:
        return "useful"
    if memory.written:
        return "written"
    lower = lowered(memory.text)
    if matter_of(memory.text) in BOUND or any(sign.pattern.search(lower) for sign in PERSONAL):
        return "bound"
    if by_words and memory.category in SILENT:
        return "silent"
    return "seldom" if said < SAID or len(uses) < (SAID if by_words else ENOUGH) else "useless"


def _without_twins(items: Sequence[Utility]) -> list[Utility]:
    """Keep the surest of several that say the same: each is of no use while the others are there, and one is."""
    found = sorted(items, key=lambda each: (each.prunes, -each.memory.confidence, -each.memory.no))
    texts = [set(words(each.memory.text)) for each in found]
    kept = [text for each, text in zip(found, texts, strict=True) if not each.prunes]
    for number, each in enumerate(found):
        if not each.prunes or any(_alike(texts[number], other) for other in kept):
            continue
        if any(_alike(texts[number], other) for other in texts[number + 1 :]):
            found[number] = replace(each, verdict="twin")
            kept.append(texts[number])
    return found


def _alike(one: set[str], other: set[str]) -> bool:
    return len(one & other) >= _SAME * max(1, min(len(one), len(other)))


async def _recorded(
    desk: Desk, scope: Scope, conversations: Sequence[str], turns: int
) -> AsyncIterator[tuple[Conversation, Turn]]:
    """Give the newest turns of conversations, newest first, that are not for others than their first user."""
    looked_at, cursor = 0, None
    if conversations:
        for name in dict.fromkeys(conversations):
            found = await desk.store.conversation(scope, name)
            for turn in await _last(desk, scope, found, turns):
                yield found, turn
        return
    while looked_at < LOOKED_AT:
        page = await desk.store.conversations(scope, limit=_PAGE, cursor=cursor)
        for found in page.items:
            last = await _last(desk, scope, found, turns)
            looked_at += len(last)
            for turn in last:
                yield found, turn
        if page.cursor is None:
            return
        cursor = page.cursor


async def _last(desk: Desk, scope: Scope, conversation: Conversation, turns: int) -> list[Turn]:
    if not conversation.turns or (scope.user is not None and conversation.user not in (None, scope.user)):
        return []
    found = await desk.store.turns(scope, conversation.id, last=turns)
    return [each for each in reversed(found) if each.steps and each.state == "finished"]
