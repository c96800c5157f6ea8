"""Compute the sentiment of a message: by the lexicon, the classifier, the mean of both, or a model.

The lexicon scores English text by VADER's rules (Hutto & Gilbert, 2014) plus words for software help. Changes to
VADER: only the user's own words count (`spoken`), a technical term carries no sentiment ("error handling"), an
acknowledgment is mild ("ok thanks"), and praise of a mishap is ironic ("great, another bug").
"""

import math
import re
from collections.abc import Iterable
from functools import cache
from types import SimpleNamespace
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct, structs

from cuebook.errors import InvalidInput
from cuebook.languages import english, reads
from cuebook.records.answers import read_as
from cuebook.records.expression import Expression
from cuebook.records.mind import Sentiment
from cuebook.records.persona import METHODS
from cuebook.signals.classifier import NAME as TRAINED
from cuebook.signals.classifier import by_classifier
from cuebook.signals.machine_text import spoken
from cuebook.signals.tone import (
    intensity_of,
    join_phrases,
    plain,
    polarity_of,
    sentences,
    tempered,
    valences,
    without_matter,
)

#: The names of the methods. The lexicon stands in for a method that has not answered yet.
FALLBACK: Final = "lexicon_based"
MEAN: Final = "lexicon_and_classifier"
BY_MODEL: Final = "llm"
#: The mean from which a text is positive: the best F1 on GoEmotions' dev set (.05 to .3 were tried).
_POLAR: Final = 0.15


def analyzers_of() -> dict[str, Any]:
    """Return the project's own methods. Nothing is loaded until the first use of one."""
    methods = {FALLBACK: by_lexicon, TRAINED: by_classifier, MEAN: _by_mean}
    return {name: SimpleNamespace(name=name, read=read) for name, read in methods.items()}


def methods_of(analyzers: Iterable[str]) -> tuple[str, ...]:
    """Return the methods that a persona may name: AgentOS's, and those of the project."""
    return tuple(dict.fromkeys((*METHODS, *analyzers)))


def _by_mean(text: str) -> Sentiment:
    """Return the mean of lexicon and classifier, which is more accurate than either."""
    one = by_lexicon(text)
    if one.polarity == "unknown":
        return structs.replace(one, method=MEAN)
    other = by_classifier(text)
    score = round((one.score + other.score) / 2, 4) + 0.0
    return Sentiment(
        score=score,
        intensity=round((one.intensity + other.intensity) / 2, 4),
        polarity=polarity_of(score, _POLAR),
        method=MEAN,
        negatives=one.negatives,
    )


# ---- the lexicon ----------------------------------------------------------------------------------------------------

#: Words per passage. VADER's sum grows with the text, so a longer text is scored in passages.
PASSAGE: Final = 60

_WORD: Final = Expression(r"[A-Za-z][A-Za-z'_]*")
#: A yes, a no or an ok at the start of an answer.
_ANSWER: Final = Expression(
    r"(?:no|ok|okay|right|well)(?=[,.;]|\s+(?:i|it|the|not|next|that|this|but)\b|\Z)|(?:yes|yeah|yep|sure)\W*\Z",
    re.IGNORECASE,
)
#: "could not" counts as "couldn't", which the word lists contain.
_NOT: Final = Expression(r"\b(could|would|should|does|did|is|are|was|were|has|have|had) not\b", re.IGNORECASE)
#: Two tokens more than a comma: VADER's "not" covers three words, and should not reach into the next clause.
_PAUSE: Final = ", . . "


def by_lexicon(text: str) -> Sentiment:
    """Score English by words and rules. Costs about 8 µs a word; the word lists (10 ms) load with the first text."""
    content = _NOT.sub(r"\1n't", plain(spoken(text)))
    if not reads(("en",), content):
        return Sentiment(method=FALLBACK)
    score, peak, negatives = _score(content)
    weight = max(abs(score), peak)
    intensity = intensity_of(content, weight, emphasized=weight > 0 and _emphasized(content))
    return Sentiment(
        score=score, intensity=intensity, polarity=polarity_of(score), method=FALLBACK, negatives=negatives
    )


def _score(text: str) -> tuple[float, float, int]:
    """Return the score, the strongest word's weight (0..1), and the number of negative words."""
    parts = sentences(text)
    meant = [_meant(each) for each in parts]
    score = _together([_rules().polarity_scores(passage)["compound"] for passage in _passages(meant)])
    words = [word.lower() for each in meant for word in _WORD.findall(each)]
    peak, negatives = _weights(words)
    meant_so = tempered(score, text, parts)
    return round(meant_so, 4) + 0.0, peak, max(negatives, meant_so < 0 < score)


