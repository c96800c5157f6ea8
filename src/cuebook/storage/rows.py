"""Encode and decode posts by position, and map summaries and turns, which have more than their columns."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cuebook.records.conversation import Draft, Part, Post
from cuebook.records.memory import Summary
from cuebook.records.turn import Step, Turn
from cuebook.storage.database.record import record
from cuebook.storage.database.transaction import Row

_parts = msgspec.json.Decoder(tuple[Part, ...])
_body = msgspec.msgpack.Decoder(tuple[str, bytes | None, bytes | None])
draft_decoder = msgspec.msgpack.Decoder(Draft)

#: Larger bodies (in bytes) are stored in `blob`, so that rows stay small enough to scan (page size 8192).
INLINE = 4096
#: The separator in `made_by` between a model's name and its prompt version.
TOLD = "\x1f"


def encode_parts(parts: Sequence[Part]) -> bytes | None:
    """Return parts as JSON, None for none."""
    return msgspec.json.encode(parts) if parts else None


def encode_body(message: str, parts: bytes | None, wire: bytes | None) -> bytes:
    """Return a large post's body as one blob."""
    return msgspec.msgpack.encode((message, parts, wire))


def decode_body(blob: bytes) -> tuple[str, bytes | None, bytes | None]:
    """Return the message, parts and wire of a large post."""
    return _body.decode(blob)


def decode_parts(raw: bytes | None) -> tuple[Part, ...]:
    """Parse parts from JSON."""
    return _parts.decode(raw) if raw else ()


def post(row: Sequence[Any], body: bytes | None) -> Post:
    """Parse a post from a row of `posts_stretch`; `body` is its blob, if any."""
    id_, seq, parent, round_, sender, recipient, role, message, created_at, tokens, parts, wire, state, digest, _ = row
    if body is not None:
        message, parts, wire = decode_body(body)
    return Post(
        id=id_,
        seq=seq,
        parent=parent,
        round=round_,
        sender=sender,
        recipient=recipient,
        role=role,
        message=message or "",
        created_at=created_at,
        tokens=tokens,
        parts=decode_parts(parts),
        wire=wire,
        state=state,
        digest=digest,
    )


def summary(row: Row) -> Summary:
    """Parse a summary's row."""
    made_by, _, prompt = row["made_by"].partition(TOLD)
    return record(Summary, row, made_by=made_by, prompt=prompt)


def turn(row: Row, steps: Sequence[Row]) -> Turn:
    """Parse a turn's row with its steps."""
    partial = steps[-1]["partial"] if steps else None
    return record(
        Turn,
        row,
        steps=tuple(record(Step, each) for each in steps),
        partial=draft_decoder.decode(partial).message if partial else "",
    )
