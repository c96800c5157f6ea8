"""Embed a query before a turn loads its context, with a timeout and full-text search as the fallback."""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from cuebook.engine.core.desk import Desk
from cuebook.errors import BackendError
from cuebook.interfaces.embedder import Embedder
from cuebook.interfaces.store import PathQuery
from cuebook.languages import reads
from cuebook.records.memory import Dense

log = logging.getLogger("cuebook.embedder")

#: Most characters of a query to embed.
QUERY = 2_000
#: Cached query vectors: the same question yields the same window.
REMEMBERED = 256
_BYTES = 4  # of a float32


async def sense(desk: Desk, text: str) -> Dense | None:
    """Return a query's vector, or None without an embedder, for an unsupported language, or after a timeout."""
    denses = await sense_all(desk, [text])
    return denses[0] if denses else None


async def sense_all(desk: Desk, texts: Sequence[str]) -> list[Dense] | None:
    """Return the vectors of some texts in one call, or None as in `sense` if one of them has none."""
    embedder, queries = desk.embedder, [text[:QUERY].strip() for text in texts]
    if embedder is None or not all(query and reads(embedder.languages, query) for query in queries):
        return None
    denses: dict[str, Dense] = {}
    for query in queries:
        if (dense := desk.sensed.get(query)) is not None:
            desk.sensed.move_to_end(query)
            denses[query] = dense
    if missing := [query for query in dict.fromkeys(queries) if query not in denses]:
        vectors = await _asked(desk, embedder, missing)
        if vectors is None:
            return None
        for query, vector in zip(missing, vectors, strict=True):
            denses[query] = desk.sensed[query] = Dense(space_of(embedder), vector, embedder.akin)
        while len(desk.sensed) > REMEMBERED:
            desk.sensed.popitem(last=False)
    return [denses[query] for query in queries]


async def _asked(desk: Desk, embedder: Embedder, queries: Sequence[str]) -> Sequence[bytes] | None:
    try:
        async with asyncio.timeout(desk.embed_s):
            vectors = await embedder.embed(queries)
        check_size(embedder, vectors)
    except TimeoutError:
        log.warning("Embedder %s timed out after %g s; this search uses full text only", embedder.name, desk.embed_s)
        return None
    except BackendError as error:
        desk.failing.why = desk.writer.clean(str(error))
        log.warning("The embedder failed; this search uses full text only: %s", desk.failing.why)
        return None
    desk.failing.why = ""
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


async def with_sense(desk: Desk, path_query: PathQuery) -> PathQuery:
    """Return a turn's store query with the vector of its text."""
    if path_query.search is None or (dense := await sense(desk, path_query.search.text)) is None:
        return path_query
    return msgspec.structs.replace(path_query, search=msgspec.structs.replace(path_query.search, dense=dense))
