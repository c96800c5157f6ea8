"""The word tables of the rule-based memory: what makes a clause a fact, of which category, and what makes it chatter.

Weights were set by hand on the demo conversation, an invented one of a nurse, and LoCoMo's chats (read, never shipped):
a clause with one strong sign (0.4: an allergy, a decision, an explicit "remember") passes THRESHOLD alone; weaker signs
need a companion.
"""

import re
from typing import Final

from cuebook.memory.signs import Sign, any_of
from cuebook.records.expression import Expression
from cuebook.records.memory import Category

#: A clause at or above this is kept. One that reports something done, settled or changed is read from less on,
#: because it may
#: end another; `merge` drops it below KEPT_NEWS when it ends none.
THRESHOLD: Final = 0.4
NEWS_THRESHOLD: Final = 0.15
KEPT_NEWS: Final = 0.3
NEWS: Final = frozenset({"done", "change", "decision", "status", "report", "now", "end", "out of work"})

#: What one says of a thing that pleases or matters, and that tells nothing of it.
ESTEEM: Final = (
    r"(?:great|good|nice|awesome|amazing|beautiful|wonderful|incredible|fantastic|brilliant|lovely|cool|fun|"
    r"inspiring|inspirational|rewarding|fulfilling|satisfying|special|magical|peaceful|calming|relaxing|soothing|chill|"
    r"precious|priceless|important|vital|essential|crucial|key|necessary|powerful|meaningful|valuable|worth it|"
    r"worthwhile|breathtaking|stunning|gorgeous|vibrant|cute|adorable|sweet|impressive|interesting|fascinating|"
    r"exciting|thrilling|refreshing|uplifting|heartwarming|touching|moving|eye-opening|tough|rough|crazy|wild|"
    r"blessing|joy|treat|blast|tremendous|terrific|superb|perfect|excellent|helpful|true|comforting|encouraging|"
    r"motivating|humbling|freeing|liberating|therapeutic|nothing better)"
)

#: What is asked for good is no mere request.
STANDING: Final = Expression(r"\b(?:from (?:now|here) on|in future|going forward|until i say otherwise)\b")

