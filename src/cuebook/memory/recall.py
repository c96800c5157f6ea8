"""Rank the posts that answer a query: full-text search plus embeddings, with one fixed configuration for all data.

The store indexes each post's `key_text` and finds some hundred posts by `match_values`; `rank` reorders them with the
statistics of the scope alone. A post scores by its own words and by those around it, then by the best post of its
session. A short post gains from its neighbors, an answer from its question, and the speaker whom the query names
counts more, or the user if it is about "me". A long post scores by its best passage, so long answers and tool outputs
neither dominate nor vanish. Each sentence of a long query is scored separately. Where posts have vectors, semantic
similarity is added to the words, and words count less if no post explains much of a sentence. Nothing is returned if no
post explains more of the query than chance (docs/design/031).
"""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, Final, NamedTuple

from msgspec import Struct

from cuebook.memory.query import Query, topic_of
from cuebook.memory.quotes import states_rule
from cuebook.memory.tokenizer import MARK, is_pair, key_pattern
from cuebook.records.memory import NO_MODEL_LABEL, RecallCandidate, SearchResult

# Limits for the store's query, beside the number of candidates: the neighbors that are fetched too (docs/design/031)
NEIGHBORS_OF: Final = 100  # of so many best posts,
BESIDE: Final = 2  # at most this many before and after each (1 loses 0.8 points, none 6), and
WIDE: Final = 16  # of so few best ones
REACH: Final = 6  # at most this many,
REACH_TOKENS: Final = 120  # on each side within so many tokens: many short messages, or one of some length

FEWEST: Final = 16  # minimum size of a scope for idf: a word in both of two posts is still informative

# The ranking: textbook values and round ones. Each halved or doubled moves R@10 on LoCoMo dev by a point or less, on
# made-up assistant and tool chats by four or less, unless a note says more.
K1: Final = 1.2  # BM25's saturation and
B: Final = 0.75  # length normalization
NEAR: Final = 25  # words of keys that halve the weight of the posts around a post, at most a half (docs/design/031),
FAR: Final = 75  # and words between it and the last of them, at most
WHOLE: Final = 0.2  # share of the whole of a long post beside its best passage
NEIGHBOR: Final = 0.15  # of the score of the posts before and after (0.3: 13 points less in tool chats)
ANSWER: Final = 0.2  # of the score of a question, for the post after it
ASKING: Final = 0.2  # subtracted from a question whose answer is short
BRIEF: Final = 30  # words up to which a post gains fully from its neighbors; beyond, in inverse ratio to length.
# Without it long answers take the place of what users said: R@10 78 instead of 92 in assistant chats.
SESSION: Final = 0.3  # of the best score by words in the session; long posts give and gain little, as by neighbors.
# With meaning, short posts took the place of tool outputs: R@10 84 instead of 96
SPEAKER: Final = 1.4  # factor for posts of the one speaker whom the query names, or of the user if the query is about
# its author; after neighbors (before them: 1 point less)
RULE: Final = 1.5  # for a rule or preference that the user told an assistant (docs/design/031)
PERIOD: Final = 1.3  # for posts of the time the query names
ALONE: Final = 0.3  # minimum share of a sentence's information (idf) of words that are evidence without a second one,
NAMED: Final = 0.2  # and beside the name of a speaker (docs/design/031)
PREFIX_COUNT: Final = 0.8  # count of a prefix term if a post has only other words with this prefix (docs/design/031)
STEEPNESS: Final = 8  # power of the share of that evidence which the best post has: words with half of it hardly count
MEANING: Final = 1.0  # weight of closeness in meaning beside own words and words around, each at most 1
CLEAR: Final = 0.5  # closeness at which a post needs no word of the query
SHORT: Final = 2  # times the query's words: the most that short messages have on average (docs/design/031)
NEARLY: Final = 0.7  # of the embedder's threshold: enough where words cannot tell
CLOSENESS_OF_SHORT: Final = 0.9  # of it: enough for short messages with more than half of the query's terms
SURE: Final = 0.5  # confidence below which `why` says that words match by chance
LONE: Final = 0.4  # a single post or memory needs this much less closeness than the closest of
MANY: Final = 50  # of them: the more there are, the closer the closest is by chance (docs/design/005)
SESSION_GAP_S: Final = 3 * 3600.0  # pause that ends a session
SESSION_POSTS: Final = 50  # its greatest length, where posts have no times or never pause
#: Parts of a score that a hit's `why` names if they contribute: some are added,
ADDED: Final = ("session", "neighbors", "answer")
TELLING: Final = 0.05  # if more than this much,
FACTORS: Final = ("speaker", "time", "rule")  # the others multiply the sum
WORDS: Final = 8  # of the query that `why` names at most
_MARK: Final = re.compile(f" {MARK} ")


