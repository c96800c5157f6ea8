"""Optimizer records: a conversation's tuned parameters, the states of its posts, and each run.

Source: C, "Adaptive Optimizer".
"""

from msgspec import Struct

#: The target of BrowserOS's optimizer: share of the budget in use.
TARGET = 0.65


class TuningState(Struct, frozen=True, kw_only=True, rename="camel"):
    """A conversation's parameters after its last run, and the results of all runs so far.

    `compressed`, `dropped` and `promoted` map the seqs of posts to the run that changed them.
    """

    compression_trigger: float = 0.7  # share of the message budget from which older posts are compressed
    full_message_window: int = 30  # newest posts that are kept verbatim
    min_relevance: float = 0.3  # below it a post is compressed, then dropped
    target_usage_ratio: float = TARGET
    runs: int = 0
    tokens_saved: int = 0
    compressed: dict[int, int] = {}
    dropped: dict[int, int] = {}
    promoted: dict[int, int] = {}


class Snapshot(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One run: tokens of the posts after the summary, before and after the run, and the resulting parameters."""

    conversation_id: str
    tokens_before: int
    tokens_after: int
    entries_compressed: int
    entries_dropped: int
    entries_promoted: int
    compression_trigger_ratio: float
    full_message_window: int
    min_relevance_score: float
    timestamp: float  # Unix seconds
    served: float | None = None  # the mean score of the newest rounds with feedback
    untuned: str = ""  # why nothing was tuned; such a run is not stored


class ByType(Struct, frozen=True, kw_only=True):
    """BrowserOS's three tiers: posts, items of conversations, long-term memories."""

    short_term: int
    long_term: int
    cross_session: int


class MemoryStats(Struct, frozen=True, kw_only=True, rename="camel"):
    """Counts of what is stored in memory; `compressed` are posts covered by a summary."""

    total: int
    by_type: ByType
    compressed: int
