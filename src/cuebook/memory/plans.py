"""What was settled, binds, is to be done, still open or aimed at: signs of decisions, todo, open loops, projects."""

from typing import Final

from cuebook.memory.signs import WE, Sign, any_of
from cuebook.records.expression import lowered
from cuebook.records.memory import Category

#: Several who settle something together.
GROUP: Final = (
    r"(?:team|group|board|committee|council|department|company|management|crew|jury|union|club|guild|staff|leadership|"
    r"parliament|partners|members|trustees|directors|shareholders|assembly|panel|squad|association|faculty|senate)"
)

PLANS: Final[tuple[Sign, ...]] = (
    Sign(
        "decision",
        0.4,
        any_of(
            (
                rf"\b{WE}(?:'ve|’ve| have)?(?: finally| also| now| just| both| all)? (?:decided|agreed|settled|chose|"
                r"picked|opted|committed|signed|booked|ordered|bought|hired|accepted|declined|rejected|confirmed|"
                r"enrolled|registered|signed up|made up)\b"
            ),
            (
                rf"\b{WE}(?:'re|'m|’re|’m| are| am) (?:going with|sticking (?:with|to)|going for|not going to|"
                r"not doing|no longer|switching|skipping|keeping)\b"
            ),
            r"\b(?:decision|verdict)(?: is|:| made)",
            r"\b(?:it's|its|that's) (?:decided|settled|final|official|confirmed)\b",
            r"\blet's (?:go with|use|stick (?:with|to)|settle on)\b",
            r"\blet's (?:do|keep|make it) (?!(?:it|this|that|going|up|\w+ing|memories)\b)",
            (
                rf"\b(?:the|our) (?:[\w-]+ )?{GROUP}(?: has| have|'ve|’ve)?(?: finally| also| now| just)? (?:decided|"
                r"agreed|settled|chose|chosen|picked|opted|committed|signed|accepted|approved|declined|rejected|"
                r"refused|"
                r"confirmed|voted|resolved|ruled|adopted)\b"
            ),
            r"\b(?:it was|it's been|it’s been|it has been|we have|we've) (?:now )?(?:decided|agreed|resolved|"
            r"settled)\b",
            r"\bwent with\b",
            r"\bfinal (?:decision|answer|choice|date|list)\b",
            r"\bsettled on\b",
        ),
    ),
    Sign(
        "constraint",
        0.4,
        any_of(
            (
                r"\b(?:maximum|max (?:of )?\d\S*|\d\S*(?: \w+)? max|at most|no more than|must not|mustn't|not allowed|"
                r"can(?:'t|not) (?:eat|have|drink|use|do|work|go|stand|be|take|carry|lift|afford)|isn't allowed|"
                r"deadline|due (?:on|by|date)|budget|limit(?:ed)? (?:to|is)|curfew|rule is|has to be|have to be|"
                r"needs to be|must be(?! (?:so |really |very )?(?:nice|great|hard|tough|fun|amazing|awesome|satisfying|"
                r"proud|exciting|rewarding|difficult|lovely|tired|exhausting)\b))\b"
            ),
            r"\bonly (?:use|on)\b",
            r"\bnever use\b",
        ),
    ),
    Sign(
        "todo",
        0.4,
        any_of(
            (
                rf"\b{WE}(?:'ve|’ve)?(?: still| also| really| just)* (?:need to|have to|must|gotta|should(?! we)|"
                r"ought to|owe)\b|\b(?:i|we)(?:'ve|’ve| have) got to\b"
            ),
            r"(?:^|[,.;:!?–—-] |\b(?:please|pls|and|so|then|to|you|must|should) )remind me\b(?! (?:of how|how|why))",
            r"\bdon't let me forget\b",
            r"\b(?:to-do|todo|to do list)\b",
            (
                r"\bneeds? (?:to be )?(?:doing|done|sorted|fixed|booked|paid|sent|ordered|signed|renewed|cleaned|"
                r"replaced)\b"
            ),
            (
                r"\bby (?:the end of|mon|tues|wednes|thurs|fri|satur|sun|next|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|"
                r"nov|dec|\d)"
            ),
        ),
    ),
    Sign(
        "open",
        0.35,
        any_of(
            (
                r"\b(?:still|haven't|have not|hasn't|not yet|yet to) (?:waiting|wait|deciding|decided|need to|heard|"
                r"hear|unsure|undecided|looking|figured|found|booked|picked|chosen|sorted|open|pending|received|"
                r"replied|know|got(?! (?:an?|any|no|much|many|enough)\b(?!.* yet)))\b"
            ),
            r"\bwaiting (?:for|on|to hear)\b",
            r"\bundecided\b",
            r"\bopen question\b",
            r"\bto be (?:decided|confirmed)\b",
            r"\btb[adc]\b",
            r"\bpending\b",
            r"\bup in the air\b",
            r"\btorn between\b",
            r"\bneed to figure\b",
        ),
    ),
    Sign(
        "goal",
        0.35,
        any_of(
            (
                rf"\b{WE}(?:'m|'re|’m|’re| am| are|'ve been| have been) (?:planning|saving|training|building|writing|"
                r"working on|learning|studying|renovating|applying|organi[sz]ing|preparing|launching|redoing|"
                r"trying to|aiming|hoping to|going to|gonna|taking|starting|running|teaching|restoring|developing|"
                r"designing)\b"
            ),
            (
                r"\b(?:my|our|the) (?:[\w-]+ ){0,2}(?:goal|aim|target|plan|project|thesis|dissertation|novel|book|"
                r"startup|app|renovation|campaign|launch)\b(?: \w+){0,3} (?:is|are|was|'s|will|has)"
            ),
            r"\b(?:goal|target|aim) (?:is|:)|\b(?:that's|that is) my (?:plan|goal|aim|dream)\b",
            rf"\b{WE} (?:want|plan|hope|aim|intend) to\b",
            (
                rf"\b{WE}(?:'d|’d| would)(?: really| still| also)* (?:like|love) to (?!know|hear|see (?:you|your|it|"
                rf"that|"
                r"more)|ask|say|thank|talk|check|understand|point|add|mention|think|join you|(?:try|do|go|visit|be) "
                r"(?:it|that|there)\b|come (?:too|along|with you))\w+"
            ),
            rf"\b{WE}(?:'ll|’ll| will) (?:be|have|start|move|go|fly|run|take|host|visit|travel|join|launch)\b",
        ),
    ),
)

#: By when a thing is due is its own fact, settled by whom it may.
_DUE: Final = any_of(r"^(?:the|our|my|[\w'’-]+) (?:[\w'’-]+ ){0,3}?(?:deadline|due date)s?\b|^deadline\b")
#: What was bought is no decision for what follows.
_BOUGHT: Final = any_of(rf"\b{WE}(?:'ve|’ve| have)?(?: finally| also| now| just| both| all| already)? bought\b")
_SETTLED: Final = any_of(
    r"\b(?:decid\w+|decision|agreed|settled|chose|chosen|picked|opted|committed|signed|booked|ordered|hired|accepted|declined|"
    r"rejected|confirmed|enrolled|registered|going with|went with|let's|must|maximum|max|at most|budget|only|final)\b"
)


def fact_of(text: str) -> Category | None:
    """Return where a statement that looks settled is filed all the same: a deadline with its project, a purchase with
    the facts; None where it is a decision.
    """
    lower = lowered(text)
    if _SETTLED.search(lower):
        return None
    if _DUE.search(lower):
        return "projects"
    return "facts" if _BOUGHT.search(lower) else None
