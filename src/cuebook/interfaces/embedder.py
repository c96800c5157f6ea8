"""Protocol of an embedder, which turns texts into vectors that are close if the texts mean the same."""

from collections.abc import Sequence
from typing import Protocol


class Embedder(Protocol):
    """Embeds texts. Vectors of embedders with different names are never compared."""

    @property
    def name(self) -> str:
        """Return the name of the model and its weights, which identifies its vector space."""
        ...

    @property
    def dimension(self) -> int:
        """Return the dimension of the vectors, 0 before the first answer."""
        ...

    @property
    def languages(self) -> frozenset[str]:
        """Return supported languages (ISO 639-1); empty = any. Texts in other languages are not embedded."""
        ...

    @property
    def akin(self) -> float:
        """Return the cosine threshold, in (0, 1), from which a text and a question share a subject."""
        ...

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return a vector of length 1 for each text, in order: float32, little endian, `4 * dimension` bytes.

        Raises BackendError. If that is not retryable, one of these texts is permanently rejected.
        """
        ...

    async def aclose(self) -> None:
        """Release connections and memory."""
        ...
