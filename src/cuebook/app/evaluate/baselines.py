"""Baselines for search: BM25 over posts, BM25 over passages of 90 words, and cosine similarity of embeddings alone."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

from cuebook.app.replay import RecordedPost
from cuebook.engine.jobs.embedding import passages_of
from cuebook.interfaces import Embedder
from cuebook.memory.evidence import DEPTH
from cuebook.memory.tokenizer import key_text, query_words

#: BM25's saturation and length normalization: the textbook values.
K1, B = 1.2, 0.75
#: Words of a passage.
PASSAGE = 90


class Passage(Struct, frozen=True):
    """A text to rank: the id of its post, the text, and its indexed words (date, speaker and text)."""

    source: str
    text: str
    words: tuple[str, ...] = ()


def whole(posts: Iterable[RecordedPost]) -> list[Passage]:
    """Return each post as one passage."""
    return [_passage(post, text_of(post)) for post in posts]


def cut(posts: Iterable[RecordedPost]) -> list[Passage]:
    """Return the passages of 90 words of each post."""
    return [_passage(post, text) for post in posts for text in _pieces(text_of(post))]


def text_of(post: RecordedPost) -> str:
    """Return the text of a post."""
    content = post.message.get("content")
    if isinstance(content, str) or not content:
        return content or ""
    return "\n".join(str(part["text"]) for part in content if isinstance(part, dict) and "text" in part)


def _pieces(text: str) -> list[str]:
    written = text.split()
    return [" ".join(written[at : at + PASSAGE]) for at in range(0, len(written), PASSAGE)]


def _passage(post: RecordedPost, text: str) -> Passage:
    return Passage(post.id, text, tuple(key_text(post.sender, post.when, text).split()))


class BM25:
    """An inverted index that ranks passages by BM25."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = passages
        self._postings: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for at, passage in enumerate(passages):
            for word, count in Counter(passage.words).items():
                self._postings[word].append((at, count))
        self._mean = sum(len(each.words) for each in passages) / max(1, len(passages))

    def search(self, query: str) -> list[Passage]:
        """Return the passages that share a word with a query, best first."""
        scores: defaultdict[int, float] = defaultdict(float)
        for word in dict.fromkeys(query_words(query)):
            postings = self._postings.get(word, ())
            idf = math.log(1 + (len(self._passages) - len(postings) + 0.5) / (len(postings) + 0.5))
            for at, count in postings:
                length = 1 - B + B * len(self._passages[at].words) / self._mean
                scores[at] += idf * count * (K1 + 1) / (count + K1 * length)
        best = sorted(scores, key=lambda at: (-scores[at], at))[:DEPTH]
        return [self._passages[at] for at in best]


def passages_in(posts: Sequence[RecordedPost]) -> list[tuple[int, str]]:
    """Return the passages that search embeds, each with the index of its post."""
    return [(at, text) for at, post in enumerate(posts) for _, text in passages_of(post.sender, text_of(post))]


async def cosine(
    embedder: Embedder, posts: Sequence[RecordedPost], queries: Sequence[str], *, progress: Callable[[], None]
) -> list[list[Passage]]:
    """Return for each query the posts, the one with the closest passage first. The vectors are those of search."""
    import numpy as np

    pairs = passages_in(posts)
    owners = np.array([at for at, _ in pairs])
    rows = np.frombuffer(b"".join(await embedder.embed([text for _, text in pairs])), "<f4")
    rows = rows.reshape(len(pairs), -1)
    results: list[list[Passage]] = []
    for query in queries:
        [vector] = await embedder.embed([query])
        best = np.full(len(posts), -2.0)
        np.maximum.at(best, owners, rows @ np.frombuffer(vector, "<f4"))
        order = np.argsort(-best, kind="stable")[:DEPTH]
        results.append([Passage(posts[at].id, text_of(posts[at])) for at in map(int, order)])
        progress()
    return results
