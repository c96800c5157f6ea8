"""Base of the embedders that run in this process: one thread, batches of similar length, and verified model files."""

import asyncio
import hashlib
import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Final

from cuebook.errors import BackendError, InvalidInput

#: Recommended texts per call; other callers may run between two calls.
AT_ONCE: Final = 8


class LocalEmbedder(ABC):
    """An `Embedder` that runs a model in this process. It converts each text to a row, and embeds rows in batches.

    The first text loads the model. It uses one thread, because turns need the other cores.
    """

    name: str
    dimension: int
    languages: frozenset[str]
    akin: float

    provider: ClassVar[str]
    extra: ClassVar[str]
    package: ClassVar[str]  # name and version of the package with the model's files, for error messages
    needed: ClassVar[Sequence[str]]  # modules that must be importable
    piece: ClassVar[int]  # most elements of a batch's rows, padding included; a longer row is a batch of its own

    def __init__(self) -> None:
        """Check that the required packages are installed. Raises InvalidInput."""
        if absent := self.missing():
            msg = f"embedder.provider: {self.provider} needs {', '.join(absent)}. Install cuebook[{self.extra}]."
            raise InvalidInput(msg, where="embedder.provider")
        self._thread: ThreadPoolExecutor | None = None
        self._model: Any = None

    @classmethod
    def missing(cls) -> list[str]:
        """Return the required packages that are not installed."""
        return [name for name in cls.needed if importlib.util.find_spec(name) is None]

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Embed texts in the thread, piece by piece; a query waits for at most one piece of each other list.

        Raises BackendError if the model's files are not the expected ones, and if the embedder is closed.
        """
        thread = self._thread = self._thread or ThreadPoolExecutor(1, thread_name_prefix="cuebook-embedder")
        results: list[bytes] = [b""] * len(texts)
        rows: list[Any] = []
        pieces: list[list[int]] = []

        def piece() -> bool:
            """Compute the next piece; return whether more are left."""
            if not rows:
                self._model = self._model or self._load()
                # Python's text may have lone surrogates, which no tokenizer reads.
                rows.extend(self._row(text.encode(errors="replace").decode()) for text in texts)
                pieces.extend(_pieces(rows, self.piece))
            at = pieces.pop()
            for place, vector in zip(at, _normalized(self._vectors([rows[each] for each in at])), strict=True):
                results[place] = vector
            return bool(pieces)

        left = bool(texts)
        while left:
            if self._thread is not thread:
                raise BackendError("The embedder is closed.", retryable=True)
            left = await asyncio.wrap_future(thread.submit(piece))
        return results

    async def aclose(self) -> None:
        """Stop the thread after its running piece, and release the memory of the model."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)
        self._model = None

    def verified(self, file: Path, digest: str) -> bytes:
        """Return the content of a file after checking its SHA-256. Raises BackendError."""
        try:
            content = file.read_bytes()
        except OSError as error:
            msg = f"The embedder's file {file.name!r} cannot be read ({error.strerror})."
            raise BackendError(f"{msg} Reinstall cuebook[{self.extra}].") from error
        result = hashlib.sha256(content).hexdigest()
        if result != digest:
            msg = (
                f"The embedder's file {file.name!r} has sha256 {result[:12]}…, expected {digest[:12]}…."
                f" Reinstall {self.package}, or set embedder.provider to none."
            )
            raise BackendError(msg)
        return content

    @abstractmethod
    def _load(self) -> Any:
        """Return the loaded model, which becomes `self._model`. Raises BackendError."""

    @abstractmethod
    def _row(self, text: str) -> Sequence[Any]:
        """Return a text as the model's input, of bounded length."""

    @abstractmethod
    def _vectors(self, rows: Sequence[Any]) -> Any:
        """Compute the vectors of a batch, as a numpy matrix."""


def _pieces(rows: Sequence[Sequence[Any]], limit: int) -> list[list[int]]:
    """Return the indexes of rows in batches of similar length, so that little is padding."""
    pieces: list[list[int]] = []
    for at in sorted(range(len(rows)), key=lambda each: len(rows[each])):
        if pieces and (len(pieces[-1]) + 1) * len(rows[at]) <= limit:
            pieces[-1].append(at)
        else:
            pieces.append([at])
    return pieces


def _normalized(vectors: Any) -> list[bytes]:
    """Return vectors of length 1 as an `Embedder` does: float32, little endian."""
    import numpy as np

    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return [vector.astype("<f4").tobytes() for vector in vectors]
