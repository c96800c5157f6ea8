"""Hybrid search benchmark: 1,000 memories of one scope among 5,000, compared with vector search of other libraries."""

import asyncio
import json
import random
import statistics
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measure import Figure, Run, Sample, compared
from bench.peers import install, run_peer
from cuebook import Cuebook
from cuebook.config import build
from cuebook.engine.core.recall import embed_query, space_of
from cuebook.interfaces.store import PlaceChange
from cuebook.memory.owner_memories import memory_id
from cuebook.records.memory import Memory, Place, Scope
from cuebook.storage.database.sqlite import transaction_on
from cuebook.storage.database.sqlite_files import connect
from cuebook.storage.vectors import EVERYWHERE, Matrices, NewVectors, scope_of_place
from hashing_embedder import HashingEmbedder

_OWN, _PLACES, _LIMIT = 1_000, 5, 10
_EMBEDDER = HashingEmbedder(dimension=384)
_WORDS = (
    "lamp harbour bread kitchen invoice bicycle winter garden letter piano market river stone window ticket"
).split()
#: Library, its packages, and the speedup that QUALITY requires.
_PEERS = (
    ("langgraph InMemoryStore", ("langgraph", "numpy"), 5),
    ("chroma, filtered", ("chromadb", "numpy"), 10),
    ("mem0, infer=False", ("mem0ai", "langchain"), 50),
)


def hybrid(run: Run) -> Iterator[Figure]:
    """Measure each library, and ours right after it: the whole search and its vector part."""
    if not run.peers:
        yield Figure("hybrid search", "", "langgraph, chroma, mem0: need --peers")
        return
    folder = run.fast / "hybrid"
    folder.mkdir()
    dice = random.Random(2)  # noqa: S311
    questions = [" ".join(dice.sample(_WORDS, 4)) for _ in range(60)]
    data = run.disk / "hybrid.json"
    data.write_text(json.dumps(asyncio.run(_made(folder, questions))))
    for name, packages, bar in _PEERS:
        python = install(run.disk / packages[0], *packages)
        told = None if python is None else run_peer(python, packages[0], str(data))
        if told is None:
            yield Figure(f"hybrid search: {name}", "", "failed")
            continue
        whole, near = asyncio.run(_ours(folder, questions))
        beside = Sample((float(told),))
        yield compared("hybrid search of 1,000 memories", Sample((whole,)), name, beside, bar=bar, inverse=True)
        yield compared("— vector search alone, in the store", Sample((near,)), name, beside, bar=bar, inverse=True)


def _open_project(folder: Path) -> Cuebook:
    config = build(arguments={"store.url": str(folder / "cuebook.db"), "memory.user": True}, folder=str(folder))
    return Cuebook.open(config, embedder=_EMBEDDER, worker=False)


async def _made(folder: Path, questions: list[str]) -> dict[str, Any]:
    """Fill a project. Return its contents for the other libraries."""
    async with _open_project(folder) as cue:
        scopes = await _fill(cue)
    texts = [text for scope in scopes for text in scope] + questions
    vectors = [list(array("f", vector)) for vector in await _EMBEDDER.embed(texts)]
    asked = [(0, question) for question in questions]
    return {"scopes": scopes, "questions": asked, "vectors": dict(zip(texts, vectors, strict=True))}


async def _fill(cue: Cuebook) -> list[list[str]]:
    """Store the memories of Ann and of other users with their vectors. Return the texts of each user."""
    dice = random.Random(_OWN * _PLACES)  # noqa: S311
    scopes = []
    for user in ("ann", *(f"user {n}" for n in range(1, _PLACES))):
        place = Place("user", user)
        texts = [f"{' '.join(dice.sample(_WORDS, 6))} number {n}" for n in range(_OWN)]
        memories = tuple(
            Memory(
                id=memory_id(place, "facts", text),
                kind=place.kind,
                owner=place.id,
                category="facts",
                text=text,
                written=True,
            )
            for text in texts
        )
        change = PlaceChange(place=place, generation=0, memories=memories)
        await cue.services.store.memories.save(Scope(), change, now=1.0)
        rows = tuple((number, 0, vector) for number, vector in enumerate(await _EMBEDDER.embed(texts), 1))
        model = space_of(_EMBEDDER)
        embedded = NewVectors(model=model, after=0, upto=_OWN, rows=rows, now=1.0)
        await cue.services.store.vectors.keep_of_place(Scope(), place, embedded)
        scopes.append(texts)
    return scopes


async def _ours(folder: Path, questions: list[str]) -> tuple[float, float]:
    """Return the median seconds of a whole search, and of its vector part in the store."""
    whole, near = [], []
    matrices, place = Matrices(), scope_of_place(Place("user", "ann"))
    async with _open_project(folder) as cue:
        connection = connect(str(folder / "cuebook.db"), read_only=True)
        await cue.memory.search("nothing of it", user="ann", scopes=["user"], limit=_LIMIT)
        for question in questions:
            began = time.perf_counter()
            await cue.memory.search(question, user="ann", scopes=["user"], limit=_LIMIT)
            whole.append(time.perf_counter() - began)
        for question in questions:
            dense = await embed_query(cue.services, question)
            began = time.perf_counter()
            close = matrices.close(transaction_on(connection).within(Scope()), place, dense) if dense else None
            if close:
                close.best(_LIMIT, EVERYWHERE)
            near.append(time.perf_counter() - began)
        connection.close()
    return statistics.median(whole), statistics.median(near)
