"""Whether a message takes back, or sets right, what was understood: the correction B counts against a prompt."""

from typing import Final

from cuebook.records.expression import Expression, lowered

#: Where one sentence ends and another begins.
SENTENCE: Final = Expression(r"(?<=[.!?\u2026])\s+|\n+")
#: Characters that are looked at, of a message and of a sentence.
LOOKED_AT: Final = 2_000
LONGEST: Final = 300
#: More corrections than this are not counted in one message.
MOST: Final = 5
#: What a "no" may stand before that sets nothing right: "no problem", "no idea", "no, thanks".
_NO_OTHER: Final = (
    r"(?:problem|worr(?:y|ies)|thanks?|thank|thx|need|idea|clue|hurry|rush|doubt|more|longer|way|questions?"
    r"|further|one|"
    r"body|matter|offen[cs]e|big deal|biggie|pressure|wonder|news|luck|difference|garlic|reason|time|money|sign"
    r"|not yet|"
    r"nothing|never|nobody|none|that's (?:all|it|fine|ok(?:ay)?|everything|good|great)|that is all|"
    r"(?:i|we|he|she|they|it|there|you)(?:'m|'re|'s|'ve)? (?:am|are|is|was|were|have|has|had|do|does|did|don't"
    r"|doesn't|didn't|"
    r"haven't|hasn't|can't|cannot|isn't|aren't|will|won't|think|guess|just))"
)
#: How a sentence that corrects begins.
_BEGINNINGS: Final = (
    (
        r"(?:no+[,.! ]+|nope[,.! ]+|sorry[,.! ]+|but |well,? |oh,? )*i (?:mean|meant)\b(?! to (?:thank|ask|say"
        r"|tell|write|call)|(?:,| it) (?:thank|wow|come on))"
    ),
    (
        r"(?:no+[,. ]+|but |well,? |again,? |like |as )*i(?:'ve| have)? (?:already )?(?:said|told you"
        r"|asked (?:you )?(?:for|about|to)|"
        r"wrote|specified|requested|wanted)\b(?! (?:yes|no|hello|goodbye|thanks?|to the|that to|my|her|him"
        r"|them))(?! to (?:thank|ask|know|see|say|tell|learn))"
    ),
    (
        r"(?:no+[,. ]+|nope[,. ]+|but |well,? |sorry,? |hm+,? )*(?:(?:that|this|it|which)(?:'s| is| was| looks"
        r"| seems)|still|again)?"
        r" ?(?:just |still |also |completely |totally |all |simply |plain )*(?:wrong|incorrect|not (?:right|correct"
        r"|true|quite right|it|accurate))\b(?! (?:with|to|about|in) (?:you|him|her|them)\b)(?!.*\?$)"
    ),
    r"(?:that|this|it)(?:'s| is) (?:still )?(?:the )?wrong \w+",
    (
        r"(?:you(?:'re| are) (?:still )?(?:wrong|mistaken)|wrong again|not quite|not exactly|not really[,.]"
        r"|try again|nope?,? try again)\b"
    ),
    r"(?:small |one |a |minor )*correction\s*:",
    r"(?:let me|i'll|i should) (?:rephrase|correct|clarify|put it (?:differently|another way))",
    (
        r"(?:no+[,. ]+|but |and |sorry,? |hm+,? |that'?s? |it'?s? |this |it is |that is |which )*still (?:not"
        r"|doesn't|does not|isn't|is not|won't|can't|didn't|fails?|failing|crashes|crashing|"
        r"broken|wrong|the same|gives|nothing|missing|getting the|get the)\b(?! (?:sure|decided|clear|know|have"
        r"|understand|get it))(?!.*\?$)"
    ),
    (
        r"(?:but |and |no,? )*(?:it|this|that) (?:still )?(?:(?<=still )(?:doesn't|does not|didn't|fails?|crashes"
        r"|isn't)|keeps (?:failing|crashing|happening))\b"
    ),
    r"(?:same (?:error|problem|issue|result|mistake|thing)|again failed|it fails again|fails again)\b",
    (
        r"(?:no,? |well,? |sorry,? |but )*actually,? (?:it|that|this|he|she|they|there|my \w+|the \w+"
        r"|our \w+)(?:'s|'re| is| are| was| were| should| has to| have to)\b"
        r"(?! (?:a |an |really |quite |pretty |very |also |even )*(?:great|good|nice|fine|ok(?:ay)?|perfect|right"
        r"|correct|better|cool|interesting|brilliant|lovely|helpful|useful|true|working|works|easy|clever|not bad"
        r"|how|what|why|fun|funny|amazing|awesome))(?!.*\?$)"
    ),
    rf"^(?:no+|nope)\b[,.! ]+(?!{_NO_OTHER}\b)(?=\w+)(?!.*\?$)",
    r"(?:rather|instead|make (?:that|it)) \w+.*\b(?:instead of|rather than|not) \w+",
)
#: What it may hold anywhere, and strings of which each of them holds one.
_HOLDINGS: Final = (
    r"\bnot what i (?:asked|meant|wanted|said|needed|was asking|am asking|had in mind|requested|was looking)\b",
    r"\b(?:isn't|wasn't|is not|was not|not) what i (?:asked|meant|wanted|said|needed|requested|was after)\b",
    r"\b(?:as|like) i (?:already )?(?:said|told you|mentioned|wrote)\b",
    r"\bi (?:didn't|did not|never) (?:ask|say|said|mean|want|request|tell you)\b",
    r"\bi (?:already )?(?:told|asked) you (?:already|before|that|this|twice|not to)\b",
    (
        r"\byou (?:have |'ve )?(?:still |also |again |just |totally )*(?:misunderst\w+|misread|misheard|missed"
        r"|forgot|ignored|got (?:it|that|the|this|my) "
        r"(?:\w+ )?(?:wrong|backwards|mixed up)|confused|mixed up|skipped|overlooked|left out|made (?:a|the same"
        r"|another) mistake)\b(?!.*\bdid you\b)"
    ),
    (
        r"\byou (?:keep|kept|are|'re) (?:mixing|confusing|getting|ignoring|forgetting|missing|making the same"
        r"|giving me (?:broken|wrong|the same)|doing it wrong)"
    ),
    r"\bnot (?:that|this) (?:one|way|file|version)\b",
)
_HINTS: Final = (
    "what i ", "i said", "i told", "i already", "i mentioned", "i wrote", "i asked", "i didn't", "i did not", "i never",
    "you ", "not that ", "not this ",
)  # fmt: skip
_BEGINS: Final = Expression("|".join(f"(?:{sign})" for sign in _BEGINNINGS))
_HOLDS: Final = Expression("|".join(f"(?:{sign})" for sign in _HOLDINGS))


def corrections_in(said: str) -> int:
    """Count the sentences of what a user says (`spoken`) that correct what was understood; `MOST` at most."""
    sentences = (each.strip(" \t-*\"'()") for each in SENTENCE.split(lowered(said[:LOOKED_AT])))
    return min(sum(map(_corrects, sentences)), MOST)


def _corrects(sentence: str) -> bool:
    sentence = sentence[:LONGEST]
    return _BEGINS.match(sentence) is not None or (
        any(hint in sentence for hint in _HINTS) and _HOLDS.search(sentence) is not None
    )
