"""A conversation as lists and readers see it: its first words, its branches, and what answered its rounds."""

from msgspec import Struct

from cuebook.records.conversation import Conversation, Role
from cuebook.records.turn import TurnState


class PostRun(Struct, frozen=True):
    """Posts `first`..`last`, each but the first after the one before; the first follows `parent`, 0 at a root."""

    first: int
    last: int
    parent: int


class ConversationSummary(Struct, frozen=True, kw_only=True):
    """A conversation in a list."""

    conversation: Conversation
    said: str = ""  # how the first post of a user begins
    branches: int = 0  # ways through its tree from the root to a last post
    tokens: int = 0  # of its newest prompt, by our counter
    state: TurnState | None = None  # of its newest turn; None where there is none
    shadow: bool = False  # its newest turn passed in shadow


class ConversationSummaries(Struct, frozen=True):
    """A page of conversations and the cursor of the next, if there is more."""

    items: tuple[ConversationSummary, ...]
    cursor: str | None = None


class Answering(Struct, frozen=True, kw_only=True):
    """A turn as it stands in a transcript."""

    turn: int
    round: int
    state: TurnState
    query_seq: int
    replies: dict[int, int] = {}  # the step by the seq of what it said
    tokens: int = 0  # of its newest prompt
    error: str = ""  # of its newest step
    shadow: bool = False


class PostPlace(Struct, frozen=True, kw_only=True):
    """Where a post stands and who said it when."""

    id: str
    seq: int
    role: Role
    sender: str
    at: float  # Unix seconds