class Ranked(NamedTuple):
    """A post with its score in [0, 1].

    `candidate` has the parts of the score. `candidates` are all that were ranked. `by_chance`: words match by chance.
    `note`: why it stands at another's place.
    """

    post: Any
    score: float
    candidate: "_Candidate"
    candidates: Sequence["_Candidate"]
    by_chance: bool
    note: str = ""

    @property
    def why(self) -> str:
        """Return the reason for the score."""
        why = _why(self.candidate, by_chance=self.by_chance)
        return f"{why}; {self.note}" if self.note else why

    @property
    def segment(self) -> int:
        """Return the first segment of the passage that words or the closest vector choose, whichever counts more."""
        candidate = self.candidate
        by_meaning = candidate.closeness is not None and candidate.closeness > candidate.keywords
        return 2 * candidate.post.part if by_meaning else candidate.segment

    @property
    def nearby(self) -> list[tuple[int, int]]:
        """Return the adjacent posts, by conversation number and seq, of which one of the two needs the other."""
        return _nearby(self.candidate, self.candidates)


def unlearned(role: str, message: str) -> bool:
    """Return whether memory excludes a post, because it is a recalled answer."""
    return role == "assistant" and message.startswith(NO_MODEL_LABEL)


def akin_among(min_similarity: float, count: int) -> float:
    """Return the cosine from which the closest of `count` posts or memories and a query are about the same topic.

    LoCoMo dev, MiniLM: a tenth of the unrelated questions come this close, at any count, and 97 of 100 that a memory
    answers. With `akin` for all counts: 82 of 100 in a place of one memory, 90 of eight.
    """
    return min_similarity * (1 - LONE * (1 - min(1.0, math.log(max(1, count)) / math.log(MANY))))


# ---- the ranking ----------------------------------------------------------------------------------------------------


class _Weights(Struct, frozen=True):
    """The weight (idf) of each term, the part of it that a random post contains, and the terms of each sentence.

    `named`: the query names a speaker, too.
    """

    idf: Mapping[str, float]
    chance: Mapping[str, float]
    sentences: Sequence[frozenset[str]]
    named: bool

    def explained(self, terms: Iterable[str]) -> float:
        """Return the information in some terms."""
        return sum(self.idf[term] for term in terms)

    @property
    def enough(self) -> float:
        """Return the share of a sentence's information that is evidence: smaller if the query names a speaker."""
        return NAMED if self.named else ALONE

    def has_evidence(self, terms: Collection[str]) -> bool:
        """Return whether terms in one post are evidence that it is about a sentence of the query.

        Any rare word occurs somewhere by chance. Evidence is a second word in the same post that explains more than a
        random post does, or a good part of the sentence: a smaller one beside the name of a speaker.
        """
        for sentence in self.sentences:
            shared = [self.idf[term] for term in terms if term in sentence]
            if not shared:
                continue
            if sum(shared) - max(shared) > sum(map(self.chance.__getitem__, sentence)):
                return True
            if sum(shared) >= self.enough * self.explained(sentence):
                return True
        return False

    def confidence(self, posts: Iterable[Collection[str]]) -> float:
        """Return how much words count, in [0, 1], by the terms of each post and those beside it.

        Every long message shares words with some post by chance. So they count fully only if one place explains enough
        of a sentence of average information. The average is weighted by information: "Hi Tom!" does not decide about
        the long message behind it (docs/design/031).
        """
        information = [self.explained(sentence) for sentence in self.sentences]
        least = self.enough * sum(each * each for each in information) / (sum(information) or 1.0)
        shared = (sentence.intersection(terms) for sentence, terms in product(self.sentences, filter(None, posts)))
        best = max(map(self.explained, shared), default=0.0)
        return min(1.0, best / (least or 1.0)) ** STEEPNESS


