"""What a model call took, beside what sending all that was said before it would have taken."""

from typing import Any

from msgspec import Struct

from cuebook.records.turn import TurnState, Usage


class Spent(Struct, frozen=True, kw_only=True):
    """A model call. Tokens are by our counter, but those of `usage`, as the provider counted them."""

    turn: int
    step: int
    state: TurnState
    tokens: int  # the prompt
    whole: int  # the same with every post before the answer in full, and no summary or memory in their place
    posts: int  # on the path before the answer
    reply: int  # the answer
    at: float  # when its turn began, in Unix seconds
    usage: Usage | None = None
    cache: dict[str, Any] | None = None  # what the turn tells of the cache: of its newest step
    model: str = ""  # as the provider named it; "" where nobody did
    shadow: bool = False  # it passed in shadow: the prompt was not sent


# ---- shadow mode ----------------------------------------------------------------------------------------------------


class Reckoned(Struct, frozen=True, omit_defaults=True):
    """Input tokens of a request as a provider's cache would take them: in full, read, written."""

    uncached: int = 0
    read: int = 0
    write: int = 0


class Shadowed(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A call that passed. Tokens are ours to count; posts are those stored on the path before the call."""

    model: str = ""
    added_ms: float = 0.0
    lost: dict[str, int] = {}  # calls that could not be kept before this one, by reason
    refused: int = 0  # the status by which the upstream refused it: it cost nothing, and no cache keeps it
    client_tokens: int = 0  # messages and tools as the client sent them
    window_tokens: int = 0  # the same as they would have been sent
    rule: str = ""  # the cache's that both are reckoned by; "" = not reckoned
    client: Reckoned | None = None
    ours: Reckoned | None = None
    path: int = 0  # posts before the call
    neither: int = 0  # in neither prompt
    neither_seqs: tuple[int, ...] = ()  # a few of them, the newest
    client_alone: int = 0  # in the client's, left out of ours
    condensed: int = 0  # in the client's, and in ours under the summary
    ours_alone: int = 0  # in ours (whole, under the summary or recalled), no more in the client's
    truncated_seqs: tuple[int, ...] = ()  # posts the client sends cut short from this call on
    parted: int = 0  # calls without their results in the client's messages, and results without their calls


class ShadowedCall(Struct, frozen=True, kw_only=True):
    """Where a call was kept, what the provider counted, and the tokens of its answer by our counter."""

    conversation: str
    turn: int
    step: int
    entry: Shadowed
    usage: Usage | None = None
    reply_tokens: int = 0
