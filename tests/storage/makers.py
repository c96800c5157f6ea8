"""Factories for test records: drafts, manifests and step openings, with short arguments."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cuebook.interfaces.store import Scene, StepStart
from cuebook.memory.tokenizer import words
from cuebook.records.conversation import Draft, Part, PostState, Role, digest_of
from cuebook.records.turn import Manifest
from cuebook.testing.doubles import BEGINNING


def said_digest(role: Role, sender: str, message: str, parts: Sequence[Part] = ()) -> bytes:
    """Return a simple digest of a message's content."""
    return digest_of(msgspec.json.encode((role, sender, message, parts)))


def draft(
    id: str,  # noqa: A002
    message: str,
    *,
    role: Role = "user",
    sender: str = "",
    tokens: int = 0,
    small: str | None = None,
    small_tokens: int = 0,
    key: str | None = None,
    parts: Sequence[Part] = (),
    wire: bytes | None = None,
    created_at: float = BEGINNING,
    state: PostState = "complete",
) -> Draft:
    """Return a draft. By default each word is a token, and the search key is speaker and message."""
    sender = sender or ("ann" if role == "user" else role)
    return Draft(
        id=id,
        sender=sender,
        recipient="assistant" if role == "user" else "ann",
        role=role,
        message=message,
        created_at=created_at,
        tokens=tokens or len(message.split()) + 1,
        digest=said_digest(role, sender, message, parts),
        parts=tuple(parts),
        wire=wire,
        small=small,
        small_tokens=small_tokens or (len(small.split()) + 1 if small else 0),
        key=" ".join(words(f"{sender} {message}")) if key is None else key,
        state=state,
    )


def drafts(*messages: str, prefix: str = "p", start: int = 1, created_at: float = BEGINNING) -> tuple[Draft, ...]:
    """Return drafts of user and assistant in turn, with ids p1, p2, … and a minute between them."""
    roles: tuple[Role, Role] = ("user", "assistant")
    return tuple(
        draft(f"{prefix}{start + n}", message, role=roles[n % 2], created_at=created_at + 60 * n)
        for n, message in enumerate(messages)
    )


def manifest(**changes: Any) -> Manifest:
    """Return the manifest of an empty window."""
    empty: dict[str, Any] = {
        "renderer": 1, "budget": 1000, "tokens": 0, "front": (), "path": (), "volatile": (), "query": 0,
        "fence": "f", "dropped": (), "anchors": (), "digest": "0" * 32,
    }  # fmt: skip
    return Manifest(**empty | changes)


def opening(conversation: str, *drafts: Draft, now: float = BEGINNING, **changes: Any) -> StepStart:
    """Return the opening of a step in an empty conversation."""
    values: dict[str, Any] = {
        "expected_head": 0, "expected_last_seq": 0, "parent": 0, "drafts": drafts, "manifest": manifest(),
        "texts": {}, "lease_s": 30.0, "query_seq": 1 if drafts else 0,
    }  # fmt: skip
    return StepStart(conversation=conversation, now=now, **values | changes)


def opening_at(scene: Scene, conversation: str, *drafts: Draft, now: float = BEGINNING, **changes: Any) -> StepStart:
    """Return an opening based on a scene: the drafts follow its parent, and the last draft is the query."""
    row = scene.conversation
    last_seq = row.last_seq if row else 0
    values: dict[str, Any] = {
        "expected_head": row.head if row else 0,
        "expected_last_seq": last_seq,
        "parent": scene.parent,
        "query_seq": last_seq + len(drafts) if drafts else scene.parent,
    }
    return opening(conversation, *drafts, now=now, **values | changes)
