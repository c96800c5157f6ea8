"""Chat as it is typed in haste: missing apostrophes and capitals, left-out subjects, questions without a mark."""

import re
from typing import Final

from cuebook.memory.signs import RELATION, Sign, any_of
from cuebook.records.expression import Expression, lowered

#: Contractions without their apostrophe, for the tables only; an item keeps its author's spelling.
_APOSTROPHES: Final = {
    word.replace("'", ""): word
    for word in (
        "i'm i've don't doesn't didn't can't won't isn't aren't wasn't weren't hasn't haven't wouldn't couldn't "
        "he's she's that's there's they're they've we've you're you've what's who's let's"
    ).split()
}
_BARE = Expression(rf"\b(?:{'|'.join(_APOSTROPHES)})\b")
#: The same where the bare form is a word of its own and only what follows tells: the form with a space, how it is found
#: then, and what it stands for.
_BY_CONTEXT: Final = (
    (
        "ill ",
        Expression(r"\bill(?= (?:be|need|have|go|do|see|get|take|make|want|try|let|pay|send|ring|call|book|bring)\b)"),
        "i'll",
    ),
    ("id ", Expression(r"\bid(?= (?:like|love|rather|prefer|say|want|need)\b)"), "i'd"),
    (
        "were ",
        Expression(r"(?:^|(?<=, )|(?<=and ))were(?= (?:\w+ing|open|closed|off|in|at|all|now)\b)", re.IGNORECASE),
        "we're",
    ),
    (
        "its ",
        Expression(
            r"\bits(?= (?:a|an|the|just|not|on|at|in|number|been|going|my|our|only|called|\d+)\b)", re.IGNORECASE
        ),
        "it's",
    ),
)
#: A question that ends without its mark, as typed in haste.
_ASKS_PLAINLY: Final = Expression(
    r"^(?:(?:and|so|also|but|ok|oh|hey|right) )?(?:what(?:'s|s)|what(?! an? )|how(?! \w+ing)|why|who(?:'s|s)?|"
    r"where(?:'s|"
    r"s)?"
    r"(?! (?:i|we|my) )|when(?:'s| is| does| do| did| was| are)|which (?:is|are|one|do|would|should)|is (?:it|there|"
    r"that|this|"
    r"the|my|our|an?|\w+ (?:\w+ )?(?:\w+er|good|bad|safe|ok|poisonous|worth|true|allowed)\b)|are (?:there|they|you|"
    r"the|my|"
    r"these|those)|can (?:i|you|we|it|they|he|she)|could (?:i|you|we|it)|do (?:you|i|we|they|\w+s)\b|does (?:it|the|"
    r"he|she|"
    r"an?|my|this|that)|did (?:you|i|it)|should (?:i|we)|would (?:you|it|that)|any (?:idea|ideas|tips|advice|"
    r"suggestions|chance|good)|got any|have you)\b",
    re.IGNORECASE,
)
_NO_SUBJECT: Final = (
    r"(?!(?:it|its|it's|that|that's|this|there|there's|these|those|what|which|who|how|when|where|why|i|we|you|he|she|"
    r"they|"
    r"if|maybe|not|no|nothing|everything|one|as|just|so|and|but|all|any|some|is|are|do|does|can|could|would|should|"
    r"will)\b)"
)

