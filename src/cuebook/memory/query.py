"""Parse a search query: its words, sentences, names and time, and what it asks for."""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, tzinfo
from functools import partial
from typing import Final

from msgspec import Struct

from cuebook.languages import UNDETERMINED, detect, language
from cuebook.memory.quotes import opening_of
from cuebook.memory.tokenizer import date_text, names_month, prefix_term, query_words, read_period, spans_of, words

# Words are those of a key, without stop words: two thirds of those written.
TERMS: Final = 32  # words of a query that are searched; the longest are kept
QUERY_CHARACTERS: Final = 8_000  # of a query that are used; a pasted page is no better query
SENTENCES: Final = 8  # of a query that are compared by meaning: 10 ms of CPU each
_PROPER: Final = re.compile(r"(?<=[\w,;:)’'] )[A-Z][a-z]{2,}\b")
ENDING: Final = 3  # longest ending of an inflected name: "Szymonowi" is a form of "Szymon"
GENERIC: Final = frozenset("user assistant human ai bot agent model tool system function summary unknown".split())


class Query(Struct, frozen=True):
    """A parsed query: `terms` in order, each once."""

    text: str
    terms: tuple[str, ...]
    named: tuple[str, ...] = ()  # speakers that it names
    names: frozenset[str] = frozenset()  # the terms that are part of their names
    about: frozenset[str] = frozenset()  # the terms that are other names: written with a capital within a sentence
    period: tuple[float, float] | None = None  # the time it names, Unix seconds
    dated: frozenset[str] = frozenset()  # the terms of that time: they count as one word
    dates: frozenset[str] = frozenset()  # those of them that only posts of that time match, in any zone
    sentences: tuple[frozenset[str], ...] = ()  # the terms of each sentence
    earliest: bool = False  # it asks for how something was at first
    latest: bool = False  # it asks for how something is now
    is_task: bool = False  # it begins as a request: "Write a function …"
    is_about_author: bool = False  # it is about its author: "my", but not "you"
    stems_by_term: Mapping[str, tuple[str, ...]] = {}  # the stems of each term if words match by prefix, else empty
    language: str = ""  # its language code, from `detect`
    zone: tzinfo = UTC  # the time zone of its days

    def terms_of(self, part: str) -> list[str]:
        """Return the search terms of a part of the query, in order."""
        term_of = {word: term for term, words in self.stems_by_term.items() for word in words}
        return [term_of.get(word, word) for word in query_words(part, self.language)]


def read_query(query: str, *, speakers: Collection[str] = (), now: float | None = None, zone: tzinfo = UTC) -> Query:
    """Return a parsed query. `speakers` are those of the scope; `now` (Unix seconds) resolves "today" in the asker's
    `zone`.
    """
    text = query[:QUERY_CHARACTERS]
    code = detect(text)
    lists = language(code)
    # Neither English, nor source code or names, nor ASCII text in an unknown language.
    by_prefix = code not in ("en", "") and (code != UNDETERMINED or not text.isascii())
    opening_words = opening_of(text, lists)
    is_request = lists.signs(opening_words)["request"] > 0
    without_request = lists.without(opening_words, "request") + text[len(opening_words) :]
    topic = lists.without(without_request, "earliest", "latest")  # words of time choose a version, they are no topic
    topic = topic if query_words(topic, code) else text
    stems = list(dict.fromkeys(query_words(topic, code) or query_words(topic)))  # "war" alone may be English
    if len(stems) > TERMS:
        longest = set(sorted(stems, key=len, reverse=True)[:TERMS])
        stems = [stem for stem in stems if stem in longest]
    spelled = set(re.findall(r"\b[A-Z][a-z]{2,}\b", text))  # Will is a name where the verb is a stop word
    parts = {name: set(words(name)) for name in speakers if name.casefold() not in GENERIC}
    term_of = partial(_search_term, names=set().union(*parts.values())) if by_prefix else str
    stems_by_term: dict[str, tuple[str, ...]] = {}
    for stem in stems:
        stems_by_term[term_of(stem)] = (*stems_by_term.get(term_of(stem), ()), stem)
    terms = list(stems_by_term)
    named = [name for name, of in parts.items() if not of.isdisjoint(terms) or name in spelled]
    names = frozenset(term for term in terms for name in named if term in parts[name])
    proper = set() if lists.capitalizes_nouns else set(map(term_of, words(" ".join(_PROPER.findall(text)))))
    sentences = [frozenset(map(term_of, query_words(topic[a:b], code))).intersection(terms) for a, b in spans_of(topic)]
    signs, signs_without_request = lists.signs(text), lists.signs(lists.without(text, "request"))
    period = None if now is None else read_period(text, now, zone=zone)
    of_period = frozenset(words(date_text(period, zone)) if period else ()).intersection(terms)
    return Query(
        text=text,
        terms=tuple(terms),
        named=tuple(named),
        names=names,
        about=frozenset(term for term in terms if term in proper) - names,
        sentences=tuple(dict.fromkeys(filter(None, sentences))),
        earliest="earliest" in signs,
        latest="latest" in signs,
        is_task=is_request,
        # ignores "you" and "me" in "Can you tell me"
        is_about_author="self" in signs_without_request and "you" not in signs_without_request,
        stems_by_term=stems_by_term if by_prefix else {},
        language=code,
        zone=zone,
        period=period,
        dated=of_period,
        dates=frozenset() if names_month(text) else of_period,
    )


def _search_term(stem: str, *, names: Collection[str]) -> str:
    """Return the search term of a stem: its prefix, or a speaker's name.

    A name of more than ENDING letters may have an ending ("Inkens"); a shorter one must match exactly.
    """
    candidates = (each for each in names if stem.startswith(each) and len(stem) - len(each) <= ENDING)
    name = max(candidates, key=len, default="")
    return name if stem == name or len(name) > ENDING else prefix_term(stem)


def long_sentences(text: str) -> list[str]:
    """Return the sentences that are compared by meaning, each once, in order: the longest, of two words or more.

    Words are those of a query: "Thanks!" is close to every other thanks.
    """
    sentences = dict.fromkeys(text[a:b].strip() for a, b in spans_of(text))
    counts = {each: count for each in sentences if (count := len(set(query_words(each)))) > 1}
    longest = set(sorted(counts, key=lambda each: -counts[each])[:SENTENCES])
    return [each for each in counts if each in longest]


def dated(query: str, *, now: float, zone: tzinfo) -> str:
    """Return a query with a line of the words of the day or month that it names, which are in the keys of posts.

    A query that contains them is unchanged.
    """
    text = query[:QUERY_CHARACTERS]
    period = read_period(text, now, zone=zone)
    date = date_text(period, zone) if period else ""
    return f"{text}\n({date})" if date and not set(words(date)).issubset(query_words(text)) else query


def match_values(query: Query, scope: str) -> dict[str, str] | None:
    """Return the values of a full-text search in a scope (one token): `match` for FTS5, and `words` for PostgreSQL.

    Return None without a term. Speakers' names are searched only if the query has nothing else (`topic_of`).
    """
    words = topic_of(query)
    if not words:
        return None
    wanted = " OR ".join(f'"{term[:-1]}"*' if term.endswith("*") else f'"{term}"' for term in words)
    within = scope.replace('"', '""').replace("\0", "")
    return {"match": f'scope : "{within}" AND key : ({wanted})', "words": json.dumps(list(words))}


def topic_of(query: Query) -> Sequence[str]:
    """Return the terms of a query without the names of speakers, unless it has no others.

    Every second post contains a speaker's name, so it selects nothing.
    """
    return [term for term in query.terms if term not in query.names] or query.terms
