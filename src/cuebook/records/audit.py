"""What is proven of each prompt: a record per event, chained by hash; signed checkpoints; what a check of them says.

Personal texts stand in a record as salted commitments. Text and salt lie beside it (`texts`), outside of what is
hashed, so that they can be erased and the chain stays whole.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

#: The fields whose text may be somebody's: a record holds SHA-256(salt + text) of each in hex, "" where there was none.
PERSONAL = ("input_context", "interpolated_text", "output_summary")
#: What `prev` of the first record says.
GENESIS = "0" * 64
#: The event of a record whose row somebody damaged.
UNREADABLE = "unreadable"


class CommittedText(Struct, frozen=True):
    """A text and the salt it was committed with (hex, 16 bytes)."""

    text: str
    salt: str


class Record(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that was done with a prompt. The first seven fields are E's (seed 004, V).

    `hash` = SHA-256 of the RFC 8785 form of all fields but `hash` and `texts`, those at their default left out: a field
    added later leaves old hashes as they were.
    """

    timestamp: str  # ISO 8601 UTC
    agent: str
    prompt_id: str
    version: str
    input_context: str  # these three: commitments; `texts` holds what was said until it is erased
    interpolated_text: str
    output_summary: str
    event: str  # render, select, observe, rollback, write, label, …
    seq: int  # counts from 1, no gap
    prev: str = ""  # the hash of the record before it
    hash: str = ""
    render_id: str = ""
    digest: str = ""  # of the Version that spoke
    propensity: float | None = None
    selection: Mapping[str, Any] | None = None  # how the version was chosen: scores, signals
    conversation: str = ""
    turn: int = 0
    texts: Mapping[str, CommittedText] = {}  # by the name of the field; JSON in `input_context`


def unreadable(seq: int) -> Record:
    """Return what stands for a record that cannot be read any more: nothing proves it."""
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
    """What a check of the chain found. `first_bad` is the first place, from 1, that is proven not to be as written."""

    ok: bool
    records: int
    first_bad: int | None = None
    reason: str = ""
    erased: int = 0  # records of which a text was erased; that breaks nothing
    signed: int = 0  # up to here a checkpoint vouches; a tail cut behind it cannot be seen
