"""Protocol of the vector store: embeddings of posts and memories, by scope and model name."""

from msgspec import Struct

from cuebook.records.memory import Place


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
