"""What comes and goes under `/learning/memory` and `/learning/optimizer`, as types."""

from typing import Annotated

from msgspec import Meta, Struct

from cuebook.server.wire import In, Text


class DigestBody(In, frozen=True, kw_only=True):
    """Of which conversation how many of the newest posts."""

    conversation_id: Text
    user_id: str | None = None
    last: Annotated[int, Meta(ge=1, le=1000)] = 15


class AnalyzeBody(In, frozen=True, kw_only=True):
    """Which conversation to judge."""

    conversation_id: Text
    user_id: str | None = None


class RunBody(In, frozen=True, kw_only=True):
    """Where to run; without `conversationId` wherever something changed since the last run."""

    conversation_id: Text | None = None
    user_id: str | None = None


class CompressedAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """A shortened text, and its tokens before and after."""

    text: str
    tokens_before: int
    tokens_after: int


class SnapshotAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """A run; `conversationId` is null where several are summed up, and `untuned` says why nothing was tuned.

    `served` is the mean score of the newest rounds, where users said something of them: below 0.5 no step takes more.
    """

    conversation_id: str | None
    tokens_before: int
    tokens_after: int
    entries_compressed: int
    entries_dropped: int
    entries_promoted: int
    compression_trigger_ratio: float
    full_message_window: int
    min_relevance_score: float
    timestamp: str
    served: float | None = None
    untuned: str | None = None


class SnapshotList(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Runs, newest first."""

    items: list[SnapshotAnswer]
    next: str | None = None
