"""Which posts answer a query: full text with structure, meaning beside it, one fixed configuration for all data.

The store indexes `key_text` of each post and finds some hundred posts by `match_expression`; `rank` orders them anew
with the statistics of the scope alone. A post counts by its own words and by those around it, then by the best of its
session; a short post leans on its neighbours, an answer on its question; the one speaker a query names counts more. A
long post counts by its best passage, so that long answers and tool outputs neither swamp nor vanish. Where posts have
vectors, what is close to the query in meaning counts beside its words; without them all is as if there were none.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, tzinfo
from itertools import pairwise
from typing import Final

from msgspec import Struct

from cuebook.memory.tokenizer import is_pair, key_text, query_words, read_period, words

__all__ = [
    "CANDIDATES",
    "NEIGHBOURS_OF",
    "REACH",
    "Corpus",
    "Query",
    "Ranked",
    "RecallCandidate",
    "akin_among",
    "key_text",
    "match_expression",
    "rank",
    "read_query",
]  # fmt: skip

# What the store does best to ask for. On LoCoMo dev 50 posts give what 400 give (79.4 R@10).
CANDIDATES: Final = 200  # posts by bm25
NEIGHBOURS_OF: Final = 100  # of these, the best, whose neighbours on the path are asked for too,
REACH: Final = 2  # this many before and this many after (1 loses 0.8 points, none 6)

# Words are those of a key, without stop words: two thirds of those written.
TERMS: Final = 32  # words of a query that are looked for; the longest stay
QUERY_CHARACTERS: Final = 8_000  # of a query that are read; a pasted page is no better query
PASSAGE: Final = 60  # words: a paragraph of about 120 as written; a post over 5/4 of it is scored as passages
FEWEST: Final = 16  # posts a scope counts as at least: where all of two hold a word, it tells no less than elsewhere
WORD_CHARACTERS: Final = 6  # of a key, its space included (5.4 measured on LoCoMo)

# The ranking: textbook values and round ones. Each halved or doubled moves R@10 on LoCoMo dev by a point or less, on
# made-up assistant and tool chats by four or less, unless a note says more.
K1: Final = 1.2  # BM25's saturation and
B: Final = 0.75  # length normalisation (notes/recall.md, section 3)
NEAR: Final = (1.0, 0.5, 0.25)  # weight of a post's words in a window, by distance
WHOLE: Final = 0.2  # share of the whole of a long post beside its best passage
NEIGHBOUR: Final = 0.15  # of the score of the posts before and after (0.3: 13 points less in tool chats)
ANSWER: Final = 0.2  # of the score of a question, for the post behind it
ASKING: Final = 0.2  # taken from a question whose answer is short
BRIEF: Final = 30  # words up to which a post leans on its neighbours in full; beyond, in inverse ratio to its length.
# Without it long answers take the place of what users said: R@10 78 instead of 92 in assistant chats.
SESSION: Final = 0.3  # of the best score in the session
SPEAKER: Final = 0.4  # more for the posts of the one speaker the query names, after neighbours (before: 1 point less)
PERIOD: Final = 0.3  # more for posts of the time the query names
FLOOR: Final = 0.1  # least share of the query's information (idf) a post and those around it must hold, and
SILENCE: Final = 0.2  # the fullest of all, else nothing fits: 16 % of other people's questions, at no cost to one's own
MEANING: Final = 1.0  # weight of closeness in meaning beside own words and words around, each at most 1
BESIDE: Final = 0.5  # of the closeness of the posts before and after, in half of it (LoCoMo: none loses 0.6 points)
CLEAR: Final = 0.5  # closeness that lets a post stand without a word of the query
LONE: Final = 0.4  # less closeness is asked of a single post or memory than of the closest of
MANY: Final = 50  # of them: the more there are, the closer the closest is by chance (docs/design/005)
SESSION_GAP_S: Final = 3 * 3600.0  # silence that ends a session
SESSION_POSTS: Final = 50  # its greatest length, where posts have no times or never pause
PARTS: Final = ("session", "neighbours", "answer", "speaker", "time")  # named in a hit's why where they bring
TELLING: Final = 0.05  # more than this
_PROPER: Final = re.compile(r"(?<=[\w,;:)’'] )[A-Z][a-z]{2,}\b")
GENERIC: Final = frozenset("user assistant human ai bot agent model tool system function summary unknown".split())


class Query(Struct, frozen=True):
    """A query as it is looked for: `terms` in its order, each once."""

    text: str
    terms: tuple[str, ...]
    named: tuple[str, ...] = ()  # speakers it names
    names: frozenset[str] = frozenset()  # the terms that are part of their names
    about: frozenset[str] = frozenset()  # the terms that are other names: written with a capital within a sentence
    period: tuple[float, float] | None = None  # the time it names, Unix seconds
    zone: tzinfo = UTC  # whose days it speaks of


class RecallCandidate(Struct, frozen=True):
    """A post that may answer. `seq` is unique among the candidates and grows along a path; `key` is its `key_text`."""

    seq: int
    speaker: str
    when: float  # Unix seconds
    key: str
    previous: int | None = None  # seq of the post before it on the path
    conversation: int = 0  # sessions and neighbours never cross conversations
    cosine: float | None = None  # between its vector and the query's; None = one of them has none


class Corpus(Struct, frozen=True):
    """The scope as a whole: its posts, and in how many of them a term occurs (else counted among the candidates)."""

    posts: int
    frequencies: Mapping[str, int] = {}
    mean_cosine: float = 0.0  # of all its posts
    akin: float = 1.0  # cosine from which on a post and a query are about the same thing


class Ranked(Struct, frozen=True):
    """A found post. `score` is in [0, 1]: its part of the best score, times what the best hit holds of the query."""

    seq: int
    score: float
    why: str


# ---- the query ------------------------------------------------------------------------------------------------------


def read_query(query: str, *, speakers: Collection[str] = (), now: float | None = None, zone: tzinfo = UTC) -> Query:
    """Read what a query looks for. `speakers` are those of the scope; `now` (Unix seconds) gives "today" its day, in
    the asker's `zone`.
    """
    text = query[:QUERY_CHARACTERS]
    terms = list(dict.fromkeys(query_words(text)))
    if len(terms) > TERMS:
        longest = set(sorted(terms, key=len, reverse=True)[:TERMS])
        terms = [term for term in terms if term in longest]
    spelled = set(re.findall(r"\b[A-Z][a-z]{2,}\b", text))  # Will is a name where the verb is a stop word
    parts = {name: set(words(name)) for name in speakers if name.casefold() not in GENERIC}
    named = [name for name, of in parts.items() if not of.isdisjoint(terms) or name in spelled]
    names = frozenset(term for term in terms for name in named if term in parts[name])
    proper = set(words(" ".join(_PROPER.findall(text))))
    return Query(
        text=text,
        terms=tuple(terms),
        named=tuple(named),
        names=names,
        about=frozenset(term for term in terms if term in proper) - names,
        zone=zone,
        period=None if now is None else read_period(text, now, zone=zone),
    )


def akin_among(akin: float, count: int) -> float:
    """Say from which cosine on the closest of so many posts or memories and a query are about the same thing.

    LoCoMo dev, MiniLM: a tenth of the questions about others come as close, however many there are, and 97 of 100 that
    a memory answers; with `akin` for all 82 of 100 in a place of one, 90 of eight.
    """
    return akin * (1 - LONE * (1 - min(1.0, math.log(max(1, count)) / math.log(MANY))))


def match_expression(query: Query, scope: str | Sequence[str] | None) -> str | None:
    """FTS5's MATCH string over the columns `scope` and `key`, safe for any query; None where nothing can be looked for.

    `scope` is a token, or several of which a row has one. Names of speakers stand in every second post: they are looked
    for only where there is nothing else. Without a token the caller bounds the rows itself: bm25 would go through all
    posts of a scope to count it.
    """
    wanted = " OR ".join(f'"{term}"' for term in _topic(query))
    tokens = (scope,) if isinstance(scope, str) else scope or ()
    quoted = ['"' + each.replace('"', '""').replace("\0", "") + '"' for each in tokens]
    within = quoted[0] if len(quoted) == 1 else f"({' OR '.join(quoted)})"
    return (f"scope : {within} AND " * (scope is not None) + f"key : ({wanted})") if wanted else None


def _topic(query: Query) -> Sequence[str]:
    return [term for term in query.terms if term not in query.names] or query.terms


# ---- the ranking ----------------------------------------------------------------------------------------------------


class _Reading(Struct):
    """A candidate as it is scored: how often each term occurs in its best passage, how long that is in words."""

    post: RecallCandidate
    counts: Mapping[str, float]
    length: int
    asks: bool
    whole: Mapping[str, float] = {}  # the same of a post longer than a passage
    whole_length: int = 0
    own: float = 0.0
    around: float = 0.0
    held: float = 0.0  # share of the query's information that the window holds
    close: float | None = None  # in meaning, as its part of the closest
    meaning: float = 0.0  # the same with the posts beside it
    score: float = 0.0
    session: int = 0
    before: int = -1  # place of the post before it in the same session, -1 for none
    after: int = -1
    parts: tuple[float, ...] = ()  # what PARTS brought


def rank(query: Query, candidates: Iterable[RecallCandidate], corpus: Corpus, *, limit: int) -> list[Ranked]:
    """Order candidates, best `limit` first, equal ones newest first; none that holds less than FLOOR of the query.

    Posts beside those that match should be among the candidates (NEIGHBOURS_OF, REACH). About 10 µs a post.
    """
    posts = sorted({post.seq: post for post in candidates}.values(), key=lambda post: (post.conversation, post.seq))
    seen = any(post.cosine is not None for post in posts)
    if not posts or not (query.terms or seen) or limit <= 0:
        return []
    terms = _topic(query)
    texts = [f" {post.key} " for post in posts]
    places = [_places(text, terms) for text in texts]
    idf = _idf(terms, corpus, places)
    readings = [_read(*parts, idf) for parts in zip(posts, texts, places, strict=True)]
    _link(readings)
    _weigh(readings, idf)
    if seen:
        _compare(readings, corpus.mean_cosine)
    _combine(readings, query)
    return _choose(readings, limit, akin=corpus.akin, about=query.about)


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
    """Weigh each term by BM25's log(1 + (N - n + 0.5) / (n + 0.5)), n of the N posts in scope holding it.

    Pairs of characters that stand nowhere are left out: most of a Chinese query's stand across two words.
    """
    here = Counter(term for found in places for term in found)
    total = max(corpus.posts, len(places), FEWEST)
    posts = {term: min(total, max(here[term], corpus.frequencies.get(term, 0))) for term in terms}
    return {term: math.log(1 + (total - n + 0.5) / (n + 0.5)) for term, n in posts.items() if n or not is_pair(term)}


def _read(post: RecallCandidate, text: str, places: Mapping[str, list[int]], idf: Mapping[str, float]) -> _Reading:
    """Count the terms in a post: in all of it, or in the date, the speaker and the best passage of a long one."""
    counts = {term: float(len(here)) for term, here in places.items()}
    length = max(1, text.count(" ") - 1)
    asks = text.endswith(" ? ")
    if length <= PASSAGE * 5 // 4:
        return _Reading(post=post, counts=counts, length=length, asks=asks)
    best = _best_passage(places, text.find(" | "), idf)
    return _Reading(post=post, counts=best, length=PASSAGE, asks=asks, whole=counts, whole_length=length)


def _best_passage(places: Mapping[str, list[int]], head: int, idf: Mapping[str, float]) -> Mapping[str, float]:
    """Count the terms of the head and of the passage that holds most. Passages overlap by half."""
    step = PASSAGE * WORD_CHARACTERS // 2
    passages: dict[int, dict[str, float]] = {}
    top: dict[str, float] = {}
    for term, here in places.items():
        for at in here:
            if at < head:
                top[term] = top.get(term, 0.0) + 1.0
                continue
            last = (at - head) // step
            for number in (last - 1, last) if last else (0,):
                counts = passages.setdefault(number, {})
                counts[term] = counts.get(term, 0.0) + 1.0
    best = max(passages.values(), key=lambda counts: _bm25(counts, 1.0, idf), default={})
    return {term: best.get(term, 0.0) + top.get(term, 0.0) for term in (*best, *top)}


def _link(readings: Sequence[_Reading]) -> None:
    """Count off the sessions, and tie each post to those before and after it in its session."""
    place = {reading.post.seq: at for at, reading in enumerate(readings)}
    session, first = 0, readings[0].post
    for earlier, later in pairwise(readings):
        a, b = earlier.post, later.post
        same = a.conversation == b.conversation and abs(b.when - a.when) <= SESSION_GAP_S
        if not same or b.seq - first.seq >= SESSION_POSTS:
            session, first = session + 1, b
        later.session = session
    for at, reading in enumerate(readings):
        before = -1 if reading.post.previous is None else place.get(reading.post.previous, -1)
        if 0 <= before < at and readings[before].session == reading.session:
            reading.before, readings[before].after = before, at


def _weigh(readings: Sequence[_Reading], idf: Mapping[str, float]) -> None:
    """BM25 of each post by itself and with the posts around it, each as its part of the best."""
    windows = [_window(readings, at) for at in range(len(readings))]
    mean_own = sum(reading.length for reading in readings) / len(readings)
    mean_window = sum(length for _, length in windows) / len(windows)
    total = sum(idf.values()) or 1.0
    for reading, (counts, length) in zip(readings, windows, strict=True):
        reading.own = _bm25(reading.counts, reading.length / mean_own, idf)
        if reading.whole_length:
            reading.own *= 1 - WHOLE
            reading.own += WHOLE * _bm25(reading.whole, reading.whole_length / mean_own, idf)
        reading.around = _bm25(counts, length / mean_window, idf)
        reading.held = sum(idf[term] for term in counts) / total
    most_own = max(reading.own for reading in readings) or 1.0
    most_around = max(reading.around for reading in readings) or 1.0
    for reading in readings:
        reading.own, reading.around = reading.own / most_own, reading.around / most_around


def _compare(readings: Sequence[_Reading], mean: float) -> None:
    """Tell how close each post is to the query in meaning, by itself and with those beside it: what is above the mean,
    as its part of the best.
    """
    above = [0.0 if reading.post.cosine is None else reading.post.cosine - mean for reading in readings]
    wide = [
        own + BESIDE * sum(above[at] for at in (reading.before, reading.after) if at >= 0)
        for own, reading in zip(above, readings, strict=True)
    ]
    most, most_wide = max(*above, 0.0, 0.0) or 1.0, max(*wide, 0.0, 0.0) or 1.0
    for reading, own, around in zip(readings, above, wide, strict=True):
        reading.close = max(0.0, own / most)
        reading.meaning = (reading.close + max(0.0, around / most_wide)) / 2


def _window(readings: Sequence[_Reading], at: int) -> tuple[dict[str, float], float]:
    """Add up terms and lengths of a post and those around it, weighted NEAR by distance."""
    here = readings[at]
    counts, length = dict(here.counts), float(here.length)
    older, newer = here.before, here.after
    for weight in NEAR[1:]:
        for other in (older, newer):
            if other >= 0:
                near = readings[other]
                length += weight * near.length
                for term, n in near.counts.items():
                    counts[term] = counts.get(term, 0.0) + weight * n
        older = readings[older].before if older >= 0 else -1
        newer = readings[newer].after if newer >= 0 else -1
    return counts, length


def _bm25(counts: Mapping[str, float], relative_length: float, idf: Mapping[str, float]) -> float:
    slope, total = K1 * (1 - B + B * relative_length), 0.0
    for term, n in counts.items():
        total += idf[term] * n / (n + slope)
    return total * (K1 + 1)


def _combine(readings: Sequence[_Reading], query: Query) -> None:
    """Add up what the words say, then what session, neighbours, speaker and time say."""
    best: dict[int, float] = {}
    for reading in readings:
        reading.score = reading.own + reading.around + MEANING * reading.meaning
        if reading.asks and reading.after >= 0:
            reading.score *= 1 - ASKING * _brevity(readings[reading.after])
        best[reading.session] = max(best.get(reading.session, 0.0), reading.score)
    fused = [reading.score + SESSION * best[reading.session] for reading in readings]
    speaker = query.named[0] if len(query.named) == 1 else None
    for reading, score in zip(readings, fused, strict=True):
        lent, asked = _lent(reading, readings, fused)
        names = speaker == reading.post.speaker
        timely = query.period is not None and query.period[0] <= reading.post.when < query.period[1]
        reading.score = (score + lent + asked) * (1 + SPEAKER * names) * (1 + PERIOD * timely)
        reading.parts = (SESSION * best[reading.session], lent, asked, names, timely)


def _lent(reading: _Reading, readings: Sequence[_Reading], fused: Sequence[float]) -> tuple[float, float]:
    """Reckon what a post gets from those beside it, and from the question before it."""
    lent = asked = 0.0
    brevity = _brevity(reading)
    if reading.before >= 0:
        lent = NEIGHBOUR * brevity * fused[reading.before]
        asked = ANSWER * brevity * fused[reading.before] * readings[reading.before].asks
    if reading.after >= 0:
        lent += NEIGHBOUR * brevity * fused[reading.after]
    return lent, asked


def _brevity(reading: _Reading) -> float:
    """How far a post leans on those around it, in (0, 1]: "seven years now" needs its question, a page does not."""
    return min(1.0, BRIEF / (reading.whole_length or reading.length))


def _choose(readings: Sequence[_Reading], limit: int, *, akin: float, about: frozenset[str]) -> list[Ranked]:
    closest = max(reading.post.cosine or 0.0 for reading in readings)
    known = bool(about) and about <= {term for reading in readings for term in reading.counts}  # of all it asks about
    if max(reading.held for reading in readings) < SILENCE and closest < akin and not known:
        return []
    kept = [reading for reading in readings if reading.held >= FLOOR or (reading.close or 0.0) >= CLEAR]
    if not kept:
        return []
    kept.sort(key=lambda reading: (-reading.score, -reading.post.when, -reading.post.seq))
    unit = max(kept[0].held, kept[0].post.cosine or 0.0) / kept[0].score
    return [
        Ranked(
            seq=reading.post.seq,
            score=min(1.0, reading.score * unit),
            why=_why(reading),
        )
        for reading in kept[:limit]
    ]


def _why(reading: _Reading) -> str:
    told = f"words {reading.own:.2f}, around {reading.around:.2f}"
    told += "" if reading.close is None else f", meaning {reading.meaning:.2f}"
    notes = ", ".join(name for name, part in zip(PARTS, reading.parts, strict=True) if part > TELLING)
    return f"{told}; {notes}" if notes else told
