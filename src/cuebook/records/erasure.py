"""What forgetting is: what was asked, the receipt that says what went, and a hold that forbids it."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

#: What can be forgotten.
Kind = Literal["user", "conversation", "persona", "organization", "memory"]
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

    It is `pending`, and not signed, while a byte may still be left in a file; then `done`. `signature` is Ed25519 over
    the RFC 8785 form of all other fields, `origin` the key's public half.
    """

    id: str
    state: Literal["pending", "done"]
    kind: Kind
    asked: tuple[str, ...]
    salt: str
    reason: str = ""
    counts: Mapping[str, int] = {}  # rows that went, by kind
    epoch: int = 0
    requested_at: str = ""  # ISO 8601 UTC
    finished_at: str = ""
    origin: str = ""
    signature: str = ""  # "ed25519:" and base64


class Hold(Struct, frozen=True, kw_only=True, rename="camel"):
    """A legal hold: what it names, and what belongs to it, is not forgotten until it is released."""

    id: str
    kind: Kind
    owner: str
    reason: str = ""
    created_at: str = ""
