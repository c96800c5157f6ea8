"""What a message is about, told from how it is meant: in a request, a rule or a quotation words only name things."""

import re
from typing import Final

from cuebook.records.expression import Expression
from cuebook.signals import tone

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


#: How a sentence begins that asks or orders: what bad words it has name its matter.
_REQUEST: Final = Expression(_BEFORE + _any_of(tone.REQUESTS), re.IGNORECASE)
#: One that orders a text, with what it shall be about.
_WORK: Final = Expression(
    _BEFORE + r"(?:(?:can|could|would) you\s+(?:please\s+)?)?" + _any_of(tone.WORKS) + r"[^,;!\n]*", re.IGNORECASE
)
#: A question for knowledge, which points at nobody and at nothing that was done: all of it is matter.
_QUESTION: Final = Expression(_BEFORE + _any_of(tone.QUESTIONS) + r"[^!?]*\?\W*\Z", re.IGNORECASE)
_POINTED: Final = Expression(
    r"\b(?:you|your|yours|you're|this|that|these|so|too|still|again|even|ever|keeps?|kept|always|never|nothing|can't|"
    r"won't|me|myself|i'm|the (?:hell|heck|fuck)|all the time)\b|[!?]{2}",
    re.IGNORECASE,
)
#: A rule that is stated: what happens if, what should be.
_RULE: Final = Expression(
    r"\W*(?:(?:if|when)(?!\s+(?:i|we|my)\b)|"
    r"(?:the|an?|each|every|users?|any|all)\b.*\b(?:if|should|must|shall|may|whether|can))\b",
    re.IGNORECASE,
)
#: A text, and what it is about.
_ABOUT: Final = Expression(
    r"\b(?:poem|story|stories|essay|song|novel|book|article|film|movie|paper|chapter|stanza|scene|haiku|joke|talk|lecture|"
    r"another(?: one)?|one more|the next one) (?:about|on)\b([^.!?\n]*)"
    r"|\bi(?:'d[ _]like| would[ _]like| want| have| need|'m going) to "
    r"(?:(?:argue|show|prove|describe|portray)(?= (?:that|how|why|the|an?)\b)|write (?:an?|about)\b)([^,.!?\n]*)",
    re.IGNORECASE,
)
_PERSON: Final = (
    "he|she|(?:my|our|the|a|his|her|one|another|some) (?:\\w+ ){0,1}(?:boss|manager|teacher|professor|customer|client|"
    "neighbou?r|sister|brother|mother|father|mum|mom|dad|friend|wife|husband|son|daughter|colleague|coworker|"
    "grandmother|grandfather|grandma|grandpa|uncle|aunt|landlord|guest|patient|student|employee|girlfriend|boyfriend|"
    "partner|character)s?"
)
_FIGURE: Final = (
    r"(?:my|our|the|a) (?:\w+ )?(?:villain|hero|heroine|protagonist|antagonist|narrator|main character|murderer)s?"
)
#: What somebody else feels, says or does, told without a word of oneself or of who helps.
_OTHERS: Final = Expression(
    rf"\W*(?:(?:and|but|so|because|now|then|well|also),?\s+)*"
    rf"(?:{_FIGURE}\s+\w|(?:{_PERSON})\s+(?:(?:also|just|really|always|often)\s+)?"
    r"(?:is|was|are|were|feels?|felt|says?|said|wrote|writes|hates?|hated|fears?|feared|thinks?|thought|told|tells|calls?|"
    r"called|complain(?:s|ed)|gets?|got|seems?|seemed|sounds?|sounded|cried|cries|shouts?|shouted)\b)"
    r"(?!.*\b(?:i|i'm|me|you|your|yours|this|app|bot)\b)",
    re.IGNORECASE,
)
_PRINTS: Final = Expression(
    r"\b(?:says|prints|reads|returns|outputs|printed|logged)\b(?!\s+(?:i|you|we|he|she)\b)[^.!?\n]*",
    re.IGNORECASE,
)


def plain(text: str) -> str:
    """Give a text with the quotes, dashes and dots of a keyboard."""
    return text.translate(_PLAIN)


def sentences(text: str) -> list[str]:
    """List the sentences and lines of a text."""
    return [each for each in _SENTENCE.split(text) if each.strip()]


def is_of_others(sentence: str) -> bool:
    """Tell whether a sentence says how somebody else feels, and nothing of its writer."""
    return _OTHERS.match(sentence) is not None


def without_matter(sentence: str) -> str:
    """Give a sentence with `it` for the words that name its matter, and without what something printed."""
    sentence = _PRINTS.sub("says it", sentence)
    sentence = _ABOUT.sub(lambda found: _WORD.sub("it", found[0]), sentence)
    work = _WORK.match(sentence)
    if work is None and not _POINTED.search(sentence) and not tone.has_phrase(sentence):
        work = _QUESTION.match(sentence)
    if work:
        return _WORD.sub("it", work[0]) + sentence[work.end() :]
    if _REQUEST.match(sentence) or _RULE.match(sentence):
        return _WORD.sub(lambda word: "it" if word[0].lower() in tone.NAMES else word[0], sentence)
    return sentence
