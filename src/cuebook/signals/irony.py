"""Detect ironic praise, which turns a positive score, and mere acknowledgments, which halve it."""

import re
from typing import Final

from cuebook.records.expression import Expression
from cuebook.signals import sentiment_words as tone

#: Maximum words of a mere acknowledgment.
_BRIEF: Final = 5
_WORD: Final = Expression(r"[A-Za-z][A-Za-z']*")
_ACKNOWLEDGED: Final = frozenset(tone.ACKNOWLEDGMENTS.split())
_PRAISE: Final = Expression(
    r"\W*(?:(?:oh|wow|well|just|that's|that is|yeah),?\s+)*(?:(?:so|absolutely|simply|how|bloody)\s+)?"
    r"(?:great|nice|wonderful|perfect|awesome|fantastic|brilliant|lovely|excellent|amazing|super|cool|fabulous|terrific|"
    r"splendid|(?:good|great|nice) (?:job|work|support|service|help)|well done|congratulations|congrats|bravo|"
    r"thanks a lot|way to go|(?:very|so|really|super|how) (?:helpful|useful|smart|clever)|what a genius|"
    r"just what i needed|(?:thank you|thanks) so much)\b"
    r"(?:\s*[,.!;:-]+\s*|\s*\Z|\s+(?=another|yet|now|more|again))",
    re.IGNORECASE,
)
_MISHAP: Final = Expression(
    r"\b(?:another|again|crash\w*|bug\w*|errors?|broken?|breaks|broke|fail\w*|deleted|lost|gone|down|stuck|froze\w*|hangs|"
    r"hung|wiped|ruined|worse|wrong|missing|corrupt\w*|erased|dead|died|locked|can't|cannot|won't|doesn't|didn't|"
    r"timed? out|hours?|word for word|(?:third|fourth|fifth) time|"
    r"for nothing|useless|stopped|refuse[sd]?|vanished|disappeared|changes nothing|restart)\b",
    re.IGNORECASE,
)
#: A deed in quotation marks: ironic.
_SO_CALLED: Final = Expression(r"\byou(?:'ve| have)? (?:just |have )?\"\w+\"", re.IGNORECASE)
_MENDED: Final = Expression(
    r"\b(?:but|works|working|passe[sd]|pass|fixed|solved|without|finally|thanks?|love|is gone|are gone|instead of|"
    r"no longer|no (?:more )?(?:\w+ )?(?:errors?|bugs?|crash\w*|issues?|problems?)|let's|can you|could you|please|how|"
    r"(?<!just )(?<!exactly )what|which)\b|\?",
    re.IGNORECASE,
)


def tempered(score: float, text: str, parts: list[str]) -> float:
    """Return a score adjusted for irony; `parts` are the sentences of the user's words.

    Praise of a mishap is negative, -0.6 to -0.3; a mere acknowledgment counts half.
    """
    if score <= 0 or not parts:
        return score
    if _is_ironic(parts):
        return -max(0.3, min(score, 0.6))
    return score / 2 if _acknowledges(text) else score


def _acknowledges(text: str) -> bool:
    if "!" in text or len(text) > 60:
        return False
    words = [word.lower() for word in _WORD.findall(text)]
    return 0 < len(words) <= _BRIEF and _ACKNOWLEDGED.issuperset(words)


def _is_ironic(parts: list[str]) -> bool:
    """Return whether praise is about a mishap: at the start with a mishap after it, or at the end with one before."""
    first = _PRAISE.match(parts[0])
    if first:
        rest = " ".join([parts[0][first.end() :], *parts[1:]])
        return _SO_CALLED.search(rest) is not None or bool(_MISHAP.search(rest) and not _MENDED.search(rest))
    if len(parts) < 2 or "!" in parts[-1] or not _PRAISE.fullmatch(parts[-1]):
        return False
    before = " ".join(parts[:-1])
    return bool(_MISHAP.search(before)) and not _MENDED.search(before)
