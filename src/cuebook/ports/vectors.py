"""What keeps vectors: in scopes, under the name of the model that made them."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from cuebook.records.memory import Scope


class Unembedded(Struct, frozen=True, kw_only=True):
    """A conversation with posts behind the last that has vectors of a model, `upto`."""

    tenant: str
    conversation: str
    no: int
    upto: int
    last_seq: int
    epoch: int = 0  # how often something in the conversation was erased


class Embedded(Struct, frozen=True, kw_only=True):
    """Vectors of a conversation's posts from `after` + 1 to `upto`, made while `after` was the last that had any.

    `rows` are seq, part and vector, ascending; a post without text the model knows has none.
    """

    conversation: str
    no: int
    model: str
    after: int
    upto: int
    rows: tuple[tuple[int, int, bytes], ...]
    now: float
    epoch: int = 0  # of before the posts were read: vectors of what was erased since are refused


class VectorStore(Protocol):
    """Keeps vectors of posts. They go with their conversation, and are never compared with another model's."""

    async def due(self, model: str, *, since: float = 0.0, limit: int = 100) -> Sequence[Unembedded]:
        """Find conversations changed since a time that have posts without vectors, the newest first."""
        ...

    async def keep(self, scope: Scope, embedded: Embedded) -> bool:
        """Keep vectors; False where another was first, or the conversation is another or gone."""
        ...

    async def counts(self, model: str) -> tuple[int, int]:
        """Count the posts a model is through with, and the vectors that stand for them."""
        ...
