"""Records for the conversation list and the reader: titles, branches, and the turns that answered rounds."""

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
    said: str = ""  # the start of the first user post
    branches: int = 0  # paths from the root to a leaf of its tree
    tokens: int = 0  # of its newest prompt, by our counter
    state: TurnState | None = None  # of its newest turn; None without one
    shadow: bool = False  # its newest turn ran in shadow mode


class TurnEntry(Struct, frozen=True, kw_only=True):
    """A turn in a transcript."""

    turn: int
    round: int
    state: TurnState
    query_seq: int
    replies: dict[int, int] = {}  # the step by the seq of its answer
    tokens: int = 0  # of its newest prompt
    error: str = ""  # of its newest step
    shadow: bool = False


class PostPlace(Struct, frozen=True, kw_only=True):
    """The position, sender and time of a post."""

    id: str
    seq: int
    role: Role
    sender: str
    at: float  # Unix seconds
