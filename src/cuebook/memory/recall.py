"""Which posts answer a query: full text with structure, no embeddings, one fixed configuration for all data.

The store indexes `key_text` of each post, finds some hundred posts by `match_expression`, and `rank` orders them anew
with the statistics of the scope alone. A post counts by its own words, by those of the posts around it, and by the
best of its session; an answer counts more behind a question that matched; a speaker the query names counts more. A
long post counts by its best passage, so that long answers and tool outputs neither swamp nor vanish.

Measured on LoCoMo dev (5 conversations, categories 1-4): plain BM25 62.6 R@10, this XX; the numbers below are round
and lie on a plateau, each can be halved or doubled for about a point (docs/design: recall).
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

from msgspec import Struct

from cuebook.memory.words import query_words, words

TERMS: Final = 32  # words of a query that are looked for; the longest stay, a pasted page is no better query
KEY_WORDS: Final = 4_000  # words of a post indexed in order; beyond, each further distinct word once
PASSAGE: Final = 60  # words without stop words, about 120 as written: a paragraph; a longer post is cut
WORD_CHARACTERS: Final = 6  # of a key, its space included (5.4 measured on LoCoMo)
REACH: Final = 2  # posts before and after that lend their words to the window
K1: Final = 1.2  # BM25's saturation and
B: Final = 0.75  # length normalisation, the textbook values (notes/recall.md, section 3)
NEAR: Final = (1.0, 0.5, 0.25)  # weight of a post's words in its window, by distance
WHOLE: Final = 0.2  # share of the whole of a long post beside its best passage
NEIGHBOUR: Final = 0.15  # of the score of the posts before and after
ANSWER: Final = 0.2  # of the score of a question, for the post that follows it
ASKING: Final = 0.1  # taken from a post that ends in a question: it tells less than it asks
BRIEF: Final = 30  # words up to which a post leans on its neighbours in full; beyond, in inverse ratio to its length
SESSION: Final = 0.3  # of the best score in the session
SPEAKER: Final = 0.4  # more for the posts of the one speaker the query names
PERIOD: Final = 0.3  # more for posts of the time the query names ("yesterday")
FLOOR: Final = 0.1  # least share of the query's information (idf) a post and its neighbours must hold
SESSION_GAP_S: Final = 3 * 3600.0  # silence that ends a session
SESSION_POSTS: Final = 50  # and its longest length, where posts have no times or never pause
GENERIC: Final = frozenset("user assistant human ai bot agent model tool system function summary unknown".split())

_MONTHS: Final = "January February March April May June July August September October November December".split()
_DAYS: Final = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()


class Query(Struct, frozen=True):
    """A query as it is looked for. `named` are the speakers it names, `period` the times it names (Unix seconds)."""

    text: str
    terms: tuple[str, ...]  # stems, each once, in the query's order
    named: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()  # the terms among `terms` that are part of a named speaker's name
    period: tuple[float, float] | None = None


class Candidate(Struct, frozen=True):
    """A post that may answer. `seq` is unique among the candidates and grows along a path; `key` is its `key_text`."""

    seq: int
    speaker: str
    when: float  # Unix seconds
    key: str
    previous: int | None = None  # seq of the post before it on the path
    conversation: int = 0  # neighbours and sessions never cross conversations


class Corpus(Struct, frozen=True):
    """The scope as a whole. `frequencies`: in how many of its posts a term occurs; without it candidates are counted."""

    posts: int
    frequencies: Mapping[str, int] = {}


class Ranked(Struct, frozen=True):
    """A found post. `score` in [0, 1] is how much of the query's information the best hit holds, times the rank's share."""

    seq: int
    score: float
    why: str


# ---- the index ------------------------------------------------------------------------------------------------------


def key_text(speaker: str, when: float, text: str) -> str:
    """The words the store indexes for a post: its date and speaker, `|`, its text, and `?` if it ends in a question.

    Words are already folded and stemmed, so every full text engine that splits at spaces agrees with `rank`; `|` and `?`
    are no words to FTS5. `when` is in Unix seconds (UTC). Costs about 0.2 µs a word.
    """
    body = words(text)
    if len(body) > KEY_WORDS:
        seen = set(body[:KEY_WORDS])
        body = body[:KEY_WORDS] + [word for word in dict.fromkeys(body[KEY_WORDS:]) if word not in seen]
    return " ".join([*_date_words(when), *words(speaker), "|", *body, *(["?"] if _asks(text) else [])])


def _date_words(when: float) -> list[str]:
    """Year, month, day and weekday as words; none where the time is out of the calendar."""
    try:
        day = datetime.fromtimestamp(when, UTC)
    except (ValueError, OverflowError, OSError):
        return []
    return words(f"{day.year} {_MONTHS[day.month - 1]} {day.day} {_DAYS[day.weekday()]}")


_CAPTION: Final = re.compile(r"(?:\s*\[image:[^\]]*\])+\s*\Z")


def _asks(text: str) -> bool:
    end = text[-400:]
    return _CAPTION.sub("", end).rstrip().endswith(("?", "？", "؟"))


# ---- the query ------------------------------------------------------------------------------------------------------


def read_query(query: str, *, speakers: Collection[str] = (), now: float | None = None) -> Query:
    """What a query looks for. `speakers` are those of the scope; `now` (Unix seconds) gives "yesterday" its meaning."""
    text = query[:8_000]
    terms = list(dict.fromkeys(query_words(text)))
    if len(terms) > TERMS:
        longest = set(sorted(terms, key=len, reverse=True)[:TERMS])
        terms = [term for term in terms if term in longest]
    capitals = set(re.findall(r"[^\W\d_]{3,}", text)) - {word.lower() for word in text.split()}
    named = [
        name
        for name in dict.fromkeys(speakers)
        if name.casefold() not in GENERIC and (not set(words(name)).isdisjoint(terms) or name in capitals)
    ]
    parts = {word for name in named for word in words(name)}
    return Query(
        text=text,
        terms=tuple(terms),
        named=tuple(named),
        names=frozenset(parts.intersection(terms)),
        period=None if now is None else _period(text, now),
    )


def match_expression(query: Query, scope_token: str) -> str | None:
    """FTS5's MATCH string over the columns `scope` and `key`, safe for any query; None where nothing can be looked for.

    Names of speakers stand in every second post: they are looked for only where the query holds nothing else.
    """
    terms = [term for term in query.terms if term not in query.names] or list(query.terms)
    if not terms:
        return None
    scope = scope_token.replace('"', '""')
    wanted = " OR ".join(f'"{term}"' for term in terms)
    return f'scope : "{scope}" AND key : ({wanted})'


# ---- the ranking ----------------------------------------------------------------------------------------------------


class _Reading(Struct):
    """A candidate as it is scored: how often each term occurs in its best passage, and the passage's length."""

    post: Candidate
    counts: dict[str, int]
    length: int
    asks: bool
    whole: dict[str, int] | None = None  # the same of a post longer than a passage
    whole_length: int = 0
    own: float = 0.0
    around: float = 0.0
    held: float = 0.0  # share of the query's information in the window
    score: float = 0.0
    session: int = 0
    before: int = -1  # place of the post before it in the same session, -1 for none
    after: int = -1


