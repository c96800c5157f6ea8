"""Turn ranked posts into search hits: cutoff, versions of a statement by time, and the best passage of a long post."""

from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, Final

from msgspec import structs

from cuebook.memory.excerpt import QUOTE_TOKENS, passage
from cuebook.memory.query import Query, topic_of
from cuebook.memory.quotes import states_rule
from cuebook.memory.recall import Ranked, is_timely, rank, unlearned
from cuebook.memory.tokenizer import spans_of, words
from cuebook.records.answer import Time
from cuebook.records.memory import POST, Hit, Nearby, SearchResult

MIN_SHARE: Final = 0.2  # of the best hit's score: the highest that costs no set any evidence (docs/design/031)
NEARBY: Final = 0.9  # of a hit's score: the least of a post shown within it; at 0.8, two sets lose (docs/design/031)
TAG: Final = 2  # words of a question tag, at most
VERSIONS: Final = 50  # best hits among which versions of a statement are grouped


def rank_found(
    search_result: SearchResult,
    query: Query | None,
    *,
    limit: int,
    count: Callable[[str], int],
    skip: Collection[int] = (),
    min_share: float = MIN_SHARE,
) -> list[Hit]:
    """Rank search results, best first, as hits of kind `post`. Without a query, there are none.

    Hits under `min_share` of the best score are omitted; 0 also shows posts that match by chance. Posts without text,
    such as tool calls beside a match, are omitted too. Versions of a statement are ordered by time. A long post is
    returned as its best passage, of which `count` counts the tokens. A post that matches only through a hit of about
    its score is `nearby` of that hit.
    """
    if query is None or all(each.seq in skip for each in search_result.found):
        return []  # usual case: a window shows a whole short path
    most = max(limit, VERSIONS) + len(skip)
    ranked = rank(query, search_result.found, search_result, limit=most, judged=min_share > 0)
    if query.is_task and not ranked:
        ranked = _rules_for(query, search_result)
    ranked, newer = _by_version(query, [each for each in ranked if each[0].text.strip()])
    shown = {
        (each.post.no, each.post.seq): each
        for each in ranked
        if each.score >= min_share * ranked[0].score
        and each.post.seq not in skip
        and each.post.key  # an erased post has none
        and not unlearned(each.post.role, each.post.text)
    }
    hits: list[Hit] = []
    for each in list(shown.values()):
        post = each.post
        if len(hits) >= limit:
            break
        if shown.pop((post.no, post.seq), None) is None:  # nearby of a better hit
            continue
        beside = [shown[key] for key in each.nearby if key in shown and shown[key].score >= NEARBY * each.score]
        for other in beside:
            del shown[other.post.no, other.post.seq]
        text, tokens = _excerpt(each, query, count)
        hit = Hit(
            memory_id=f"{POST}{post.id}",
            kind="post",
            text=text,
            score=round(each.score, 6),
            scope="conversation",
            sources=(post.id,),
            tokens=tokens,
            timestamp=Time(post.created_at),
            seq=post.seq,
            speaker=post.sender,
            why=each.why,
            conversation=post.conversation or None,
            newer=newer.get((post.no, post.seq)),
        )
        beside.sort(key=lambda other: other.post.seq)
        hits.append(hit.beside([_nearby(other, query, count, beside=post.seq) for other in beside]))
    return hits


def _rules_for(query: Query, search_result: SearchResult) -> list[Ranked]:
    """Return a user's rules and preferences that share a word with a task: "function" in "Write a function".

    A rule hardly shares more words with a task that it applies to.
    """
    ranked = rank(query, search_result.found, search_result, limit=VERSIONS, judged=False)
    return [each for each in ranked if each.post.role == "user" and states_rule(each.post.text)]


def _excerpt(ranked: Ranked, query: Query, count: Callable[[str], int]) -> tuple[str, int]:
    """Return the text of a post, or the best passage of a long one, and its tokens."""
    post = ranked.post
    if post.tokens <= QUOTE_TOKENS:
        return post.text, post.tokens
    text = passage(post.text, query, ranked.segment, count)
    return text, post.tokens if text is post.text else count(text)


def _nearby(ranked: Ranked, query: Query, count: Callable[[str], int], *, beside: int) -> Nearby:
    post, (text, tokens) = ranked.post, _excerpt(ranked, query, count)
    nearby = Nearby(
        id=post.id, seq=post.seq, speaker=post.sender, text=text, tokens=tokens, timestamp=Time(post.created_at)
    )
    return structs.replace(nearby, tokens=tokens + count(nearby.label(beside)))


def _by_version(query: Query, ranked: Sequence[Ranked]) -> tuple[list[Ranked], dict[tuple[int, int], str]]:
    """Order the versions of each statement newest first, or oldest first if the query asks for the earliest.

    Versions are posts of one person, whose sentences share the same words with the query, and more than half of its
    words. If the query asks for the first or the newest, the shared words may differ, and one is enough. Those of
    the time that the query names are a group of their own. Versions trade places, so other posts stay where they
    are. Posts that only ask come last. Also return the id of the next newer version by conversation number and seq.
    """
    keys = [f" {post.key} " for post, *_ in ranked[:VERSIONS]]
    spaced = {word: f" {word} " for term in topic_of(query) for word in query.stems_by_term.get(term, (term,))}
    spaced = {term: word for term, word in spaced.items() if any(word in key for key in keys)}  # others decide nothing
    topic, is_dated = frozenset(spaced), query.earliest or query.latest
    groups: dict[tuple[Any, ...], list[int]] = {}
    for at, ((post, *_), key) in enumerate(zip(ranked, keys, strict=False)):
        if post.role == "user" and 2 * sum(map(key.__contains__, spaced.values())) > len(topic):
            shared = max((topic.intersection(words(post.text[a:b])) for a, b in spans_of(post.text)), key=len)
            if 2 * len(shared) > len(topic) and (len(shared) > 1 or is_dated):
                dated_by = topic.intersection(post.key.partition(" | ")[0].split())
                same = frozenset() if is_dated else shared
                groups.setdefault((post.sender, same, dated_by, is_timely(query, post)), []).append(at)
    ordered, newer = list(ranked), dict[tuple[int, int], str]()
    for places in (each for each in groups.values() if len(each) > 1):
        asking = [at for at in places if _only_asks(ranked[at].post.text, topic)]
        versions = [ranked[at] for at in places if at not in asking]
        versions.sort(key=lambda each: (each.post.created_at, each.post.no, each.post.seq))
        newer |= {(one.no, one.seq): f"{POST}{two.id}" for (one, *_), (two, *_) in pairwise(versions)}
        placed = [*(versions if query.earliest else versions[::-1]), *(ranked[at] for at in asking)]
        note = "" if not versions else "oldest first" if query.earliest else "newest first"
        for at, each in zip(places, placed, strict=True):
            ordered[at] = each._replace(score=ranked[at].score, note=note)
    return ordered, newer


def _only_asks(text: str, topic: frozenset[str]) -> bool:
    """Return whether a text ends with a question, and all its sentences with a word of the topic are questions.

    "What is the rent?" is no version of the rent, but a statement may end with a tag: "It is 900 euros, right?"
    """
    sentences = [text[first:last].strip() for first, last in spans_of(text)]
    about = [each for each in sentences if not topic.isdisjoint(words(each))]
    return all(map(_is_question, (*about, *sentences[-1:])))


def _is_question(sentence: str) -> bool:
    _, comma, end = sentence.rpartition(",")
    return sentence.endswith(("?", "？", "؟")) and not (comma and len(end.split()) <= TAG)
