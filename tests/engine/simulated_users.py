"""Simulate users whose next message depends on the prompt variant that answered them.

They never submit feedback: their words alone show whether they are pleased. Tests and benchmarks of prompt learning
use them.
"""

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from cuebook.interfaces import ModelRequest, Piece

PLEASED: Final = (
    "Perfect, thank you so much!", "That works now, thanks!", "Great answer, very helpful.", "Excellent, thanks!",
    "I love it, that is really good.", "Wonderful, this helps me a lot.", "Nice, that solved it. You are awesome!",
)  # fmt: skip
NEUTRAL: Final = (
    "And which day of the week is that?", "Show me the next step.", "How long does it take?", "And the second one?",
    "Put it into a table.", "Where do I find it?", "Add a line for the total.",
)  # fmt: skip
DISPLEASED: Final = (
    "This is terrible, I hate it.", "No, that's not what I asked.", "That is useless.", "It still doesn't work!",
    "What an awful answer, very disappointing.", "You misunderstood me again.", "This is so frustrating and bad.",
)  # fmt: skip


class Taste(Struct, frozen=True):
    """Hold the rates of pleased and displeased replies to an answer; the remaining replies are neutral."""

    pleased: float
    displeased: float


class Echo:
    """A model that answers with the mark of the variant in its prompt: `marks` maps variant text to mark."""

    def __init__(self, marks: Sequence[str]) -> None:
        self._marks = tuple(marks)

    @property
    def name(self) -> str:
        """Return the model's name for turn records."""
        return "echo"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Answer with the mark."""
        prompt = b"\n".join(request.messages).decode()
        mark = next((each for each in self._marks if each in prompt), "nothing")
        yield Piece(text=f"An answer as {mark} would have it.")
        yield Piece(finish="stop")

    async def aclose(self) -> None:
        """Do nothing: the model holds no resource."""


class SimulatedUsers:
    """Users with a taste for each mark. The same seed produces the same messages."""

    def __init__(self, tastes: Mapping[str, Taste], *, seed: int = 7) -> None:
        self._tastes = dict(tastes)
        self._dice = random.Random(seed)  # a choice of phrases, not a secret

    def opening(self) -> str:
        """Return an opening message."""
        return self._dice.choice(NEUTRAL)

    def next_message(self, reply: str) -> str:
        """Return the user's message after a reply."""
        taste = next(taste for mark, taste in self._tastes.items() if mark in reply)
        roll = self._dice.random()
        kind = PLEASED if roll < taste.pleased else DISPLEASED if roll < taste.pleased + taste.displeased else NEUTRAL
        return self._dice.choice(kind)

    def rounds(self) -> int:
        """Return the number of rounds of a conversation."""
        return self._dice.randint(3, 7)
