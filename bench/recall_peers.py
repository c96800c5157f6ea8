"""Recall of other libraries on the same texts, questions, evidence and embeddings."""

import asyncio
import json
import math
from array import array
from collections.abc import Iterator
from typing import Any

from bench.measure import Run
from bench.peers import install, run_peer
from cuebook.providers.minilm.embedder import MiniLM

#: Library with its search method, and its packages.
PEERS = (
    ("langgraph InMemoryStore, vectors", ("langgraph", "numpy")),
    ("chroma, vectors", ("chromadb", "numpy")),
    ("mem0, infer=False", ("mem0ai", "langchain")),
    ("llama-index BM25Retriever", ("llama-index-retrievers-bm25", "llama-index-core")),
)

#: A question: its category, the index of its conversation, the text, and the ids of its evidence.
Question = tuple[int, int, str, set[str]]
#: A text of a conversation: its id, and the text with date and speaker.
Line = tuple[str, str]


def found_by_peers(
    run: Run, talks: list[list[Line]], questions: list[Question]
) -> Iterator[tuple[str, list[tuple[int, list[Line]]] | None]]:
    """Yield each library's results by question, with the question's category, or None if it did not run."""
    data = run.disk / "recall.json"
    data.write_text(json.dumps(asyncio.run(_made(talks, questions))))
    for name, packages in PEERS:
        python = install(run.disk / f"recall-{packages[0]}", *packages)
        told = None if python is None else run_peer(python, packages[0], str(data), "found")
        if told is None:
            yield name, None
            continue
        found = zip(questions, json.loads(told), strict=True)
        yield name, [(one[0], [talks[one[1]][at] for at in numbers]) for one, numbers in found]


def score(lines: list[Line], evidence: set[str], *, budget: int) -> tuple[float, float]:
    """Return R@10, and the share of evidence in the lines before the first that exceeds the token budget."""
    used, within = 0, set()
    for id_, text in lines:
        used += math.ceil((len(text) + 1) / 4)
        if used > budget:
            break
        within.add(id_)
    first = {id_ for id_, _ in lines[:10]}
    return len(first & evidence) / len(evidence), len(within & evidence) / len(evidence)


async def _made(talks: list[list[Line]], questions: list[Question]) -> dict[str, Any]:
    """Embed all texts and questions once, for all libraries."""
    scopes = [[text for _, text in talk] for talk in talks]
    texts = list(dict.fromkeys([text for scope in scopes for text in scope] + [one[2] for one in questions]))
    embedder, vectors = MiniLM(), {}
    for at in range(0, len(texts), 64):
        batch = texts[at : at + 64]
        vectors.update(zip(batch, [list(array("f", each)) for each in await embedder.embed(batch)], strict=True))
    return {"scopes": scopes, "questions": [(one[1], one[2]) for one in questions], "vectors": vectors}