class _Candidate(Struct):
    """A candidate's features: how often each term occurs in its best passage, and that passage's length in words."""

    post: Any
    counts: Mapping[str, float]
    length: int
    brevity: float
    asks: bool
    whole_counts: Mapping[str, float] = {}  # in all of a post longer than a passage
    whole_length: int = 0
    segment: int = 0  # the first one of its best passage
    keywords: float = 0.0  # BM25, relative to the best
    window_keywords: float = 0.0  # the same with the posts around it
    coverage: float = 0.0  # share of the query's information in the window, less of posts farther than NEAR
    closeness: float | None = None  # in meaning, relative to the closest post
    meaning: float = 0.0  # the mean of this and that of the window
    score: float = 0.0
    session: int = 0
    before: int = -1  # position of the previous post in the session, -1 for none
    after: int = -1
    added: tuple[float, ...] = ()  # the parts ADDED
    factors: tuple[float, ...] = ()  # FACTORS


def rank(
    query: Query, found: Iterable[RecallCandidate], corpus: SearchResult, *, limit: int, judged: bool = True
) -> list[Ranked]:
    """Return the best `limit` posts, best first, equal ones newest first; if `judged`, none if none has evidence.

    A score is a candidate's share of the best score times the best hit's share of the query.

    Posts adjacent to matches should be among those `found` (NEIGHBORS_OF, REACH). About 20 µs a post.
    """
    posts = sorted({(post.no, post.seq): post for post in found}.values(), key=lambda post: (post.no, post.seq))
    seen = any(post.cosine is not None for post in posts)
    if not posts or not (query.terms or seen) or limit <= 0:
        return []
    terms = topic_of(query)
    texts = [f" {post.key} " for post in posts]
    spaced = [(term, key_pattern(term), term.endswith("*")) for term in terms]
    places = [_places(text, spaced) for text in texts]
    for post, here in zip(posts, places, strict=True):
        for date in query.dates.intersection(terms):
            here[date] = here.get(date, [0]) if is_timely(query, post) else []
    places = [{term: at for term, at in here.items() if at} for here in places] if query.dates else places
    weights = _weights(query, terms, corpus, places)
    candidates = [_read(*parts, weights.idf, query) for parts in zip(posts, texts, places, strict=True)]
    if judged and not _is_known(candidates, weights, akin=corpus.akin, about=query.about):
        return []
    _link(candidates)
    closeness = [0.0 if post.cosine is None else post.cosine - corpus.mean_cosine for post in posts]
    windows = [_window(candidates, closeness, at) for at in range(len(candidates))]
    _weigh(candidates, windows, weights)
    if seen:
        _compare(candidates, windows, closeness)
    has_meaning = any(candidate.closeness for candidate in candidates)  # otherwise words are all there is
    confidence = weights.confidence(_terms_with_adjacent(candidates)) if has_meaning else 1.0
    _combine(candidates, query, confidence=confidence)
    return _choose(candidates, weights, limit, by_chance=confidence < SURE, judged=judged)


def _places(text: str, terms: Iterable[tuple[str, str, bool]]) -> dict[str, list[int]]:
    """Return the character positions of each term in a key.

    `terms` are terms, each with its `key_pattern` and whether it is a prefix, which is not searched in the date and the
    speaker of a key. Searching the string is ten times faster than splitting.
    """
    results: dict[str, list[int]] = {}
    for term, word, is_prefix in terms:
        at = text.find(word, text.find(" | ") if is_prefix else 0)
        if at >= 0:
            results[term] = here = [at]
            while (at := text.find(word, at + len(word) - 1)) >= 0:
                here.append(at)
    return results


