"""Protocols for the clock and for random ids, so that tests and replays can replace them."""

from typing import Protocol


class Clock(Protocol):
    """Clock. A replay returns the times of its posts."""

    def now(self) -> float:
        """Return the current Unix time in seconds."""
        ...


class Dice(Protocol):
    """Generator of unique ids."""

    def new_id(self, prefix: str) -> str:
        """Return a new id that starts with `prefix` and a hyphen."""
        ...
