"""`cuebook eval --leave-one-out`: of what use each memory was in the turns that said it, and which to let go."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from statistics import fmean
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.book import Cuebook
from cuebook.app.shapes import Wire
from cuebook.engine.desk import Desk
from cuebook.engine.receipts import receipt
from cuebook.engine.utility import LEAST_CALLS, MODEL, WORDS, Use, said_in, uses_by_asking, uses_by_words
from cuebook.errors import BackendError, InvalidInput, NotFound
from cuebook.records.conversation import Conversation
from cuebook.records.erasure import Receipt
from cuebook.records.memory import NO_MODEL, NO_MODEL_LABEL, Memory, Scope
from cuebook.records.prompt import Version
from cuebook.records.turn import Turn

#: Newest turns of each conversation that are measured, and the most there may be.
TURNS, MOST_TURNS = 50, 1_000
#: Newest turns of the book that are looked at where no conversation is named.
LOOKED_AT: Final = 2_000
#: Calls of the model that a measure may take unless said otherwise; 0 = none is asked.
BUDGET: Final = 60
#: Turns that must say a memory before it is judged to be of no use; with a model no more than these are asked about it.
ENOUGH: Final = 3
#: A memory of no more use than this in any turn is proposed to be let go.
USELESS: Final = 0.05
#: What an answer follows without repeating its words; without a model nothing is said against it.
SILENT: Final = ("preferences", "user_preference")
_PAGE = 50


class Utility(Struct, frozen=True, kw_only=True):
    """A memory and its uses in the turns measured; `utility` is their mean, from 0 to 1."""

    memory: Memory
    uses: tuple[Use, ...]

    @property
    def utility(self) -> float:
        """How much of the answers came of it."""
        return fmean(each.score for each in self.uses)

    @property
    def prunes(self) -> bool:
        """Whether it is proposed to be let go: said often enough, of no use ever, and nobody wrote it by hand."""
        silent = self.memory.category in SILENT and any(each.by == WORDS for each in self.uses)
        useless = len(self.uses) >= ENOUGH and max(each.score for each in self.uses) <= USELESS
        return useless and not silent and not self.memory.written


class Utilities(Struct, frozen=True, kw_only=True):
    """What a measure found, the most useful first; `missed` counts turns that say a memory and were not measured."""

    items: tuple[Utility, ...]
    by: str
    turns: int
    calls: int = 0
    missed: dict[str, int] = {}


async def leave_one_out(
    book: Cuebook,
    conversations: Sequence[str] = (),
    *,
    user: str | None = None,
    turns: int = TURNS,
    budget: int = BUDGET,
) -> Utilities:
    """Measure memories on the last `turns` of the conversations named, or of all; of a user's only with `user`.

    With a configured model and a `budget` of at least 3 calls by asking it, newest turns first, until that is used up;
    else by the answers that were given. Nothing is stored but the audit's record that it was asked. Raises NotFound
    and InvalidInput.
    """
    if not 1 <= turns <= MOST_TURNS:
        msg = f"turns: {turns} is not between 1 and {MOST_TURNS}"
        raise InvalidInput(msg, where="turns")
    measure = _Measure(book.desk, Scope(user=user), budget)
    if not measure.asks and budget and book.desk.model.name != NO_MODEL:
        msg = f"budget: {budget} calls are too few: a turn takes {LEAST_CALLS}; 0 asks no model"
        raise InvalidInput(msg, where="budget")
    async for conversation, turn in _recorded(book.desk, Scope(user=user), conversations, turns):
        await measure.take(conversation, turn)
    return await measure.report()


async def prune(book: Cuebook, found: Utilities, *, user: str | None = None) -> Receipt | None:
    """Forget what a measure proposes to let go, for good; answers with the receipt, None where there is nothing."""
    gone = [each.memory.id for each in found.items if each.prunes]
    if not gone:
        return None
    reason = f"of no use in the turns that said it (leave one out, by {found.by})"
    made = await book.memory.forget(memories=gone, reason=reason, by=user)
    if made.state == "pending":
        await book.receipts.finish()
        made = await book.receipts.get(made.id)
    return made


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
        self._missed: Counter[str] = Counter()
        self._turns = self._calls = 0

    async def take(self, conversation: Conversation, turn: Turn) -> None:
        """Measure a turn that says memories."""
        said = [each for each in dict.fromkeys(said_in(turn.steps[-1].manifest)) if await self._memory(each)]
        if not said:
            return
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
                items.append(Utility(memory=memory, uses=tuple(uses)))
        items.sort(key=lambda each: (-each.utility, -len(each.uses), each.memory.no))
        by = MODEL if self.asks else WORDS
        return Utilities(items=tuple(items), by=by, turns=self._turns, calls=self._calls, missed=dict(self._missed))

    async def _read(self, conversation: Conversation, turn: Turn) -> list[Use]:
        if not turn.reply_seq:
            self._missed["it has no answer"] += 1
            return []
        [reply] = await self._desk.store.posts_in(self._scope, conversation.id, [(turn.reply_seq, turn.reply_seq)])
        if (reply.message or "").startswith(NO_MODEL_LABEL):
            self._missed["no model answered it: it quotes whatever was recalled"] += 1
            return []
        uses = await uses_by_words(self._desk, self._scope, conversation, turn)
        return [each for each in uses if await self._memory(each.memory)]

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
