"""The live view: the newest turns as rows with their usage, and a stream of changes by any process.

All watchers share one reader, which polls the store and stops with the last watcher.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, MutableMapping
from contextlib import aclosing
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.reports.prices import Prices, load_prices
from cuebook.app.reports.usage import MOST as MOST_SUMMED
from cuebook.app.reports.usage import TURNS, CallUsage, usage_of
from cuebook.app.setup.compose import Within
from cuebook.config import Config
from cuebook.engine.core.services import Services
from cuebook.errors import NotFound
from cuebook.records.answer import Time
from cuebook.records.conversation import Conversation
from cuebook.records.expression import shortened
from cuebook.records.memory import Scope
from cuebook.records.turn import RETRY_OF, SHADOW, Manifest, Turn, last_attempts

#: Maximum length of the shown question and answer, in characters.
SAID: Final = 400
#: Maximum number of listed turns.
LISTED: Final = 40
#: Number of polls after which the sums are sent even if turns are still changing.
LONGEST: Final = 10
#: Number of most recent conversations polled; more if more changed since the last poll, up to MOST.
WATCHED: Final = 20
MOST: Final = 200
#: Number of turns polled per conversation: a short turn ends before the next poll.
LOOKED_AT: Final = 2
#: Seconds between two polls. A running turn saves its partial answer every two seconds.
PAUSE_S: Final = 0.5

#: A turn's key: its conversation and number.
Name = tuple[str, int]


class Sums(Struct, frozen=True, kw_only=True, rename="camel"):
    """The usage of the newest turns of the most recent conversations, and the totals of stored data."""

    conversations: int = 0
    turns: int = 0
    all: bool = True  # the sums cover all conversations
    taken: CallUsage = CallUsage()
    posts: int = 0
    memories: int = 0  # items of conversations, and long-term memories


class LiveTurn(Struct, frozen=True, kw_only=True, rename="camel"):
    """A turn as one row: tokens by kind of block, cached tokens, and the number of dropped blocks."""

    conversation: str
    user: str | None
    turn: int
    attempt: int = 1  # a repeated request after failed turns is 2 or more
    first: int = 0  # the turn of its first attempt
    state: str
    at: str
    query: str
    reply: str
    tokens: int = 0
    budget: int = 0
    kinds: dict[str, int] = {}
    cached: int = 0
    cost: float | None = None
    dropped: int = 0  # blocks left out
    events: tuple[str, ...] = ()
    mood: str = ""
    error: str = ""
    seconds: float | None = None  # until it was answered; None before that, and in shadow mode
    first_s: float | None = None  # until the first chunk of a streamed answer
    shadow: bool = False  # its prompt was not sent
    spent: CallUsage = CallUsage()


class Live:
    """The newest turns that the caller may see."""

    def __init__(self, services: Services, config: Config, readers: MutableMapping[int, "LiveReader"]) -> None:
        """Create it; `readers` are the shared readers of watchers, by services."""
        self._services = services
        self._config = config
        self._readers = readers
        self._prices: Prices | None = None  # cached

    async def newest(self, *, user: str | None = None) -> list[LiveTurn]:
        """Return the newest turns of the recent conversations, newest first."""
        page = await self._services.store.conversations(Scope(user=user), limit=WATCHED, cursor=None)
        recent = [each for each in page.items if each.turns]
        share = max(1, LISTED // max(1, len(recent)))
        live_turns = []
        for conversation in recent:
            turns = await lines_of(self._services, conversation, user, last=share)
            took = await self.usage(conversation.id, turns[0].turn, turns[-1].turn, user=user) if turns else {}
            live_turns += [replace(each, spent=took.get(each.turn, CallUsage())) for each in turns]
        return sorted(live_turns, key=lambda each: each.at, reverse=True)

    async def changes(self, *, user: str | None = None) -> AsyncGenerator[LiveTurn | Sums | None, None]:
        """Yield each changed turn, then the sums; None after a poll without changes, and first of all.

        All watchers share one reader of the store. Changes before the first None may be missed.
        """
        name = id(self._services)
        reader = self._readers.get(name)
        if reader is None or not reader.watchers:
            reader = self._readers[name] = LiveReader(self._services, self)
        stale = 0
        try:
            async with aclosing(reader.changes(user)) as found:
                async for live_turns in found:
                    for each in live_turns:
                        yield each
                    stale += bool(live_turns or stale)
                    if stale and (not live_turns or stale > LONGEST):
                        stale = 0
                        yield await reader.sums(user)
                    elif not live_turns:
                        yield None
        finally:
            if not reader.watchers and self._readers.get(name) is reader:
                del self._readers[name]

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
        turns, taken, whole = 0, CallUsage(), page.next is None
        for conversation in page.items:
            last = min(TURNS, MOST_SUMMED - turns)
            whole &= conversation.turns <= last
            if conversation.turns and last > 0:
                first = conversation.turns - last + 1
                took = await self.usage(conversation.id, first, conversation.turns, user=user)
                turns += len(took)
                for each in took.values():
                    taken = taken.plus(each)
        return Sums(
            conversations=len(page.items),
            turns=turns,
            all=whole,
            taken=taken,
            posts=stats.by_type.short_term,
            memories=stats.total - stats.by_type.short_term,
        )

    async def usage(
        self, conversation: str, first: int, last: int, *, user: str | None = None
    ) -> Mapping[int, CallUsage]:
        """Return the usage of the turns `first`..`last` by number, without those in shadow mode.

        Nothing for a deleted conversation. Raises InvalidInput for an unreadable price file of the project.
        """
        try:
            calls = await self._services.store.talks.calls(Scope(user=user), conversation, first=first, last=last)
        except NotFound:
            return {}
        prices = await self._known_prices()
        call_usages: dict[int, CallUsage] = {}
        for call in calls:
            if not call.shadow:
                call_usages[call.turn] = call_usages.get(call.turn, CallUsage()).plus(usage_of(call, prices))
        return call_usages

    async def usage_of_step(self, conversation: str, n: int, step: int, *, user: str | None = None) -> CallUsage:
        """Return the usage of one call, real or in shadow mode. Raises NotFound, InvalidInput."""
        calls = await self._services.store.talks.calls(Scope(user=user), conversation, first=n, last=n)
        prices = await self._known_prices()
        return next((usage_of(each, prices) for each in calls if each.step == step), CallUsage())

    async def _known_prices(self) -> Prices:
        if self._prices is None:
            self._prices = await asyncio.to_thread(load_prices, self._config)
        return self._prices


class LiveReader:
    """Polls the store as its owner while there are watchers, and keeps the newest state of each changed turn."""

    def __init__(self, services: Services, live: Live) -> None:
        self._services, self._live = services, live
        #: API keys identify users, and a conversation without an owner is visible to no user.
        self._proven = isinstance(services.store, Within)
        self._reader: asyncio.Task[None] | None = None
        self._polled = asyncio.Event()  # of the next poll
        self._seen: dict[Name, LiveTurn] = {}
        self._changed: dict[Name, tuple[int, LiveTurn, Conversation]] = {}  # with the poll, the last change last
        self._running: set[str] = set()  # conversations with a running turn at the last poll
        self._newest = float("inf")  # time of the most recent post at the last poll
        self._sums: dict[str | None, tuple[int, Sums]] = {}  # by user, with the poll of the last change
        self._summing = asyncio.Lock()
        self.watchers = 0
        self.polls = 0

    async def changes(self, user: str | None) -> AsyncGenerator[list[LiveTurn], None]:
        """Yield after each poll the changed turns that a user may see; the first poll is the baseline and yields none.

        A slow watcher gets the newest state of all turns changed since its last one at once. An error of the store is
        raised in all watchers.
        """
        self.watchers += 1
        reader = self._reader
        if reader is None or reader.done():
            reader = self._reader = asyncio.create_task(self._read())
            reader.add_done_callback(lambda _: self._polled.set())
        try:
            mark = self.polls
            if mark:
                yield []
            while True:
                while mark == self.polls and not reader.done():
                    await self._polled.wait()
                if reader.done():
                    reader.result()
                since, mark = mark, self.polls
                changed = [each for each in self._changed.values() if since < each[0] <= mark]
                yield [turn for _, turn, conversation in changed if self._may_see(user, conversation)]
        finally:
            self.watchers -= 1
            if not self.watchers:
                reader.cancel()
                await asyncio.wait((reader,))

    async def sums(self, user: str | None) -> Sums:
        """Return the sums after the last change, computed once for all watchers of a user, one at a time."""
        async with self._summing:
            last = max((at for at, _, _ in self._changed.values()), default=0)
            at, sums = self._sums.get(user, (-1, Sums()))
            if at != last:
                sums = await self._live.sums(user=user)
                self._sums[user] = last, sums
            return sums

    async def _read(self) -> None:
        """Poll twice a second."""
        while True:
            await self._look(begins=not self.polls)
            self.polls += 1
            self._polled.set()
            self._polled = asyncio.Event()
            await asyncio.sleep(PAUSE_S)

    async def _look(self, *, begins: bool) -> None:
        """Find the turns that changed since the last poll; the first poll is the baseline."""
        results = [
            (conversation, turn)
            for conversation in await self._spoken_in()
            for turn in await lines_of(self._services, conversation, None, last=LOOKED_AT)
        ]
        self._running = {conversation.id for conversation, turn in results if turn.state == "running"}
        for conversation, turn in sorted(results, key=lambda each: each[1].at):
            name = (turn.conversation, turn.turn)
            if self._seen.get(name) == turn:
                continue
            self._seen[name] = turn
            if not begins:
                took = await self._live.usage(turn.conversation, turn.turn, turn.turn)
                self._changed.pop(name, None)
                self._changed[name] = (
                    self.polls + 1,
                    replace(turn, spent=took.get(turn.turn, CallUsage())),
                    conversation,
                )
        while len(self._changed) > MOST:
            del self._changed[next(iter(self._changed))]
        if len(self._seen) > 2 * MOST * LOOKED_AT:
            self._seen = {(turn.conversation, turn.turn): turn for _, turn in results}

    async def _spoken_in(self) -> list[Conversation]:
        """Return the conversations to poll: the most recent, the changed, and those with a running turn."""
        conversations: dict[str, Conversation] = {}
        cursor: str | None = None
        while len(conversations) < MOST:
            page = await self._services.store.conversations(Scope(), limit=WATCHED, cursor=cursor)
            conversations.update((each.id, each) for each in page.items)
            cursor = page.next
            if cursor is None or page.items[-1].updated_at < self._newest:
                break
        self._newest = max((each.updated_at for each in conversations.values()), default=0.0)
        for name in self._running - conversations.keys():
            try:
                conversations[name] = await self._services.store.conversation(Scope(), name)
            except NotFound:
                continue  # it was deleted meanwhile
        return [each for each in conversations.values() if each.turns]

    def _may_see(self, user: str | None, conversation: Conversation) -> bool:
        """Return whether a user takes part in a conversation."""
        return user is None or (conversation.user is None and not self._proven) or user in conversation.participants


# ---- rows -----------------------------------------------------------------------------------------------------------


async def lines_of(services: Services, known: Conversation, user: str | None, *, last: int) -> list[LiveTurn]:
    """Return the newest turns of a conversation, oldest first, without usage."""
    scope = Scope(user=user)
    try:
        turns = await services.store.turns(scope, known.id, last=last)
        seqs = sorted({seq for turn in turns for seq in (turn.query_seq, turn.reply_seq) if seq})
        path_posts = await services.store.posts_in(scope, known.id, [(seq, seq) for seq in seqs])
    except (NotFound, ValueError):
        return []  # it was deleted meanwhile
    posts = {each.seq: each.message or "" for each in path_posts}
    return [
        _line(known, turn, posts.get(turn.query_seq, ""), posts.get(turn.reply_seq) or turn.partial)
        for turn in last_attempts(turns)
    ]


def _line(conversation: Conversation, turn: Turn, query: str, reply: str) -> LiveTurn:
    data, step = turn.metadata, turn.steps[-1] if turn.steps else None
    manifest = step.manifest if step else None
    window = data.get("window") or {}
    cache = window.get("cache") or {}
    cached = step.usage.cache_read if step and step.usage else None
    first_ms, earlier = data.get("firstTokenMs"), data.get(RETRY_OF, ())
    return LiveTurn(
        conversation=conversation.id,
        user=conversation.user,
        turn=turn.n,
        attempt=len(earlier) + 1,
        first=min(earlier, default=turn.n),
        state=turn.state,
        at=str(Time(turn.created_at)),
        query=shortened(query, SAID),
        reply=_tail(reply) if turn.state == "running" else shortened(reply, SAID),
        tokens=manifest.tokens if manifest else 0,
        budget=manifest.budget if manifest else 0,
        kinds=kinds_of(manifest) if manifest else {},
        cached=cached if cached is not None else cache.get("readTokens") or 0,
        cost=cache.get("cost"),
        dropped=sum(each.count for each in manifest.dropped) if manifest else 0,
        events=tuple((data.get("sentiment") or {}).get("events") or ()),
        mood=(data.get("mind") or {}).get("mood", ""),
        error=step.error if step else "",
        seconds=_seconds(turn),
        first_s=first_ms / 1000 if first_ms is not None else None,
        shadow=SHADOW in data,
    )


def kinds_of(manifest: Manifest) -> dict[str, int]:
    """Return a window's tokens by kind of block, in order; the query counts as a post."""
    results: dict[str, int] = {}
    for text in manifest.front:
        results[text.kind] = results.get(text.kind, 0) + text.tokens
    results["post"] = sum(each.tokens for each in manifest.path)
    for text in manifest.volatile:
        results[text.kind] = results.get(text.kind, 0) + text.tokens
    if manifest.tools_tokens:
        results["tools"] = manifest.tools_tokens
    return {kind: tokens for kind, tokens in results.items() if tokens}


def _seconds(turn: Turn) -> float | None:
    """Return the seconds until a turn was answered.

    None before that, and in shadow mode, where the turn is stored after its answer.
    """
    if not turn.closed_at or turn.metadata.get(SHADOW):
        return None
    return round(turn.closed_at - turn.created_at, 3)


def _tail(text: str) -> str:
    """Return the end of an unfinished answer."""
    text = " ".join(text.split())
    return text if len(text) <= SAID else f"…{text[1 - SAID :]}"
