"""Embed a query before a turn loads its context, with a timeout and full-text search as the fallback."""

import asyncio
import logging
from collections.abc import Sequence

from cuebook.engine.core.services import Services
from cuebook.errors import BackendError
from cuebook.interfaces import Embedder
from cuebook.languages import reads
from cuebook.records.memory import Dense

log = logging.getLogger("cuebook.embedder")

#: Most characters of a query to embed.
QUERY = 2_000
#: Cached query vectors: the same question yields the same window.
REMEMBERED = 256
_BYTES = 4  # of a float32


async def sense(services: Services, text: str) -> Dense | None:
    """Return a query's vector, or None without an embedder, for an unsupported language, or after a timeout."""
    denses = await sense_all(services, [text])
    return denses[0] if denses else None


async def sense_all(services: Services, texts: Sequence[str]) -> list[Dense] | None:
    """Return the vectors of some texts in one call, or None as in `sense` if one of them has none."""
    embedder, queries = services.embedder, [text[:QUERY].strip() for text in texts]
    if embedder is None or not all(query and reads(embedder.languages, query) for query in queries):
        return None
    denses: dict[str, Dense] = {}
    for query in queries:
        if (dense := services.caches.query_vectors.get(query)) is not None:
            services.caches.query_vectors.move_to_end(query)
            denses[query] = dense
    if missing := [query for query in dict.fromkeys(queries) if query not in denses]:
        vectors = await _asked(services, embedder, missing)
        if vectors is None:
            return None
        for query, vector in zip(missing, vectors, strict=True):
            denses[query] = services.caches.query_vectors[query] = Dense(space_of(embedder), vector, embedder.akin)
        while len(services.caches.query_vectors) > REMEMBERED:
            services.caches.query_vectors.popitem(last=False)
    return [denses[query] for query in queries]


async def _asked(services: Services, embedder: Embedder, queries: Sequence[str]) -> Sequence[bytes] | None:
    try:
        async with asyncio.timeout(services.settings.embed_s):
            vectors = await embedder.embed(queries)
        check_size(embedder, vectors)
    except TimeoutError:
        log.warning(
            "Embedder %s timed out after %g s; this search uses full text only",
            embedder.name,
            services.settings.embed_s,
        )
        return None
    except BackendError as error:
        services.caches.embedder_failure.why = services.writer.clean(str(error))
        log.warning("The embedder failed; this search uses full text only: %s", services.caches.embedder_failure.why)
        return None
    services.caches.embedder_failure.why = ""
    return vectors


def space_of(embedder: Embedder) -> str:
    """Return the name of an embedder's vector space: its model and dimension. Only these vectors are comparable.

    It is available after the first answer.
    """
    return f"{embedder.name}/{embedder.dimension}"


def check_size(embedder: Embedder, vectors: Sequence[bytes]) -> None:
    """Check that vectors have the embedder's dimension. Raises BackendError."""
    sizes = {len(each) // _BYTES for each in vectors}
    if sizes - {embedder.dimension}:
        dimensions = ", ".join(map(str, sorted(sizes)))
        msg = f"Embedder {embedder.name} returned vectors of dimension {dimensions} instead of {embedder.dimension}."
        raise BackendError(msg)
