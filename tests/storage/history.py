"""Crash checker: compares acknowledged writes with stored data, so nothing is lost, doubled, reordered or partial.

A worker writes a line before each write and another when the write returned. After the worker died, the checker applies
all acknowledged writes to the reference store. For every other write it determines whether it was stored fully or not
at all, and then compares everything that the store returns. Several workers append to conversations named `shared…`;
a single task writes each other conversation, one write after another.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cuebook.errors import NotFound
from cuebook.records.conversation import Post
from cuebook.records.memory import Scope
from cuebook.storage.store import Store
from storage.compare import State, differences, expected_state, state_of
from storage.operations import (
    AnyOperation,
    Append,
    Checkpoint,
    Close,
    Expire,
    Open,
    Outcome,
    outcome_in,
    outcome_of,
)
from storage.reference import Reference

OWNER = Scope()
SHARED = "shared"


class Event(Struct, frozen=True, omit_defaults=True):
    """A line of a worker: write `n` of a task starts (`begun`) or has returned (`done`)."""

    task: str
    n: int
    begun: AnyOperation | None = None
    done: Outcome | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode


def begun(task: str, n: int, operation: AnyOperation) -> bytes:
    """Return the line before a write. Leases omit the store's internal conversation number."""
    if isinstance(operation, Checkpoint | Close):
        operation = replace(operation, lease=replace(operation.lease, no=0))
    return _encode(Event(task, n, begun=operation)) + b"\n"


def done(task: str, n: int, outcome: Outcome) -> bytes:
    """Return the line after a write."""
    return _encode(Event(task, n, done=outcome)) + b"\n"


def losses(posts: Sequence[Post], acknowledged: Sequence[str]) -> Counter[str]:
    """Count the acknowledged posts of a conversation that are missing, ids stored twice, and gaps in its numbers."""
    ids, numbers = [post.id for post in posts], {post.seq for post in posts}
    lost = len({*acknowledged} - {*ids})
    return Counter(lost=lost, doubled=len(ids) - len({*ids}), gaps=max(numbers, default=0) - len(numbers))


