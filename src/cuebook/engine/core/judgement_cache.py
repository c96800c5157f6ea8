"""Cache of scored posts per conversation, so that the optimizer reads each post once."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from cuebook.memory.judgement import PathJudgement
from cuebook.memory.recall import unlearned
from cuebook.records.conversation import Conversation, PathPost
from cuebook.records.memory import Scope
from cuebook.storage.tuning import TuningStore

T = TypeVar("T")

#: Cached posts in total (about 1 kB each). The least recently used conversations are evicted first.
HELD = 200_000
#: Posts loaded in one batch. From a tenth of that number on, scoring runs in a thread.
BATCH = 2_000


class Ledgers:
    """Cached scores by conversation number."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, PathJudgement] = OrderedDict()
        self._reading = asyncio.Lock()

    async def read(self, store: TuningStore, scope: Scope, conversation: str) -> tuple[Conversation, PathJudgement]:
        """Load posts added since the last call, or all posts if the head's path changed. Raises NotFound."""
        async with self._reading:
            known, _, _ = await store.entries(scope, conversation, after=0, limit=0)
            no = known.no
            ledger = self._held.get(no) or PathJudgement()
            while True:
                known, posts, anew = await store.entries(scope, conversation, after=ledger.last, limit=BATCH)
                if anew or known.no != no:
                    ledger, no = PathJudgement(), known.no
                    continue
                await aside(len(posts) >= BATCH // 10, _add, ledger, posts)
                self._hold(no, ledger)
                if len(posts) < BATCH:
                    return known, ledger

    def _hold(self, no: int, ledger: PathJudgement) -> None:
        self._held[no] = ledger
        self._held.move_to_end(no)
        while len(self._held) > 1 and sum(map(len, self._held.values())) > HELD:
            self._held.popitem(last=False)


def _add(ledger: PathJudgement, posts: Sequence[PathPost]) -> None:
    for post in posts:
        text = post.message or ""
        ledger.add(post, "" if unlearned(post.role, text) else text)


async def aside(much: bool, work: Callable[..., T], *args: Any, **named: Any) -> T:  # noqa: FBT001
    """Run large work in a thread, so that it does not delay streams."""
    return await asyncio.to_thread(work, *args, **named) if much else work(*args, **named)
