"""Poll the store for changed turns with one shared reader for all watchers, which stops with the last watcher."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

from msgspec.structs import replace

from cuebook.app.reports.usage import CallUsage, SpentOn
from cuebook.app.transcript_views.live_turns import LiveTurn, lines_of
from cuebook.engine.core.services import Services
from cuebook.errors import NotFound
from cuebook.records.conversation import Conversation
from cuebook.records.memory import Scope

#: Number of most recent conversations polled; more if more changed since the last poll, up to MOST.
WATCHED: Final = 20
MOST: Final = 200
#: Number of turns polled per conversation: a short turn ends before the next poll.
LOOKED_AT: Final = 2
#: Seconds between two polls. A running turn saves its partial answer every two seconds.
PAUSE_S: Final = 0.5

#: A turn's key: its conversation and number.
Name = tuple[str, int]


class Watcher:
    """A watcher and its pending changes: only the newest state of each turn, so that a slow watcher is cheap."""

    def __init__(self, user: str | None) -> None:
        self.user = user
        self.untold: dict[Name, LiveTurn] = {}
        self.looked = asyncio.Event()  # since the last delivery
        self.fault: BaseException | None = None

    def tell(self, turn: LiveTurn) -> None:
        """Add a changed turn."""
        self.untold[turn.conversation, turn.turn] = turn
        while len(self.untold) > MOST:
            del self.untold[next(iter(self.untold))]


class LiveViews:
    """Polls the store as its owner while there are watchers, and sends each watcher the changes it may see."""

    def __init__(self, services: Services, spent: SpentOn, *, proven: bool) -> None:
        """Create it; `proven`: API keys identify users, and a conversation without an owner is visible to no user."""
        self._services = services
        self._spent = spent
        self._proven = proven
        self._watchers: set[Watcher] = set()
        self._reader: asyncio.Task[None] | None = None
        self._seen: dict[Name, LiveTurn] = {}
        self._running: set[str] = set()  # conversations with a running turn at the last poll
        self._newest = float("inf")  # time of the most recent post at the last poll
        self._changed = 0  # number of polls with changes
        self._shared: dict[str | None, tuple[int, Any]] = {}
        self._sharing = asyncio.Lock()
        self.looks = 0

    @property
    def watched(self) -> bool:
        """Return whether there are watchers."""
        return bool(self._watchers)

    async def changes(self, user: str | None) -> AsyncGenerator[list[LiveTurn], None]:
        """Yield after each poll the changed turns that a user may see; the first poll is the baseline and yields none.

        A slow watcher gets all changes since its last one at once. An error of the store is raised in all watchers.
        """
        watcher = Watcher(user)
        self._watchers.add(watcher)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
            self._reader.add_done_callback(self._ended)
        elif self.looks:
            watcher.looked.set()
        try:
            while True:
                await watcher.looked.wait()
                watcher.looked.clear()
                if watcher.fault is not None:
                    raise watcher.fault
                values, watcher.untold = watcher.untold, {}
                yield list(values.values())
        finally:
            self._watchers.discard(watcher)
            if not self._watchers and self._reader is not None:
                self._reader.cancel()
                await asyncio.wait((self._reader,))

    async def shared_change(self, user: str | None, make: Callable[[], Awaitable[Any]]) -> Any:
        """Return `make`'s result for the last change, computed once for all watchers of a user, one at a time."""
        async with self._sharing:
            made = self._shared.get(user)
            if made is None or made[0] != self._changed:
                self._shared = {
                    name: remaining for name, remaining in self._shared.items() if remaining[0] == self._changed
                }
                made = self._shared[user] = (self._changed, await make())
            return made[1]

    async def _read(self) -> None:
        """Poll twice a second."""
        while True:
            await self._look(begins=not self.looks)
            self.looks += 1
            for watcher in self._watchers:
                watcher.looked.set()
            await asyncio.sleep(PAUSE_S)

    def _ended(self, reader: asyncio.Task[None]) -> None:
        """Pass the reader's error to all watchers."""
        fault = None if reader.cancelled() else reader.exception()
        for watcher in self._watchers if fault else ():
            watcher.fault = fault
            watcher.looked.set()

    async def _look(self, *, begins: bool) -> None:
        """Send the changes since the last poll; the first poll is the baseline."""
        changed = False
        results = [
            (conversation, turn) for conversation in await self._spoken_in() for turn in await self._turns(conversation)
        ]
        self._running = {conversation.id for conversation, turn in results if turn.state == "running"}
        for conversation, turn in sorted(results, key=lambda each: each[1].at or ""):
            name = (turn.conversation, turn.turn)
            if self._seen.get(name) == turn:
                continue
            self._seen[name] = turn
            those = [] if begins else [each for each in self._watchers if self._may_see(each.user, conversation)]
            if those:
                live_turn = replace(turn, spent=await self._took(turn))
                for watcher in those:
                    watcher.tell(live_turn)
            changed = changed or not begins
        self._changed += changed
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

    async def _turns(self, conversation: Conversation) -> list[LiveTurn]:
        return await lines_of(self._services, conversation, None, last=LOOKED_AT)

    async def _took(self, turn: LiveTurn) -> CallUsage:
        try:
            call_usages = await self._spent.turns(turn.conversation, turn.turn, turn.turn)
        except NotFound:
            return CallUsage()  # it was deleted meanwhile
        return call_usages.get(turn.turn, CallUsage())

    def _may_see(self, user: str | None, conversation: Conversation) -> bool:
        """Return whether a user takes part in a conversation."""
        return user is None or (conversation.user is None and not self._proven) or user in conversation.participants