def _weights(query: Query, terms: Sequence[str], corpus: SearchResult, places: Sequence[Collection[str]]) -> _Weights:
    """Weigh terms by BM25's log(1 + (N - n + 0.5) / (n + 0.5)), where n of the N posts contain one.

    Character pairs that occur nowhere are omitted: most pairs of a Chinese query span two words. Year, month and day
    have the weight of one word together, because all posts of a day share them.
    """
    here = Counter(term for results in places for term in results)
    total = max(corpus.posts, len(places), FEWEST)
    posts = {term: min(total, max(here[term], corpus.frequencies.get(term, 0))) for term in terms}
    idf = {term: math.log(1 + (total - n + 0.5) / (n + 0.5)) for term, n in posts.items() if n or not is_pair(term)}
    idf |= {term: idf[term] / len(query.dated) for term in query.dated if term in idf}
    sentences = [each for one in query.sentences if (each := one.intersection(idf))]
    chance = {term: weight * posts[term] / total for term, weight in idf.items()}
    return _Weights(idf, chance, sentences or [frozenset(idf)], named=bool(query.named))


def _read(
    post: RecallCandidate, text: str, places: Mapping[str, list[int]], idf: Mapping[str, float], query: Query
) -> _Candidate:
    """Count the terms of a post: in all of it, or in the date, the speaker and the best passage of a long one.

    A prefix term counts PREFIX_COUNT if the post has none of the query's own words for it.
    """
    counts = {term: float(len(here)) for term, here in places.items()}
    prefixes = (term for term in places if term.endswith("*")) if query.stems_by_term else ()
    inexact = {term: PREFIX_COUNT for term in prefixes if not _has_any(text, query.stems_by_term[term])}
    counts |= inexact
    length = max(1, text.count(" ") - 1)
    asks = text.endswith(" ? ")
    if f" {MARK} " not in text:
        return _Candidate(post=post, counts=counts, length=length, brevity=_brevity(length), asks=asks)
    best, best_length, segment = _best_passage(places, text, idf)
    return _Candidate(
        post=post,
        counts={term: inexact.get(term, n) for term, n in best.items()} if inexact else best,
        length=best_length,
        brevity=_brevity(length),
        asks=asks,
        whole_counts=counts,
        whole_length=length,
        segment=segment,
    )


def _has_any(text: str, stems: Iterable[str]) -> bool:
    """Return whether a key contains one of some words."""
    return any(f" {stem} " in text for stem in stems)


def _best_passage(
    places: Mapping[str, list[int]], text: str, idf: Mapping[str, float]
) -> tuple[Mapping[str, float], int, int]:
    """Count the terms of a long post's head and its best passage, which is two segments in a row.

    Also return its length in words and its first segment.
    """
    cuts = [text.find(" | "), *(match.start() for match in _MARK.finditer(text)), len(text)]
    segments: list[dict[str, float]] = [{} for _ in cuts[1:]]
    top: dict[str, float] = {}
    for term, here in places.items():
        for at in here:
            segment = bisect_right(cuts, at) - 1
            counts = segments[segment] if segment >= 0 else top
            counts[term] = counts.get(term, 0.0) + 1.0
    best: Mapping[str, float] = {}
    most, first = -1.0, 0
    for at, (one, two) in enumerate(pairwise(segments)):
        if one or two or not at:
            both = _sum(one, two)
            if (worth := _bm25(both, 1.0, idf)) > most:
                best, most, first = both, worth, at
    return _sum(best, top), text.count(" ", cuts[first], cuts[first + 2]), first


def _sum(one: Mapping[str, float], two: Mapping[str, float]) -> Mapping[str, float]:
    """Add the counts of two texts."""
    if not one or not two:
        return one or two
    return {term: one.get(term, 0.0) + two.get(term, 0.0) for term in (*one, *two)}


