"""What forgetting is: what was asked, the receipt that says what went, and a hold that forbids it."""

import hashlib
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from cuebook.errors import NotFound

#: What can be forgotten.
Kind = Literal["user", "conversation", "persona", "organization", "memory", "item"]
#: Those that can be named by hand; an item of a conversation has its own door.
KINDS: tuple[Kind, ...] = ("user", "conversation", "persona", "organization", "memory")
#: What stands in the place of words that were erased in a conversation which stays, and of who said them.
ERASED, NOBODY = "[erased]", "erased"
#: What an erased post's `state` says.
GONE = "erased"


class Target(Struct, frozen=True):
    """What is to be forgotten: things of one kind, by their ids."""

    kind: Kind
    ids: tuple[str, ...]


class Receipt(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a forget took. `asked` are SHA-256(salt + id) in hex, so that it names nobody to who does not know the id.

    `concerns` are, likewise, the users whose it was and the one in whose name it was asked: they may read the receipt.
    It is `pending`, and not signed, while a byte may still be left in a file; then `done`. `signature` is Ed25519 over
    the RFC 8785 form of all other fields, `origin` the key's public half.
    """

    id: str
    state: Literal["pending", "done"]
    kind: Kind
    asked: tuple[str, ...]
    salt: str
    concerns: tuple[str, ...] = ()
    reason: str = ""
    counts: Mapping[str, int] = {}  # what went, by kind in camelCase
    epoch: int = 0
    requested_at: str = ""  # ISO 8601 UTC
    finished_at: str = ""
    origin: str = ""
    signature: str = ""  # "ed25519:" and base64


class Touched(Struct, frozen=True, kw_only=True, rename="camel"):
    """A conversation a forget would reach: how many posts would go of it, and how many stay."""

    conversation_id: str
    posts: int
    left: int


class MemoryToErase(Struct, frozen=True, kw_only=True, rename="camel"):
    """A memory that would go."""

    memory_id: str
    scope: str
    category: str
    text: str


#: What a forget leaves, by kind.
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
    """What a forget would take, were it asked now, by the counts of its receipt; nothing was changed.

    Of the conversations it would reach and the memories that would go the first ones are named, and the others counted.
    """

    kind: Kind
    counts: Mapping[str, int] = {}
    conversations: tuple[Touched, ...] = ()
    more_conversations: int = 0
    memories: tuple[MemoryToErase, ...] = ()
    more_memories: int = 0
    stays: Mapping[Staying, int] = {}


def salted(name: str, salt: str) -> str:
    """Return an id as a receipt names it. Raises ValueError for a salt that is no hex."""
    return hashlib.sha256(bytes.fromhex(salt) + name.encode("utf-8", "surrogatepass")).hexdigest()


def no_receipt(receipt: str) -> NotFound:
    """Return the one thing for a receipt there is not and one that concerns others."""
    return NotFound(f"no receipt {receipt!r}; `cuebook memory receipt list` names those there are")