FAULTS: Final[tuple[Sign, ...]] = (
    Sign(
        "hypothetical",
        0.7,
        any_of(
            (
                r"\b(?:maybe|perhaps|might|what if|wonder(?:ing)?|imagine|suppose|hypothetical\w*|in theory|if only|"
                r"wish|daydream\w*|someday|one day i'd|could (?:always|also|maybe)|would be (?:nice|cool|fun|great|"
                r"funny|lovely)|should (?:i|we)|thinking (?:of|about|maybe)|toying with|considering|half[- ]thinking|"
                r"dreamt|tempted|not sure (?:if|whether)|let's say|pretend|if (?:i|we) (?:were|was|had|ever|won|could|"
                r"did)|dream(?:t|ed|ing)? (?:of|about|that|i|last))\b"
            ),
            r"^if\b",
        ),
    ),
    Sign(
        "joking",
        0.8,
        any_of(
            r"\b(?:just kidding|jk|kidding|joking|lol|lmao|rofl|ha(?:ha)+|hehe\w*|yeah right|as if)\b",
            r"(?:^|\s)/s(?:\s|$)",
            (
                r"\b(?:i'm|i am) (?:literally |basically )?(?:dying|dead|starving|a genius|the queen|the king|"
                r"a zombie)\b"
            ),
            r"😂|🤣|🙃|😜|😉",
            r"\ballergic to (?:mon|tues|wednes|thurs|fri|satur|sun)days?\b",
            (
                r"\ballergic to (?:my |the |all )?(?:work(?:ing)?|mornings?|meetings?|exercise|sports?|people|maths?|"
                r"homework|housework|cleaning|cooking|responsibility|commitment|nonsense|drama|bullshit|taxes|love)\b"
            ),
        ),
    ),
    Sign(
        "mocking",
        0.8,
        any_of(
            r"\b(?:just|exactly) what (?:i|we) (?:needed|need|wanted)\b",
            r"\bthanks for nothing\b|\bwhat could (?:possibly )?go wrong\b|\bbig surprise\b|\bwhat a surprise\b",
            r"\b(?:because|cause|as if|like) (?:i|we) (?:just|so|totally|really|absolutely) (?:love|adore|enjoy|"
            r"need)\b",
            r"\b(?:my|the) absolute favou?rite,? (?:\.\.\.|not)\b|(?:, |\. ?)not[!.]*$",
        ),
    ),
    Sign(
        "cheer",
        0.8,
        any_of(
            (
                r"\blet(?:'s|’s| us) (?:all |both |just |never |always )*(?:keep(?: (?:on|up|going|at it|each other|"
                r"\w+ing)\b)|cherish|celebrate|hope|enjoy|remember|support|stay|spread|inspire|appreciate|embrace|"
                r"do (?:it|this|that)\b|go\b(?=[!.]|$)|make (?:it happen|(?:\w+ )?memories|the most|a difference|"
                r"(?:the|this|our) \w+ (?:a )?better))"
            ),
            r"\bkeep (?:up the|pushing|going|shining|inspiring|smiling|spreading|rocking|being you|fighting|"
            r"it going)\b",
            r"\b(?:we|you)(?:'ve|’ve)? got this\b|\bwe(?:'ll|’ll| will) keep \w+ing\b|\btogether,? we\b|\bwe rock\b",
            r"\b(?:make|making) (?:a|the) (?:\w+ )?(?:difference|better place)\b|\b(?:make|making) the world\b",
            (
                r"\bremember,? (?:that )?(?:it's|it’s|every|you|you're|to (?:celebrate|find joy|enjoy|focus|"
                r"take care|believe|"
                r"rest|breathe|pause|be kind|smile|appreciate))\b"
            ),
            (
                r"\bdon(?:'t|’t) (?:give up|hesitate|worry|be (?:afraid|so hard))\b|\bstay (?:safe|strong|positive|"
                r"consistent|motivated)\b|\bevery (?:\w+ )?(?:step|bit|victory) (?:counts|matters|forward|is)\b|"
                r"\bone (?:day|"
                r"step) at a time\b|\b(?:i'm|i’m|we're|i am) (?:always )?here (?:for you|to (?:support|help|listen|"
                r"chat)|if you)"
            ),
            r"\b(?:we|you)(?:'ve|’ve)? (?:gotta|got to|should|must|need to) (?:all |just )?(?:stick together|"
            r"look after|take care "
            r"of (?:our|your)|be (?:kind|patient|strong|there))\b|\b(?:look|looking) after yourself\b",
        ),
    ),
    Sign(
        "praise",
        0.45,
        any_of(
            (
                r"^(?:(?:yeah|yes|wow|and|but|so|well)[,!]? )?"
                r"(?!(?:i|i'm|i’m|i've|my|our|we|we're|he|she|if|when|just)\b)"
                rf"(?:(?!\b(?:i|i'm|i’m|i've|i’ve|i'd|my|we|we've|we’ve)\b)[^.;:!?]){{1,90}}?"
                rf"\b(?:is|are|was|were|'s|’s|has been|looks?|looked|sounds?|sounded|seems?|seemed|"
                rf"feels?|felt|can be|makes? (?:\w+ )?feel|be) "
                rf"(?:(?:so|such|really|very|super|truly|always|just|pretty|quite|absolutely|totally|incredibly|a|an|"
                rf"the most|the best|also|all) )*{ESTEEM}\b"
            ),
            rf"^(?:what|such) (?:an? )?{ESTEEM}\b|^{ESTEEM}\b",
        ),
    ),
    Sign(
        "pointing",
        0.4,
        any_of(
            r"^(?:(?:and|so|oh|yeah),? )?(?:here(?:'s|’s| is| are)|check out|take a look at|look at|this is|these are) "
            r"(?:an? |my |the |some |another |one of )?(?:\w+ ){0,3}?(?:pics?|pictures?|photos?|shots?|snaps?|selfies?|"
            r"poster|video|image|sketch)\b",
            r"^(?:the|this|that|your) (?:pic|picture|photo|image|video)\b",
        ),
    ),
    Sign(
        "reply",
        0.5,
        any_of(
            (
                r"^(?:(?:yeah|yes|oh|aw+|hey|ah|and|no|well)[,!]? )?(?:[\w-]+, )?(?:sounds like|looks like (?:you|a|"
                r"it)|"
                r"must(?:'ve| have)? be(?:en)? |i'm (?:so |really )?(?:sorry|glad|happy|proud|excited) (?:to hear|"
                r"about|"
                r"for|of|you|that you)|i remember (?:you|that|it|when you)\b|so glad|glad (?:the|you|to|we|it|that)|"
                r"of course|got it|totally|exactly|same here|i (?:totally |completely |really )?(?:agree|understand|"
                r"hear "
                r"you|get it|feel you|bet|can imagine|know how)|no problem|my pleasure|any ?time|it does\b|it is\b|"
                r"they are\b|who are|good luck|best of luck|take care|looking forward|can't wait to (?:hear|see)|"
                r"can(?:'t|’t) agree more|couldn(?:'t|’t) agree more)"
            ),
        ),
    ),
    Sign(
        "request",
        0.45,
        any_of(
            (
                r"^(?:(?:please|pls|now|then|ok|so|and) )*(?:write(?! to me\b)|draft|ask|search|look|remind|"
                r"put|add|send|give|tell|show|explain|list|suggest|"
                r"recommend|make|create|generate|find|help|compare|describe|summari[sz]e|translate|draw|compose|"
                r"continue|try|convert|calculate|check|rewrite|shorten|walk me|teach me|quiz(?= me| us)|"
                r"brainstorm)\b(?! (?:a )?note| me (?:to|that|i|we|about|of)\b)"
            ),
            r"\b(?:can|could|would|will) you\b(?=[\s]+\w)(?! believe)",
            r"\b(?:any|got) (?:tips|ideas|suggestions|advice|recommendations)\b",
            r"\b(?:i'd|i would) (?:like|love) (?:you|your|some|a recipe|to know|to hear)\b",
            r"\b(?:i|we) need (?:your|some|a|an|help|ideas|advice|you)\b(?! to)",
        ),
    ),
    Sign(
        "small talk",
        0.7,
        any_of(
            (
                r"^(?:hi|hey|hello|good (?:morning|evening|night|afternoon)|thanks?|thank you|thx|cheers|bye|see you|"
                r"talk (?:soon|later)|have a (?:nice|good|great)|welcome|congrat\w*|wow|cool|nice|great|awesome|"
                r"perfect|lovely|amazing|sounds (?:good|great|fun|like)|that(?:'s|’s| is| was| sounds) (?:so |really |"
                r"very |a )?(?:great|good|nice|cool|awesome|amazing|fun|funny|helpful|lovely|perfect|sweet|wonderful|"
                r"interesting|true|fair|brilliant|exactly|kind|useful|hilarious|it))\b"
            ),
            (
                r"\b(?:how are you|how's it going|what's up|(?:always |all )?here for you|cheering|rooting for|"
                r"proud of you|love to (?:check|see|hear|try|join|know)|let's make it happen|for asking|keep it up|"
                r"keep going|you're (?:the best|welcome|right|great|a lifesaver|so)|appreciate (?:it|you|that|your)|"
                r"good to (?:know|hear|see)|glad (?:to hear|you)|no worries|my bad)\b"
            ),
        ),
    ),
    Sign(
        "moment",
        0.25,
        any_of(
            (
                r"\b(?:right now|at the moment|this (?:minute|second)|just (?:woke|got (?:home|back|in|out)|sat|"
                r"finished (?:eating|dinner|lunch|work))|so (?:tired|bored|hungry|sleepy|exhausted|hot|cold)|"
                r"i'm (?:tired|bored|hungry|sleepy|exhausted|off|heading|back|so|just|feeling)|feeling|weather|"
                r"raining|snowing|coffee break|traffic|today (?:was|has been|i'm)|anyway|gotta (?:run|go)|brb)\b"
            ),
        ),
    ),
    Sign(
        "second person",
        0.3,
        any_of(
            r"^(?:you|your|you're|you’re|you've)\b",
            r"\b(?:your (?:answer|suggestion|advice|idea|help|list|recipe|plan|explanation)s?)\b",
        ),
    ),
)

