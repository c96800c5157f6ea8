"""Find the subject-matter words of a text: in a writing order, a question or printed output, they carry no mood."""

import re
from typing import Final

from cuebook.records.expression import Expression
from cuebook.signals import sentiment_words as tone

_SENTENCE: Final = Expression(r"(?<=[.!?:;])\s+|\n+")
_PLAIN: Final = str.maketrans(
    {"\u2026": "... ", "\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u2014": ", ", "\u2013": " - "}
)
_WORD: Final = Expression(r"[A-Za-z][A-Za-z'_]*")
_BEFORE: Final = (
    r"\W*(?:(?:ok|okay|so|and|but|then|now|also|hi|hello|hey|yes|first|next|well|thanks),?\s+)*(?:please\s+)?"
)


def _any_of(parts: str) -> str:
    return "(?:" + "|".join(" ".join(each.split()) for each in parts.split(",")) + r")\b"


#: A sentence that orders a text, with the topic of the text.
_WORK: Final = Expression(
    _BEFORE + r"(?:(?:can|could|would) you\s+(?:please\s+)?)?" + _any_of(tone.WORKS) + r"[^,;!\n]*", re.IGNORECASE
)
#: A question for knowledge, which refers to nobody and to no past answer: all of it is subject matter.
_QUESTION: Final = Expression(_BEFORE + _any_of(tone.QUESTIONS) + r"[^!?]*\?\W*\Z", re.IGNORECASE)
_POINTED: Final = Expression(
    r"\b(?:you|your|yours|you're|this|that|these|so|too|still|again|even|ever|keeps?|kept|always|never|nothing|can't|"
    r"won't|me|myself|i'm|the (?:hell|heck|fuck)|all the time)\b|[!?]{2}",
    re.IGNORECASE,
)
#: A text, and its topic.
_ABOUT: Final = Expression(
    r"\b(?:poem|story|stories|essay|song|novel|book|article|film|movie|paper|chapter|stanza|scene|haiku|joke|talk|lecture|"
    r"another(?: one)?|one more|the next one) (?:about|on)\b([^.!?\n]*)"
    r"|\bi(?:'d[ _]like| would[ _]like| want| have| need|'m going) to "
    r"(?:(?:argue|show|prove|describe|portray)(?= (?:that|how|why|the|an?)\b)|write (?:an?|about)\b)([^,.!?\n]*)",
    re.IGNORECASE,
)
_PRINTS: Final = Expression(
    r"\b(?:says|prints|reads|returns|outputs|printed|logged)\b(?!\s+(?:i|you|we|he|she)\b)[^.!?\n]*",
    re.IGNORECASE,
)


def plain(text: str) -> str:
    """Return a text with ASCII quotes, dashes and dots."""
    return text.translate(_PLAIN)


def sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text."""
    return [each for each in _SENTENCE.split(text) if each.strip()]


def without_matter(sentence: str) -> str:
    """Return a sentence with `it` for its subject-matter words, and without printed output."""
    sentence = _PRINTS.sub("says it", sentence)
    sentence = _ABOUT.sub(lambda result: _WORD.sub("it", result[0]), sentence)
    work = _WORK.match(sentence)
    if work is None and not _POINTED.search(sentence) and not tone.has_phrase(sentence):
        work = _QUESTION.match(sentence)
    return _WORD.sub("it", work[0]) + sentence[work.end() :] if work else sentence