class Checker:
    """Computes what must be stored. Lines may come from several workers, each in its own order.

    `failures_stand` says whether writes that ended with a BackendError were stored.
    """

    def __init__(self, *, failures_stand: bool = False) -> None:
        self.failures_stand = failures_stand
        self.reference = Reference()
        self.counts: Counter[str] = Counter()
        self._pending: dict[tuple[str, int], AnyOperation] = {}
        self._shared: dict[str, list[tuple[Outcome, Append]]] = defaultdict(list)
        self._last: dict[tuple[str, str], int] = {}  # task, shared conversation -> its last seq there
        self.problems: list[str] = []

    def hear(self, line: bytes) -> None:
        """Process a worker's line. A torn last line of a killed worker is ignored."""
        try:
            event = _decode(line)
        except msgspec.DecodeError:
            self.counts["torn lines"] += 1
            return
        key = event.task, event.n
        if event.begun is not None:
            self._pending[key] = event.begun
        elif event.done is not None and event.done.error == "BackendError":
            self._fail(key)
        elif event.done is not None:
            self._acknowledge(event.task, self._pending.pop(key), event.done)

    def _fail(self, key: tuple[str, int]) -> None:
        self.counts["failed"] += 1
        if self.failures_stand and self._pending[key].conversation.startswith(SHARED):
            return  # detected by its posts
        operation = self._pending.pop(key)
        if self.failures_stand:
            outcome_of(self.reference, operation)

    def _acknowledge(self, task: str, operation: AnyOperation, outcome: Outcome) -> None:
        self.counts["acknowledged"] += 1
        self.counts["refused"] += bool(outcome.error)
        if isinstance(operation, Append):
            self.counts["posts"] += len(operation.batch.drafts)
            if operation.conversation.startswith(SHARED):
                self._acknowledge_shared(task, operation, outcome)
                return
        expected = outcome_of(self.reference, operation)
        if outcome != expected:
            self.problems.append(f"{operation!r:.200} came to {outcome}, expected {expected}")
        if isinstance(operation, Open) and not outcome.error:
            # As in the lines: the store's number depends on which worker created the conversation.
            self.reference.talks[operation.scope.tenant, operation.conversation].no = 0

    def _acknowledge_shared(self, task: str, operation: Append, outcome: Outcome) -> None:
        if outcome.error:
            self.problems.append(f"an append was refused with {outcome.error}")
            return
        last, place = outcome.result["lastSeq"], (task, operation.conversation)
        if last <= self._last.get(place, 0):
            self.problems.append(f"{task} appended behind itself: {last} after {self._last[place]}")
        self._last[place] = last
        self._shared[operation.conversation].append((outcome, operation))

    async def settle(self, store: Store, *, now: float | None = None) -> None:
        """Resolve unacknowledged writes and compare everything. With `now`, end the turns of dead workers first."""
        pending, self._pending = list(self._pending.values()), {}
        self.counts["unacknowledged"] += len(pending)
        for operation in sorted(pending, key=lambda each: isinstance(each, Expire)):
            if operation.conversation.startswith(SHARED):
                assert isinstance(operation, Append)
                await self._settle_shared(store, operation)
            else:
                await self._settle(store, operation)
        for acknowledged in self._shared.values():
            for outcome, operation in sorted(acknowledged, key=lambda each: each[0].result["lastSeq"]):
                expected = outcome_of(self.reference, operation)
                if outcome != expected:
                    self.problems.append(f"{operation!r:.200} came to {outcome}, expected {expected}")
        self._shared.clear()
        await self.compare(store)
        if now is not None:
            operation = Expire(now=now)
            outcome, _ = await outcome_in(store, operation)
            if outcome != outcome_of(self.reference, operation):
                self.problems.append(f"expire came to {outcome}")
            await self.compare(store)

    async def _settle_shared(self, store: Store, operation: Append) -> None:
        """Resolve an unacknowledged append by its posts: all are stored, or none."""
        wanted = [draft.id for draft in operation.batch.drafts]
        posts = await _posts(store, operation.conversation)
        found = [seq for id_, seq in posts.items() if id_ in set(wanted)]
        if not found:
            return
        self.counts["stored all the same"] += 1
        if len(found) != len(wanted):
            self.problems.append(f"a batch was torn: {wanted} but {found}")
        outcome = Outcome({"stored": len(wanted), "lastSeq": max(found)})
        self._shared[operation.conversation].append((outcome, operation))

    async def _settle(self, store: Store, operation: AnyOperation) -> None:
        """Resolve an unacknowledged write: compare the store with the state with and without it."""
        names = self._expired(operation.now) if isinstance(operation, Expire) else [operation.conversation]
        found = {name: await state_of(store, OWNER, name) for name in names}
        if not self._differences(found):
            return
        outcome = outcome_of(self.reference, operation)
        self.counts["stored all the same"] += 1
        wrong = self._differences(found)
        if wrong:
            self.problems.append(f"neither with nor without {operation!r:.300}: {outcome} {wrong}")

    async def compare(self, store: Store) -> None:
        """Compare everything the store returns with the expected state."""
        listed = {row.id for row in (await store.conversations(OWNER, limit=1000)).items}
        if listed != set(self._names()):
            self.problems.append(f"conversations: {listed}, expected {set(self._names())}")
        found = {name: await state_of(store, OWNER, name) for name in self._names()}
        self.problems += self._differences(found)
        for (_, name), talk in self.reference.talks.items():
            self.counts += losses(found[name]["posts"] if found[name] else (), [each.draft.id for each in talk.posts])
        self.counts["comparisons"] += 1

    def _differences(self, found: dict[str, State | None]) -> list[str]:
        wrong = []
        for name, state in found.items():
            talk = self.reference.talks.get((OWNER.tenant, name))
            wrong += [f"{name}: {each:.600}" for each in differences(state, expected_state(talk) if talk else None)]
        return wrong

    def _names(self) -> list[str]:
        return [name for _, name in self.reference.talks]

    def _expired(self, now: float) -> list[str]:
        return [talk.id for talk in self.reference.talks.values() if 0 < talk.until < now]


async def _posts(store: Store, conversation: str) -> dict[str, Any]:
    try:
        return {post.id: post.seq for post in await store.posts(OWNER, conversation, path=False)}
    except NotFound:
        return {}