#: What a clause asks instead of stating.
ASKS: Final = any_of(
    (
        r"^(?:what|when|where|who|whom|whose|which|why|how|is|are|am|was|were|do|does|did|can|could|would|"
        r"will|should|shall|has|have|had|isn't|aren't|don't|doesn't|won't|any)\b"
    ),
    r"\bdo you (?:know|think|remember|have)\b",
    r"\bi(?:'m| am)? (?:wondering|curious)\b",
)
#: Questions that ask to be remembered.
ASKS_TO_KEEP: Final = any_of(
    r"\b(?:remind me (?:to|about|that|on|of the)|remember (?:that|to|this|my|the|our|i|we)|note (?:that|"
    r"down|this)|keep in mind|make a note|add (?:it |that |this |\S+ ){0,6}?to (?:my|the|our) (?:list|"
    r"todo|to-do))\b"
)
#: A user's answer that endorses what the assistant said last.
AFFIRMS: Final = Expression(
    r"^(?:yes|yep|yeah|yup|correct|exactly|right|that's right|that is right|that's correct|confirmed|"
    r"perfect|sounds good|sounds great|sounds perfect|go ahead|do it|"
    r"let's do (?:it|that)|deal|agreed|ok do that|please do|spot on|indeed|absolutely|definitely|"
    r"works for me|book it)\b[^?]{0,40}$",
    re.IGNORECASE,
)
DENIES: Final = Expression(
    r"^(?:no|nope|nah|wrong|not quite|incorrect|that's (?:not|wrong)|actually|scrap|don't|wait|hmm no)\b", re.IGNORECASE
)
#: What an assistant did or settled, as opposed to what it explains.
ASSISTANT_DID: Final = Expression(
    r"\b(?:i've|i’ve|i have|i) (?:just )?(?:booked|scheduled|sent|ordered|created|set|added|reserved|"
    r"cancell?ed|updated|moved|confirmed|paid|submitted|filed|renewed|saved|"
    r"deployed|fixed|merged|published)\b|\b(?:booking|reservation|order|confirmation) (?:is confirmed|"
    r"number|reference|confirmed)|\bhas been (?:booked|confirmed|scheduled|sent|created|cancell?ed|paid)\b",
    re.IGNORECASE,
)
#: What an assistant asks the user to confirm.
ASKS_CONFIRM: Final = Expression(
    (
        r"\b(?:right|correct|is that right|shall i|should i|do i have that right|yes|"
        r"confirm)\b[^.!]{0,60}\?\s*$|^so\b.{10,}\?\s*$"
    ),
    re.IGNORECASE,
)

