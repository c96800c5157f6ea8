"""Store writes as records: they run on a store, apply to the reference, and are serialized and parsed."""

from typing import Any

import msgspec
from msgspec import Struct

from cuebook.errors import CuebookError
from cuebook.interfaces.store import Batch, CompactionResult, Lease, StepEnd, StepStart
from cuebook.records.conversation import Draft
from cuebook.records.memory import Scope
from cuebook.storage.store import Store
from storage.reference import Reference


class Operation(Struct, frozen=True, kw_only=True, tag_field="op"):
    """One write."""

    @property
    def conversation(self) -> str:
        """The conversation that it changes; empty if it changes the whole store."""
        return ""

    async def run(self, store: Store) -> Any:
        """Run the write on a store."""
        raise NotImplementedError

    def apply(self, reference: Reference) -> Any:
        """Apply the write to the reference."""
        raise NotImplementedError


class Append(Operation, frozen=True, kw_only=True, tag="append"):
    """Store posts."""

    scope: Scope
    batch: Batch

    @property
    def conversation(self) -> str:
        return self.batch.conversation

    async def run(self, store: Store) -> Any:
        return await store.append(self.scope, self.batch)

    def apply(self, reference: Reference) -> Any:
        return reference.append(self.scope, self.batch)


class Open(Operation, frozen=True, kw_only=True, tag="open"):
    """Open a step."""

    scope: Scope
    opening: StepStart

    @property
    def conversation(self) -> str:
        return self.opening.conversation

    async def run(self, store: Store) -> Any:
        return await store.open(self.scope, self.opening)

    def apply(self, reference: Reference) -> Any:
        return reference.open(self.scope, self.opening)


class Checkpoint(Operation, frozen=True, kw_only=True, tag="checkpoint"):
    """Store a partial answer."""

    lease: Lease
    partial: Draft | None
    now: float
    lease_s: float

    @property
    def conversation(self) -> str:
        return self.lease.conversation

    async def run(self, store: Store) -> Any:
        await store.checkpoint(self.lease, self.partial, now=self.now, lease_s=self.lease_s)

    def apply(self, reference: Reference) -> Any:
        reference.checkpoint(self.lease, self.partial, now=self.now, lease_s=self.lease_s)


class Close(Operation, frozen=True, kw_only=True, tag="close"):
    """End a step."""

    lease: Lease
    closing: StepEnd

    @property
    def conversation(self) -> str:
        return self.lease.conversation

    async def run(self, store: Store) -> Any:
        return await store.close(self.lease, self.closing)

    def apply(self, reference: Reference) -> Any:
        return reference.close(self.lease, self.closing)


class Expire(Operation, frozen=True, kw_only=True, tag="expire"):
    """End turns whose lease expired."""

    now: float
    wait_s: float | None = None

    async def run(self, store: Store) -> Any:
        return await store.expire(now=self.now, wait_s=self.wait_s)

    def apply(self, reference: Reference) -> Any:
        return reference.expire(now=self.now, wait_s=self.wait_s)


class Save(Operation, frozen=True, kw_only=True, tag="save_summary"):
    """Store a pass's result."""

    scope: Scope
    compacted: CompactionResult

    @property
    def conversation(self) -> str:
        return self.compacted.conversation

    async def run(self, store: Store) -> Any:
        return await store.save_summary(self.scope, self.compacted)

    def apply(self, reference: Reference) -> Any:
        return reference.save_summary(self.scope, self.compacted)


class MoveHead(Operation, frozen=True, kw_only=True, tag="move_head"):
    """Make a post the head."""

    scope: Scope
    name: str
    post: str
    now: float

    @property
    def conversation(self) -> str:
        return self.name

    async def run(self, store: Store) -> Any:
        await store.move_head(self.scope, self.name, self.post, now=self.now)

    def apply(self, reference: Reference) -> Any:
        reference.move_head(self.scope, self.name, self.post, now=self.now)


class Delete(Operation, frozen=True, kw_only=True, tag="delete"):
    """Delete a conversation."""

    scope: Scope
    name: str

    @property
    def conversation(self) -> str:
        return self.name

    async def run(self, store: Store) -> Any:
        await store.delete(self.scope, self.name)

    def apply(self, reference: Reference) -> Any:
        reference.delete(self.scope, self.name)


AnyOperation = Append | Open | Checkpoint | Close | Expire | Save | MoveHead | Delete


class Outcome(Struct, frozen=True):
    """The outcome of an operation: a result as plain data, or the name of the error it raised."""

    result: Any = None
    error: str = ""


async def outcome_in(store: Store, operation: Operation) -> tuple[Outcome, Any]:
    """Run an operation. Return its outcome and the result itself."""
    try:
        result = await operation.run(store)
    except CuebookError as error:
        return Outcome(error=type(error).__name__), None
    return Outcome(plain(result)), result


def outcome_of(reference: Reference, operation: Operation) -> Outcome:
    """Apply an operation to the reference. Return its outcome."""
    try:
        return Outcome(plain(operation.apply(reference)))
    except CuebookError as error:
        return Outcome(error=type(error).__name__)


def plain(result: Any) -> Any:
    """Return a result as comparable, serializable data without the store's internal conversation number."""
    data = msgspec.to_builtins(result)
    if isinstance(data, dict):
        data.pop("no", None)
    return data
