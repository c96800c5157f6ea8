"""How a text sounds by VADER's rules (Hutto & Gilbert, 2014), with the words of people who are helped with software.

Beside VADER: only what the user says counts (`spoken`), a term is no mood ("error handling"), an acknowledgment is
mild ("ok thanks"), praise of a mishap is none ("great, another bug").
"""

import math
import re
from functools import cache
from typing import Any, Final

from cuebook.languages import reads
from cuebook.records.expression import Expression
from cuebook.records.mind import Sentiment
from cuebook.signals import sentiment_words as tone
from cuebook.signals.emphasis import intensity_of, polarity_of
from cuebook.signals.irony import tempered
from cuebook.signals.topic_words import plain, sentences, without_matter
from cuebook.signals.user_text import spoken

NAME: Final = "lexicon_based"
#: Words of a passage that is scored as one. VADER's sum grows with the text; a longer one is scored in passages.
PASSAGE: Final = 60

_WORD: Final = Expression(r"[A-Za-z][A-Za-z'_]*")
#: A yes, a no or an ok that begins an answer.
_ANSWER: Final = Expression(
    r"(?:no|ok|okay|right|well)(?=[,.;]|\s+(?:i|it|the|not|next|that|this|but)\b|\Z)|(?:yes|yeah|yep|sure)\W*\Z",
    re.IGNORECASE,
)
#: "could not" counts as "couldn't", which the lists hold.
_NOT: Final = Expression(r"\b(could|would|should|does|did|is|are|was|were|has|have|had) not\b", re.IGNORECASE)
#: Two tokens more than a comma: VADER's "not" reaches three words on, and should not reach into the next clause.
_PAUSE: Final = ", . . "


class Lexicon:
    """Reads English by words and rules. Costs about 8 µs a word; the word lists (10 ms) come with the first text."""

    name: Final = NAME

    def read(self, text: str) -> Sentiment:
        said = _NOT.sub(r"\1n't", plain(spoken(text)))
        if not reads(("en",), said):
            return Sentiment(method=NAME)
        score, peak, negatives = _score(said)
        weight = max(abs(score), peak)
        intensity = intensity_of(said, weight, emphasized=weight > 0 and _emphasized(said))
        return Sentiment(
            score=score, intensity=intensity, polarity=polarity_of(score), method=NAME, negatives=negatives
        )


def _score(said: str) -> tuple[float, float, int]:
    """Return score, the weight of the strongest word (0..1), and how many words sound bad."""
    parts = sentences(said)
    meant = [_meant(each) for each in parts]
    score = _together([_rules().polarity_scores(passage)["compound"] for passage in _passages(meant)])
    words = [word.lower() for each in meant for word in _WORD.findall(each)]
    peak, negatives = _weights(words)
    meant_so = tempered(score, said, parts)
    return round(meant_so, 4) + 0.0, peak, max(negatives, meant_so < 0 < score)


def _meant(sentence: str) -> str:
    """Return a sentence without the words that name its matter."""
    answer = _ANSWER.match(sentence)
    return without_matter(tone.join_phrases(sentence[answer.end() if answer else 0 :])).replace(", ", _PAUSE)


def _passages(meant: list[str]) -> list[str]:
    """Join sentences to passages of about the same length."""
    found: list[list[str]] = []
    size = PASSAGE
    for sentence in meant:
        length = sentence.count(" ") + 1
        if size + length > PASSAGE:
            found.append([])
            size = 0
        found[-1].append(sentence)
        size += length
    return [" ".join(each) for each in found]


def _together(parts: list[float]) -> float:
    """Return the mean of passages, each weighing what it says."""
    if len(parts) < 2:
        return parts[0] if parts else 0.0
    return sum(part * abs(part) for part in parts) / sum(abs(part) + 0.1 for part in parts)


def _weights(words: list[str]) -> tuple[float, int]:
    """Return the strongest word's weight as VADER would score it alone, and how many words sound bad."""
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
    """Return whether a sentence has a word that sounds bad."""
    return _weights([word.lower() for word in _WORD.findall(plain(sentence))])[1] > 0


def _emphasized(said: str) -> bool:
    """Return whether a word that weighs stands in capitals, or the only word there is."""
    words = _WORD.findall(said)
    return any(len(word) > 2 and word.isupper() and (len(words) == 1 or word.lower() in _words()) for word in words)


@cache
def _rules() -> Any:
    """Load VADER with the first text that is read."""
    from vader import SentimentIntensityAnalyzer
    from vader.data.emoji import EMOJI

    words = tone.WORDS | tone.valences()
    return SentimentIntensityAnalyzer(extra_lexicon=words, multiword={}, idioms={}, emoji=EMOJI | tone.EMOJI)


def _words() -> dict[str, float]:
    """Return the valence of every word the lexicon has."""
    return _rules().lexicon  # type: ignore[no-any-return]
