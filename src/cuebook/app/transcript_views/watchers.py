"""Who watches a book's turns: one reader of the store for all of them, however many, which ends with the last."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

from msgspec.structs import replace

from cuebook.app.reports.usage import CallUsage, SpentOn
from cuebook.app.transcript_views.live_turns import LiveTurn, lines_of
from cuebook.engine.core.desk import Desk
from cuebook.errors import NotFound
from cuebook.records.conversation import Conversation
from cuebook.records.memory import Scope

#: Conversations that are looked at, the most recent; more where more were spoken in since the last look, up to MOST.
WATCHED: Final = 20
MOST: Final = 200
#: Turns of a conversation that are looked at for a change: a short one ends before the next look.
LOOKED_AT: Final = 2
#: Seconds between two looks. A turn that runs keeps what has come of its answer every two seconds.
PAUSE_S: Final = 0.5

#: A turn of a book: its conversation and number.
Name = tuple[str, int]


class Watcher:
    """Who watches, and what they were not told yet: of each turn its newest state, so that a slow one is cheap."""

    def __init__(self, user: str | None) -> None:
        self.user = user
        self.untold: dict[Name, LiveTurn] = {}
        self.looked = asyncio.Event()  # since they were told last
        self.fault: BaseException | None = None

    def tell(self, turn: LiveTurn) -> None:
        """Note a turn that changed."""
        self.untold[turn.conversation, turn.turn] = turn
        while len(self.untold) > MOST:
            del self.untold[next(iter(self.untold))]


class Looks:
    """Reads a book as its owner sees it, while somebody watches, and tells each of what they may see."""

    def __init__(self, desk: Desk, spent: SpentOn, *, proven: bool) -> None:
        """`proven`: keys say who asks, and a conversation that is nobody's is no user's."""
        self._desk = desk
        self._spent = spent
        self._proven = proven
        self._watchers: set[Watcher] = set()
        self._reader: asyncio.Task[None] | None = None
        self._seen: dict[Name, LiveTurn] = {}
        self._running: set[str] = set()  # conversations in which a turn went on at the last look
        self._newest = float("inf")  # when the most recent of the last look was spoken in
        self._changed = 0  # looks that found something
        self._shared: dict[str | None, tuple[int, Any]] = {}
        self._sharing = asyncio.Lock()
        self.looks = 0

    @property
    def watched(self) -> bool:
        """Whether somebody watches."""
        return bool(self._watchers)

    async def changes(self, user: str | None) -> AsyncGenerator[list[LiveTurn], None]:
        """Yield after each look what changed of what a user may see, nothing after the one that the rest goes on from.

        Who is slow gets in one what changed meanwhile. Raises what the store raised, to all who watch.
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
                told, watcher.untold = watcher.untold, {}
                yield list(told.values())
        finally:
            self._watchers.discard(watcher)
            if not self._watchers and self._reader is not None:
                self._reader.cancel()
                await asyncio.wait((self._reader,))

    async def shared_change(self, user: str | None, make: Callable[[], Awaitable[Any]]) -> Any:
        """Return what is made of the last change, once for all who watch as one user, and one after the other."""
        async with self._sharing:
            made = self._shared.get(user)
            if made is None or made[0] != self._changed:
                self._shared = {name: kept for name, kept in self._shared.items() if kept[0] == self._changed}
                made = self._shared[user] = (self._changed, await make())
            return made[1]

    async def _read(self) -> None:
        """Look twice a second."""
        while True:
            await self._look(begins=not self.looks)
            self.looks += 1
            for watcher in self._watchers:
                watcher.looked.set()
            await asyncio.sleep(PAUSE_S)

    def _ended(self, reader: asyncio.Task[None]) -> None:
        """Tell all who watch what the reader failed with."""
        fault = None if reader.cancelled() else reader.exception()
        for watcher in self._watchers if fault else ():
            watcher.fault = fault
            watcher.looked.set()

    async def _look(self, *, begins: bool) -> None:
        """Tell what changed since the last look; what the first finds is what the rest goes on from."""
        changed = False
        found = [(known, turn) for known in await self._spoken_in() for turn in await self._turns(known)]
        self._running = {known.id for known, turn in found if turn.state == "running"}
        for known, turn in sorted(found, key=lambda each: each[1].at or ""):
            name = (turn.conversation, turn.turn)
            if self._seen.get(name) == turn:
                continue
            self._seen[name] = turn
            those = [] if begins else [each for each in self._watchers if self._may_see(each.user, known)]
            if those:
                told = replace(turn, spent=await self._took(turn))
                for watcher in those:
                    watcher.tell(told)
            changed = changed or not begins
        self._changed += changed
        if len(self._seen) > 2 * MOST * LOOKED_AT:
            self._seen = {(turn.conversation, turn.turn): turn for _, turn in found}

    async def _spoken_in(self) -> list[Conversation]:
        """Return the conversations to look at: the most recent, all since the last look, and where a turn goes on."""
        found: dict[str, Conversation] = {}
        cursor: str | None = None
        while len(found) < MOST:
            page = await self._desk.store.conversations(Scope(), limit=WATCHED, cursor=cursor)
            found.update((each.id, each) for each in page.items)
            cursor = page.cursor
            if cursor is None or page.items[-1].updated_at < self._newest:
                break
        self._newest = max((each.updated_at for each in found.values()), default=0.0)
        for name in self._running - found.keys():
            try:
                found[name] = await self._desk.store.conversation(Scope(), name)
            except NotFound:
                continue  # it was forgotten meanwhile
        return [each for each in found.values() if each.turns]

    async def _turns(self, known: Conversation) -> list[LiveTurn]:
        return await lines_of(self._desk, known, None, last=LOOKED_AT)

    async def _took(self, turn: LiveTurn) -> CallUsage:
        try:
            taken = await self._spent.turns(turn.conversation, turn.turn, turn.turn)
        except NotFound:
            return CallUsage()  # it was forgotten meanwhile
        return taken.get(turn.turn, CallUsage())

    def _may_see(self, user: str | None, known: Conversation) -> bool:
        """Return what the store says of who takes part."""
        return user is None or (known.user is None and not self._proven) or user in known.participants
