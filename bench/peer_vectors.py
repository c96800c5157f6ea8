"""Run in another library's environment: prints the median seconds one filtered vector search takes there."""

import random
import statistics
import sys
import time
from collections.abc import Callable

SCOPES, EACH, DIMENSION, TIMES = 5, 1_000, 384, 30


def _vector(dice: random.Random) -> list[float]:
    numbers = [dice.gauss(0, 1) for _ in range(DIMENSION)]
    length = sum(number * number for number in numbers) ** 0.5
    return [number / length for number in numbers]


def _langgraph(rows: list[list[float]], query: list[float]) -> Callable[[], object]:
    from langgraph.store.memory import InMemoryStore

    known = {f"text {at}": row for at, row in enumerate(rows)} | {"query": query}
    store = InMemoryStore(index={"dims": DIMENSION, "embed": lambda texts: [known[text] for text in texts]})
    for at in range(len(rows)):
        store.put(("scope", str(at // EACH)), str(at), {"text": f"text {at}"}, index=["text"])
    return lambda: store.search(("scope", "0"), query="query", limit=10)


def _chromadb(rows: list[list[float]], query: list[float]) -> Callable[[], object]:
    import chromadb

    places = chromadb.EphemeralClient().create_collection("bench", metadata={"hnsw:space": "cosine"})
    for first in range(0, len(rows), EACH):
        names = [str(at) for at in range(first, first + EACH)]
        scopes = [{"scope": first // EACH}] * EACH
        places.add(ids=names, embeddings=rows[first : first + EACH], metadatas=scopes, documents=names)
    return lambda: places.query(query_embeddings=[query], n_results=10, where={"scope": 0})


def main() -> None:
    """Build, search, print."""
    dice = random.Random(5)  # noqa: S311 - the same in every run is the point
    rows, query = [_vector(dice) for _ in range(SCOPES * EACH)], _vector(dice)
    search = {"langgraph": _langgraph, "chromadb": _chromadb}[sys.argv[1]](rows, query)
    took = []
    for _ in range(TIMES):
        began = time.perf_counter()
        search()
        took.append(time.perf_counter() - began)
    print(statistics.median(took))


main()
