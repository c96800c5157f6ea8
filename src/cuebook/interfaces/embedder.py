"""What turns texts into vectors that lie close where the texts mean the same."""

from collections.abc import Sequence
from typing import Protocol


class Embedder(Protocol):
    """Embeds texts. Vectors of different names are never compared."""

    @property
    def name(self) -> str:
        """Name the model and its weights: another name is another space of vectors."""
        ...

    @property
    def dimension(self) -> int:
        """Numbers in a vector; 0 until the first answer tells."""
        ...

    @property
    def languages(self) -> frozenset[str]:
        """Languages it knows (ISO 639-1); empty = any. It is not asked about text of others."""
        ...

    @property
    def akin(self) -> float:
        """Say from which cosine on a text and a question are about the same thing, in (0, 1)."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return a vector of length 1 for each text, in order: float32, little endian, `4 * dimension` bytes.

        Raises BackendError where it cannot; one that is not retryable says that it never takes one of these texts.
        """
        ...

    async def aclose(self) -> None:
        """Give back connections and memory."""
        ...
