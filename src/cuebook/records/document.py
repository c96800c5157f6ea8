"""Documents: JSON values by name, which programs keep next to their conversations, such as an agent's checkpoints."""

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct

from cuebook.records.answer import Answer, Time

#: A place of documents: a path of names, such as ("agents", "planner").
Space = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=1_000)], ...],
    Meta(max_length=32, description="Path of names of the place."),
]
DocumentKey = Annotated[str, Meta(min_length=1, max_length=1_000, description="Name in its place.")]


class DocumentChange(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A document to store, or to delete if it has no `value`. With `ttl_s` it expires after so many seconds.

    With `new`, the document must not exist; with `expected`, it must have this value. Otherwise nothing is stored, so
    that two programs that change one document do not overwrite each other.
    """

    space: Space
    key: DocumentKey
    value: dict[str, Any] | None = None
    ttl_s: Annotated[float, Meta(gt=0)] | None = None
    new: bool = False
    expected: dict[str, Any] | None = None


class Document(Answer, frozen=True, kw_only=True):
    """A stored document."""

    COLUMNS = ("space", "key", "updated_at")

    space: tuple[str, ...]
    key: str
    value: dict[str, Any]
    created_at: Time
    updated_at: Time
    expires_at: Time | None = None


class Spaces(Answer, frozen=True, kw_only=True):
    """Places that contain documents, in order."""

    spaces: Sequence[tuple[str, ...]]
