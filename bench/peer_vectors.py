"""Peer program of the search benchmarks: measures a search of one scope in another library, or prints its results.

Its input file holds texts with vectors, scope by scope, and questions with vectors, each with its scope. So every
library uses the same embeddings at no cost. `found` prints the numbers of the texts found for each question (best
first) instead of the median seconds.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMIT, DEEP = 10, 50

#: Returns the numbers of the texts found for a scope, a question and a limit, best first.
Search = Callable[[int, str, int], list[int]]


def _langgraph(scopes: list[list[str]], known: dict[str, list[float]]) -> Search:
    from langgraph.store.memory import InMemoryStore

    size = len(next(iter(known.values())))
    store = InMemoryStore(index={"dims": size, "embed": lambda texts: [known[text] for text in texts]})
    for scope, texts in enumerate(scopes):
        for at, text in enumerate(texts):
            store.put(("scope", str(scope)), str(at), {"text": text}, index=["text"])
    return lambda scope, query, limit: [
        int(found.key) for found in store.search(("scope", str(scope)), query=query, limit=limit)
    ]


def _chromadb(scopes: list[list[str]], known: dict[str, list[float]]) -> Search:
    import chromadb

    places = chromadb.EphemeralClient().create_collection("bench", metadata={"hnsw:space": "cosine"})
    for scope, texts in enumerate(scopes):
        names = [f"{scope}-{at}" for at in range(len(texts))]
        where = [{"scope": scope}] * len(texts)
        places.add(ids=names, embeddings=[known[text] for text in texts], metadatas=where, documents=texts)

    def search(scope: int, query: str, limit: int) -> list[int]:
        found = places.query(query_embeddings=[known[query]], n_results=limit, where={"scope": scope})
        return [int(name.split("-")[1]) for name in found["ids"][0]]

    return search


def _mem0(scopes: list[list[str]], known: dict[str, list[float]]) -> Search:
    folder = tempfile.mkdtemp()
    os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": folder}
    from langchain_core.embeddings import Embeddings
    from mem0 import Memory

    class Known(Embeddings):
        def embed_query(self, text: str) -> list[float]:
            return known[text]

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return [known[text] for text in texts]

    size = len(next(iter(known.values())))
    kept = {"collection_name": "bench", "path": f"{folder}/vectors", "embedding_model_dims": size, "on_disk": False}
    memory = Memory.from_config(
        {
            "vector_store": {"provider": "qdrant", "config": kept},
            "embedder": {"provider": "langchain", "config": {"model": Known(), "embedding_dims": size}},
            "llm": {"provider": "openai", "config": {"api_key": "none"}},
            "history_db_path": f"{folder}/history.db",
        }
    )
    for scope, texts in enumerate(scopes):
        for at, text in enumerate(texts):
            memory.add(text, user_id=str(scope), metadata={"at": at}, infer=False)

    def search(scope: int, query: str, limit: int) -> list[int]:
        found = memory.search(query, filters={"user_id": str(scope)}, top_k=limit)
        return [one["metadata"]["at"] for one in found["results"]]

    return search


def _llama_index(scopes: list[list[str]], _: dict[str, list[float]]) -> Search:
    from llama_index.core.schema import TextNode
    from llama_index.retrievers.bm25 import BM25Retriever

    by_words = [
        BM25Retriever.from_defaults(
            nodes=[TextNode(text=text, id_=str(at)) for at, text in enumerate(texts)],
            similarity_top_k=min(DEEP, len(texts)),
        )
        for texts in scopes
    ]
    return lambda scope, query, limit: [int(one.node.node_id) for one in by_words[scope].retrieve(query)][:limit]


LIBRARIES = {
    "langgraph": _langgraph,
    "chromadb": _chromadb,
    "mem0ai": _mem0,
    "llama-index-retrievers-bm25": _llama_index,
}


def main() -> None:
    """Build the index, search, and print the result."""
    told: dict[str, Any] = json.loads(Path(sys.argv[2]).read_text("utf-8"))
    search, questions = LIBRARIES[sys.argv[1]](told["scopes"], told["vectors"]), told["questions"]
    if sys.argv[3:] == ["found"]:
        print(json.dumps([search(scope, question, DEEP) for scope, question in questions]), flush=True)
        os._exit(0)
    search(*questions[0], LIMIT)
    took = []
    for scope, question in questions:
        began = time.perf_counter()
        search(scope, question, LIMIT)
        took.append(time.perf_counter() - began)
    print(statistics.median(took), flush=True)
    os._exit(0)


main()
