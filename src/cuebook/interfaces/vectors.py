"""What keeps vectors: in scopes, under the name of the model that made them."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from cuebook.records.memory import Place, Scope


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


class UnembeddedPlace(Struct, frozen=True):
    """A place whose memories say something behind the last text that has vectors of a model, `upto`."""

    tenant: str
    place: Place
    upto: int
    said: int  # the number of its newest text


class MemoryText(Struct, frozen=True):
    """What a memory says. Whatever a place's memories come to say has a number, each its own, growing."""

    number: int
    name: str
    text: str


class EmbeddedPlace(Struct, frozen=True, kw_only=True):
    """Vectors of what a place's memories said from `after` + 1 to `upto`, made while `after` was the last that had any.

    `rows` are number, part and vector, ascending; a text in a language the model does not know has none.
    """

    place: Place
    model: str
    after: int
    upto: int
    rows: tuple[tuple[int, int, bytes], ...]
    now: float


class VectorStore(Protocol):
    """Keeps vectors of posts and memories. They go with what they are of, and none is compared with another model's."""

    async def due(self, model: str, *, since: float = 0.0, limit: int = 100) -> Sequence[Unembedded]:
        """Find conversations changed since a time that have posts without vectors, the newest first."""
        ...

    async def keep(self, scope: Scope, embedded: Embedded) -> bool:
        """Keep vectors; False where another was first, or the conversation is another or gone."""
        ...

    async def places_due(self, model: str, *, since: float = 0.0, limit: int = 100) -> Sequence[UnembeddedPlace]:
        """Find places in which something was said since a time that has no vectors, the newest first."""
        ...

    async def memory_texts(self, scope: Scope, place: Place, *, after: int, limit: int) -> Sequence[MemoryText]:
        """Read what a place's memories say, ended ones too, behind a text, in the order it came."""
        ...

    async def keep_of_place(self, scope: Scope, embedded: EmbeddedPlace) -> bool:
        """Keep vectors of the memories that still say what was embedded; False where another was first, or it is gone.

        What was corrected or forgotten since has no vector; what is said instead is found again.
        """
        ...

    async def counts(self, model: str) -> tuple[int, int]:
        """Count the posts a model is through with, and the vectors that stand for them."""
        ...
