"""Embedder for any OpenAI-compatible `/embeddings` endpoint."""

import sys
from array import array
from collections.abc import Sequence
from math import isfinite, sqrt

import msgspec
from msgspec import Struct

from cuebook.errors import InvalidInput, UpstreamError
from cuebook.interfaces import RelayRequest
from cuebook.providers.openai import HttpUpstream

#: Texts per request: servers accept from 64 (small ones) to 2,048.
AT_ONCE = 64


class _Row(Struct):
    index: int
    embedding: list[float]


class _EmbeddingAnswer(Struct):
    data: list[_Row]


class OpenAIEmbedder:
    """A model behind `/embeddings`. Without `languages` it is assumed to support every language."""

    def __init__(
        self, model: str, upstream: HttpUpstream, *, akin: float, languages: frozenset[str] = frozenset()
    ) -> None:
        if not model:
            msg = "embedder.name: missing. Set it to an embedding model of the provider."
            raise InvalidInput(msg, where="embedder.name")
        self.name = f"{model}@{upstream.base_url}"
        self.akin = akin
        self.languages = languages
        self.dimension = 0
        self._model = model
        self._upstream = upstream

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Embed in requests of AT_ONCE texts. Raises UpstreamError."""
        results: list[bytes] = []
        for first in range(0, len(texts), AT_ONCE):
            results += await self._ask(texts[first : first + AT_ONCE])
        return results

    async def aclose(self) -> None:
        """Close the connections."""
        await self._upstream.aclose()

    async def _ask(self, texts: Sequence[str]) -> list[bytes]:
        body = msgspec.json.encode({"model": self._model, "input": list(texts), "encoding_format": "float"})
        answer = await self._upstream.send(
            RelayRequest(
                method="POST", path="/embeddings", headers={"content-type": "application/json"}, body=body, query=""
            )
        )
        try:
            raw = b"".join([chunk async for chunk in answer.chunks()])
        finally:
            await answer.aclose()
        if answer.status >= 400:
            retryable = answer.status in (408, 409, 425, 429) or answer.status >= 500
            msg = f"The embedder's server answered {answer.status}: {raw[:300].decode('utf-8', 'replace')}"
            raise UpstreamError(msg, status=answer.status, retryable=retryable)
        return self._read(raw, len(texts))

    def _read(self, raw: bytes, count: int) -> list[bytes]:
        """Parse the requested number of vectors, all of one dimension. Raises UpstreamError for anything else."""
        try:
            rows = {row.index: row.embedding for row in msgspec.json.decode(raw, type=_EmbeddingAnswer).data}
        except msgspec.DecodeError as error:
            msg = f"The embedder's server sent no embeddings: {raw[:200].decode('utf-8', 'replace')!r}"
            raise UpstreamError(msg, retryable=True) from error
        sizes = {len(row) for row in rows.values()}
        if sorted(rows) != list(range(count)) or len(sizes) != 1 or sizes == {0}:
            msg = f"The embedder's server sent {len(rows)} vectors of {sorted(sizes)} numbers for {count} texts"
            raise UpstreamError(msg, retryable=True)
        size = sizes.pop()
        if self.dimension not in (0, size):
            msg = (
                f"The embedder's server sent vectors of {size} numbers where {self._model} had {self.dimension}: "
                "the model has changed. No vector was stored. Restart Cuebook to embed everything with the new model."
            )
            raise UpstreamError(msg, retryable=True)
        self.dimension = size
        return [unit(rows[at]) for at in range(count)]


def unit(numbers: Sequence[float]) -> bytes:
    """Return a vector normalized to length 1, as little-endian float32. Raises UpstreamError for a zero vector."""
    length = sqrt(sum(number * number for number in numbers))
    if not length or not isfinite(length):
        msg = "The embedder's server sent a zero or non-finite vector"
        raise UpstreamError(msg)
    vector = array("f", (number / length for number in numbers))
    if sys.byteorder == "big":
        vector.byteswap()
    return vector.tobytes()
