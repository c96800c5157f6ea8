"""Protocols for erasure and for the audit log: delete data in one transaction, then clean the files."""

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from cuebook.records.conversation import PathPost
from cuebook.records.erasure import Receipt, Target
from cuebook.records.memory import Correction


class ErasureInput(Struct, frozen=True, kw_only=True):
    """An erasure: its target, its receipt so far, the time, and a function that counts the tokens
    of a redacted post.
    """

    target: Target
    receipt: Receipt
    now: float
    weigh: Callable[[PathPost], int]
    corrections: tuple[Correction, ...] = ()  # removed from conversations
    posts: Mapping[str, Collection[int]] = {}  # of items: by conversation, their posts by seq
