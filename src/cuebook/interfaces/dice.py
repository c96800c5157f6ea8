"""Chance and new ids, as an argument somebody gives."""

from typing import Protocol


class Clock(Protocol):
    """Tells the time; a replay tells the time of its posts."""

    def now(self) -> float:
        """Return the current Unix time in seconds."""
        ...


class Dice(Protocol):
    """Makes ids nobody has made before."""

    def new_id(self, prefix: str) -> str:
        """Return a fresh id that begins with `prefix` and a hyphen."""
        ...