def _link(candidates: Sequence[_Candidate]) -> None:
    """Set the session number, and link each post to the previous and next one of its session."""
    place = {(candidate.post.no, candidate.post.seq): at for at, candidate in enumerate(candidates)}
    session, first = 0, candidates[0].post
    for earlier, later in pairwise(candidates):
        a, b = earlier.post, later.post
        same = a.no == b.no and abs(b.created_at - a.created_at) <= SESSION_GAP_S
        if not same or b.seq - first.seq >= SESSION_POSTS:
            session, first = session + 1, b
        later.session = session
    for at, candidate in enumerate(candidates):
        before = place.get((candidate.post.no, candidate.post.previous), -1)
        if 0 <= before < at and candidates[before].session == candidate.session:
            candidate.before, candidates[before].after = before, at


class _Window(NamedTuple):
    """A post with those around it: the sums of their term counts, lengths and closeness, weighted by distance."""

    counts: Mapping[str, float]
    length: float
    closeness: float


def _window(candidates: Sequence[_Candidate], closeness: Sequence[float], at: int) -> _Window:
    """Sum up a post and those around it. `closeness`: how far the cosine of each exceeds the mean.

    The distance ends with the other post; for a long one, with its best passage.
    """
    here = candidates[at]
    counts, length, close = dict(here.counts), float(here.length), closeness[at]
    for back in (True, False):
        distance, near = 0, here.before if back else here.after
        while near >= 0 and distance < FAR:
            other = candidates[near]
            end = distance + other.length
            weight = 0.5 if end <= NEAR else 0.5 ** (end / NEAR)
            length += weight * other.length
            close += weight * closeness[near]
            if other.counts:
                for term, n in other.counts.items():
                    counts[term] = counts.get(term, 0.0) + weight * n
            distance += other.whole_length or other.length
            near = other.before if back else other.after
    return _Window(counts, length, close)


def _weigh(candidates: Sequence[_Candidate], windows: Sequence[_Window], weights: _Weights) -> None:
    """Compute BM25 of each post alone and with the posts around it, each relative to the best."""
    total = sum(weights.idf.values()) or 1.0
    mean_length = sum(candidate.length for candidate in candidates) / len(candidates)
    mean_window = sum(window.length for window in windows) / len(windows)
    alone = [_by_sentence(each.counts, each.length / mean_length, weights) for each in candidates]
    around = [_by_sentence(each.counts, each.length / mean_window, weights) for each in windows]
    for at, candidate in enumerate(candidates):
        if candidate.whole_length:
            whole = _by_sentence(candidate.whole_counts, candidate.whole_length / mean_length, weights)
            alone[at] = (1 - WHOLE) * alone[at] + WHOLE * whole
        candidate.coverage = sum(weights.idf[term] * min(1.0, 2 * n) for term, n in windows[at].counts.items()) / total
    most, most_around = max(alone) or 1.0, max(around) or 1.0
    for candidate, one, window in zip(candidates, alone, around, strict=True):
        candidate.keywords, candidate.window_keywords = one / most, window / most_around


def _compare(candidates: Sequence[_Candidate], windows: Sequence[_Window], closeness: Sequence[float]) -> None:
    """Compute each post's closeness in meaning, alone and with the posts around it, each relative to the best."""
    most = max(*closeness, 0.0, 0.0) or 1.0
    most_around = max(*(window.closeness for window in windows), 0.0, 0.0) or 1.0
    for candidate, own, window in zip(candidates, closeness, windows, strict=True):
        candidate.closeness = max(0.0, own / most)
        candidate.meaning = (candidate.closeness + max(0.0, window.closeness / most_around)) / 2


def _terms_with_adjacent(candidates: Sequence[_Candidate]) -> Iterator[frozenset[str]]:
    """Yield the terms of each post with those of the posts before and after it."""
    for candidate in candidates:
        adjacent = (candidates[at].counts for at in (candidate.before, candidate.after) if at >= 0)
        yield frozenset(candidate.counts).union(*adjacent)


def _by_sentence(counts: Mapping[str, float], relative_length: float, weights: _Weights) -> float:
    """Fuse the BM25 of each sentence of the query: a post that explains one counts more than one that touches all."""
    if len(weights.sentences) == 1 or not counts:
        return _bm25(counts, relative_length, weights.idf)
    shares = ({term: counts[term] for term in sentence if term in counts} for sentence in weights.sentences)
    return math.hypot(*(_bm25(each, relative_length, weights.idf) for each in shares))


