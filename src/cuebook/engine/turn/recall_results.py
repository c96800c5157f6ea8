"""Rank full-text search results as hits and render each as one line."""

from collections.abc import Collection
from datetime import UTC, tzinfo

from cuebook.engine.core.drafts import unlearned
from cuebook.memory.excerpt import excerpt
from cuebook.memory.recall import Corpus, Query, RecallCandidate, rank
from cuebook.memory.tokenizer import day_of
from cuebook.records.memory import Hit, SearchResult
from cuebook.window.tokens import Counter

#: A recalled post with more tokens is quoted by its best passage.
QUOTE = 160


def rank_found(
    search_result: SearchResult,
    query: Query,
    *,
    limit: int,
    skip: Collection[int] = (),
) -> list[Hit]:
    """Rank search results, best first, as hits of kind `post`."""
    if all(each.seq in skip for each in search_result.found):
        return []  # usual case: a window shows a whole short path
    by_place = {(each.no << 32) | each.seq: each for each in search_result.found}
    candidates = [
        RecallCandidate(
            place,
            each.sender,
            each.created_at,
            each.key,
            (each.no << 32) | each.previous if each.previous else None,
            each.no,
            each.cosine,
        )
        for place, each in by_place.items()
    ]
    corpus = Corpus(search_result.posts, search_result.frequencies, search_result.mean_cosine, search_result.akin)
    hits: list[Hit] = []
    for ranked in rank(query, candidates, corpus, limit=limit + len(skip)):
        each = by_place[ranked.seq]
        if each.seq in skip or len(hits) >= limit or unlearned(each.role, each.text):
            continue
        hits.append(
            Hit(
                memory_id=f"post:{each.id}",
                kind="post",
                text=each.text,
                score=round(ranked.score, 6),
                scope="conversation",
                sources=(each.id,),
                tokens=each.tokens,
                timestamp=each.created_at,
                seq=each.seq,
                speaker=each.sender,
                why=ranked.why,
                conversation=each.conversation,
            )
        )
    return hits


def shown_of(hit: Hit, query: Query | None, room: int, count: Counter, *, zone: tzinfo = UTC) -> str:
    """Return a hit's line in the volatile block: day, speaker, and the text or its best passage. Empty if there is no
    room.
    """
    day = day_of(hit.timestamp, zone)
    most = min(room, QUOTE)
    text = hit.text
    if hit.tokens > most and query is not None:
        text = excerpt(hit.text, query, most - 12, count) if most > 24 else ""
    return f"- [{day}] {hit.speaker}: {' '.join(text.split())}" if text else ""
