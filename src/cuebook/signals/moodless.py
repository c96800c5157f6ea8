"""Whether a message only orders or asks about its matter: the bad words in it name that, and are nobody's mood.

"Make the villain more evil" and "Is it dangerous to remove this?" sound bad and say nothing of their writer. What is
shouted, turns on somebody, asks why, or tells how somebody feels is no such message. Neither is a report about the
world in which nobody and nothing of the conversation stands: "The patient died of cancer in 1990."
"""

from typing import Final

from cuebook.records.expression import Expression, lowered
from cuebook.signals.lexicon import sounds_bad
from cuebook.signals.matter import sentences

#: Sentences of a message that are looked at.
LOOKED_AT: Final = 6

_SENTENCE: Final = Expression(r"(?<=[.!?])\s+|\n+")
_OPENS: Final = r"(?:please|pls|now|then|and|also|ok(?:ay)?|so|next|but|or|can you|could you|would you|help me)"
#: How a sentence begins that orders something.
_ORDERS: Final = Expression(
    rf"(?:{_OPENS},? )*(?:add|adjust|answer|apply|ask|book|build|calculate|call|change|check|clean|commit"
    rf"|compare|convert|"
    r"count|create|cut|delete|deploy|describe|draft|explain|extend|fetch|find|fix|format|generate|give|insert|install|"
    r"invite|kill|keep|leave|let|list|make|merge|move|name|open|order|pick|plan|print|pull|push|put|quiz|read"
    r"|remove|rename|"
    r"replace|rewrite|run|save|search|send|set|shorten|show|sort|split|start|summari[sz]e|take|teach|test"
    r"|translate|try|"
    r"turn|update|use|write)\b"
)
#: And one that asks about a thing. "Why" and questions to somebody are left out.
_ASKS: Final = Expression(
    rf"(?:{_OPENS},? )*(?:is|are|was|were|does|do|did|has|have|should|would|could|can|may|will) (?:it|that|this"
    rf"|there|the|a|an|"
    rf"i|we|one|they|he|she|\w+s)\b.*\?$|(?:{_OPENS},? )*(?:what|which|who|where|when|how)\b.*\?$"
)
#: What gives a mood away.
_MOVED: Final = Expression(
    r"!|\?\s?\?|\b(?:you|your|you're|why|wtf|hell|damn|fuck\w*|shit\w*|crap|stupid|useless|ridiculous|garbage"
    r"|still|again|"
    r"i'm|i am|i hate|i feel|sick of|tired of|fed up|annoy\w*|frustrat\w*|angry|furious|seriously)\b"
)
_SHOUTED: Final = Expression(r"\b[A-Z]{4,}\b[^a-z]*\b[A-Z]{2,}\b")


#: What a complaint points at: who helps, what was given, that it goes on; or how it is said.
_POINTED: Final = Expression(
    r"\b(?:you\w*|ur|u|this|that|that's|it|it's|its|again|still|keeps?|kept|never|nothing|same|"
    r"wtf|ffs|fuck\w*|shit\w*|damn\w*|crap|hell|ugh\w*|argh\w*)\b|!|\?\s?\?"
)
#: A shorter sentence is an exclamation, not a report.
REPORT: Final = 5


def _is_report(low: str) -> bool:
    """Whether what sounds bad in a message points at nobody and nothing of the conversation."""
    bad = [each for each in sentences(low) if sounds_bad(each)]
    return bool(bad) and all(len(each.split()) >= REPORT and not _POINTED.search(each) for each in bad)


def is_about_its_matter(said: str) -> bool:
    """Whether all that a user says (`spoken`) orders, asks or reports something, and nothing gives a mood away."""
    low = lowered(said)
    if _is_report(low):
        return True
    if _MOVED.search(low) or _SHOUTED.search(said):
        return False
    parts = [each.strip() for each in _SENTENCE.split(low)[: LOOKED_AT + 1] if each.strip()]
    return 0 < len(parts) <= LOOKED_AT and all(_ORDERS.match(each) or _ASKS.match(each) for each in parts)
