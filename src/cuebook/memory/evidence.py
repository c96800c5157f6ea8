"""Measure evidence recall: choose questions, and compute how many of the answering posts a search finds."""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Literal

from msgspec import Struct

from cuebook.languages import words_of
from cuebook.memory.facts import FactToken, tokens_of
from cuebook.records.answer import added
from cuebook.records.memory import Hit

#: Origin of the questions: the file, the gold list, or clozes (sentences of posts without their value).
Origin = Literal["file", "gold", "cloze"]
#: Maximum number of hits per question.
DEPTH = 50
#: Token limit for the evidence.
TOKENS = 1000
#: Minimum number of content words of a cloze: with fewer it is too vague.
LEAST_WORDS = 3


class Question(Struct, frozen=True, kw_only=True):
    """A question about a conversation, the ids of the posts that answer it, and the answer if the file has it.

    Without evidence, the conversation does not answer it. `outdated` are posts with an older version of the answer.
    """

    text: str
    evidence: tuple[str, ...]
    answer: str = ""
    outdated: tuple[str, ...] = ()
    kind: str = ""


class EvidenceRecall(Struct, frozen=True, kw_only=True, rename="camel"):
    """Evidence recall: the mean share, in [0, 1], of a question's evidence among its search results.

    `at5`, `at10`: among the first 5 and 10 posts of the hits, in order. `within_tokens`: in the leading hits that fit
    1000 tokens. None without questions.
    """

    origin: Origin
    questions: int  # asked
    there_are: int
    at5: float | None
    at10: float | None
    within_tokens: float | None


def mean_of(one: EvidenceRecall, two: EvidenceRecall) -> EvidenceRecall:
    """Return the mean evidence recall of two conversations: every question has the same weight."""
    asked = one.questions + two.questions

    def mean(name: str) -> float | None:
        sums = [(getattr(each, name) or 0.0) * each.questions for each in (one, two)]
        return sum(sums) / asked if asked else None

    return added(one, two, origin=one.origin, at5=mean("at5"), at10=mean("at10"), within_tokens=mean("within_tokens"))


#: The shares of one question's evidence that were found: among the first 5 and 10 posts, and within the tokens.
EvidenceShares = tuple[float, ...]


def answered(question: Question, hits: Sequence[Hit]) -> EvidenceShares:
    """Return the shares of the evidence among the hits, best first."""
    evidence = set(question.evidence)
    ranked = list(dict.fromkeys(post for hit in hits for post in hit.sources))
    inside: set[str] = set()
    left = TOKENS
    for hit in hits:
        left -= hit.tokens
        if left < 0:
            break
        inside.update(hit.sources)
    return tuple(len(evidence & set(results)) / len(evidence) for results in (ranked[:5], ranked[:10], inside))


def recall(origin: Origin, found: Sequence[EvidenceShares], *, there_are: int) -> EvidenceRecall:
    """Return the mean evidence recall."""
    at5, at10, within = map(fmean, zip(*found, strict=True)) if found else (None, None, None)
    return EvidenceRecall(
        origin=origin, questions=len(found), there_are=there_are, at5=at5, at10=at10, within_tokens=within
    )


def clozes(posts: Sequence[tuple[str, str]]) -> Iterator[Question]:
    """Yield a cloze per post with a fact: every other content word of its first such sentence, without the value."""
    for id_, text in posts:
        asked = (_half(token) for token in tokens_of(text) if len(token.about) >= LEAST_WORDS)
        words = next(asked, None)
        if words:
            yield Question(text=" ".join(words), evidence=(id_,))


def _half(token: FactToken) -> list[str]:
    """Return half of a sentence's words, at least LEAST_WORDS: more would make every search easy."""
    words = [word for word in dict.fromkeys(words_of(token.sentence)) if word in token.about]
    return words[::2] if len(words) >= 2 * LEAST_WORDS else words[:LEAST_WORDS]
