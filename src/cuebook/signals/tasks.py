"""Classify a message's task by rules: coding, planning, casual, crisis or reflection (B, "Context Signals").

Each sign of a task adds weight; the heaviest task wins if it reaches `ENOUGH`. A crisis takes precedence.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import Struct

from cuebook.records.expression import Expression, lowered

# ---- crisis ---------------------------------------------------------------------------------------------------------


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
#: Every message above contains one of these words.
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
#: Stories, drills, history and questions about the topic are no emergency.
_TOLD: Final = Expression(
    r"\b(?:novel|movie|film|story|fiction|character|scene|song|lyrics|poem|book|game|museum|history|historical"
    r"|drills?|exercise|hypothetical\w*|example|essay|joke|episode|last (?:year|week|month|night)|yesterday|"
    r"in \d{4}|years ago|post-?mortem|retrospective|how do (?:i|you|we) (?:prevent|avoid|detect|define|write"
    r"|handle)|what (?:is|are|does|was|causes?)|how do(?:es)? \w+ \w+ work|if (?:the|our|a|we|it))\b",
)


def is_crisis(text: str, low: str, words: AbstractSet[str]) -> bool:
    """Return whether a message is about an emergency; `low` is its lower-case text, `words` the words of that."""
    urgent = not words.isdisjoint(_TROUBLE) and _URGENT.search(text) is not None
    if not urgent and (words.isdisjoint(_HINTS) or not _CRISIS.search(low)):
        return False
    return not _TOLD.search(low)


TASKS: Final = ("coding", "planning", "casual", "crisis", "reflection")
ENOUGH: Final = 1.0
#: Characters of a message that are searched.
LOOKED_AT: Final = 2_000
#: Maximum counted signs of a kind.
MOST: Final = 4
#: A casual message is a short one.
_SHORT: Final = 120

_WORD: Final = Expression(r"[^\W_](?:[^\W_]|[+#'-])*")


class _Phrases(Struct, frozen=True):
    """Phrases that are signs, and words of which each phrase contains one: without any, the search is skipped."""

    hints: frozenset[str]
    pattern: Expression


#: Code as written in messages: fenced code, a line of it, a call, names, files, error names.
_CODE: Final = Expression(
    r"```|(?<![=<>!])={2,3}(?!=)|^\s*(?:def|class|import|from|const|let|var|func|fn|public|private|SELECT"
    r"|#include|<\?php)\b.*[(:={;]"
    r"|\b\w+\(\)|\b[a-z]+_[a-z_]+\b|\b[a-z]+[A-Z]\w*\(|\b[\w-]+\.(?:py|js|ts|tsx|jsx|java|go|rs|cpp|cs|rb|php"
    r"|sh|sql|ya?ml|toml|css|ipynb)\b"
    r"|\b(?:[A-Z]\w+)?(?:Error|Exception)\b:?"
)

_CODING: Final = frozenset(
    """
    python javascript typescript golang kotlin haskell c++ c# react django flask numpy pandas pytest sql postgres
    postgresql mysql sqlite regex git github gitlab npm pip docker dockerfile podman kubernetes kubectl k8s systemd
    linux bash html css json yaml graphql webpack gradle goroutine goroutines compiler compile compiles compiled
    compilation stacktrace traceback refactor refactoring refactored debug debugging debugger nullpointer recursion
    recursive codebase destructor constructor mutex deadlock docstring decorator lambda linter lint localhost api
    apis endpoint openapi cli ide typeerror segfault programming coding typecheck typechecker async asyncio
    multithreading multithreaded backend frontend front-end leetcode algorithm perl ruby php scala elixir clojure
    fortran matlab cobol lua flutter angular vue svelte nextjs nodejs deno fastapi rails laravel wordpress redis
    mongodb elasticsearch kafka rabbitmq nginx terraform ansible jenkins aws azure gcp s3 ec2 oauth jwt cors csrf
    xss ssl tls tcp udp dns ssh websocket websockets grpc protobuf orm crud middleware microservice microservices
    serverless idempotent idempotency semaphore coroutine coroutines closure closures polymorphism enum enums
    struct structs malloc stdout stdin stderr breakpoint hashmap bytecode sdk jvm wasm webassembly llvm gcc clang
    makefile cmake maven yarn pnpm conda virtualenv venv jupyter tensorflow pytorch sklearn scikit-learn keras
    selenium playwright cypress jest junit eslint mypy ruff flake8 babel tailwind sass scss jquery ajax xml utf-8
    unicode ascii base64 boolean booleans nullable callback callbacks event-loop vectorise vectorize vectorised
    vectorized matplotlib dataframe dataframes cron crontab cronjob daemon regexp tokenizer transpile minify
    serialize serialise deserialize deserialise serialization webhook webhooks https curl wget grep awk vim emacs
    vscode intellij repl one-liner zsh powershell sudo chmod debounce upsert commit-message rebase typecast
    stateless singleton constructor's parser tuple tuples dict dicts struct's subclass subclasses superclass
    metaclass iterator iterators foreach instantiate monorepo submodule gitignore changelog devops cicd swiftui
    xcode android-studio
    """.split()
)
_CODING_PHRASES: Final = _Phrases(
    frozenset(
        """
        expression trace test tests pointer list hint hints conflict request requests code leak collector
        comprehension
        call status key join commit commits branch complexity
        """.split()
    ),
    Expression(
        r"\b(?:regular expression|stack trace|unit tests?|null pointer|linked list|type hints?|merge conflict|"
        r"pull requests?|source code|memory leak|garbage collector|list comprehension|http (?:call|request|status)|"
        r"foreign key|left join|(?:undo|revert|amend|squash|last|previous|latest) (?:\w+ ){0,2}commits?"
        r"|(?:time |space )?complexity of (?:a |an |the )?(?:\w+ ){0,2}(?:sort|search|map|list|tree|heap"
        r"|algorithm|lookup|loop))\b"
    ),
)
_CODISH: Final = frozenset(
    """
    function method class variable loop array string integer module package library script bug branch commit merge
    test tests fixture query table schema server container deploy deploys deployed deployment build code syntax
    parameter argument arguments import return returns thread process cache java rust go database migration index
    exception error fails console terminal repository repo dictionary dict tuple frame frames parse parser bracket
    cluster origin component render renders side-effects effects hang install matches valid interface abstract
    shell browser handler handlers logging queries scan clause limiter bucket token tokens upload file files lines
    line directory port operator keyword column columns row rows classes functions methods variables loops arrays
    strings modules packages libraries scripts bugs branches commits tables schemas servers containers parameters
    exceptions errors indexes indices threads processes caches migrations objects object node nodes client clients
    request requests response header headers cookie cookies login session sessions timestamp plugin framework
    widget button page css sdk runtime memory pointer pointers hash heap stack queue graph undefined null
    implement compile typed typing float int promise await swift dart flask express version versions dependency
    dependencies upgraded upgrade typescript
    """.split()
)
_PLANNING: Final = _Phrases(
    frozenset(
        """
        plan schedule timeline checklist roadmap agenda itinerary to-do to-dos todo todos list strategy road
        milestone milestones next prioritise prioritize priorities order first organise organize down goals
        budget sprint kickoff kick-off divide training back work workback tackle begin start outline phases map
        calendar split sequence realistic meal weekly focus figure approach set organising deadline pack bring
        steps moving
        """.split()
    ),
    Expression(
        r"\b(?:make|draft|create|write|give|need|have|want|sketch|propose|set up|work out|build|us|me) (?:me "
        r"|us )?(?:a|an|the|our|my|some) (?:\w+ ){0,3}(?:plan|schedule|timeline|checklist|roadmap|"
        r"agenda|itinerary|to-?do list|strategy)\b|\bplan for\b|^(?:please |can you |could you |help me "
        r"|let's )*plan (?:a|an|the|my|our|out)\b|\bi plan (?:a|an|the|our)\b|\broad ?map\b|\bmilestones?\b"
        r"|\bnext steps?\b|\btime ?line\b|"
        r"\bagenda\b|\bitinerary\b|\bchecklist\b|\bto-?dos?\b|\bprioriti[sz]e\b|\bpriorities\b|\bin (?:which"
        r"|what) order\b|\b(?:which|what) (?:\S+ ){1,5}(?:come|comes|goes|do|do i do|should i do) first\b|"
        r"\borgani[sz]e (?:my|our|the) \w+|\bschedule (?:the|my|our|a|an)\b|\bbreak (?:\S+ ){1,4}down into\b"
        r"|\bgoals for (?:the|this|next|my|our)\b|\bbudget for\b|\bsprint planning\b|\bkick-?off\b|"
        r"\bdivide (?:the|my|our)\b|\btraining (?:plan|schedule)\b|\blist of what to do\b|\bproject plan\b"
        r"|\bwork ?back\w* from\b"
        r"|\b(?:figure out|decide|know) what to (?:tackle|do|start with|focus on)\b|\bwhere (?:do|should) (?:i"
        r"|we) (?:begin|start)\b"
        r"|\boutline (?:the|a|our|my) (?:phases|steps|stages|project|roll-?out|migration)\b|\bmap out\b"
        r"|\bcalendar for\b|\bsplit the (?:work|tasks|budget)\b"
        r"|\b(?:sensible|right|logical|best) (?:order|sequence)\b|\b(?:realistic|weekly|daily|monthly|study"
        r"|work) (?:schedule|plan|routine)\b|\bmeal plan\b"
        r"|\bset (?:some |my |our )?goals\b|\bwhat should (?:i|we) (?:do|tackle|focus on|work on) (?:first"
        r"|today|tomorrow|next|this week)\b"
        r"|\bwhat (?:should|do|shall) (?:i|we) (?:have to |need to )?(?:pack|bring|do before)\b"
        r"|\bwhat are the (?:next )?steps (?:to|for)\b"
        r"|\b(?:move|moving|moving house|get married|open|launch|retire)\b.{0,80}\b(?:what are the steps"
        r"|what do (?:i|we) have to do)\b"
        r"|\bhow (?:should|do) (?:i|we) (?:approach|organi[sz]e|structure|split|schedule) (?:the|this|my|our)\b",
    ),
)
_PLANNISH: Final = frozenset(
    """
    deadline deadlines week weeks month months quarter quarters until before june july august may march april owner
    owners date dates launch release prepare goal goals task tasks project steps phase first order plan exam
    weekend trip budget autumn spring summer winter year week's thesis holiday vacation schedule calendar team
    milestones finish
    """.split()
)
_CASUAL: Final = Expression(
    r"^(?:hi|hey+|hello|yo|hiya|howdy|sup|good (?:morning|evening|afternoon|night)|morning|gm|gn|bye|see you"
    r"|happy \w+day)\b[\w ,]{0,16}[!.:)]*$"
    r"|\bhow are (?:you|things)\b(?! (?:able|going to|sure|suppos))|\bhow(?:'s| is) it going\b|\bwhat'?s up\b"
    r"|\b(?:lol|lmao|rofl|haha+|hehe+|xd)\b|\btell me (?:a|another) (?:joke|story|secret)\b|\bjoke\b|"
    r"\b(?:i'm|im|so) bored\b|\blet's chat\b|\byour fav(?:ou?rite)?\b|\bdo you (?:like|prefer|love|ever|dream"
    r"|sleep|have (?:feelings|a favou?rite|pets|friends))\b|\bguess what\b|\bnice one\b|"
    r"\bwhat a day\b|\bhave a (?:nice|good|great|lovely) (?:evening|day|weekend|night|one)\b|^not much\b"
    r"|\bjust got home\b|[\U0001F600-\U0001F64F\U0001F917\U0001F923]|(?:^|\s)[:;]-?[)dp](?:\s|$)"
    r"|\bhow (?:did you sleep|was your (?:day|weekend|night|week|evening))\b|\bwhat are you (?:up to"
    r"|doing (?:tonight|today))\b"
    r"|\bugh,? (?:mondays?|it's monday)\b|\bcheers,? mate\b|\byou(?:'re| are) (?:a legend|the best|funny"
    r"|hilarious|so sweet)\b"
    r"|\bwhat's new\b|\blong time no see\b|\bnice to meet you\b|\bsweet dreams\b|\bmade me (?:smile|laugh)\b"
    r"|\bfavou?rite (?:movie|film|song|colou?r|food|band|animal)\b",
)
_REFLECTION: Final = _Phrases(
    frozenset(
        """
        looking hindsight retrospect retrospective learn learned learnt done said been known should shouldn't keep
        kept realise realised realize realized regret diary torn well life myself thinking reflecting wondering
        always never changed grown matters who journal journaling journalling career path job letting reflect
        reflection lessons younger older noticed mistake bothered avoiding afraid wonder outgrown meaning purpose
        proud values feel
        self-reflection right
        """.split()
    ),
    Expression(
        r"\blooking back\b|\bin (?:hindsight|retrospect)\b|\bretrospective\b|\bwhat (?:did|have|can|could|do) (?:i"
        r"|we) (?:\w+ )?learn(?:ed|t)?\b|\b(?:could|should) (?:i|we) have (?:done|said|been|known)\b"
        r"|\bi should(?:n't)? have \w+|"
        r"\bi (?:keep|kept) (?:wondering|thinking about (?:how|why|what|whether))\b|\bi(?:'ve| have)? (?:just "
        r"|only |finally )?reali[sz]ed? (?:that |how |why )?i\b|\bi regret\b|\bdear diary\b|\b(?:felt|feel"
        r"|feeling) torn\b|"
        r"\bwhat went well\b|\b(?:meaning|purpose) of (?:my )?life\b|\bgood life\b|\bi ask(?:ed)? myself\b"
        r"|\bi(?:'ve been| have been) (?:thinking|reflecting|wondering) (?:about|on|whether)\b|\bwhy do i (?:always"
        r"|keep|never)\b|"
        r"\bhow have i (?:changed|grown)\b|\bwhat (?:really )?matters to me\b|\bwho i (?:am|would be|want to be)\b"
        r"|\bjournal(?:ing|ling)?\b|\bchose the right (?:career|path|job)\b|\bletting go\b|\breflect(?:ing"
        r"|ion)? on\b|\blessons learned\b"
        r"|\bmy (?:younger|older|past|future) self\b|\bi(?:'ve| have) noticed (?:that )?i\b"
        r"|\bwas it a mistake (?:to|that i)\b|\bbothered me\b"
        r"|\bwhat am i (?:avoiding|afraid of|missing|really|doing with)\b|\bi wonder (?:if|whether|why|who) i\b"
        r"|\boutgrown\b|\bam i (?:too|a bad|a good|being)\b"
        r"|\bdid i (?:do|make) the right\b|\bi feel (?:like|that|as if) i(?: (?:always|never|have (?!to\b)|keep"
        r"|am\b(?! getting| sick| ill))|(?: became|'ve (?:changed|grown|become|lost|wasted|outgrown|always"
        r"|never))|'m (?:always|never|not|becoming|wasting|failing))"
        r"|\bi(?: have|\'ve)? (?:just |only |finally )?reali[sz]ed? (?:now |today )(?:that |how )?i\b"
        r"|\bmeaning to my life\b|\bmy life (?:a )?(?:meaning|purpose)\b"
        r"|\bproud of myself\b|\bmy values\b|\bself-reflection\b"
        r"|\bwhat (?:would|do) i (?:really |actually )?(?:want|tell)\b",
    ),
)


def task_in(text: str) -> str:
    """Return the task of a message, "" if none stands out. `text` is the whole message with its code."""
    text = text[:LOOKED_AT].replace("\u2019", "'").strip()
    low = lowered(text)
    words = {word.rstrip("'-") for word in _WORD.findall(low)}
    if is_crisis(text, low, words):
        return "crisis"
    weights = {
        "coding": (_CODE.search(text) is not None)
        + len(words & _CODING)
        + _count(_CODING_PHRASES, low, words)
        + 0.5 * min(len(words & _CODISH), MOST),
        "reflection": 1.5 * _count(_REFLECTION, low, words),
        "planning": 1.25 * _count(_PLANNING, low, words) + 0.4 * min(len(words & _PLANNISH), 2),
        "casual": (1.0 if len(text) <= _SHORT else 0.5) * (len(text) <= 2 * _SHORT and _CASUAL.search(low) is not None),
    }
    best = max(weights, key=lambda task: weights[task])
    return best if weights[best] >= ENOUGH else ""


def _count(phrases: _Phrases, low: str, words: AbstractSet[str]) -> int:
    """Return the number of different phrases of a kind."""
    if words.isdisjoint(phrases.hints):
        return 0
    return min(len({match[0] for match in phrases.pattern.finditer(low)}), MOST)
