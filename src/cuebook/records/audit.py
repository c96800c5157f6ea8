"""Audit log records: a hash chain of events, signed checkpoints, and the result of a verification.

A record contains personal texts as salted commitments. Text and salt are stored beside it (`texts`) and are not
hashed, so that they can be erased without breaking the chain.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

#: Fields with personal text: a record contains SHA-256(salt + text) of each in hex, "" for no text.
PERSONAL = ("input_context", "interpolated_text", "output_summary")
#: `prev` of the first record.
GENESIS = "0" * 64
#: The event of a record whose row is damaged.
UNREADABLE = "unreadable"


class CommittedText(Struct, frozen=True):
    """A text and the salt of its commitment (hex, 16 bytes)."""

    text: str
    salt: str


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event of a prompt. The first seven fields are kAI's.

    `hash` = SHA-256 of the RFC 8785 form of all fields except `hash` and `texts`. Fields at their default are omitted,
    so that a field added later does not change old hashes.
    """

    timestamp: str  # ISO 8601 UTC
    agent: str
    prompt_id: str
    version: str
    input_context: str  # these three are commitments; `texts` has the plain text until it is erased
    interpolated_text: str
    output_summary: str
    event: str  # render, select, observe, rollback, write, label, …
    seq: int  # counts from 1, no gap
    prev: str = ""  # the hash of the record before it
    hash: str = ""
    render_id: str = ""
    digest: str = ""  # of the Version that was used
    propensity: float | None = None
    selection: Mapping[str, Any] | None = None  # how the version was selected: scores, signals
    conversation: str = ""
    turn: int = 0
    texts: Mapping[str, CommittedText] = {}  # by field name; JSON for `input_context`


def unreadable(seq: int) -> Record:
    """Return a placeholder for an unreadable record, which fails verification."""
    return Record(
        timestamp="",
        agent="",
        prompt_id="",
        version="",
        input_context="",
        interpolated_text="",
        output_summary="",
        event=UNREADABLE,
        seq=seq,
    )


class Checkpoint(Struct, frozen=True, kw_only=True):
    """A signed statement that the chain of `origin` had `size` records, the last with hash `root`, at `time`."""

    origin: str
    size: int
    root: str
    time: str  # ISO 8601 UTC
    signature: str = ""  # "ed25519:" and base64


class Verdict(Struct, frozen=True, kw_only=True):
    """The result of a verification. `first_bad` is the first position, from 1, that is proven to be altered."""

    ok: bool
    records: int
    first_bad: int | None = None
    reason: str = ""
    erased: int = 0  # records with an erased text, which is still valid
    signed: int = 0  # covered by a checkpoint; a truncation after it cannot be detected
