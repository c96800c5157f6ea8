"""The time, as an argument somebody gives."""

from typing import Protocol


class Clock(Protocol):
    """Tells the time; a replay tells the time of its posts."""

    def now(self) -> float:
        """Give the current Unix time in seconds."""
        ...