#: Category by the first sign found, in A's capture order: preferences > goals/projects > decisions/constraints > open
#: loops/todo > people > facts.
CATEGORY_ORDER: Final[tuple[tuple[str, Category], ...]] = (
    ("preference", "preferences"),
    ("wish", "preferences"),
    ("goal", "projects"),
    ("decision", "decisions"),
    ("bound", "facts"),
    ("constraint", "decisions"),
    ("open", "open_loops"),
    ("todo", "todo"),
    ("duty", "todo"),
    ("relation", "people"),
    ("identity", "people"),
)

#: Single-valued things one states without naming them: "we moved to Porto" is about the home.
SUBJECTS: Final[tuple[tuple[str, Expression], ...]] = tuple(
    (subject, Expression(pattern, re.IGNORECASE))
    for subject, pattern in (
        (
            "home",
            (
                r"\b(?:i|we)(?:'m|'re|’m|’re| am| are|'ve|’ve| have)?(?: just| now| finally| both| currently|"
                r" actually| recently| still| all)* (?:lived?|living|"
                r"mov(?:ed|ing)(?! (?:on|the|an?|my|our|this|it|them|him|her)\b)|moving house|relocat\w+|based|"
                r"settled|staying)(?: \w+){0,3}? (?:in|to|at|near|back to|into|from)\b(?! (?:a|an|"
                r"the) (?:new )?(?:job|role|team|company|project)\b)"
            ),
        ),
        (
            "job",
            (
                r"\b(?:i|we)(?:'m|’m| am|'ve|’ve| have)?(?: just| now| finally| currently| recently|"
                r" still)* (?:work(?:ed|ing)? (?:as|at|for)|employed|got (?:a|the) (?:new )?job|started (?:at|working|"
                r"a new job|my new job)|hired (?:by|at)|a (?:nurse|teacher|doctor|engineer|student|developer|designer|"
                r"lawyer|writer|chef|freelancer|manager))\b"
            ),
        ),
        (
            "diet",
            (
                r"\bi(?:'m|’m| am|'ve|’ve| have)?(?: now| not| no longer| gone| been| a| strictly| fully| started|"
                r" stopped| back to)* (?:vegan|"
                r"vegetarian|pescatarian|pescetarian|flexitarian|eat(?:ing)? (?:meat|fish|everything))\b"
            ),
        ),
        ("name", r"\b(?:my name is|my name's|call me)\b"),
    )
)
SUBJECT: Final = Expression(
    r"\b(?:(?P<owner>(?i:my|our|his|her|their|the)|"
    r"[A-ZÀ-Þ][\w-]+['’]s) )(?P<topic>(?:[\w'’-]+ ){0,4}?[\w'’-]+?)(?:'s|’s)?\s"
    r"(?:(?:now|currently|still|actually|also) )?"
    r"(?:is|are|was|were|'s|’s|will|has|got|gets|have|moved|changed|costs?|starts?|ends?|opens?|closes?|"
    r"leaves?|arrives?|takes?|runs?|went|goes|comes|lives?|works?|expires?|needs?|can't|turned|turns|"
    r"isn't|aren't|won't)\b"
)