def rank(query: Query, candidates: Iterable[Candidate], corpus: Corpus, *, limit: int) -> list[Ranked]:
    """The best `limit` candidates, best first, equal ones newest first; none that holds less than FLOOR of the query.

    About 5 ms for 400 posts of chat. Neighbours that match nothing themselves should be among the candidates.
    """
    posts = sorted({post.seq: post for post in candidates}.values(), key=lambda post: (post.conversation, post.seq))
    if not posts or not query.terms or limit <= 0:
        return []
    terms = [term for term in query.terms if term not in query.names] or query.terms
    texts = [f" {post.key} " for post in posts]
    places = [_places(text, terms) for text in texts]
    idf = _idf(terms, corpus, places)
    readings = [_read(*parts, idf) for parts in zip(posts, texts, places, strict=True)]
    _link(readings)
    _weigh(readings, idf)
    _combine(readings, query)
    return _choose(readings, limit)


def _places(text: str, terms: Iterable[str]) -> dict[str, list[int]]:
    """Where in a key each term stands, in characters. Searching the string is ten times faster than cutting it."""
    found: dict[str, list[int]] = {}
    for term in terms:
        word = f" {term} "
        at = text.find(word)
        if at >= 0:
            found[term] = here = [at]
            while (at := text.find(word, at + len(word) - 1)) >= 0:
                here.append(at)
    return found


