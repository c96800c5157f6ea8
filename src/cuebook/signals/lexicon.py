"""How a text sounds by VADER's rules (Hutto & Gilbert, 2014), with the words of people who are helped with software.

Beside VADER: only what the user says counts (`spoken`), a term is no mood ("error handling"), in a request a word names
a thing ("cancel the job"), an acknowledgment is mild ("ok thanks"), praise of a mishap is none ("great, another bug").
"""

import math
import re
from functools import cache
from typing import Any, Final

from cuebook.records.expression import Expression
from cuebook.records.mind import Sentiment
from cuebook.signals import tone
from cuebook.signals.language import reads_english
from cuebook.signals.polarity import polarity_of
from cuebook.signals.spoken import spoken

NAME: Final = "lexicon_based"
#: Words of a passage that is scored as one. VADER's sum grows with the text; a longer one is scored in passages.
PASSAGE: Final = 60

_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|\n+")
_PLAIN: Final = str.maketrans(
    {"\u2026": "... ", "\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u2014": ", ", "\u2013": " - "}
)
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z'_]*")
#: How a sentence begins that asks or orders: what bad words it has name its matter.
_REQUEST: Final = Expression(
    r"\W*(?:(?:ok|okay|so|and|then|now|also|hi|hello|hey|yes|first|next|well|thanks),?\s+)*(?:please\s+)?(?:"
    + "|".join(" ".join(each.split()) for each in tone.REQUESTS.split(","))
    + r")\b",
    re.IGNORECASE,
)
#: A rule that is stated: what happens if, what should be.
_RULE: Final = Expression(
    r"\W*(?:if|when|(?:the|an?|each|every|users?|any|all)\b.*\b(?:if|should|must|shall|may|whether|can))\b",
    re.IGNORECASE,
)
_PRINTS: Final = Expression(
    r"\b(?:says|prints|reads|returns|outputs|printed|logged)\b(?!\s+(?:i|you|we|he|she)\b)[^.!?\n]*",
    re.IGNORECASE,
)
#: A yes, a no or an ok that begins an answer.
_ANSWER: Final = Expression(
    r"(?:no|yes|yeah|yep|ok|okay|sure|right|well)(?=[,.;]|\s+(?:i|it|the|not|next|that|this|but)\b|\Z)",
    re.IGNORECASE,
)
_ACKNOWLEDGED: Final = frozenset(tone.ACKNOWLEDGMENTS.split())
_PRAISE: Final = Expression(
    r"\W*(?:(?:oh|wow|well|just|that's|that is|yeah),?\s+)*(?:(?:so|absolutely|simply|how|bloody)\s+)?"
    r"(?:great|nice|wonderful|perfect|awesome|fantastic|brilliant|lovely|excellent|amazing|super|cool|fabulous|terrific|"
    r"splendid|(?:good|great|nice) (?:job|work|support|service|help)|well done|congratulations|congrats|bravo|"
    r"thanks a lot|way to go|(?:thank you|thanks) so much)\b"
    r"(?:\s*[,.!;:-]+\s*|\s*\Z|\s+(?=another|yet|now|more|again))",
    re.IGNORECASE,
)
_MISHAP: Final = Expression(
    r"\b(?:another|yet another|again|crash\w*|bug\w*|errors?|broken?|breaks|broke|fail\w*|deleted|lost|gone|down"
    r"|stuck|froze\w*|"
    r"hangs|hung|wiped|ruined|worse|wrong|missing|corrupt\w*|erased|dead|died|locked|can't|cannot|won't|doesn't"
    r"|didn't|"
    r"timed? out|hours?|for nothing|useless|stopped|refuse[sd]?|vanished|disappeared|changes nothing|restart)\b",
    re.IGNORECASE,
)
_MENDED: Final = Expression(
    r"\b(?:but|works|working|passe[sd]|pass|fixed|solved|no (?:more )?(?:\w+ )?(?:errors?|bugs?|crash\w*|issues?"
    r"|problems?)|"
    r"without|finally|thanks?|love|is gone|are gone|instead of|no longer|let's|can you|could you|please|how|what"
    r"|which)\b|\?",
    re.IGNORECASE,
)
_STRETCHED: Final = Expression(r"([a-z])\1{2,}", re.IGNORECASE)
_SWORN: Final = Expression(
    r"\b(?:wtf|wth|ffs|omfg|stfu|f+u+c+k\w*|fck\w*|sh[i1]+t\w*|bullsh\w*|damn\w*|goddamn\w*|hell|crap\w*|bloody"
    r"|arse\w*|ass|asshole\w*|"
    r"bitch\w*|bastard\w*|screw (?:this|it|you)|a+r+g+h+|g+r{2,})\b",
    re.IGNORECASE,
)