def _bm25(counts: Mapping[str, float], relative_length: float, idf: Mapping[str, float]) -> float:
    slope, total = K1 * (1 - B + B * relative_length), 0.0
    for term, n in counts.items():
        total += idf[term] * n / (n + slope)
    return total * (K1 + 1)


def _combine(candidates: Sequence[_Candidate], query: Query, *, confidence: float) -> None:
    """Combine the scores by words with those of session, neighbors, speaker and time.

    Without `confidence`, words match by chance, and neighbors are random. Then each post is scored alone: by meaning
    if it has a vector, else by its words.
    """
    by_meaning = any(candidate.closeness for candidate in candidates)
    best: dict[int, float] = {}
    for candidate in candidates:
        kept = 1 - ASKING * candidates[candidate.after].brevity if candidate.asks and candidate.after >= 0 else 1.0
        by_words = kept * (candidate.keywords + candidate.window_keywords)
        candidate.score = by_words + kept * MEANING * candidate.meaning
        best[candidate.session] = max(best.get(candidate.session, 0.0), candidate.brevity * by_words)
    shared = [SESSION * candidate.brevity * best[candidate.session] for candidate in candidates]
    fused = [candidate.score + part for candidate, part in zip(candidates, shared, strict=True)]
    speaker = query.named[0] if len(query.named) == 1 else None
    users = _users(candidates)
    for candidate, score, session in zip(candidates, fused, shared, strict=True):
        from_neighbors, from_question = _shares_of_neighbors(candidate, candidates, fused)
        is_users = users.get(candidate.post.no) == candidate.post.sender
        about_author = is_users and query.is_about_author and not query.named
        named = SPEAKER if about_author or speaker == candidate.post.sender else 1.0
        timely = PERIOD if is_timely(query, candidate.post) else 1.0
        is_rule = is_users and _is_match(candidate) and states_rule(candidate.post.text)
        rule = RULE if is_rule else 1.0
        alone = candidate.closeness or 0.0 if by_meaning and candidate.post.cosine is not None else candidate.keywords
        combined = confidence * (score + from_neighbors + from_question) + (1 - confidence) * alone
        candidate.score = combined * named * timely * rule
        candidate.added, candidate.factors = (session, from_neighbors, from_question), (named, timely, rule)


def _users(candidates: Sequence[_Candidate]) -> Mapping[int, str]:
    """Return the user of each conversation of one person with an assistant, by its number."""
    people: dict[int, set[str]] = {}
    for candidate in candidates:
        if candidate.post.role == "user":
            people.setdefault(candidate.post.no, set()).add(candidate.post.sender)
    assisted = {candidate.post.no for candidate in candidates if candidate.post.role == "assistant"}
    return {no: next(iter(senders)) for no, senders in people.items() if no in assisted and len(senders) == 1}


def is_timely(query: Query, post: RecallCandidate) -> bool:
    """Return whether a post is of the time that the query names."""
    return query.period is not None and query.period[0] <= post.created_at < query.period[1]


def _shares_of_neighbors(
    candidate: _Candidate, candidates: Sequence[_Candidate], fused: Sequence[float]
) -> tuple[float, float]:
    """Compute what a post gains from its neighbors, and from the question before it."""
    from_neighbors = from_question = 0.0
    for at in (candidate.before, candidate.after):
        if at >= 0:
            from_neighbors += NEIGHBOR * candidate.brevity * candidates[at].brevity * fused[at]
    if candidate.before >= 0 and candidates[candidate.before].asks:
        from_question = ANSWER * candidate.brevity * fused[candidate.before]
    return from_neighbors, from_question


def _brevity(length: int) -> float:
    """Return how much a post of so many words gains from its neighbors and lends them, in (0, 1].

    "Seven years now" needs its question, a page not; and "thanks" is not about all that the page before it is about.
    """
    return min(1.0, BRIEF / length)


