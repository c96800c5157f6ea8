"""How an answer of Anthropic's wire is read while it is relayed."""

import msgspec
from msgspec import Struct, field

from cuebook.errors import InvalidInput
from cuebook.records.anthropic_messages import read_reply
from cuebook.records.anthropic_stream import Grown, grow, take_message
from cuebook.records.openai_stream import Events, read_event
from cuebook.records.turn import Usage

#: Why an answer ended that waits for the results of its calls.
_CALLS = "tool_use"


class MessageHeard(Struct):
    """What an answer has said so far; grown in place."""

    grown: Grown = field(default_factory=Grown)
    events: Events = field(default_factory=Events)

    @property
    def done(self) -> bool:
        """Whether the stream has said that it is done."""
        return self.grown.done

    @property
    def whole(self) -> bool:
        """Whether it was said to its end."""
        return self.grown.begun and bool(self.grown.stop or self.grown.done)

    @property
    def waits(self) -> bool:
        """Whether calls of it are to be answered before it goes on."""
        return self.grown.stop == _CALLS

    @property
    def usage(self) -> Usage | None:
        """What the provider counted, of its input what was read of its cache or written to it too."""
        return self.grown.usage

    @property
    def error(self) -> str:
        """Why it is none, as the provider says."""
        return self.grown.error

    @property
    def frame(self) -> dict[str, str]:
        """Which answer it is and who gave it."""
        return {"id": self.grown.id, "model": self.grown.model}

    @property
    def choices(self) -> tuple[int, ...]:
        """The one answer there is."""
        return (0,)

    @property
    def reasons(self) -> list[str | None]:
        """Why it ended, as Anthropic names it."""
        return [self.grown.stop or None]

    def hear(self, line: bytes) -> str:
        """Take in a line of a stream; answers with what it adds to the text."""
        return grow(self.grown, self.events.read(line))

    def take(self, body: bytes) -> None:
        """Take in an answer in one piece."""
        message = read_event(body)
        if isinstance(message, dict):
            take_message(self.grown, message)

    def message(self, choice: int = 0) -> bytes | None:
        """Give what came as one chat message."""
        if choice or not self.grown.begun or not (self.grown.blocks or self.whole):
            return None
        try:
            return read_reply(self.grown.content)
        except (InvalidInput, msgspec.MsgspecError):
            return None
