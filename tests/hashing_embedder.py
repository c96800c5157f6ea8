"""A test embedder without a model: it hashes words to vector components and ignores meaning."""

import hashlib
from array import array
from collections.abc import Sequence
from math import sqrt

from cuebook.errors import BackendError
from cuebook.memory.tokenizer import words


class HashingEmbedder:
    """A test embedder: equal texts have equal vectors, and texts with common words are similar.

    `synonyms` maps words to the word they stand for, so that a test can use texts with the same meaning in other words.
    """

    akin = 0.5

    def __init__(
        self,
        *,
        name: str = "hashing",
        dimension: int = 64,
        languages: frozenset[str] = frozenset(),
        synonyms: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.dimension = dimension
        self.languages = languages
        self.asked: list[str] = []  # every text that was embedded
        self.fails = False  # every call fails
        self._synonyms = {key: words(value)[0] for key, value in (synonyms or {}).items()}

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Embed texts. Raises BackendError while `fails` is set."""
        if self.fails:
            msg = "The test embedder fails because `fails` is set."
            raise BackendError(msg)
        self.asked += texts
        return [self._vector(text) for text in texts]

    async def aclose(self) -> None:
        """Do nothing."""

    def _vector(self, text: str) -> bytes:
        numbers = [0.0] * self.dimension
        for written in text.casefold().split():
            bare = written.strip(".,;:!?'\"()")
            for word in [self._synonyms[bare]] if bare in self._synonyms else words(bare):
                digest = hashlib.blake2b(word.encode(), digest_size=8).digest()
                numbers[int.from_bytes(digest[:4], "big") % self.dimension] += 1.0 if digest[4] & 1 else -1.0
        length = sqrt(sum(number * number for number in numbers))
        if not length:
            numbers[0] = length = 1.0
        return array("f", (number / length for number in numbers)).tobytes()
