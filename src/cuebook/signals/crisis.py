"""Whether a message is of an emergency of now: what people depend on is down, something is due within the hour and does
not work, somebody is in danger. Tales of one, questions about one and figures of speech are none.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from cuebook.records.expression import Expression

_DOWN: Final = (
    r"(?:production|prod|(?:web ?)?site|(?:web|mail|database|db|app|our|the|all) ?servers?|(?:our|the|whole"
    r"|entire|payments?) (?:\w+ )?(?:service|database|db|cluster|api|system|network|app|checkout|platform|shop"
    r"|store|backend)|"
    r"everything|all (?:systems|services)|checkout|payments?)"
)
_CRISIS: Final = Expression(
    # what people depend on
    rf"\b{_DOWN} (?:is|are|went|just went|has gone|have gone|has been|just|keeps?|is completely"
    rf"|'s)(?: \w+)? ?(?:down|offline|unreachable|unavailable|crashed|crashing|on fire|not (?:responding"
    rf"|reachable|available)|hacked|gone)\b"
    rf"|\b{_DOWN} (?:just )?crashed(?! in \d)|\b(?:we have|we're having|there(?:'s| is)|having) (?:an?"
    rf"|a (?:major|total|complete|full)) (?:\w+ )?outage\b|\bmajor outage\b|\b(?:p[01]|sev-?[01])\b(?: \w+)?"
    r"|\b(?:being|got|been|was just|are) hacked\b|\battackers? (?:are|is) (?:inside|in)\b|\b(?:stealing"
    r"|encrypting|deleting) (?:our |the |all )?\w+ .*\bright now\b|\bransomware\b.*\b(?:now|our|us)\b"
    r"|\bdata (?:breach|leak) (?:right )?now\b"
    r"|\b(?:we're|we are|i'm|i am) losing (?:money|data|orders|customers|everything)\b"
    r"|\b(?:corrupted|wiped|deleted|encrypted)\b.*\bno backups?\b|\b(?:every|all(?: our| the)?) (?:customers?"
    r"|users?) "
    r"(?:is|are|gets?|sees?|can't|cannot)\b.*\b(?:errors?|out|nothing|log ?in|pay)\b|\b(?:nobody"
    r"|no one) can (?:log in|pay|"
    r"check out|connect)\b"
    # due within the hour, and it does not work
    r"|\b(?:in|within|only|have|got) (?:the next |less than |under |only )?(?:[1-5]?\d|five|ten|fifteen|twenty"
    r"|thirty|a few|an?|half an) ?(?:min(?:ute)?s?|hour)\b(?=.*(?:\bhelp\b|nothing works|\bbroken\b"
    r"|doesn't work|not working|won't (?:start|work|build|open)|\bfails?\b|crash|hand (?:this|it) in|\blost\b))"
    # somebody in danger
    r"|\bthreatening (?:me|us|to (?:kill|hurt))\b|\b(?:following|stalking|attacking|hitting) me\b(?=.*\b(?:now"
    r"|help|outside|"
    r"scared|door)\b)|\bbreaking into (?:my|our)\b|\b(?:i|he|she) (?:just |have |has )?took (?:too many|all my"
    r"|a lot of) pills\b"
    r"|\bkill(?:ing)? (?:my|him|her|them)sel(?:f|ves)\b(?! (?:laughing|trying to|with (?:work|laughter))\b)"
    r"|\b(?:hurt|harm)(?:ing)? (?:him|her|them)sel(?:f|ves)\b(?! (?:at|on|with|while|when|in|playing)\b)"
    r"|\bthink(?:ing)? (?:\w+ )?(?:about|of) (?:committing )?(?:suicide|ending (?:it\b|my|his|her)"
    r"|dying\b(?! (?:my|his|her|the|it)\b))"
    r"|\b(?:no|don't|do not|can't) (?:\w+ ){0,2}reasons? to (?:live|be alive|go on|keep going"
    r"|exist)\b(?! (?:with|in|at|by)\b)"
    r"|\bbetter off (?:dead|without me)\b|\b(?:cut|cuts|slit|slashed) (?:my|his|her|their) wrists?\b"
    r"|\b(?:he|she|husband|wife|boyfriend|girlfriend|partner|dad|father|mother|mom|mum|stepfather|stepdad|uncle"
    r"|brother)"
    r" (?:\w+ )?(?:hits?|beats?|hurts?|chokes?|choked|raped?|abuse[sd]?) me\b(?! (?:with|at|up|in|to|by)\b)"
    r"(?=.{0,200}\b(?:afraid|scared|again|safe|home|help|police|bruises?|bleeding|leave|run)\b)"
    r"|\bmy (?:husband|wife|boyfriend|girlfriend|partner|dad|father|mother|mom|mum|stepfather|stepdad) "
    r"(?:beats|rapes?|raped|abuse[sd]|chokes|choked) me\b(?! (?:with|at|in|to|by)\b)"
    r"|\b(?:i(?:'m| am| feel)|feeling) (?:so )?suicidal\b|\bcommit suicide\b(?=.*\bi\b)"
    r"|\bend(?:ing)? (?:my life|it all)\b|\bi (?:really |just )?(?:don't|do not|dont) (?:want|wanna"
    r"|wish)(?: to)? (?:live|be alive|exist|be here)\b(?! (?:in|at|with|near|on|like|alone|abroad))"
    r"|\bi (?:just |really )?want to die\b(?! (?:laughing|of))|\bi can't go on\b|\b(?:hurt|cut|cutt"
    r"|harm)(?:ing)? myself\b(?! (?:a (?:slice|piece|break)|some|off|short))|\bno reason to live\b"
    r"|\bpanic attack\b(?=.*\b(?:now|help)\b)"
    r"|\b(?:isn't|is not|not|stopped|can't) breath(?:ing|e)\b(?! (?:a word|life))|\b(?:is|he's|she's|lies"
    r"|found \w+) unconscious\b|\bjust collapsed\b|\b(?:i|he|she|dad|mom|mum|child|son|daughter|husband|wife"
    r"|friend|baby) (?:just |has |have )?(?:overdosed|took (?:too many|a whole)|swallowed (?:bleach"
    r"|(?:a |some )?(?:\w+ )?battery"
    r"|pills|poison|detergent))"
    r"|\b(?:having|has) a (?:heart attack|stroke|seizure)\b|\bbleeding (?:heavily|badly|a lot|out)\b"
    r"|\bis choking\b|\bcall(?:ing)? (?:an ambulance|911|112|999)\b|\bthere(?:'s| is) (?:a fire|smoke"
    r"|a gas leak|gas)\b(?: (?:in|coming|at|on))|\b(?:house|kitchen|flat|office|building"
    r"|server room) is (?:on fire|burning|flooding|flooded)\b"
    r"|\b(?:this|it)(?:'s| is) (?:an|a real) emergency\b|\bemergency\s*!",
)
#: One of these words is in every message above.
_HINTS: Final = frozenset(
    """
    down offline unreachable unavailable crashed crashing fire hacked gone responding reachable available outage
    attacker attackers stealing encrypting deleting ransomware breach leak min mins minute minutes hour myself
    suicidal suicide life live alive exist here die panic breathing breathe unconscious collapsed overdosed bleach
    wrist wrists reason reasons himself herself themselves off hit hits beat beats hurt hurts choke chokes choked rape
    rapes raped abuse abuses abused dying battery pills poison detergent attack stroke seizure bleeding choking
    ambulance 911 112 999 smoke gas burning
    flooding flooded emergency p0 p1 sev0 sev1 sev-0 sev-1 losing backup backups threatening following stalking
    attacking hitting breaking took customers customer users can't end ending log pay connect check
    """.split()
)
_URGENT: Final = Expression(r"\bURGENT(?:LY)?\b|\b[Uu]rgent(?:ly)?\s*[:!]")
_TROUBLE: Final = frozenset(
    """
    down crash crashed crashes crashing lost broken fails failed failing offline help stuck outage leak leaking hacked
    stolen
    """.split()
)
#: Tales, drills, history and questions about the thing are no emergency.
_TOLD: Final = Expression(
    r"\b(?:novel|movie|film|story|fiction|character|scene|song|lyrics|poem|book|game|museum|history|historical"
    r"|drills?|exercise|hypothetical\w*|example|essay|joke|episode|last (?:year|week|month|night)|yesterday|"
    r"in \d{4}|years ago|post-?mortem|retrospective|how do (?:i|you|we) (?:prevent|avoid|detect|define|write"
    r"|handle)|what (?:is|are|does|was|causes?)|how do(?:es)? \w+ \w+ work|if (?:the|our|a|we|it))\b",
)


def is_crisis(text: str, low: str, words: AbstractSet[str]) -> bool:
    """Whether a message is of an emergency; `low` is it in lower case, `words` are its words so."""
    urgent = not words.isdisjoint(_TROUBLE) and _URGENT.search(text) is not None
    if not urgent and (words.isdisjoint(_HINTS) or not _CRISIS.search(low)):
        return False
    return not _TOLD.search(low)