PLAIN: Final[tuple[Sign, ...]] = (
    Sign(
        "statement",
        0.25,
        any_of(
            rf"^{_NO_SUBJECT}(?:[\w'’-]+ ){{1,4}}?(?:is|are|was|has|have|had|got|gets|will|can only|can't|starts?|"
            rf"ends?|comes?|"
            r"came|goes|went|does|needs?|takes?|took|runs?|runs out|lives?|works?|leaves?|arrives?|said|says|wants?|"
            r"rang|called|started|moved|opens?|closes?|died|won|lost|bought|sold|passed|failed|costs?|becomes?|became|"
            r"joined|owns|leads|handles|manages|plays|drives|turned|broke|told|gave|made|finished|put)\b",
            rf"^{_NO_SUBJECT}[\w-]+(?:'s|’s) (?:\w+ ?){{2,}}",
        ),
    ),
    Sign(
        "report",
        0.3,
        any_of(
            r"^(?:just |finally |also |already |right,? |ok,? )*(?:got|took(?: on)?|found|signed|told|bought|failed|"
            r"passed|"
            r"booked|re-?booked|ordered|sold|paid|posted|rang|sent|finished|started|picked up|dropped off|handed in|"
            r"moved|"
            r"joined|cancelled|canceled|renewed|fixed|painted|planted|built|met|hired|adopted|lost|won|registered|"
            r"applied|chose|decided|agreed|switched|gave up|quit|handed|took|gave|had|dropped|picked|submitted|"
            r"replaced|swapped|changed|went with)\b(?= \S+)",
        ),
    ),
    Sign(
        "changed",
        0.25,
        any_of(
            r"\b(?:upped|raised|lowered|doubled|halved|increased|reduced|moved|switched|shifted|brought forward|"
            r"re-?booked|"
            r"swapped|traded|got rid of|no more|(?:put|pushed) (?:\w+ ){0,3}?(?:back|up|down|off)|gone (?:up|down)|"
            r"changed)\b"
        ),
    ),
    Sign(
        "family",
        0.2,
        any_of(
            rf"(?:^|[,;] |\b(?:and|but|so|because|when|if) )(?:the |our |me )?{RELATION}(?:'s|’s|s)? (?:\w+ )?(?:is|"
            rf"was|"
            r"lives|works|has|had|got|said|wants|needs|will|in|on|at|back|called|named|\w+ed)\b",
        ),
    ),
    Sign("family", 0.2, Expression(r"\b(?i:our) [A-Z]\w+\b"), spelled=True),
    Sign(
        "progress",
        0.2,
        any_of(
            r"(?:\b(?:is|are|am)|['’](?:s|re|m)) (?:now |not |still |all |also )?(?:coming|starting|having|doing|"
            r"going|closing|"
            r"opening|leaving|moving|getting|taking|stopping|playing|making|learning|running|selling|buying|building|"
            r"growing|"
            r"keeping|painting|repainting|paying|visiting|turning|retiring|recording|changing|helping|giving|joining|"
            r"teaching|switching|expecting|staying)\b",
        ),
    ),
    Sign(
        "care",
        0.25,
        any_of(
            r"\b(?:minding|mind(?:s)? the|look(?:s|ing)? after|tak(?:es?|ing) (?:care of|over)|"
            r"in charge of|responsible for)\b"
        ),
    ),
    Sign(
        "hours",
        0.25,
        any_of(r"\b(?:open|doing|work(?:ing)?) \d{1,2}(?:[.:]\d\d)? ?(?:[ap]m)? ?(?:-|–|to|til|till|until) ?\d"),
    ),
    Sign(
        "now", 0.15, any_of(r"\bnow\b(?! (?:and then|that|then|what))", r"\b(?:these days|nowadays|instead|as from)\b")
    ),
    Sign(
        "duty",
        0.35,
        any_of(
            r"\b(?:i|we)(?:'ve|’ve| have) to (?!do with|say|admit|laugh)\w+",
            r"^(?:must|need to|have to|gotta|got to|mustn't forget|don't forget) \w+",
            r"\bneeds? \w{3,}ing\b",
            r"\b(?:is|are|'s|’s|falls) due\b",
            r"\b(?:runs? out|expires?) (?:on|in|at|\d)",
        ),
    ),
    Sign(
        "wish",
        0.4,
        any_of(
            r"\b(?:keep|make) (?:it|them|answers?|things) (?:brief|short|simple|plain|formal|polite)\b",
            r"\b(?:don't|do not|never) (?:ever )?(?:give|send|write|suggest|recommend|call|use|show|"
            r"offer)\b(?: (?:me|us|any))?",
            r"\bfavou?rite (?:\w+ ){1,4}(?:is|are)\b",
            r"\b(?:special|strict) diet\b",
            r"\b(?:keep(?:s|ing)?|stay(?:s|ing)?|told to (?:keep|stay)) off (?!work|the grass)\w+",
            r"\b(?:throat|face|lips) (?:closes?|swells?)\b",
            r"\b(?:given|gave|giving) up (?:the )?\w+",
        ),
    ),
)


def spelled(text: str) -> str:
    """Return a text with the apostrophes its author left out."""
    lower = lowered(text)
    for match in reversed(list(_BARE.finditer(lower))):
        text = text[: match.start()] + _APOSTROPHES[match[0]] + text[match.end() :]
    for bare, pattern, whole in _BY_CONTEXT:
        if bare in lower:
            text = pattern.sub(whole, text)
    return text


def asks_plainly(text: str) -> bool:
    """Tell whether a text without a question mark is a question all the same."""
    return bool(_ASKS_PLAINLY.search(text))
