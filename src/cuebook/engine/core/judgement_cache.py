"""What was read of conversations for their judgement, held so that each post is read once."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from cuebook.engine.core.drafts import unlearned
from cuebook.interfaces.reflections import TuningStore
from cuebook.memory.judgement import PathJudgement
from cuebook.records.conversation import Conversation, PathPost
from cuebook.records.memory import Scope

T = TypeVar("T")

#: Posts whose readings are held in all (about 1 kB each); the conversations not looked at for longest go first.
HELD = 200_000
#: Posts read at once; a tenth of them is enough for a thread to take their reading.
BATCH = 2_000


class Ledgers:
    """What was read lately, by the conversation's number."""

    def __init__(self) -> None:
        self._held: OrderedDict[int, PathJudgement] = OrderedDict()
        self._reading = asyncio.Lock()

    async def read(self, store: TuningStore, scope: Scope, conversation: str) -> tuple[Conversation, PathJudgement]:
        """Read what came since the last look, all of it anew where the head's path is another. Raises NotFound."""
        async with self._reading:
            found = await store.entries(scope, conversation, after=0, limit=0)
            no = found.conversation.no
            ledger = self._held.get(no) or PathJudgement()
            while True:
                found = await store.entries(scope, conversation, after=ledger.last, limit=BATCH)
                if found.anew or found.conversation.no != no:
                    ledger, no = PathJudgement(), found.conversation.no
                    continue
                await aside(len(found.posts) >= BATCH // 10, _add, ledger, found.posts)
                self._hold(no, ledger)
                if len(found.posts) < BATCH:
                    return found.conversation, ledger

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
    """Do work in a thread where it is much: streams must not wait."""
    return await asyncio.to_thread(work, *args, **named) if much else work(*args, **named)
