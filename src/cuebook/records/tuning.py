"""What tunes itself in a conversation: its parameters, what became of its posts, and the record of each run (C,
"Adaptive Optimizer").
"""

from msgspec import Struct

#: What C's optimizer aims at: so much of the room in use.
TARGET = 0.65


class Tuning(Struct, frozen=True, kw_only=True, rename="camel"):
    """A conversation's parameters as its last run left them, and what the runs so far came to.

    `compressed`, `dropped` and `promoted` say of posts, by seq, in which run they became that.
    """

    compression_trigger: float = 0.7  # usage from which on older posts are compressed, of the room for posts
    full_message_window: int = 30  # newest posts kept in full
    min_relevance: float = 0.3  # below it a post is compressed, then dropped
    target_usage_ratio: float = TARGET
    runs: int = 0
    tokens_saved: int = 0
    compressed: dict[int, int] = {}
    dropped: dict[int, int] = {}
    promoted: dict[int, int] = {}


class Snapshot(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One run: tokens of the posts behind the summary before and after it, and the parameters it left."""

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
    served: float | None = None  # the mean score of the newest rounds, where users said something of them
    untuned: str = ""  # why nothing was tuned; such a run is not kept


class TuningTotals(Struct, frozen=True, kw_only=True):
    """What all runs came to, and the parameters in force: the conversation's named, else those tuned last."""

    runs: int = 0
    tokens_saved: int = 0
    current: Tuning | None = None


class Tally(Struct, frozen=True, kw_only=True):
    """How much there is: posts of all branches, those of them under a summary, items, memories of places."""

    short_term: int = 0
    long_term: int = 0
    cross_session: int = 0
    compressed: int = 0