class Lexicon:
    """Reads English by words and rules. Costs about 4 µs a word; the word lists (30 ms) come with the first text."""

    name: Final = NAME

    def read(self, text: str) -> Sentiment:
        said = spoken(text).translate(_PLAIN)
        words = _words()
        if not reads_english(said, words):
            return Sentiment(method=NAME)
        score, peak, negatives = _score(said)
        intensity = _intensity(said, max(abs(score), peak))
        return Sentiment(
            score=score, intensity=intensity, polarity=polarity_of(score), method=NAME, negatives=negatives
        )


def _score(said: str) -> tuple[float, float, int]:
    """Give score, the weight of the strongest word (0..1), and how many words sound bad."""
    sentences = [each for each in _SENTENCE.split(said) if each.strip()]
    meant = [_meant(each) for each in sentences]
    parts = [_rules().polarity_scores(passage)["compound"] for passage in _passages(meant)]
    score = _together(parts)
    words = [word.lower() for each in meant for word in _WORD.findall(each)]
    peak, negatives = _weights(words)
    if score > 0 and _is_sarcastic(sentences):
        return -max(0.3, min(score, 0.6)), peak, max(1, negatives)
    if score > 0 and len(words) <= 5 and words and "!" not in said and _ACKNOWLEDGED.issuperset(words):
        score *= 0.5
    return round(score, 4) + 0.0, peak, negatives


def _meant(sentence: str) -> str:
    """Give a sentence without the words that name its matter."""
    answer = _ANSWER.match(sentence)
    sentence = tone.join_phrases(_PRINTS.sub("says it", sentence[answer.end() if answer else 0 :]))
    if _REQUEST.match(sentence) or _RULE.match(sentence):
        return _WORD.sub(lambda word: "it" if word[0].lower() in tone.NAMES else word[0], sentence)
    return sentence


def _passages(sentences: list[str]) -> list[str]:
    """Join sentences to passages of about the same length."""
    found: list[list[str]] = []
    size = PASSAGE
    for sentence in sentences:
        length = sentence.count(" ") + 1
        if size + length > PASSAGE:
            found.append([])
            size = 0
        found[-1].append(sentence)
        size += length
    return [" ".join(each) for each in found]


def _together(parts: list[float]) -> float:
    """Give the mean of passages, each weighing what it says."""
    if len(parts) < 2:
        return parts[0] if parts else 0.0
    return sum(part * abs(part) for part in parts) / sum(abs(part) + 0.1 for part in parts)


def _weights(words: list[str]) -> tuple[float, int]:
    """Give the strongest word's weight as VADER would score it alone, and the words that sound bad where they "
    "stand.
    """
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


def _is_sarcastic(sentences: list[str]) -> bool:
    """Tell praise of a mishap: it begins a message and a mishap follows, or it ends one that told of a mishap."""
    first = _PRAISE.match(sentences[0])
    if first:
        rest = " ".join([sentences[0][first.end() :], *sentences[1:]])
        return bool(_MISHAP.search(rest)) and not _MENDED.search(rest)
    last = _PRAISE.fullmatch(sentences[-1]) if len(sentences) > 1 else None
    if last is None or "!" in sentences[-1]:
        return False
    before = " ".join(sentences[:-1])
    return bool(_MISHAP.search(before)) and not _MENDED.search(before)


def _intensity(said: str, weight: float) -> float:
    """Say how strongly a text is meant, 0..1: its weight, and what is said louder than needed.

    Each of these adds: `!` 0.08 (three at most), `??` 0.15, a swear word 0.25, capitals 0.2, a stretched word 0.1.
    """
    words = _WORD.findall(said)
    loud = [word for word in words if len(word) > 2 and word.isupper()]
    shouted = len(loud) >= 2 and 2 * len(loud) >= len(words)
    emphasized = weight > 0 and any(word.lower() in _words() or len(words) == 1 for word in loud)
    found = weight + 0.08 * min(3, said.count("!")) + 0.15 * ("??" in said or "?!" in said or "!?" in said)
    found += 0.25 * (_SWORN.search(said) is not None) + 0.2 * (shouted or emphasized)
    found += 0.1 * (_STRETCHED.search(said) is not None)
    return round(min(1.0, found), 4)


@cache
def _rules() -> Any:
    """Load VADER with the first text that is read."""
    from vader import SentimentIntensityAnalyzer
    from vader.data.emoji import EMOJI

    words = tone.WORDS | tone.valences()
    return SentimentIntensityAnalyzer(extra_lexicon=words, multiword={}, idioms={}, emoji=EMOJI | tone.EMOJI)


def _words() -> dict[str, float]:
    """Give the valence of every word the lexicon has."""
    return _rules().lexicon  # type: ignore[no-any-return]
