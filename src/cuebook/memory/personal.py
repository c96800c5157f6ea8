"""Classify statements about a person's private life: body, diet, faith, money, family, feelings. They are filed as
neither decisions nor projects, and are never shared with an organization.
"""

import re
from typing import Final, Literal

from cuebook.records.expression import Expression, lowered
from cuebook.records.memory import Category

Matter = Literal["health", "diet", "identity", "money", "contact", "family", "feeling"]


def _any_of(*patterns: str) -> Expression:
    """Return an expression that finds any of `patterns` in lower-case text. Patterns that start with a word boundary
    (only) are tried only at one.
    """
    edged = [pattern.removeprefix(r"\b") for pattern in patterns if pattern.startswith(r"\b")]
    others = [pattern for pattern in patterns if not pattern.startswith(r"\b")]
    return Expression("|".join([rf"\b(?:{'|'.join(edged)})", *others] if edged else others))


#: What somebody may not or cannot do, is, or has.
BOUND: Final = _any_of(
    r"\ballerg\w+ (?:to|against)\b",
    r"\b(?:no|never) (?:meat|fish|nuts|dairy|gluten|alcohol|sugar|penicillin|pork|eggs|milk|wheat)\b",
    r"\b(?:leave (?:it|them|that) out|can't stand|refuse to)\b",
    r"\bintoleran\w+\b",
    r"\bc(?:o)?eliac\b",
    r"\bdiabet\w+\b",
    r"\basthma\w*\b",
    r"\bepilep\w+\b",
    r"\bvegan\b",
    r"\bvegetarian\b",
    r"\bgluten[- ]free\b",
    r"\bhalal\b",
    r"\bkosher\b",
    (
        r"\b(?:i|he|she|(?:my|our) (?:[\w-]+ ){1,3}?)(?:'m|’m| am|'s|’s| is)? ?(?:can(?:'t|’t|not)|"
        r"mustn't|must not|not allowed to|isn't allowed to) (?:eat|have|drink|use|do|work|go|stand|be|take|"
        r"carry|lift|afford|make)\b"
    ),
    r"\bonly (?:eat|drink|work|free|available)\b",
    r"\bnever (?:eat|drink|work|fly|drive)\b",
    (
        r"\b(?:i'm|i’m|i am) (?:(?:a|an|the|practi[sc]ing|devout|openly|lapsed) )*(?:gay|lesbian|bisexual|"
        r"transgender|trans|non-?binary|queer|muslim|christian|catholic|protestant|jewish|hindu|buddhist|sikh|"
        r"atheist|agnostic|deaf|blind|autistic|dyslexic|disabled|pregnant|sober)\b"
    ),
    (
        r"\b(?:i|he|she) (?:have|has|had|suffers? from|got|live with|lives with) (?:\w+ )?(?:adhd|ptsd|ocd|hiv|"
        r"cancer|dyslexia|autism|depression|anxiety|migraines?|arthritis|eczema|insomnia|dementia|lupus|"
        r"hay fever|high blood pressure|a pacemaker|a heart condition)\b"
    ),
    r"\bmy pronouns\b",
    r"\bi can(?:'t|’t|not) (?:sleep|walk|see|hear|breathe|swallow|lift|bend|cope)\b(?! (?:why|how|that|it|"
    r"what)\b)",
    r"\b(?:we're|we’re|we are) (?:trying for|expecting) (?:an? |our )?(?:\w+ )?(?:baby|child|twins|boy|girl)\b",
)
#: People that somebody has to do with.
_RELATION: Final = (
    r"(?:mother|mom|mum|mama|father|dad|papa|parents?|sister|brother|siblings?|wife|husband|partner|"
    r"spouse|fianc[eé]e?|girlfriend|boyfriend|"
    r"son|daughter|child|kids?|baby|twins?|grand(?:mother|father|ma|pa|parents?|son|daughter)|gran|granny|"
    r"nana|nan|aunt|auntie|uncle|cousin|niece|nephew|"
    r"(?:step|half-?)(?:mother|father|mom|dad|brother|sister|son|daughter)|(?:mother|father|sister|"
    r"brother|son|daughter)-in-law|in-laws|"
    r"friend|best friend|roommate|flatmate|housemate|neighbou?r|colleague|coworker|co-worker|boss|manager|"
    r"supervisor|mentor|coach|trainer|tutor|teacher|"
    r"professor|advisor|adviser|doctor|gp|dentist|vet|therapist|physio(?:therapist)?|midwife|lawyer|"
    r"solicitor|accountant|landlord|landlady|tenant|"
    r"plumber|electrician|builder|contractor|architect|nanny|babysitter|cleaner|gardener|client|customer|"
    r"assistant|dog|cat|puppy|kitten|horse|pony|"
    r"rabbit|hamster|parrot|best man|bridesmaid|godmother|godfather|godson|goddaughter|ex)"
)
#: Family and pets, not a boss or a client.
KIN: Final = (
    r"(?:(?:step|half-?|grand|god)?(?:mother|mom|mum|mama|father|dad|papa|parents?|ma|pa|sister|brother|siblings?|son|"
    r"daughter|child|children|kids?)(?:-in-law)?s?|wife|husband|partner|spouse|fianc[eé]e?|girlfriend|boyfriend|baby|"
    r"toddler|twins?|gran|granny|nana|nan|aunt|auntie|uncle|cousins?|niece|nephew|in-laws|family|ex|dog|cat|puppy|"
    r"kitten|horse|pony|rabbit|hamster|parrot)"
)
#: The subject of a statement: the speaker, a relative, a named or implied person.
_SOMEBODY: Final = _any_of(
    r"\b(?:i|i'm|i’m|i've|i’ve|i'd|i’d|i'll|i’ll|me|my|myself|mine|he|she|he's|she's|he’s|she’s|his|her|him)\b",
    rf"\bour (?:[\w-]+ ){{0,2}}{KIN}\b",
    r"\bwe(?:'re|’re| are| both| all| never| only| don't| don’t| can't| can’t| do not| cannot| keep| eat| follow)\b",
)
_NAMED: Final = Expression(
    r"(?:^|[,;:.!?] |\b(?:and|but|because|that) )(?:(?i:our|the|a) (?:[\w-]+ ){0,3})?"
    r"(?!(?:I|We|My|Our|The|It|This|That|You|There|What|Who|And|But|If|When|Since|Because)\b)[A-ZÀ-Þ][\w'’-]+(?:'s|’s)?"
    r"(?: (?:is|was|has|had|can't|cannot|won't|doesn't|needs|takes|got|eats|never|only|must)\b| (?:an? )?allerg)"
)
_HEALTH: Final = _any_of(
    r"\ballerg\w+\b",
    r"\b\w*(?:intoleran|diabet|asthma|epilep|arthrit|dyslexi|autis|depress|anaemi|anemi|leuk|migraine|eczema|insomni|"
    r"psoria|bulimi|anorexi|dementia|alzheimer|parkinson|schizo|bipolar|menopaus|miscarr|pregnan|chemo|dialys|"
    r"vaccinat|injur|fractur|sprain|hernia|tumou?r|psychiatr)\w*\b",
    r"\b(?:c(?:o)?eliac|cancer|adhd|ptsd|ocd|hiv|ivf|hepatitis|anxiety|stroke|pacemaker|insulin|inhaler|epipen|"
    r"wheelchair|colou?r[- ]?blind|sober|alcoholic|addict(?:ed|ion)?|disability|diagnosed|diagnosis|prescribed|"
    r"prescription|symptoms?|therapy|therapist|psychologist|physio(?:therapy)?|rehab|medication|meds|pills?|surgery|"
    r"cholesterol|lactose|penicillin|ibuprofen|hay fever|\d+ ?mg)\b",
    r"\b(?:am|i'm|i’m|is|he's|she's|going|gone|half|nearly|born) (?:deaf|blind|disabled)\b",
    r"(?:\b(?:am|is|are|was|were|been|be|being|fell|got|gets|feel|feels|feeling|so|very|still)|['’](?:m|s|re)) "
    r"(?:\w+ )?(?:ill|sick|unwell|dying)\b(?!-| (?:of|and tired|to|for)\b)",
    r"\b(?:in|into|to|from) hospital\b|\b(?:after|before|have|having|had|need|needs) (?:an|my|the|his|her) operation\b",
    r"\b(?:heart|blood|back|knee|hip|kidney|liver|lung|stomach|eye|eyesight|hearing|skin|thyroid|bowel|mental|spine|"
    r"shoulder|ankle|wrist|chest) (?:type|pressure|sugar|attack|condition|failure|disease|pain|problems?|trouble|"
    r"health|ache|infection|hurts?|exam)\b",
    r"\b(?:broke|broken|breaking) (?:my|his|her|an?) (?:arm|leg|wrist|ankle|foot|hip|nose|rib|collarbone|finger|toe)\b",
    r"\b(?:i|he|she) can(?:'t|’t|not) (?:sleep|walk|see|hear|breathe|swallow|lift|bend|stand (?:up|for|long))\b",
    r"\b(?:lose|losing|lost|gain|gained|put on) (?:some |\d+ |a few )?(?:weight|kilos|pounds)\b",
    r"\b(?:quit|stop|give up|quitting|stopping|giving up|stopped|gave up) (?:smoking|drinking)\b",
    r"\bdrink(?:s|ing)? too much\b",
)
_DIET: Final = _any_of(
    r"\b(?:vegan|vegetarian|pescatarian|pescetarian|flexitarian|halal|kosher|keto|paleo|low[- ]carb|"
    r"teetotal(?:ler)?)\b",
    r"\b(?:gluten|dairy|sugar|meat|egg|nut|milk|wheat)[- ]free\b",
    r"\b(?:don't|don’t|do not|can't|can’t|cannot|never|only|no longer|must not|mustn't|not allowed to) (?:eat|drink)\b",
    r"\b(?:cut out|cutting out|give up|gave up|giving up|off) (?:meat|fish|dairy|gluten|alcohol|sugar|coffee|caffeine|"
    r"bread|pork|eggs|milk|wheat)\b",
    r"\b(?:on|my|strict|special) (?:an? )?diet\b|\b(?:for|during|fast(?:ing)?) (?:ramadan|lent)\b",
)
_IDENTITY: Final = _any_of(
    r"\b(?:gay|lesbian|bisexual|transgender|trans (?:man|woman)|non-?binary|queer|asexual|intersex)\b",
    r"(?:\b(?:an?|am|is|are|raised|practi[sc]ing|devout|became|become|becoming|born|not)|['’](?:m|s|re)) (?:an? )?"
    r"(?:practi[sc]ing |devout |lapsed )?(?:muslim|christian|catholic|protestant|jewish|jew|hindu|buddhist|sikh|"
    r"atheist|"
    r"agnostic|quaker|mormon)\b",
    r"\b(?:convert(?:ed|ing)? to (?:islam|judaism|christianity|buddhism|hinduism|catholicism)|bapti[sz]ed)\b",
    r"\b(?:my|his|her|their) (?:pronouns|religion|faith|nationality|citizenship|ethnicity|sexuality|gender|ancestry)\b",
    r"\b(?:i|he|she) (?:always |usually )?vote[sd]?\b",
    r"\b(?:i'm|i’m|i am) (?:turning )?\d{1,2}(?: years old)?(?=[,.;!]|$| and\b)",
)
_MONEY: Final = _any_of(
    r"\b(?:i|he|she) (?:now )?earns?\b|\b(?:my|his|her) (?:salary|wages?|pay|income|debts?|mortgage|rent|pension|"
    r"savings|overdraft|inheritance|alimony)\b",
    r"\b(?:behind with|can(?:'t|’t|not) (?:pay|afford)) (?:my|our|his|her|the) (?:mortgage|rent|bills?|loan)\b",
    r"\b(?:i|i'm|i’m|we|we're|we’re|he|she)(?: am| are| is)? (?:in debt|bankrupt|broke)\b",
    r"\b(?:my|his|her|our) (?:pin|iban|bank account|account number|credit card|tax number|social security)\b",
)
_CONTACT: Final = _any_of(
    r"\b(?:my|his|her|our) (?:private |home |new |mobile |cell )?(?:phone|number|mobile|address|postcode|zip code)"
    r"(?: number)? (?:is|has changed)\b",
    r"\b(?:i|he|she) lives? at \w+",
)
_FEELING: Final = _any_of(
    r"\b(?:afraid|scared|terrified|anxious|lonely|sad|ashamed|jealous|grieving|grief|stressed|overwhelmed|heartbroken|"
    r"homesick|nervous|furious|miserable|burn(?:t|ed)[- ]out|in love(?! with (?:the|an?|this)\b)|fall(?:en|"
    r"ing)? for (?:him|her))\b",
    r"\b(?:i|i'm|i’m|he|she) (?:still |really |just |always )*(?:feel|feels|felt|feeling|cry|crying|panic)\b"
    r"(?! (?:that|we|the|like (?:we|it))\b)",
    r"\bmiss(?:ing)? (?:him|her|them|home|my (?:old )?(?:friends?|mum|mom|dad|family|life))\b",
    r"\bcan(?:'t|’t|not) (?:cope|stop crying|bear|get over)\b|\b(?:get over|cope with|come to terms with) (?:my|the|"
    r"his|her|it)\b",
    r"\bto be (?:happier|calmer|kinder|braver|(?:less|more) (?:anxious|patient|confident|calm|shy|angry|jealous|afraid|"
    r"open|kind|brave|sad|lonely|nervous))\b",
)
_FAMILY: Final = _any_of(
    r"\b(?:my|our) marriage\b|\b(?:divorc(?:e|ed|ing)|custody|adopt(?:ing|ion)? (?:an? )?(?:child|baby|boy|girl|son|"
    r"daughter)|trying for (?:an? )?(?:baby|child|second|third)|expecting (?:an? )?(?:baby|child|twins|boy|girl|our)|"
    r"have (?:an? |another |more |any )?(?:kids|children|baby)|get(?:ting)? married|(?:get(?:ting)?|got) engaged|"
    r"moving in together|split(?:ting)? up|broke(?:n)? up|break(?:ing)? up)\b",
    rf"\b(?:my|our) (?!business )(?:[\w-]+ ){{0,2}}{KIN}\b(?! (?:business|company|firm)\b)",
)
#: Relatives as company or beneficiaries are not the subject.
_ALONG: Final = Expression(rf"(?<!time )\b(?:with|for|at|by|near|like|from|to) (?:my|our) (?:[\w-]+ ){{0,2}}{KIN}\b")
#: What several people decide belongs to the group, whatever its topic: "we decided on the vegan menu".
_SETTLED: Final = Expression(
    r"\bwe(?:'ve|’ve| have)?(?: \w+)? (?:decided|agreed|settled|chose|picked|opted|ordered|booked|hired)\b"
)
_MYSELF: Final = Expression(r"\b(?:me|my|myself)\b")
#: A product for others is a project, whatever its topic: "an app for diabetics".
_MAKES: Final = Expression(
    r"\b(?:build|writ|develop|design|launch|research|study|organi[sz]|found|cod|creat|programm)(?:e|"
    r"ing) (?:\w+ )?(?:an?|"
    r"the|our|my|some|about)\b"
)
#: A statement that defines a thing: "our database is PostgreSQL".
_THING: Final = Expression(
    r"^(?:my|our|the|his|her|their) (?:[\w-]+ )?(?:database|server|laptop|computer|phone|tablet|camera|car|van|bike|"
    r"printer|router|browser|editor|language|framework|stack|cloud|host|domain|repo(?:sitory)?|system|software|app|"
    r"tool|"
    r"venue|hotel|school|university|college|church|street|road|address|village|town|city|country|hometown|"
    r"airline|brand|model|size|colou?r|team|band|book|film|movie|song|album|dish|tea|drink|flower|number|code|"
    r"flight|train|bus|tram|line|stop|station|platform|gym|supermarket|shop|restaurant|caf[eé]|pub|provider) "
    r"(?:is|was|will be|are)(?: now)? ",
    re.IGNORECASE,
)
#: It starts with another person.
_OTHER: Final = Expression(
    rf"^(?:(?:my|our|his|her|their) (?:[\w-]+ ){{0,3}}(?:{KIN}|{_RELATION})\b(?! says?\b)|"
    r"(?:he|she|he's|she's|he’s|she’s)\b)",
    re.IGNORECASE,
)
_MATTERS: Final[tuple[tuple[Matter, Expression], ...]] = (
    ("health", _HEALTH),
    ("diet", _DIET),
    ("identity", _IDENTITY),
    ("money", _MONEY),
    ("contact", _CONTACT),
    ("feeling", _FEELING),
)


def matter_of(text: str) -> Matter | None:
    """Return the private topic of a statement, None if it is about a team, a thing, or people in general."""
    lower = lowered(text)
    theirs = _MAKES.search(lower) or (_SETTLED.search(lower) and not _MYSELF.search(lower))
    if not theirs and (_SOMEBODY.search(lower) or _NAMED.search(text)):
        for matter, pattern in _MATTERS:
            if pattern.search(lower):
                return matter
    return "family" if _FAMILY.search(_ALONG.sub(" ", lower)) else None


def filed(category: Category, text: str) -> Category:
    """Return the category under which a statement is filed: private statements are never decisions or projects.

    Attributes of other people go to `people`, diets to `preferences`. A statement with a thing's name is not private.
    """
    if category == "people" and _THING.search(text):
        return "facts"
    matter = matter_of(text) if category in {"decisions", "projects", "facts"} else None
    if matter is None:
        return category
    if matter == "family" or _OTHER.search(text) or _NAMED.search(text):
        return "people"
    return "preferences" if matter == "diet" else "facts"