def _idf(terms: Sequence[str], corpus: Corpus, places: Sequence[Collection[str]]) -> dict[str, float]:
    """BM25's log(1 + (N - n + 0.5) / (n + 0.5)) for each term, n counted in the scope, at least among the candidates."""
    here = Counter(term for found in places for term in found)
    total = max(corpus.posts, len(places))
    posts = {term: min(total, max(here[term], corpus.frequencies.get(term, 0))) for term in terms}
    return {term: math.log(1 + (total - n + 0.5) / (n + 0.5)) for term, n in posts.items()}


def _read(post: Candidate, text: str, places: Mapping[str, list[int]], idf: Mapping[str, float]) -> _Reading:
    """Count the query's terms in a post: in all of it, or in the date, the speaker and the best passage of a long one."""
    counts = {term: len(here) for term, here in places.items()}
    length = text.count(" ") - 1
    asks = text.endswith(" ? ")
    if length <= PASSAGE * 5 // 4:
        return _Reading(post=post, counts=counts, length=length, asks=asks)
    best = _best_passage(places, text.find(" | "), idf)
    return _Reading(post=post, counts=best, length=PASSAGE, asks=asks, whole=counts, whole_length=length)


def _best_passage(places: Mapping[str, list[int]], head: int, idf: Mapping[str, float]) -> dict[str, int]:
    """The terms of the passage that holds most, and of the head. Passages overlap by half: each place is in two."""
    step = PASSAGE * WORD_CHARACTERS // 2
    top: Counter[str] = Counter()
    passages: dict[int, Counter[str]] = {}
    for term, here in places.items():
        for at in here:
            if at < head:
                top[term] += 1
            else:
                last = (at - head) // step
                for number in range(max(0, last - 1), last + 1):
                    passages.setdefault(number, Counter())[term] += 1
    return dict(top + max(passages.values(), key=lambda counts: _held(counts, idf), default=Counter()))


def _held(counts: Mapping[str, int], idf: Mapping[str, float]) -> float:
    return sum(idf[term] * n / (n + K1) for term, n in counts.items())


def _link(readings: Sequence[_Reading]) -> None:
    """Number the sessions, and tie each post to those before and after it in its session."""
    place = {reading.post.seq: at for at, reading in enumerate(readings)}
    session, first = 0, readings[0].post
    for earlier, later in pairwise(readings):
        a, b = earlier.post, later.post
        same = a.conversation == b.conversation and abs(b.when - a.when) <= SESSION_GAP_S
        if not same or b.seq - first.seq >= SESSION_POSTS:
            session, first = session + 1, b
        later.session = session
    for at, reading in enumerate(readings):
        before = place.get(reading.post.previous, -1) if reading.post.previous is not None else -1
        if 0 <= before < at and readings[before].session == reading.session:
            reading.before, readings[before].after = before, at


def _weigh(readings: Sequence[_Reading], idf: Mapping[str, float]) -> None:
    """BM25 of each post by itself and with the posts around it, whose words weigh NEAR by their distance."""
    windows = [_window(readings, at) for at in range(len(readings))]
    mean_own = sum(reading.length for reading in readings) / len(readings)
    mean_window = sum(length for _, length in windows) / len(windows)
    total = sum(idf.values())
    for reading, (counts, length) in zip(readings, windows, strict=True):
        reading.own = _bm25(reading.counts, reading.length / mean_own, idf)
        if reading.whole is not None:
            whole = _bm25(reading.whole, reading.whole_length / mean_own, idf)
            reading.own += WHOLE * (whole - reading.own)
        reading.around = _bm25(counts, length / mean_window, idf)
        reading.held = sum(idf[word] for word in counts) / total


