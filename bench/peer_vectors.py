"""Run in another library's environment: prints the median seconds one search of a scope among others takes there.

What it searches lies in a file: texts with their vectors, scope by scope, and questions with theirs, so that every
library embeds with the same embedder at no cost.
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

LIMIT = 10


def _langgraph(scopes: list[list[str]], known: dict[str, list[float]]) -> Callable[[str], Any]:
    from langgraph.store.memory import InMemoryStore

    size = len(next(iter(known.values())))
    store = InMemoryStore(index={"dims": size, "embed": lambda texts: [known[text] for text in texts]})
    for scope, texts in enumerate(scopes):
        for at, text in enumerate(texts):
            store.put(("scope", str(scope)), str(at), {"text": text}, index=["text"])
    return lambda query: store.search(("scope", "0"), query=query, limit=LIMIT)


def _chromadb(scopes: list[list[str]], known: dict[str, list[float]]) -> Callable[[str], Any]:
    import chromadb

    places = chromadb.EphemeralClient().create_collection("bench", metadata={"hnsw:space": "cosine"})
    for scope, texts in enumerate(scopes):
        names = [f"{scope}-{at}" for at in range(len(texts))]
        where = [{"scope": scope}] * len(texts)
        places.add(ids=names, embeddings=[known[text] for text in texts], metadatas=where, documents=texts)
    return lambda query: places.query(query_embeddings=[known[query]], n_results=LIMIT, where={"scope": 0})


def _mem0(scopes: list[list[str]], known: dict[str, list[float]]) -> Callable[[str], Any]:
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
        for text in texts:
            memory.add(text, user_id=str(scope), infer=False)
    return lambda query: memory.search(query, filters={"user_id": "0"}, top_k=LIMIT)


def main() -> None:
    """Build, search, print."""
    told = json.loads(Path(sys.argv[2]).read_text("utf-8"))
    search = {"langgraph": _langgraph, "chromadb": _chromadb, "mem0ai": _mem0}[sys.argv[1]](
        told["scopes"], told["vectors"]
    )
    questions = told["questions"]
    search(questions[0])
    took = []
    for question in questions:
        began = time.perf_counter()
        search(question)
        took.append(time.perf_counter() - began)
    print(statistics.median(took), flush=True)
    os._exit(0)


main()
