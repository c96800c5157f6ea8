"""People who talk with a book: what they say next depends on which variant of a prompt answered them.

They never observe anything: they say in words whether they are pleased. For tests and figures of what prompts learn
from that alone.
"""

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from cuebook.interfaces.model import ModelRequest, Piece

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
    """How often people are pleased and displeased with an answer; the rest of the time they say neither."""

    pleased: float
    displeased: float


class Echo:
    """A model that answers with the mark of the variant that stands in its prompt: `marks` by what the text holds."""

    def __init__(self, marks: Sequence[str]) -> None:
        self._marks = tuple(marks)

    @property
    def name(self) -> str:
        """Its name, in turn records."""
        return "echo"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Answer."""
        prompt = b"\n".join(request.messages).decode()
        mark = next((each for each in self._marks if each in prompt), "nothing")
        yield Piece(text=f"An answer as {mark} would have it.")
        yield Piece(finish="stop")

    async def aclose(self) -> None:
        """Nothing is held open."""


class Audience:
    """People with a taste for each mark. The same seed says the same."""

    def __init__(self, tastes: Mapping[str, Taste], *, seed: int = 7) -> None:
        self._tastes = dict(tastes)
        self._dice = random.Random(seed)  # what people say, no secret

    def begins(self) -> str:
        """Say something first."""
        return self._dice.choice(NEUTRAL)

    def answers(self, reply: str) -> str:
        """Say what one says to a reply."""
        taste = next(taste for mark, taste in self._tastes.items() if mark in reply)
        roll = self._dice.random()
        kind = PLEASED if roll < taste.pleased else DISPLEASED if roll < taste.pleased + taste.displeased else NEUTRAL
        return self._dice.choice(kind)

    def rounds(self) -> int:
        """Say how long a conversation lasts."""
        return self._dice.randint(3, 7)
