"""Conversations of the reference store: every query walks the whole tree and computes its answer anew.

A post's seq is its index in the list. A path follows the parents.
"""

from dataclasses import dataclass, field
from typing import Any

from cuebook.records.conversation import ASSISTANT, Draft, Post, RoundState
from cuebook.records.memory import Item, Scope, Summary


@dataclass(frozen=True)
class ReferencePost:
    """A stored post: its position in the tree and its draft."""

    seq: int
    parent: int
    round: int
    draft: Draft

    def as_post(self) -> Post:
        """Return the post as a store returns it."""
        d = self.draft
        return Post(
            id=d.id, seq=self.seq, parent=self.parent, round=self.round, sender=d.sender, recipient=d.recipient,
            role=d.role, message=d.message, created_at=d.created_at, tokens=d.tokens, parts=d.parts, wire=d.wire,
            state=d.state, digest=d.digest,
        )  # fmt: skip


@dataclass
class Step:
    """One model call."""

    n: int
    base: int
    moves_head: bool
    state: str = "running"
    partial: Draft | None = None
    reply: int = 0


@dataclass
class Turn:
    """One turn: the steps that answer a round."""

    n: int
    round: int
    query: int
    state: str = "running"
    waiting: bool = False
    reply: int = 0
    metadata: dict[str, Any] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)


@dataclass
class Digest:
    """A summary: its version, the version it extends, and the items that the pass changed."""

    version: int
    previous: int
    summary: Summary
    items: tuple[Item, ...]


@dataclass
class ReferenceConversation:
    """A conversation."""

    no: int
    tenant: str
    id: str
    user: str | None
    updated_at: float
    posts: list[ReferencePost] = field(default_factory=list)
    head: int = 0
    turns: list[Turn] = field(default_factory=list)
    fence: int = 0
    leased: int = 0
    until: float = 0.0
    open_round: int = 0
    digests: list[Digest] = field(default_factory=list)
    keys: dict[str, tuple[bytes, int, int]] = field(default_factory=dict)  # digest, turn and step

    def seen_by(self, scope: Scope) -> bool:
        """Return whether the caller takes part in the conversation."""
        return scope.tenant == self.tenant and (scope.user is None or self.user in (None, scope.user))

    def seq_of(self, post: str) -> int:
        """Return the seq of a post, or 0 if it does not exist."""
        return next((kept.seq for kept in self.posts if kept.draft.id == post), 0)

    def path(self, head: int) -> list[int]:
        """Return the seqs from the root to a post."""
        found = []
        while head:
            found.append(head)
            head = self.posts[head - 1].parent
        return found[::-1]

    def tokens(self, seqs: list[int]) -> int:
        """Add up the tokens of posts."""
        return sum(self.posts[seq - 1].draft.tokens for seq in seqs)

    def mark(self, head: int) -> tuple[int, int]:
        """Return seq and version of the summary that reaches farthest on the path to a post, or (0, 0)."""
        path = set(self.path(head))
        return max(
            ((d.summary.upto_seq, d.version) for d in self.digests if d.summary.upto_seq in path), default=(0, 0)
        )

    def backlog(self) -> list[int]:
        """Return the seqs on the head's path after its mark."""
        mark, _ = self.mark(self.head)
        return [seq for seq in self.path(self.head) if seq > mark]

    def is_free(self, key: str, digest: bytes) -> bool:
        """Return whether a key may be reused: its step ended without a full answer, and the request is equal."""
        known, turn, step = self.keys[key]
        return (
            known == digest and bool(turn) and self.turns[turn - 1].steps[step - 1].state in ("failed", "interrupted")
        )

    def round_states(self) -> dict[int, RoundState]:
        """Return the state of each round that has one."""
        states: dict[int, RoundState] = {
            kept.round: "finished" for kept in self.posts if kept.round and kept.draft.role == ASSISTANT
        }
        for turn in self.turns:
            if turn.round:
                states[turn.round] = {"finished": "finished", "running": "created"}.get(turn.state, "failed")  # type: ignore[assignment]
        return states

    def items(self, *, ended: bool = False) -> list[Item]:
        """Return the memory items of the head's summary, after all passes that led to it."""
        line = []
        _, version = self.mark(self.head)
        while version:
            line.append(self.digests[version - 1])
            version = line[-1].previous
        newest = {item.id: item for digest in reversed(line) for item in digest.items}
        found = [item for item in newest.values() if ended or item.valid_to is None]
        return sorted(found, key=lambda item: (item.seq, item.id))
