"""Usage records: the tokens of a model call, compared with sending the full history; and shadow mode."""

from typing import Any

from msgspec import Struct

from cuebook.records.turn import TurnState, Usage


class CallUsageRecord(Struct, frozen=True, kw_only=True):
    """A model call. Tokens are counted by Cuebook, except `usage`, which the provider reported."""

    turn: int
    step: int
    state: TurnState
    tokens: int  # the prompt
    whole: int  # the same with every earlier post verbatim, and without summary and memories
    posts: int  # on the path before the answer
    reply: int  # the answer
    at: float  # when its turn began, in Unix seconds
    usage: Usage | None = None
    cache: dict[str, Any] | None = None  # cache report of the turn's newest step
    model: str = ""  # as reported by the provider; "" if unknown
    shadow: bool = False  # shadow mode: the prompt was not sent


# ---- shadow mode ----------------------------------------------------------------------------------------------------


class CacheEstimate(Struct, frozen=True, omit_defaults=True):
    """Estimated input tokens of a request by cache use: uncached, read, written."""

    uncached: int = 0
    read: int = 0
    write: int = 0


class ShadowCallUsage(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A call in shadow mode. Tokens are counted by Cuebook; posts are those on the path before the call."""

    model: str = ""
    added_ms: float = 0.0
    lost: dict[str, int] = {}  # earlier calls that could not be recorded, by reason
    refused: int = 0  # the upstream's error status; such a call is free and not cached
    client_tokens: int = 0  # messages and tools as the client sent them
    window_tokens: int = 0  # messages and tools as Cuebook would have sent them
    rule: str = ""  # the cache rule of both estimates; "" = no estimate
    client: CacheEstimate | None = None
    ours: CacheEstimate | None = None
    path: int = 0  # posts before the call
    neither: int = 0  # in neither prompt
    neither_seqs: tuple[int, ...] = ()  # the newest of them
    client_alone: int = 0  # in the client's prompt only
    condensed: int = 0  # in the client's prompt, and in ours covered by the summary
    ours_alone: int = 0  # only in ours (verbatim, covered by the summary or recalled)
    truncated_seqs: tuple[int, ...] = ()  # posts that the client truncates from this call on
    parted: int = 0  # calls without their results in the client's messages, and results without their calls


class ShadowedCall(Struct, frozen=True, kw_only=True):
    """The location of a recorded call, the provider's usage, and the answer's tokens counted by Cuebook."""

    conversation: str
    turn: int
    step: int
    entry: ShadowCallUsage
    usage: Usage | None = None
    reply_tokens: int = 0