def _is_known(candidates: Sequence[_Candidate], weights: _Weights, *, akin: float, about: frozenset[str]) -> bool:
    """Return whether something is known about a query: by words, by meaning, or all names in it.

    If no post has a word of the query, less closeness in meaning is enough. Short messages say little each. For them it
    is enough that the posts together have more than half of the query's terms (a speaker's name counts as one). If any
    post has a vector, one must also reach CLOSENESS_OF_SHORT of the threshold.
    """
    used = {term for candidate in candidates for term in candidate.counts}
    cosines = [candidate.post.cosine for candidate in candidates if candidate.post.cosine is not None]
    exact = {term for candidate in candidates for term, count in candidate.counts.items() if count > PREFIX_COUNT}
    closest = max(cosines, default=0.0)
    if closest >= (akin if used else NEARLY * akin) or (about and about <= exact):
        return True
    if any(weights.has_evidence(candidate.counts) for candidate in candidates if candidate.counts):
        return True
    missing = len(weights.idf) - len(used)
    if (cosines and closest < CLOSENESS_OF_SHORT * akin) or len(used) + weights.named <= missing:
        return False
    said = sum(len(candidate.post.key.partition(" | ")[2].split()) for candidate in candidates)
    return said <= SHORT * len(weights.idf) * len(candidates)


def _choose(
    candidates: Sequence[_Candidate], weights: _Weights, limit: int, *, by_chance: bool, judged: bool
) -> list[Ranked]:
    """Return the best posts: those that with the posts around them explain as much as a random post, or are close.

    If not `judged`, all that explain anything.
    """
    chance = sum(weights.chance.values()) / (sum(weights.idf.values()) or 1.0)
    least = round(chance, 9) if judged else 0.0

    def is_hit(candidate: _Candidate) -> bool:
        explains = candidate.coverage > 0 and round(candidate.coverage, 9) >= least
        return explains or (candidate.closeness or 0.0) >= CLEAR

    hits = sorted(
        filter(is_hit, candidates),
        key=lambda each: (-each.score, -each.post.created_at, -each.post.no, -each.post.seq),
    )
    if not hits:
        return []
    best = hits[0]
    unit = max(best.coverage, best.post.cosine or 0.0) / (best.score or 1.0)
    return [Ranked(each.post, min(1.0, each.score * unit), each, candidates, by_chance) for each in hits[:limit]]


def _nearby(candidate: _Candidate, candidates: Sequence[_Candidate]) -> list[tuple[int, int]]:
    """Return the adjacent posts that match only through this one, and the question before it if it does so itself."""
    adjacent = [(at, candidates[at]) for at in (candidate.before, candidate.after) if at >= 0]
    needs_question = not _is_match(candidate)
    return [
        (other.post.no, other.post.seq)
        for at, other in adjacent
        if not _is_match(other) or (needs_question and other.asks and at == candidate.before)
    ]


def _is_match(candidate: _Candidate) -> bool:
    """Return whether a post has a word of the query or is close to it, without its neighbors."""
    return candidate.keywords > 0 or (candidate.closeness or 0.0) >= CLEAR


def _why(candidate: _Candidate, *, by_chance: bool) -> str:
    words = f" ({', '.join(list(candidate.counts)[:WORDS])})" if candidate.counts else ""
    if by_chance:
        text = f"keywords {candidate.keywords:.2f}{words}, by chance"
        text += "" if candidate.closeness is None else f", meaning {candidate.closeness:.2f}"
    else:
        text = f"keywords {candidate.keywords:.2f}{words}, with neighboring posts {candidate.window_keywords:.2f}"
        text += "" if candidate.closeness is None else f", meaning {candidate.meaning:.2f}"
    added = [] if by_chance else zip(ADDED, candidate.added, strict=True)
    notes = [f"{name} {part:.2f}" for name, part in added if part > TELLING]
    notes += [f"{name} ×{factor:.1f}" for name, factor in zip(FACTORS, candidate.factors, strict=True) if factor > 1]
    return f"{text}; {', '.join(notes)}" if notes else text
