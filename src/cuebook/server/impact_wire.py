"""What a change of a prompt costs, as `/api/prompts/{id}/diff` answers it."""

from msgspec import Struct


class TokenChange(Struct, frozen=True, kw_only=True, rename="camel"):
    """Tokens before and after."""

    before: int
    after: int
    change: int


class TurnOf(Struct, frozen=True, kw_only=True, rename="camel"):
    """A turn of a conversation."""

    conversation_id: str
    turn: int


class MovedBlocks(Struct, frozen=True, kw_only=True, rename="camel"):
    """Blocks of a kind (`memory`, `post`, …) that left windows or came in: in how many turns, and how many in all.

    `at`: the newest of these turns, 20 at most, of conversations that who asks may read.
    """

    kind: str
    turns: int
    share: float
    total: int
    mean: float
    tokens: int
    at: list[TurnOf]


class TurnsByReason(Struct, frozen=True, kw_only=True, rename="camel"):
    """Why something could not be done, and in how many turns."""

    reason: str
    turns: int


class ImpactAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """What version `b` would have done to the windows of the last turns in the place of `a`.

    `share`: the turns in which something more is left out. `tokens`: the prompt as rendered, `window`: all of it, both
    as means. `prefixKept`: bytes from the front that stay. `refused`: turns whose window could not have been made.
    `shortenedAt`, `refusedAt`: the newest of these turns, 20 at most.
    `reproduced`: turns whose window comes out as it was sent, byte for byte. `missed`: turns that are not measured.
    """

    summary: str
    turns: int
    looked_at: int
    share: float
    tokens: TokenChange
    window: TokenChange
    left_out: list[MovedBlocks]
    let_in: list[MovedBlocks]
    shortened: int
    shortened_at: list[TurnOf]
    prefix_kept: float
    refused: int
    refused_at: list[TurnOf]
    reproduced: int
    unsaid: list[TurnsByReason]
    missed: list[TurnsByReason]
