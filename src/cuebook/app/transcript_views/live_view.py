"""The live view: the newest turns with their usage, and a stream of changes by any process."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, MutableMapping
from contextlib import aclosing
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.reports.usage import MOST, TURNS, CallUsage, SpentOn
from cuebook.app.setup.compose import Within
from cuebook.app.transcript_views.conversation_list import ConversationListing
from cuebook.app.transcript_views.live_turns import LiveTurn, lines_of
from cuebook.app.transcript_views.watchers import PAUSE_S, WATCHED, LiveViews
from cuebook.config import Config
from cuebook.engine.core.services import Services
from cuebook.errors import NotFound
from cuebook.records.memory import Scope

#: Maximum number of listed turns.
LISTED: Final = 40
#: Number of polls after which the sums are sent even if turns are still changing.
LONGEST: Final = 10


class Sums(Struct, frozen=True, kw_only=True, rename="camel"):
    """The usage of the newest turns of the most recent conversations, and the totals of stored data."""

    conversations: int = 0
    turns: int = 0
    all: bool = True  # the sums cover all conversations
    taken: CallUsage = CallUsage()
    posts: int = 0
    memories: int = 0  # items of conversations, and long-term memories


class Live:
    """The newest turns that the caller may see."""

    def __init__(self, services: Services, config: Config, looks: MutableMapping[int, LiveViews]) -> None:
        """Create it; `looks` are the shared readers of watchers, by services."""
        self._services = services
        self._looks = looks
        #: Usage of single turns.
        self.spent = SpentOn(services, config)
        #: Search and paging of conversations with their branches.
        self.talks = ConversationListing(services)

    async def newest(self, *, user: str | None = None) -> list[LiveTurn]:
        """Return the newest turns of the recent conversations, newest first."""
        page = await self._services.store.conversations(Scope(user=user), limit=WATCHED, cursor=None)
        recent = [each for each in page.items if each.turns]
        share = max(1, LISTED // max(1, len(recent)))
        live_turns = []
        for conversation in recent:
            turns = await lines_of(self._services, conversation, user, last=share)
            took = await self._took(conversation.id, turns[0].turn, turns[-1].turn, user) if turns else {}
            live_turns += [replace(each, spent=took.get(each.turn, CallUsage())) for each in turns]
        return sorted(live_turns, key=lambda each: each.at or "", reverse=True)

    async def changes(self, *, user: str | None = None) -> AsyncGenerator[LiveTurn | Sums | None, None]:
        """Yield each changed turn, then the sums; None after a poll without changes, and first of all.

        All watchers share one reader of the store. Changes before the first None may be missed.
        """
        name = id(self._services)
        live_views = self._looks.get(name)
        if live_views is None or not live_views.watched:
            proven = isinstance(self._services.store, Within)
            live_views = self._looks[name] = LiveViews(self._services, self.spent, proven=proven)
        stale = 0
        try:
            async with aclosing(live_views.changes(user)) as found:
                async for live_turns in found:
                    for each in live_turns:
                        yield each
                    stale += bool(live_turns or stale)
                    if stale and (not live_turns or stale > LONGEST):
                        stale = 0
                        sums: Sums = await live_views.shared_change(user, lambda: self.sums(user=user))
                        yield sums
                    elif not live_turns:
                        yield None
        finally:
            if not live_views.watched and self._looks.get(name) is live_views:
                del self._looks[name]

    async def writes(self) -> AsyncGenerator[bool, None]:
        """Yield after each poll whether any process wrote to the store. True may be a false alarm."""
        seen: dict[int, int] = {}
        while True:
            reader, mark = await self._services.store.talks.written()
            yield seen.get(reader) != mark
            seen[reader] = mark
            await asyncio.sleep(PAUSE_S)

    async def sums(self, *, user: str | None = None) -> Sums:
        """Return the usage totals of the newest turns. Raises InvalidInput for an unreadable price file."""
        scope = Scope(user=user)
        page = await self._services.store.conversations(scope, limit=WATCHED, cursor=None)
        stats = await self._services.store.tuning.tally(scope, None)
        found = Sums(posts=stats.by_type.short_term, memories=stats.total - stats.by_type.short_term)
        whole = page.next is None
        for conversation in page.items:
            last = min(TURNS, MOST - found.turns)
            whole &= conversation.turns <= last
            if conversation.turns and last > 0:
                found = _plus(
                    found, await self._took(conversation.id, conversation.turns - last + 1, conversation.turns, user)
                )
        return replace(found, conversations=len(page.items), all=whole)

    async def _took(self, conversation: str, first: int, last: int, user: str | None) -> Mapping[int, CallUsage]:
        try:
            return await self.spent.turns(conversation, first, last, user=user)
        except NotFound:
            return {}  # it was forgotten meanwhile


def _plus(sums: Sums, took: Mapping[int, CallUsage]) -> Sums:
    call_usage = sums.taken
    for each in took.values():
        call_usage = call_usage.plus(each)
    return replace(sums, turns=sums.turns + len(took), taken=call_usage)
