"""Erasure records: the targets of an erasure request, its signed receipt, and a preview."""

import hashlib
from collections.abc import Mapping
from typing import Final, Literal

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
    `tenant` is, likewise, the tenant.
    It is `pending` and unsigned while a byte may still be left in a file; then `done`. `signature` is Ed25519 over
    the RFC 8785 form of all other fields, `origin` the public key.
    """

    id: str
    state: Literal["pending", "done"]
    kind: Kind
    asked: tuple[str, ...]
    salt: str
    concerns: tuple[str, ...] = ()
    tenant: str = ""
    reason: str = ""
    counts: Mapping[str, int] = {}  # number of erased objects by kind in camelCase
    epoch: int = 0
    requested_at: str = ""  # ISO 8601 UTC
    finished_at: str = ""
    remains: str = ""  # where the database's system may still keep the data for a while, "" for nowhere
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


#: Why a forget leaves some data in place.
STAYS: Final[Mapping[Staying, str]] = {
    "sourcePosts": "the posts stay in their conversations, and no memory is derived from them again",
    "othersPosts": "written by other users, or replies to them",
    "emptyPlaces": f"stay as {ERASED}, so that the posts of other users keep their order",
    "memoriesFromOthers": "also supported by other posts: derived again from those",
    "memoriesByHand": "written by hand: only the source is removed",
    "auditRecords": "the hashes stay without the texts, so that the audit log can be verified",
    "observations": "what prompts learned stays, under a pseudonym",
    "keys": "a key names its user. Revoke it with `cuebook key revoke`.",
}


class KeptRecords(Struct, frozen=True, kw_only=True):
    """Affected records that would be kept, and the reason."""

    what: Staying
    count: int
    why: str


class ForgetPreview(Struct, frozen=True, kw_only=True, rename="camel"):
    """A preview: counts as in a receipt, and the first conversations and memories."""

    kind: Kind
    counts: Mapping[str, int]
    conversations: tuple[AffectedConversation, ...]
    more_conversations: int
    memories: tuple[MemoryToErase, ...]
    more_memories: int
    stays: tuple[KeptRecords, ...]


def salted(name: str, salt: str) -> str:
    """Return the salted hash of an id. Raises ValueError for a salt that is not hex."""
    return hashlib.sha256(bytes.fromhex(salt) + name.encode("utf-8", "surrogatepass")).hexdigest()


def no_receipt(receipt: str) -> NotFound:
    """Return the same error for a missing receipt and for one of other users."""
    return NotFound(f"Unknown receipt {receipt!r}. Run `cuebook memory receipt list` to list receipts.")
