"""What reads how a message sounds: a method of sentiment tracking."""

from typing import Protocol

from cuebook.records.mind import Sentiment


class Analyzer(Protocol):
    """Reads texts. Pure and quick: it is asked within the turn, before the reply, so it waits for nothing."""

    @property
    def name(self) -> str:
        """Name the method, as a persona's `sentimentTracking.method` does."""
        ...

    def read(self, text: str) -> Sentiment:
        """Say how a text sounds; of one it cannot read, polarity `unknown` with score and intensity 0."""
        ...
