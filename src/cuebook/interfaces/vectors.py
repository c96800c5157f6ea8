"""Protocol of the vector store: embeddings of posts and memories, by scope and model name."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from cuebook.records.memory import Place, Scope


class EmbeddingBacklog(Struct, frozen=True, kw_only=True):
    """A conversation with posts without vectors of a model after `upto`."""

    tenant: str
    conversation: str
    no: int
    upto: int
    last_seq: int
    epoch: int = 0  # number of erasures in the conversation


class PostVectors(Struct, frozen=True, kw_only=True):
    """Vectors of a conversation's posts from `after` + 1 to `upto`, computed while `after` was the last with vectors.

    `rows` are seq, part and vector, ascending. A post without supported text has none.
    """

    conversation: str
    no: int
    model: str
    after: int
    upto: int
    rows: tuple[tuple[int, int, bytes], ...]
    now: float
    epoch: int = 0  # from before the posts were loaded: vectors of data erased since are rejected


class UnembeddedPlace(Struct, frozen=True):
    """A place with memory texts without vectors of a model after `upto`."""

    tenant: str
    place: Place
    upto: int
    said: int  # number of its newest text


class MemoryText(Struct, frozen=True):
    """A memory's text. Each text of a place has its own, increasing number."""

    number: int
    name: str
    text: str


class EmbeddedPlace(Struct, frozen=True, kw_only=True):
    """Vectors of a place's memory texts from `after` + 1 to `upto`, computed while `after` was the last with vectors.

    `rows` are number, part and vector, ascending. A text in an unsupported language has none.
    """

    place: Place
    model: str
    after: int
    upto: int
    rows: tuple[tuple[int, int, bytes], ...]
    now: float


class VectorStore(Protocol):
    """Stores vectors of posts and memories. They are deleted with their source, and only compared within a model."""

    async def due(self, model: str, *, since: float = 0.0, limit: int = 100) -> Sequence[EmbeddingBacklog]:
        """Return conversations changed since a time with posts without vectors, newest first."""
        ...

    async def keep(self, scope: Scope, embedded: PostVectors) -> bool:
        """Store vectors. Return False if another worker was first, or the conversation was erased or replaced."""
        ...

    async def places_due(self, model: str, *, since: float = 0.0, limit: int = 100) -> Sequence[UnembeddedPlace]:
        """Return places with new memory texts since a time without vectors, newest first."""
        ...

    async def memory_texts(self, scope: Scope, place: Place, *, after: int, limit: int) -> Sequence[MemoryText]:
        """Load a place's memory texts after a number, ended ones too, in order."""
        ...

    async def keep_of_place(self, scope: Scope, embedded: EmbeddedPlace) -> bool:
        """Store vectors of texts that memories still have. Return False if another worker was first, or the place is
        gone.

        Corrected or erased texts get no vector; their replacements are due again.
        """
        ...

    async def counts(self, model: str) -> tuple[int, int]:
        """Count the posts that a model has processed, and their vectors."""
        ...
