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
