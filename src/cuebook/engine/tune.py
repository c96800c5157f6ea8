"""The optimizer (C, "Adaptive Optimizer"): it judges a conversation's posts, marks what is of little use, and moves the
conversation's parameters one step. What is marked takes effect where the front of a prompt changes anyway.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from cuebook.assembly.budget import allot
from cuebook.assembly.tune import LEAST_POSTS, tuned, untuned
from cuebook.engine.desk import Desk
from cuebook.engine.drafts import unlearned
from cuebook.errors import Conflict
from cuebook.memory.ledger import Judged, Ledger
from cuebook.ports.tuning import Changed, Run
from cuebook.records.conversation import Conversation, PathPost
from cuebook.records.memory import Scope
from cuebook.records.tuning import Snapshot, Tuning

T = TypeVar("T")

#: Posts whose readings are held in all; the conversations not looked at for longest go first.
HELD = 200_000
#: Posts read at once, and from how many on reading and judging is a thread's.
BATCH = 2_000
#: Conversations a chore takes at once.
CONVERSATIONS = 100
#: How often a run is decided anew when another was first.
TRIES = 3


class Analysis(Struct, frozen=True, kw_only=True):
    """A conversation, how it is tuned, and how its posts are judged."""

    conversation: Conversation
    tuning: Tuning
    updated_at: float  # of its last run, 0 before the first
    ledger: Ledger
    judged: Judged


class Ledgers:
    """What was read of conversations lately, by tenant and number."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, int], Ledger] = OrderedDict()

    def get(self, tenant: str, no: int) -> Ledger:
        """Give what was read of a conversation."""
        return self._held.get((tenant, no)) or Ledger()

    def hold(self, tenant: str, no: int, ledger: Ledger) -> None:
        """Hold it, as the one looked at last."""
        self._held[tenant, no] = ledger
        self._held.move_to_end((tenant, no))
        while len(self._held) > 1 and sum(map(len, self._held.values())) > HELD:
            self._held.popitem(last=False)


class Optimizer:
    """One process's optimizer. Any number may run: a run is kept only on top of the one it was decided on."""

    def __init__(self, desk: Desk, *, interval_s: float) -> None:
        self._desk = desk
        self._interval_s = interval_s
        self._looked = 0.0
        self._ledgers = Ledgers()
        self._reading = asyncio.Lock()

    async def keep(self) -> None:
        """Run for each conversation that changed since its last run, if that was an interval ago."""
        now = self._desk.clock.now()
        while found := await self._changed(now, since=max(0.0, self._looked - self._interval_s)):
            for each in found:
                await self.run(Scope(each.tenant), each.conversation)
            if len(found) < CONVERSATIONS:
                break
        self._looked = now

    async def due(self) -> int:
        """Count the conversations that wait for a run."""
        return len(await self._changed(self._desk.clock.now(), since=0.0))

    async def _changed(self, now: float, *, since: float) -> Sequence[Changed]:
        before = now - self._interval_s
        store = self._desk.store.tuning
        return await store.changed(least=LEAST_POSTS, since=since, before=before, limit=CONVERSATIONS)

    async def analyze(self, scope: Scope, conversation: str) -> Analysis:
        """Judge a conversation's posts as they stand. Raises NotFound."""
        store = self._desk.store.tuning
        stands = await store.tuned(scope, conversation)
        tuning = stands.tuning if stands else untuned(self._desk.limits)
        found, ledger = await self._read(scope, conversation)
        work = asyncio.to_thread if len(ledger) > BATCH else _at_once
        judged = await work(ledger.judge, tuning, now=self._desk.clock.now(), mark=found.mark)
        updated = stands.updated_at if stands else 0.0
        return Analysis(conversation=found, tuning=tuning, updated_at=updated, ledger=ledger, judged=judged)

    async def run(self, scope: Scope, conversation: str) -> Snapshot:
        """Run once. Raises NotFound, and Conflict where others run in this conversation all the time.

        A conversation of fewer than LEAST_POSTS posts on its path stays as it is, and its run is not counted.
        """
        for _ in range(TRIES):
            found = await self.analyze(scope, conversation)
            made = self._made(found)
            if await self._desk.store.tuning.keep(scope, conversation, made):
                return made.snapshot or self._snapshot(found, found.tuning, found.judged.used)
        msg = f"conversation {conversation!r} is being tuned by others; try again"
        raise Conflict(msg)

    def _made(self, found: Analysis) -> Run:
        """Decide a run."""
        now, judged, ledger = self._desk.clock.now(), found.judged, found.ledger
        tuning, snapshot = found.tuning, None
        if judged.total >= LEAST_POSTS:
            mark = found.conversation.mark
            marked = ledger.marked(found.tuning, judged.actions, mark=mark)
            after = ledger.used(marked, mark=mark)
            saved = judged.used - after
            usage = judged.used / max(1, allot(self._desk.limits, front=0).posts)
            tuning = tuned(marked, usage=usage, savings=saved / max(1, judged.used))
            tuning = msgspec.structs.replace(tuning, tokens_saved=tuning.tokens_saved + saved)
            snapshot = self._snapshot(found, tuning, after)
        return Run(
            no=found.conversation.no,
            seen_seq=found.conversation.last_seq,
            before=found.updated_at,
            now=max(now, found.updated_at + 1e-3),  # two runs of one instant are two
            tuning=tuning,
            snapshot=snapshot,
        )

    def _snapshot(self, found: Analysis, tuning: Tuning, after: int) -> Snapshot:
        before = found.tuning
        return Snapshot(
            conversation_id=found.conversation.id,
            tokens_before=found.judged.used,
            tokens_after=after,
            entries_compressed=len(tuning.compressed) - len(before.compressed),
            entries_dropped=len(tuning.dropped) - len(before.dropped),
            entries_promoted=len(tuning.promoted) - len(before.promoted),
            compression_trigger_ratio=tuning.compression_trigger,
            full_message_window=tuning.full_message_window,
            min_relevance_score=tuning.min_relevance,
            timestamp=self._desk.clock.now(),
        )

    async def _read(self, scope: Scope, conversation: str) -> tuple[Conversation, Ledger]:
        """Read what came since the last look, all of it anew where the head's path is another."""
        store = self._desk.store.tuning
        async with self._reading:
            stands = await self._desk.store.conversation(scope, conversation)
            ledger = self._ledgers.get(scope.tenant, stands.no)
            while True:
                found = await store.entries(scope, conversation, after=ledger.last, limit=BATCH)
                if found.anew or found.conversation.no != stands.no:
                    ledger, stands = Ledger(), found.conversation
                    continue
                work = asyncio.to_thread if len(found.posts) >= BATCH // 10 else _at_once
                await work(_add, ledger, found.posts)
                self._ledgers.hold(scope.tenant, stands.no, ledger)
                if len(found.posts) < BATCH:
                    return found.conversation, ledger


def _add(ledger: Ledger, posts: Sequence[PathPost]) -> None:
    for post in posts:
        text = post.message or ""
        ledger.add(post, "" if unlearned(post.role, text) else text)


async def _at_once(work: Callable[..., T], *args: Any, **named: Any) -> T:
    return work(*args, **named)