def _meant(sentence: str) -> str:
    """Return a sentence without the words that name its subject matter."""
    answer = _ANSWER.match(sentence)
    return without_matter(join_phrases(sentence[answer.end() if answer else 0 :])).replace(", ", _PAUSE)


def _passages(meant: list[str]) -> list[str]:
    """Join sentences into passages of similar length."""
    results: list[list[str]] = []
    size = PASSAGE
    for sentence in meant:
        length = sentence.count(" ") + 1
        if size + length > PASSAGE:
            results.append([])
            size = 0
        results[-1].append(sentence)
        size += length
    return [" ".join(each) for each in results]


def _together(parts: list[float]) -> float:
    """Return the mean over passages, each weighted by its strength."""
    if len(parts) < 2:
        return parts[0] if parts else 0.0
    return sum(part * abs(part) for part in parts) / sum(abs(part) + 0.1 for part in parts)


def _weights(words: list[str]) -> tuple[float, int]:
    """Return the strongest word's weight as VADER would score it alone, and the number of negative words."""
    lexicon, denied = _words(), _rules().negations
    strongest, negatives = 0.0, 0
    for place, word in enumerate(words):
        valence = lexicon.get(word, 0.0)
        if not valence:
            continue
        strongest = max(strongest, abs(valence))
        if any(before in denied or before.endswith("n't") for before in words[max(0, place - 3) : place]):
            valence = -valence
        negatives += valence < -0.5
    return strongest / math.sqrt(strongest * strongest + 15), negatives


def sounds_bad(sentence: str) -> bool:
    """Return whether a sentence has a negative word."""
    return _weights([word.lower() for word in _WORD.findall(plain(sentence))])[1] > 0


def _emphasized(text: str) -> bool:
    """Return whether a word with a weight is in capitals, or is the only word."""
    words = _WORD.findall(text)
    return any(len(word) > 2 and word.isupper() and (len(words) == 1 or word.lower() in _words()) for word in words)


@cache
def _rules() -> Any:
    """Load VADER, on the first text."""
    from vader import SentimentIntensityAnalyzer
    from vader.data.emoji import EMOJI

    lists = english("sentiment")
    words = {word: valence for valence, entries in lists["words"] for word in entries.split()} | valences()
    return SentimentIntensityAnalyzer(extra_lexicon=words, multiword={}, idioms={}, emoji=EMOJI | lists["emoji"])


def _words() -> dict[str, float]:
    """Return the valence of every word in the lexicon."""
    return _rules().lexicon  # type: ignore[no-any-return]


# ---- a model --------------------------------------------------------------------------------------------------------

#: JSON Schema of the answer.
SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "score": {"type": "number", "minimum": -1, "maximum": 1},
        "intensity": {"type": "number", "minimum": 0, "maximum": 1},
    },
    "required": ["score", "intensity"],
    "additionalProperties": False,
}

#: Characters of a message that the model sees.
_MOST: Final = 4_000
#: Characters of an invalid answer that an error shows.
_SHOWN: Final = 60


def asked(text: str) -> str:
    """Return the model's prompt for a message: the user's own words as JSON; of a long one the beginning and end."""
    content = spoken(text)
    if len(content) > _MOST:
        content = f"{content[: _MOST // 2]} … {content[-_MOST // 2 :]}"
    return f"MESSAGE: {msgspec.json.encode(content).decode()}"


class _Reply(Struct, frozen=True):
    """A model's answer."""

    score: Annotated[float, Meta(ge=-1, le=1)]
    intensity: Annotated[float, Meta(ge=0, le=1)] | None = None


def parse_reply(text: str) -> Sentiment:
    """Return the sentiment of a model's answer. Without an intensity, it is the score's amount. Raises InvalidInput."""
    try:
        answer = read_as(text, _Reply)
    except InvalidInput as error:
        content = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        msg = f'sentiment: invalid model answer {content!r} ({error}). Expected {{"score": -1..1, "intensity": 0..1}}.'
        raise InvalidInput(msg, where="sentiment") from error
    score = answer.score + 0.0  # no negative zero
    intensity = abs(score) if answer.intensity is None else answer.intensity + 0.0
    return Sentiment(score=score, intensity=intensity, polarity=polarity_of(score), method=BY_MODEL)
