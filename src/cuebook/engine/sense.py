"""A query's vector, made before the one read of a turn: time-limited, with full text behind it."""

import asyncio
import logging

import msgspec

from cuebook.engine.desk import Desk
from cuebook.errors import BackendError
from cuebook.memory.language import speaks
from cuebook.ports.store import Look
from cuebook.records.memory import Dense

log = logging.getLogger("cuebook.embedder")

#: Characters of a query that are embedded.
QUERY = 2_000
#: Queries whose vectors are remembered: the same question gives the same window.
REMEMBERED = 256


async def sense(desk: Desk, text: str) -> Dense | None:
    """Give a query's vector; None without an embedder, in a language it does not know, or where it takes too long."""
    embedder, query = desk.embedder, text[:QUERY].strip()
    if embedder is None or not query or not speaks(embedder.languages, query):
        return None
    if (known := desk.sensed.get(query)) is not None:
        desk.sensed.move_to_end(query)
        return known
    try:
        async with asyncio.timeout(desk.embed_s):
            vectors = await embedder.embed([query])
    except TimeoutError:
        log.warning("%s took longer than %g s for a query; full text alone answers", embedder.name, desk.embed_s)
        return None
    except BackendError as error:
        log.warning("full text alone answers: %s", desk.writer.clean(str(error)))
        return None
    found = desk.sensed[query] = Dense(embedder.name, vectors[0], embedder.akin)
    while len(desk.sensed) > REMEMBERED:
        desk.sensed.popitem(last=False)
    return found


async def with_sense(desk: Desk, look: Look) -> Look:
    """Give what a turn reads with its query's vector."""
    if look.search is None or (dense := await sense(desk, look.search.text)) is None:
        return look
    return msgspec.structs.replace(look, search=msgspec.structs.replace(look.search, dense=dense))
