"""Detect corrections: does a message retract or correct an earlier answer? B counts these against a prompt."""

from typing import Final

from cuebook.records.expression import Expression, lowered

#: The end of one sentence and the start of the next.
SENTENCE: Final = Expression(r"(?<=[.!?\u2026])(?<!\b[dm]r\.)(?<!\bms\.)(?<!\bmrs\.)\s+|\n+")
#: Characters that are searched, of a message and of a sentence.
LOOKED_AT: Final = 2_000
LONGEST: Final = 300
#: Maximum corrections counted in one message.
MOST: Final = 5

_OPENER: Final = (
    r"(?:no+[,.! ]+|nope[,.! ]+|nah[,.! ]+|wait[,.! ]+|oops[,.! ]+|sorry[,.! ]+|hm+[,. ]+|but |and |well,? "
    r"|oh,? |ah,? |"
    r"again,? |like |as |still |please )*"
)
_IT_IS: Final = (
    r"(?:(?:that|this|it|which)(?:'s| is| was| looks| seems)|(?:the|your|my) [\w-]+ (?:is|are|was|were|looks))"
)
_VERY: Final = r"(?:just |still |also |completely |totally |all |simply |plain |again |even |so )*"
_FINE: Final = r"\b(?:fine|good|great|perfect|ok(?:ay)?|all|working|works|right|correct|nothing|no)\b"
#: How a correcting sentence begins.
_BEGINNINGS: Final = (
    # what was meant, said or asked
    rf"{_OPENER}i (?:mean|meant)\b(?! to (?:thank|ask|say|tell|write|call)|(?:,| it) (?:thank|wow|come on))",
    (
        rf"{_OPENER}i (?:only |explicitly |clearly |specifically |already )+(?:asked|said|wanted|told|wrote"
        rf"|mentioned|meant)\b"
    ),
    rf"{_OPENER}i(?:'ve| have)? (?:said|told you) (?:no|not|in|at|without|only|\d|one|two|three|four|five)\b",
    rf"{_OPENER}i(?:'ve| have)? (?:asked|told) you (?:for|about|to|already|before|that|this|twice|not)\b",
    rf"{_OPENER}i (?:was|am|'m) (?:talking|asking|writing) about\b.*\bnot\b",
    rf"{_OPENER}i (?:didn't|did not|never) (?:ask|want|request|say|mean) (?:for|you|that|to|this|it|a|an|the|any)\b",
    # what it is, and what it is not
    (
        rf"{_OPENER}(?:i (?:want|need|wanted|needed|said|asked for|meant|prefer)|it(?:'s| is| was| should be)|"
        r"that(?:'s| is| should be)|my [\w-]+ is|the [\w-]+ (?:is|should be)|use|make it|put it|we (?:want|need))\b"
        r"[^?]{1,80}, (?:and )?not (?!much|always|really|only|just|yet|sure|that|too|so|very|even|all|many|often|bad)"
        r"(?:a |an |the |my |in |on |at |from |for |by |to )?[\w-]+(?: [\w-]+){0,2}[.!]*$"
    ),
    (
        r"not (?:in |the |a |an |that |this |from |to |on )?[\w-]+(?: [\w-]+)?, (?:but )?(?:in |the |a |an |from "
        r"|to |on )[\w-]+[.!]*$"
    ),
    rf"{_OPENER}(?:rather|instead|make (?:that|it)) \w+.*\b(?:instead of|rather than|not) \w+",
    # the same said of one thing and denied of another: "my uncle, not my father"
    (
        rf"{_OPENER}(?:he|she|it|they|that|this|the [\w-]+(?: [\w-]+)?|(?:what|all) i [\w ]{{3,20}})(?:'s|'re| [a-z]+)"
        r"[^?,]{0,40} (my|your|our|the|a|an|in|on|at|for|from|with|to|by|dr\.|mr\.|ms\.|mrs\.) "
        r"[^?,]{1,30}, (?:and )?not (?:\1|a|an|the|dr\.|mr\.|ms\.|mrs\.) [\w-]+(?: [\w-]+)?[.!]*$"
    ),
    rf"{_OPENER}it should (?:be|say|read|have been) [^?]{{1,60}} (?:rather than|instead of) [^?]{{1,40}}$",
    rf"{_OPENER}what i (?:actually|really) (?:want|need|meant|mean|asked for|wanted|needed)(?: is| was|,)",
    (
        rf"{_OPENER}i never (?:said|told you|mentioned|wrote|asked for|claimed|wanted)\b"
        r"(?! (?:goodbye|good|hello|hi|sorry|thank|a word|anything|so))"
    ),
    r"(?:ok(?:ay)?,? |no,? |actually,? |oh,? |wait,? )*scratch that(?:[,.;:!]|\Z| and\b| i\b)",
    # what was got wrong
    (
        rf"{_OPENER}(?:{_IT_IS} )?{_VERY}(?:wrong|incorrect|outdated|not (?:right|correct|true|quite right|it|accurate|"
        r"quite))\b(?! (?:with|to|about|in) (?:you|him|her|them)\b)(?! to\b)(?!.*\?$)"
    ),
    (
        rf"{_OPENER}(?:that|this|it) (?:isn't|wasn't|is not|was not) (?:right|correct|true|it|quite|what|the|a|my"
        rf"|accurate)\b(?!.*\?$)"
    ),
    (
        rf"{_OPENER}(?:that|this|it)(?:'s| is) (?:still |again )?(?:the |an |my |a )?(?:wrong|old|opposite|other"
        rf"|previous|same) [\w-]+(?!.*\?$)"
    ),
    rf"{_OPENER}(?:that|this|it)(?:'s| is) the opposite\b",
    (
        rf"{_OPENER}(?:that|this|it) (?:doesn't|does not|didn't) (?:answer|match|make it|address|fit|help"
        rf"|change anything|do it)\b"
    ),
    (
        rf"{_OPENER}there (?:is|are|'s) no such\b|(?:but )?there(?:'s| is| are) (?:still )?(?:a|an|two|some) "
        r"(?:mistakes?|errors?|typos?|bugs?) in (?:the|your|line|that|this|it|row|step)\b(?!.*\?$)"
    ),
    rf"{_OPENER}(?:that|this|it) (?:can't|cannot|can not) be (?:right|true|correct|it)\b",
    rf"{_OPENER}(?:that's|that is|this is) not (?:how|where|who|why|what)\b",
    rf"{_OPENER}i(?:'m| am) not (?:asking|talking) about\b",
    rf"{_OPENER}i (?:didn't|did not|never) (?:mention|talk about|write|wrote|mentioned|talked about)\b",
    (
        rf"{_OPENER}(?:the|your|my) (?:[\w-]+ ){{1,3}}(?:is |are |does )?still (?:not|too|returns?|shows?|says?"
        rf"|prints?|fails?|crashes|"
        r"has|have|contains?|uses?|looks?|missing|wrong|broken|the same|in|on)\b(?!.*\?$)"
    ),
    (
        r"(?:you(?:'re| are) (?:still )?(?:wrong|mistaken)|wrong again|wrong (?:one|file|answer|order|way"
        r"|language|version)|"
        r"not quite|not exactly|not really[,.]|try again|nope?,? try again|not that one|not this one)\b"
    ),
    r"why did you (?:change|remove|add|delete|drop|use|ignore|translate|rename|skip|leave|put|write|switch)\b",
    (
        r"(?:no[,. ]+)?(?:please )?(?:read|look at) (?:my|the) (?:question|message|text|request|mail"
        r"|first \w+)\b.*\bagain\b"
    ),
    r"(?:please )?stop (?!it\b|by\b|for\b|at\b|the\b)\w+ing\b",
    r"(?:small |one |a |minor )*correction\s*:",
    r"(?:let me|i'll|i should) (?:rephrase|correct|clarify|put it (?:differently|another way))",
    # the problem continues
    (
        rf"{_OPENER}(?:(?:that|it|this|which)(?:'s| is)? )?still (?:not|doesn't|does not|isn't|is not|won't|can't|"
        r"didn't|fails?|failing|crashes|crashing|broken|wrong|the same|gives|nothing|missing|getting|get the|shows?|"
        r"says|returns)\b(?! (?:sure|decided|clear|know|have|understand|get it|supported|possible))(?!.*\?$)"
    ),
    rf"{_OPENER}(?:it|this|that) (?:still )?(?:doesn't|does not|didn't|won't) work\b(?!.*\?$)",
    rf"{_OPENER}(?:it|this|that) (?:keeps|kept) (?:failing|crashing|happening|coming back)\b",
    (
        r"(?:again,? )?(?:the )?same (?:error|problem|issue|result|mistake|thing|answer)(?: again)?\b(?!.*\?$)"
        r"|again failed|(?:it )?fails again\b"
    ),
    # actually, it is different
    (
        rf"{_OPENER}actually,? (?:it|that|this|he|she|they|there|my \w+|the \w+|our \w+)"
        r"(?:'s|'re| is| are| was| were| should| has to| have to)\b"
        r"(?! (?:a |an |really |quite |pretty |very |also |even )*(?:great|good|nice|fine|ok(?:ay)?|perfect"
        r"|right|correct|"
        r"better|cool|interesting|brilliant|lovely|helpful|useful|true|working|works|easy|clever|not bad|how|what|why|"
        r"fun|funny|amazing|awesome))(?!.*\?$)"
    ),
    # no, differently
    (
        r"(?:no+|nope|nah)[,.!]+ (?:no+[,.! ]+)*(?:not\b|wrong|don't|do not|(?:that|this) one|that's (?:not|wrong|the)|"
        r"that is (?:not|wrong)|it's (?:not|the)\b|it is (?:not|the)\b|it should|i (?:mean|meant|want|wanted|need|said|"
        r"asked|told)|(?:use|make|try|change|put|take|keep|remove|show|give|write|start|leave|only|without|you) \w+)"
        r"(?!.*\?$)"
    ),
    (
        r"(?:no+|nope|nah)[,.! ]+(?:no+[,.! ]+)*(?:the|in|on|at|from|with|as) (?:\w+ ){0,2}(?:one|file|word|line"
        r"|version|side|left|right|other|first|second|third|last|street|page|color|colour|\w+s)[.!]*$"
    ),
    r"no (?:that's|that is|this is|it's|it is) (?:not|wrong|the wrong)\b",
    (
        r"(?:no+[,.! ]+){2,}(?:the|in|on|at|my|our|not|only|use|take|put|make) (?!(?:\w+ ){0,2}"
        r"(?:fine|good|ok(?:ay)?|perfect|great)\b)\w+(?!.*\?$)"
    ),
    (
        r"(?:no+|nope|nah)[,.! ]+(?:the|in|on|at|from|as) (?:\w+ ){0,2}(?:column|row|chart|cell|button|tab|table"
        r"|paragraph|sentence|chapter|section|image|picture|key|field|city|name|date|number|function|class|method|folder|branch)[.!]*$"
    ),
    rf"(?:nope|hm+,? no)[,.!]? (?!.*{_FINE})(?:the|that's|that is|it's|it is|your|there's|there are) \w+(?!.*\?$)",
)
#: Patterns anywhere in a sentence, and strings of which every match contains one.
_HOLDINGS: Final = (
    (
        r"\bnot what i (?:asked|meant|wanted|said|needed|need|want|was asking|am asking|had in mind|requested"
        r"|was looking)\b"
    ),
    r"\b(?:isn't|wasn't|is not|was not|not) what i (?:asked|meant|wanted|said|needed|requested|was after)\b",
    r"\b(?:as|like) i (?:already )?(?:said|told you|mentioned|wrote)\b",
    r"\bi (?:already )?told you (?:already|before|that|this|twice|not to)\b",
    (
        r"\byou (?:have |'ve )?(?:still |also |again |just |totally |completely )*(?:misunderst\w+|misread|misheard|"
        r"missed (?:the|my|one|a|that|two|part|some)|forgot|ignored|got (?:it|that|the|this"
        r"|my) (?:\w+ )?(?:wrong|backwards|"
        r"mixed up)|confused|mixed (?:up|the)|swapped|skipped|overlooked|left out|invented|hallucinated"
        r"|duplicated|misspelled|"
        r"miscounted|reversed|made (?:that|this|it) up|made (?:a|the same|another) mistake)\b(?!.*\?$)"
    ),
    (
        r"\byou (?:didn't|did not|haven't|still haven't) (?:include|add|answer|use|change|read|follow|do|mention"
        r"|listen|fix|finish|translate)\w*\b(?!.*\?$)"
    ),
    (
        r"\byou(?: keep| kept| are|'re) (?:still )?(?:mixing|confusing|getting|ignoring|forgetting|missing|repeating|"
        r"making the same|making things up|giving me (?:broken|wrong|the same)|doing it wrong|not (?:listening"
        r"|answering|reading|"
        r"following))\b"
    ),
    (
        r"\byou(?:'ve| have)? (?:just )?(?:answered|solved|translated|changed|used|took|picked|chose|opened|read|"
        r"gave me|sent me|edited|deleted|copied|moved) "
        r"(?:the wrong|a (?:completely |totally )?different|something (?:else|different))\b(?!.*\?$)"
    ),
    r"\bnot (?:that|this) (?:one|way|file|version)\b",
    r"\byou (?:keep|kept) (?!up\b)\w+ing\b(?!.*\?$)",
    r"\byou \w+(?: \w+){0,6}, (?:but )?i (?:wanted|asked for|meant|said|needed|asked)\b(?!.*\?$)",
)
_HINTS: Final = ("what i ", " i said", "i told", "i already", "i mentioned", "i wrote", "you", "not that ", "not this ")
#: What begins like a correction but is none.
_SPARED: Final = Expression(
    r"(?:no,? (?:that's|it's) (?:all|it|fine|ok(?:ay)?|everything|good|great|not (?:necessary|needed|a problem"
    r"|urgent|important|"
    r"bad))|(?:that's|it's|not) (?:not )?(?:bad|a problem|too bad)|(?:you|this|that)(?:'re| are| is"
    r"|'s) (?:not wrong|right)|"
    r"correct me if|still, )"
)
_DENIED: Final = Expression(r"(?:nope|hm+,? no)[.!]*")
#: A chat-style corrected word: "*their".
_STARRED: Final = Expression(r"\s*\*(?!\*)[^\W\d_][\w']*(?:,? not \w+)?[.!]?\s*\Z")
#: One name for another, recognized only by its capitals: "Not Berlin, Bern", "on Friday, not Saturday".
_NAMED: Final = Expression(
    r"(?:^|[.!]\s+)Not [A-Z]\w+, (?:but )?[A-Z]\w+[.!]*$|"
    r"^(?:[^?,.]{1,50} )?(?:(?:[Ii]n|[Oo]n|[Aa]t|[Tt]o|[Ff]rom|[Ff]or|[Ww]ith|[Bb]y|[Ii]s|[Ss]pelled|[Cc]alled) )?"
    r"[A-Z]\w+, not (?:in |on |at |to |from |for |with |by )?[A-Z]\w+[.!]*$"
)
_BEGINS: Final = Expression("|".join(f"(?:{sign})" for sign in _BEGINNINGS))
_HOLDS: Final = Expression("|".join(f"(?:{sign})" for sign in _HOLDINGS))


def corrections_in(text: str) -> int:
    """Return the number of correcting sentences in the user's own words (`spoken`), at most `MOST`."""
    text = text[:LOOKED_AT]
    sentences = [each.strip(" \t-*\"'()") for each in SENTENCE.split(lowered(text))]
    if len(sentences) > 1 and _DENIED.fullmatch(sentences[0]):  # "Hmm, no. It takes a list."
        sentences[:2] = [f"{sentences[0].rstrip('.!')}, {sentences[1]}"]
    named = _STARRED.match(text) is not None or _NAMED.search(text) is not None
    return min(max(sum(map(_corrects, sentences)), named), MOST)


def _corrects(sentence: str) -> bool:
    sentence = sentence[:LONGEST]
    if _SPARED.match(sentence):
        return False
    return _BEGINS.match(sentence) is not None or (
        any(hint in sentence for hint in _HINTS) and _HOLDS.search(sentence) is not None
    )
