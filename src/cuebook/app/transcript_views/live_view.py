"""What goes on in a book: its newest turns and what they took, and each change as it comes, whoever makes it."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, MutableMapping
from contextlib import aclosing
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.reports.usage import MOST, TURNS, CallUsage, SpentOn
from cuebook.app.setup.compose import Within
from cuebook.app.transcript_views.conversation_list import Talking
from cuebook.app.transcript_views.live_turns import LiveTurn, lines_of
from cuebook.app.transcript_views.watchers import PAUSE_S, WATCHED, Looks
from cuebook.config import Config
from cuebook.engine.core.desk import Desk
from cuebook.errors import NotFound
from cuebook.records.memory import Scope

#: Turns that are listed of the conversations that are watched.
LISTED: Final = 40
#: Looks after which the sums are told though turns go on changing.
LONGEST: Final = 10


class Sums(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the newest turns of the most recent conversations took, and what is kept of all."""

    conversations: int = 0
    turns: int = 0
    all: bool = True  # there are no others
    taken: CallUsage = CallUsage()
    posts: int = 0
    memories: int = 0  # items of conversations, and memories across them


class Live:
    """The newest turns of a book, as who asks may see them."""

    def __init__(self, desk: Desk, config: Config, looks: MutableMapping[int, Looks]) -> None:
        """Take the readers of those that watch, `looks`, by the desk each reads."""
        self._desk = desk
        self._looks = looks
        #: What single turns took.
        self.spent = SpentOn(desk, config)
        #: Conversations found by words, and read as they were said, with their branches.
        self.talks = Talking(desk)

    async def newest(self, *, user: str | None = None) -> list[LiveTurn]:
        """Return the newest turns of the recent conversations, the newest first."""
        page = await self._desk.store.conversations(Scope(user=user), limit=WATCHED, cursor=None)
        recent = [each for each in page.items if each.turns]
        share = max(1, LISTED // max(1, len(recent)))
        found = []
        for known in recent:
            turns = await lines_of(self._desk, known, user, last=share)
            took = await self._took(known.id, turns[0].turn, turns[-1].turn, user) if turns else {}
            found += [replace(each, spent=took.get(each.turn, CallUsage())) for each in turns]
        return sorted(found, key=lambda each: each.at or "", reverse=True)

    async def changes(self, *, user: str | None = None) -> AsyncGenerator[LiveTurn | Sums | None, None]:
        """Yield each turn anew when something of it changed, and behind them the sums; None after a look that found
        nothing, and before all.

        Whoever watches shares one reader of the store. What happens before the first None may not be told.
        """
        name = id(self._desk)
        looks = self._looks.get(name)
        if looks is None or not looks.watched:
            proven = isinstance(self._desk.store, Within)
            looks = self._looks[name] = Looks(self._desk, self.spent, proven=proven)
        stale = 0
        try:
            async with aclosing(looks.changes(user)) as found:
                async for told in found:
                    for each in told:
                        yield each
                    stale += bool(told or stale)
                    if stale and (not told or stale > LONGEST):
                        stale = 0
                        sums: Sums = await looks.shared_change(user, lambda: self.sums(user=user))
                        yield sums
                    elif not told:
                        yield None
        finally:
            if not looks.watched and self._looks.get(name) is looks:
                del self._looks[name]

    async def writes(self) -> AsyncGenerator[bool, None]:
        """Look again and again whether anything was written, by whichever process. True may be said in vain."""
        seen: dict[int, int] = {}
        while True:
            reader, mark = await self._desk.store.talks.written()
            yield seen.get(reader) != mark
            seen[reader] = mark
            await asyncio.sleep(PAUSE_S)

    async def sums(self, *, user: str | None = None) -> Sums:
        """Sum up what the newest turns took. Raises InvalidInput for prices of the project that cannot be read."""
        scope = Scope(user=user)
        page = await self._desk.store.conversations(scope, limit=WATCHED, cursor=None)
        tally = await self._desk.store.tuning.tally(scope, None)
        found = Sums(posts=tally.short_term, memories=tally.long_term + tally.cross_session)
        whole = page.cursor is None
        for known in page.items:
            last = min(TURNS, MOST - found.turns)
            whole &= known.turns <= last
            if known.turns and last > 0:
                found = _plus(found, await self._took(known.id, known.turns - last + 1, known.turns, user))
        return replace(found, conversations=len(page.items), all=whole)

    async def _took(self, conversation: str, first: int, last: int, user: str | None) -> Mapping[int, CallUsage]:
        try:
            return await self.spent.turns(conversation, first, last, user=user)
        except NotFound:
            return {}  # it was forgotten meanwhile


def _plus(sums: Sums, took: Mapping[int, CallUsage]) -> Sums:
    taken = sums.taken
    for each in took.values():
        taken = taken.plus(each)
    return replace(sums, turns=sums.turns + len(took), taken=taken)
