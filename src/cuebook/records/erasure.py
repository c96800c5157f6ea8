"""Erasure records: the targets of an erasure request, its signed receipt, and a preview."""

import hashlib
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from cuebook.errors import NotFound

#: The kinds of objects that can be erased.
Kind = Literal["user", "conversation", "persona", "organization", "memory", "item"]
#: The placeholder for erased text and its sender in a conversation that remains.
ERASED, NOBODY = "[erased]", "erased"
#: `state` of an erased post.
GONE = "erased"


class Target(Struct, frozen=True):
    """The objects to erase: one kind, and their ids."""

    kind: Kind
    ids: tuple[str, ...]


class Receipt(Struct, frozen=True, kw_only=True, rename="camel"):
    """The receipt of an erasure. `asked` are SHA-256(salt + id) in hex, which reveal no id to those who do not know it.

    `concerns` are, likewise, the users whose data was erased and the requesting user: they may read the receipt.
    It is `pending` and unsigned while a byte may still be left in a file; then `done`. `signature` is Ed25519 over
    the RFC 8785 form of all other fields, `origin` the public key.
    """

    id: str
    state: Literal["pending", "done"]
    kind: Kind
    asked: tuple[str, ...]
    salt: str
    concerns: tuple[str, ...] = ()
    reason: str = ""
    counts: Mapping[str, int] = {}  # number of erased objects by kind in camelCase
    epoch: int = 0
    requested_at: str = ""  # ISO 8601 UTC
    finished_at: str = ""
    origin: str = ""
    signature: str = ""  # "ed25519:" and base64

    @property
    def pending(self) -> bool:
        """Return whether bytes may still be left in a file."""
        return self.state == "pending"


class AffectedConversation(Struct, frozen=True, kw_only=True, rename="camel"):
    """A conversation that an erasure would affect: the numbers of posts that would be erased and remain."""

    conversation_id: str
    posts: int
    left: int


class MemoryToErase(Struct, frozen=True, kw_only=True, rename="camel"):
    """A memory that would be erased."""

    memory_id: str
    scope: str
    category: str
    text: str


#: What an erasure leaves, by kind.
Staying = Literal[
    "sourcePosts",
    "othersPosts",
    "emptyPlaces",
    "memoriesFromOthers",
    "memoriesByHand",
    "auditRecords",
    "observations",
    "keys",
]


class WouldForget(Struct, frozen=True, kw_only=True, rename="camel"):
    """The preview of an erasure, with the counts of its receipt; nothing is changed.

    The first affected conversations and memories are listed, the others are counted.
    """

    kind: Kind
    counts: Mapping[str, int] = {}
    conversations: tuple[AffectedConversation, ...] = ()
    more_conversations: int = 0
    memories: tuple[MemoryToErase, ...] = ()
    more_memories: int = 0
    stays: Mapping[Staying, int] = {}


def salted(name: str, salt: str) -> str:
    """Return the salted hash of an id. Raises ValueError for a salt that is not hex."""
    return hashlib.sha256(bytes.fromhex(salt) + name.encode("utf-8", "surrogatepass")).hexdigest()


def no_receipt(receipt: str) -> NotFound:
    """Return the same error for a missing receipt and for one of other users."""
    return NotFound(f"Unknown receipt {receipt!r}. Run `cuebook memory receipt list` to list receipts.")