def _window(readings: Sequence[_Reading], at: int) -> tuple[dict[str, float], float]:
    """The terms and the length of a post and those around it, weighted by distance."""
    counts = {word: NEAR[0] * n for word, n in readings[at].counts.items()}
    length = NEAR[0] * readings[at].length
    for side in ("before", "after"):
        other = at
        for weight in NEAR[1:]:
            other = getattr(readings[other], side)
            if other < 0:
                break
            length += weight * readings[other].length
            for word, n in readings[other].counts.items():
                counts[word] = counts.get(word, 0.0) + weight * n
    return counts, length


def _bm25(counts: Mapping[str, float], relative_length: float, idf: Mapping[str, float]) -> float:
    slope = K1 * (1 - B + B * relative_length)
    return sum(idf[word] * n * (K1 + 1) / (n + slope) for word, n in counts.items())


def _combine(readings: Sequence[_Reading], query: Query) -> None:
    """Fuse the two scores, each over its best, then add what session, neighbours, speaker and time say."""
    most_own = max(reading.own for reading in readings) or 1.0
    most_around = max(reading.around for reading in readings) or 1.0
    best: dict[int, float] = {}
    fused = []
    for reading in readings:
        base = reading.own / most_own + reading.around / most_around
        if reading.asks and reading.after >= 0:
            base *= 1 - ASKING * _brevity(readings[reading.after])
        best[reading.session] = max(best.get(reading.session, 0.0), base)
        fused.append(base)
    fused = [base + SESSION * best[reading.session] for base, reading in zip(fused, readings, strict=True)]
    speaker = query.named[0] if len(query.named) == 1 else None
    for reading, score in zip(readings, fused, strict=True):
        brevity = _brevity(reading)
        if reading.before >= 0:
            score += fused[reading.before] * brevity * (NEIGHBOUR + ANSWER * readings[reading.before].asks)
        if reading.after >= 0:
            score += fused[reading.after] * brevity * NEIGHBOUR
        if speaker == reading.post.speaker:
            score *= 1 + SPEAKER
        if query.period and query.period[0] <= reading.post.when < query.period[1]:
            score *= 1 + PERIOD
        reading.score = score


def _brevity(reading: _Reading) -> float:
    """How far a post leans on those around it, in (0, 1]: "seven years now" needs its question, a page does not."""
    return min(1.0, BRIEF / max(1, reading.whole_length or reading.length))


def _choose(readings: Sequence[_Reading], limit: int) -> list[Ranked]:
    kept = [reading for reading in readings if reading.held >= FLOOR]
    kept.sort(key=lambda reading: (-reading.score, -reading.post.when, -reading.post.seq))
    return [Ranked(seq=reading.post.seq, score=reading.score, why="") for reading in kept[:limit]]


def _period(text: str, now: float) -> tuple[float, float] | None:
    return None


def excerpt(text: str, query: Query, tokens: int, count: Callable[[str], int]) -> str:
    """The best passage of a long text for a query, at most `tokens`."""
    best, start = "", 0
    pieces = re.split(r"(?<=[.!?\n])\s+", text)
    wanted = set(query.terms)
    ranked = sorted(range(len(pieces)), key=lambda at: (-len(wanted.intersection(words(pieces[at]))), at))
    for at in ranked[:1]:
        start = at
    for end in range(start + 1, len(pieces) + 1):
        candidate = " ".join(pieces[start:end])
        if count(candidate) > tokens:
            break
        best = candidate
    return best or text[: tokens * 2]


def pack(hits: Sequence, token_budget: int) -> list:  # type: ignore[type-arg]
    """Hits that fit a token budget, by value per token."""
    chosen, used = [], 0
    for hit in sorted(hits, key=lambda hit: -hit.score / max(1, hit.tokens)):
        if used + hit.tokens <= token_budget:
            used += hit.tokens
            chosen.append(hit)
    return sorted(chosen, key=lambda hit: -hit.score)
