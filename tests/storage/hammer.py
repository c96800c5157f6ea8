"""A crash test worker: it writes continuously with several tasks, and prints a line for each write.

`storage.history` checks the lines. Each task owns conversations where any operation may happen, and all tasks append to
one shared conversation. Time is counted in writes, so a run is reproducible.
"""

import asyncio
import random
from collections.abc import Callable

from cuebook.interfaces.store import Batch, CompactionResult, Lease, PathQuery, StepEnd
from cuebook.records.conversation import Draft, Role
from cuebook.records.memory import Item, Summary
from cuebook.storage.store import Store
from storage.history import OWNER, SHARED, begun, done
from storage.makers import draft, opening_at
from storage.operations import (
    AnyOperation,
    Append,
    Checkpoint,
    Close,
    Delete,
    Expire,
    MoveHead,
    Open,
    Save,
    outcome_in,
)

#: Seconds of the workers' clock between two runs. A lease lasts half of it, unless it is abandoned.
RUN = 1_000_000.0
#: A conversation with more posts is deleted and started again.
LONG = 120

Say = Callable[[bytes], object]


class Task:
    """One task of a worker: a sequence of writes, each after the previous one returned."""

    def __init__(
        self, store: Store, name: str, *, run: int, say: Say, dice: random.Random, abandons: bool = False
    ) -> None:
        self._store = store
        self._abandons = abandons  # one task only: expiring leases ends the turns of all tasks
        self._name = name
        self._run = run
        self._say = say
        self._dice = dice
        self._n = 0

    async def work(self, writes: int) -> None:
        """Run at least `writes` writes."""
        kinds = [self._append, self._append, self._share, self._turn, self._turn, self._pass, self._move]
        kinds += [self._abandon, self._abandon] if self._abandons else []
        while self._n < writes:
            await self._dice.choice(kinds)()

    async def _do(self, operation: AnyOperation) -> Lease | None:
        self._n += 1
        n = self._n
        self._say(begun(self._name, n, operation))
        outcome, result = await outcome_in(self._store, operation)
        self._say(done(self._name, n, outcome))
        return result if isinstance(result, Lease) else None

    @property
    def _now(self) -> float:
        return self._run * RUN + self._n

    def _own(self) -> str:
        return f"{self._name}-{self._dice.randrange(2)}"

    def _drafts(self, most: int, role: Role = "user") -> tuple[Draft, ...]:
        return tuple(self._draft(role) for _ in range(self._dice.randint(1, most)))

    def _draft(self, role: Role) -> Draft:
        id_ = f"{self._name}.{self._run}.{self._n}.{self._dice.randrange(1 << 40):x}"
        words = self._dice.choice((3, 3, 3, 3, 3, 3, 3, 30, 30, 1000))
        return draft(id_, f"{role} says {id_} " + "word " * words, role=role, tokens=words, created_at=self._now)

    async def _append(self) -> None:
        conversation = self._own()
        posts = await self._ids(conversation)
        if posts and (len(posts) > LONG or self._dice.random() < 0.08):
            posts = []
            await self._do(Delete(scope=OWNER, name=conversation))
        parent = self._dice.choice(posts) if posts and self._dice.random() < 0.3 else None
        batch = Batch(conversation=conversation, drafts=self._drafts(8), now=self._now, parent=parent)
        await self._do(Append(scope=OWNER, batch=batch))

    async def _share(self) -> None:
        await self._do(Append(scope=OWNER, batch=Batch(conversation=SHARED, drafts=self._drafts(9), now=self._now)))

    async def _open(self, conversation: str, *, lease_s: float) -> Lease | None:
        scene = await self._store.scene(OWNER, PathQuery(conversation=conversation))
        opening = opening_at(
            scene, conversation, *self._drafts(2), now=self._now, lease_s=lease_s, texts={"0" * 32: f"text {self._n}"}
        )
        return await self._do(Open(scope=OWNER, opening=opening))

    async def _turn(self) -> None:
        """Run a turn: query, partial answer, answer; sometimes with posts in between or tool calls."""
        lease = await self._open(self._own(), lease_s=RUN / 2)
        if lease is None:
            return
        reply = self._draft("assistant")
        if self._dice.random() < 0.5:
            await self._do(Checkpoint(lease=lease, partial=reply, now=self._now, lease_s=RUN / 2))
        if self._dice.random() < 0.2:
            batch = Batch(conversation=lease.conversation, drafts=self._drafts(2), now=self._now)
            await self._do(Append(scope=OWNER, batch=batch))
        waiting = self._dice.random() < 0.2
        closing = StepEnd(state="finished", now=self._now, reply=reply, waiting=waiting, metadata={"n": self._n})
        await self._do(Close(lease=lease, closing=closing))

    async def _abandon(self) -> None:
        """Start a turn and abandon it: expiry or the next turn ends it."""
        conversation = self._own()
        lease = await self._open(conversation, lease_s=0.25)
        if lease is None:
            return
        if self._dice.random() < 0.7:
            partial = self._draft("assistant")
            await self._do(Checkpoint(lease=lease, partial=partial, now=self._now, lease_s=0.25))
        later = None
        if self._dice.random() < 0.7:
            await self._do(Expire(now=self._now + 1))
        else:
            later = await self._open(conversation, lease_s=RUN / 2)
        for each in (lease, later) if later else (lease,):
            closing = StepEnd(state="finished", now=self._now, reply=self._draft("assistant"))
            await self._do(Close(lease=each, closing=closing))

    async def _pass(self) -> None:
        """Summarize the posts after the mark."""
        conversation = self._own()
        if not await self._ids(conversation):
            return
        found = await self._store.compaction(OWNER, conversation, limit=20)
        if found is None or not found.posts:
            return
        upto = self._dice.choice(found.posts)
        item = Item(id=upto.id, category="facts", text=upto.message[:40], sources=(upto.id,), seq=upto.seq)
        summary = Summary(
            version=0, upto_seq=upto.seq, upto_at=self._now, path_digest=upto.digest, markdown=f"up to {upto.id}",
            memory_json={}, profile="neutral", made_by="rules", created_at=self._now,
        )  # fmt: skip
        previous = found.previous.version if found.previous else 0
        result = CompactionResult(
            conversation=conversation, previous_version=previous, summary=summary, now=self._now,
            items=(*found.items[:1], item),
        )  # fmt: skip
        await self._do(Save(scope=OWNER, compacted=result))

    async def _move(self) -> None:
        conversation = self._own()
        if posts := await self._ids(conversation):
            post = self._dice.choice(posts)
            await self._do(MoveHead(scope=OWNER, name=conversation, post=post, now=self._now))

    async def _ids(self, conversation: str) -> list[str]:
        """Return the ids of a conversation's posts, or nothing if it does not exist."""
        scene = await self._store.scene(OWNER, PathQuery(conversation=conversation))
        if not scene.conversation.no:
            return []
        return [post.id for post in await self._store.posts(OWNER, conversation, path=False)]


async def hammer(
    store: Store, say: Say, *, name: str, run: int, tasks: int, writes: int, abandons: bool = True
) -> None:
    """Run tasks that write `writes` times each. Only one of several concurrent workers may abandon turns."""
    work = []
    for n in range(tasks):
        dice = random.Random(f"{name} {run} {n}")
        task = Task(store, f"{name}{n}", run=run, say=say, dice=dice, abandons=abandons and n == 0)
        work.append(task.work(writes))
    await asyncio.gather(*work)
