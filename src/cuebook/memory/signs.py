"""What speaks for remembering a clause: the signs of a fact, each with its weight."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from cuebook.memory.vocabulary import LANGUAGES
from cuebook.records.expression import Expression


class Sign(NamedTuple):
    """What speaks for or against a clause: its name, its weight in [0, 1], and how it is found in lower-case text."""

    name: str
    weight: float
    pattern: Expression
    spelled: bool = False  # it tells capitals from small letters, so it is looked for in the text as it is spelled


def any_of(*patterns: str) -> Expression:
    """Return what finds any of `patterns` in lower-case text. What begins with a word's edge (and has no other
    beginning) is tried only at one.
    """
    edged = [pattern.removeprefix(r"\b") for pattern in patterns if pattern.startswith(r"\b")]
    others = [pattern for pattern in patterns if not pattern.startswith(r"\b")]
    return Expression("|".join([rf"\b(?:{'|'.join(edged)})", *others] if edged else others))


def shown(signs: Iterable[Sign], text: str, lower: str) -> dict[str, float]:
    """Return the names and weights of the signs a text shows; `lower` is the same in lower case."""
    return {sign.name: sign.weight for sign in signs if sign.pattern.search(text if sign.spelled else lower)}


WE: Final = r"(?:i|we)"
_BE = r"(?:is|are|was|were|'s|’s|'re|’re|isn't|aren't|will be|has been|have been)"
RELATION: Final = (
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

SIGNS: Final[tuple[Sign, ...]] = (
    Sign(
        "explicit",
        0.45,
        any_of(
            r"\b(?:put|add) .{1,60} (?:on|to) (?:my|the|our) (?:\w+ )?(?:list|todo|to-do|calendar)\b",
            (
                r"\b(?:please |pls )?(?<!\bi )(?<!\bme )(?<!\bus )(?<!\bwe )(?<!still )(?<!always )(?:remember|note|"
                r"keep in mind|make a note|write down|jot down|save)\b(?! (?:when|"
                r"how|the time))(?:,| that| this|:| it|\s+\w)"
            ),
            r"\b(?:don't|do not|dont|never) (?:let me )?forget\b",
            r"\bfor the record\b",
            r"\bfor (?:your|future) reference\b",
            r"\bfyi\b",
            r"\b(?:just )?so you know\b",
            r"\bheads[- ]up\b",
            r"\bin case (?:it's|its) useful\b",
            r"\bimportant:",
        ),
    ),
    Sign(
        "state",
        0.3,
        any_of(
            rf"\b{WE}(?:'m| am|'re| are|’m|’re) (?:a|an|the|in|at|from|on|based|living|working|studying|training|"
            r"renting|married|engaged|dating|seeing|divorced|single|"
            r"vegan|vegetarian|diabetic|pregnant|retired|self-employed|freelance|left-handed|colou?r[- ]?blind|"
            r"\d+|(?:twenty|thirty|forty|fifty|sixty)\b)",
            rf"\b{WE} (?:live|work|study|teach|own|drive|speak|play|run|rent|lease|commute|volunteer|manage|lead|"
            r"train|practi[sc]e|collect|breed|keep|"
            r"(?:deploy|host|build|test|log|track|store|version|monitor|write|design|edit|ship|release|invoice|code|"
            r"draw|"
            r"record|chat|plan|bake|cook|heat|print|scan|bill)s? (?:everything |it all |all our \w+ |our \w+ |my \w+ )?"
            r"(?:with|on|in|using|via|through)|"
            r"grew up|was born|were born|graduated|majored|used to|have (?:a|an|two|three|four|five|six|\d+|no|"
            r"the|my|our)\b|'ve got|have got|get up|take|bank|pay|earn|save|owe|weigh)\b",
            rf"\b{WE}(?:'ve|’ve| have) (?:been|lived|worked|had|got|owned|known)\b",
            rf"\b{WE} (?:haven't|haven’t|have not) got (?:an?|any) \w+|\b{WE} (?:don't|don’t|do not) have (?:an?|"
            rf"any) \w+",
            r"\b(?:my|our) (?:[\w'’-]+ ){1,5}?(?:is|are|was|were|lives?|works?|has|have|had|starts?|begins?|ends?|"
            r"opens?|"
            r"closes?|arrives?|leaves?|comes?|goes|runs?|"
            r"costs?|needs?|wants?|loves?|likes?|hates?|speaks?|teaches|moved|got|turns?|turned|passed|died|"
            r"retired|expires?|includes?|can't|cannot|won't|will|prefers?|allows?|means?|says? (?:i|we))\b",
            (
                r"\b(?:my|our) (?:[\w-]+ ){0,3}[\w-]+(?:'s|’s) (?:called|named|in|at|on|allergic|a|an|the|not|from|"
                r"due|now|from|\d)"
            ),
        ),
    ),
    Sign(
        "named",
        0.4,
        any_of(
            r"^i'm \w+, (?:an? )?\w+",
            r"\b\w+ (?:at|for|with) (?:an? )?[\w -]{2,30} (?:called|named) \w+",
            r"\b(?:is|was|are|he's|she's|it's|they're|'s|’s) (?:called|named)\b",
            r"\b(?:my|the|her|his|our) name(?:'s|’s| is)\b",
            r"\bcall me\b",
            r"\bgoes by\b",
            r"\b(?:birthday|anniversary|born (?:on|in))\b",
        ),
    ),
    Sign("named", 0.4, Expression(r"\b(?i:called|named) [A-Z]"), spelled=True),
    Sign(
        "change",
        0.25,
        any_of(
            r"\b(?:moved|moving|relocat\w+|switched|switching|changed|changing|rescheduled|postponed|cancell?ed|"
            r"pushed (?:back|to|out)|brought forward|delayed|bumped|swapped|"
            r"replaced|dropped|gave up|given up|stopped|quit|left (?:my|the|our)|sold|broke up|no longer|no more|"
            r"out of (?:the|my|our)|anymore|any more|instead|rather than|scrap (?:that|the)|"
            r"not .{1,40} any ?more|correction|turns? out|turned out|changed (?:my|our|his|her|their) minds?|"
            r"new plan|change of plans?|update:|upgraded|downgraded|raised to|cut to|went up to|down to|up to)\b",
        ),
    ),
    Sign(
        "out of work",
        0.3,
        any_of(
            r"\b(?:i|i've|i have|i'm|i am)(?: (?:just|now|finally))* (?:retired|resigned|unemployed|(?:lost|quit|left) "
            r"my job)\b",
            r"\b(?:i was|i got|i've been|i have been)(?: just)? (?:laid off|fired|sacked|let go|made redundant)\b",
        ),
    ),
    Sign(
        "end",
        0.15,
        any_of(
            r"\b(?:i|we|he|she|they|i've|we've|have|has|just|finally) left\b(?! (?:out|over|it|them)\b)",
            r"\b(?:quit|resigned|retired|fired|sacked|laid off|let go|dismissed|expelled|moved out|moved away|"
            r"lost (?:my|our)|(?:gave|given) (?:away|back)|handed (?:back|in my notice)|let me go|broke off|sold|"
            r"passed away|died|put down|dead|stolen|broke up|split up|separated|divorced?|any ?more|any longer|"
            r"stepped down|no longer|stopped|unsubscribed|no more|called off)\b",
            r"\b(?:forget|ignore|disregard|never ?mind)(?: about)? (?:what|everything|the|my|all)\b",
            r"\b(?:like|eat|drink|love) [\w -]{2,30} (?:again|now)\b|\b(?:come to|grown to|learned to) (?:like|love)\b",
        ),
    ),
    Sign(
        "preference",
        0.4,
        any_of(
            r"^(?:prefer|love|hate|always|never) (?!(?:it|this|that|mind)\b)\w+",
            (
                rf"\b{WE}(?:'d|’d| would)?(?: much| really| actually| usually| always| generally| do)* (?:prefer|"
                r"rather)\b"
            ),
            (
                rf"\b{WE}(?: really| actually| usually| always| generally| do)* (?:love|loathe|hate|enjoy|adore|"
                r"dislike|can't stand|despise|like)\b(?! (?:it|that|this|your|the idea|how|to know|to ask|you)\b)"
            ),
            rf"\b{WE} (?:don't|do not|dont|never) (?:like|eat|drink|want|enjoy|do|use|trust|wear|read|watch)\b",
            r"\bnot a (?:big )?fan of\b",
            r"\b(?:my|our|his|her) (?:all-time )?favou?rite\b",
            r"\b(?:big|huge) fan of\b",
            (
                r"\b(?:i'm|i am|we're) (?:more of )?(?:an? )?(?:(?:early|morning|night|cat|dog|people|coffee|tea|"
                r"beach|mountain|city|country|outdoors?|indoors?|numbers|words) (?:person|guy|girl)|[\w-]+ (?:lover|"
                r"fan))\b"
            ),
            r"\bplease (?:always|never|don't|do not|use|keep|answer|reply|write|talk|call|give|stick|avoid|stop|be|"
            r"address)\b",
            (
                r"(?:^|[.,:;!] )(?:keep|use|answer|reply|write) (?:\w+ ){0,3}(?:short|brief|answers?|replies|bullets?|"
                r"bullet points|spelling|units|language|tone|format|formal|informal|english|metric|markdown)\b"
            ),
            r"\b(?:always|never) (?:use|give|write|answer|reply|call|show|include|put|address|suggest|recommend)\b",
            r"\bcall me\b",
            r"\b(?:from now on|in future|going forward)\b",
            r"^you (?:can|may|(?:are|'re|’re) allowed to) (?:\w+ ){1,8}?(?:again|now|after all)\b|"
            r"^(?:you )?(?:don't|don’t|"
            r"do not|no longer) (?:need|have) to (?:use|answer|reply|write|call|give|address|keep|show|include|add)\b|"
            r"^you no longer (?:need|have) to\b|^you (?:can|may) (?:drop|stop|skip|leave out|forget about) ",
            r"^your (?:answers|replies|responses) (?:can|may|should|must)\b|^stop (?:using|calling|answering|replying|"
            r"writing|giving|addressing|adding|suggesting|recommending|showing|sending)\b",
            rf"^(?:answer|reply|respond|speak|talk|stop (?:answering|replying|responding))(?: to)?(?: me)?(?: only)? "
            rf"in (?:{LANGUAGES})\b",
            (
                r"\bi (?:always|usually|only|mostly) (?:eat|drink|read|use|wear|take|work|sleep|get|go|buy|order|"
                r"watch|listen|write|run|train)\b"
            ),
            r"\bi'm (?:not )?(?:really )?into\b",
        ),
    ),
    Sign(
        "identity",
        0.25,
        Expression(
            r"(?:^|[^.!?] )(?!(?:Tomorrow|Today|Yesterday|This|That|It|There|Here|What|Which|One|Two|Three|Ten|"
            r"Everything|Nothing)\b)"
            r"[A-ZÀ-Þ][\w'’-]+(?: [A-ZÀ-Þ][\w'’-]+)*,? (?:who )?(?:is|was|as|'s|’s|became|becomes|"
            r"will be)(?: now| still| also)? (?:an?|the|my|our|her|his|their|now|\w+ (?:of|at|for|in|manager|"
            r"director))\b"
            r"|[A-ZÀ-Þ][\w'’-]+, (?:an?|the|my|our|her|his|their|retired|from|who)\b"
            r"|(?:\b(?:[Mm]y|[Oo]ur|[Hh]er|[Hh]is|[Tt]heir|[Tt]he|[Nn]ew)|"
            r"[A-Z][\w-]+['’]s) (?:[\w-]+ ){1,4}?(?:is|was|will be|called|named|:|"
            r",)(?: now)? (?:[A-Z]\w+\.? )?[A-ZÀ-Þ][\w'’-]+"
            r"|^(?:I'm|I am|This is|That's) [A-ZÀ-Þ][\w'’-]+"
        ),
        spelled=True,
    ),
    Sign(
        "named subject",
        0.15,
        Expression(
            r"(?:^|[,;:—–-] |\b(?:and|but|so|because|that|since|says|said) )(?!I\b|I'|The\b|A\b|It\b|You\b|This\b|"
            r"That\b|There\b|What\b)(?:[A-Z][\w'’&-]+ ){1,4}"
            r"(?:is|are|was|were|has|have|had|will|can't|cannot|won't|doesn't|lives?|works?|got|gets|wants?|"
            r"needs?|likes?|loves?|hates?|said|says|agreed|asked|signed|filed|won|lost|starts?|started|moved|left|"
            r"joined|"
            r"quit|took|takes|runs?|sends?|sent|pays?|paid|went|goes|called|rang|wrote|confirmed|approved|"
            r"rejected|accepted|offered|opens?|closes?|costs?|passed|died|retired|turned|turns|prefers?|\w+ed)\b"
        ),
        spelled=True,
    ),
    Sign(
        "habit",
        0.3,
        any_of(
            rf"\b{WE} (?:always |usually |only |mostly |never |still |now |also |generally )*(?:eat|drink|sing|"
            r"draw|refuse|avoid|cook|cycle|swim|bike|jog|hike|wear|sleep|use|play|bake|paint|sew|garden|fish|"
            r"climb|dance|skip|share|invoice|charge|bill|attend|"
            r"smoke|vape|pray|fast|meditate|stream|subscribe|support|follow|vote|ride|row|sail|ski|surf|knit|photograph|code|"
            r"program|blog|tutor|coach|nurse|foster|walk)\b(?! (?:it|that|this|you)\b)",
            rf"\b{WE} (?:always|usually|only|mostly|never|no longer|rarely|normally) \w+",
            (
                r"\b(?:every|each|twice a|once a) (?:mon|tues|wednes|thurs|fri|satur|sun|week|month|other|second|"
                r"morning|evening)\w*\b"
            ),
            r"\bon (?:(?:the )?(?:first|second|third|fourth|last|other) )?(?:(?:mon|tues|wednes|thurs|fri|satur|sun)"
            r"days?|weekdays|weekends)\b",
            r"\b(?:don't|don’t|do not|doesn't|doesn’t|does not|no longer) \w+ (?!(?:it|that|this|him|her|them)\b)"
            r"[^.;!?]{2,60}? any ?more\b",
            r"\bas a rule\b|\b(?:the|a|my) rule\b|\bfor future\b",
        ),
    ),
    Sign(
        "status",
        0.2,
        any_of(
            (
                r"\b(?:is|are|'s|’s|was|were|has been|have been|got|been|now) (?:granted|approved|rejected|signed|"
                r"over|gone|off|on hold|closed|open|accepted|delayed|broken|sold|free|full|ready|back|official|live|"
                r"out|final|agreed|settled|confirmed|refused|denied|shortlisted|allowed|banned|inventoried|protected|"
                r"included|covered|due)\b"
            ),
            r"\b(?:is|are|was|were|got|been) (?:now |all |finally |already )?\w{3,}(?:ed|en)\b",
            r", done\b",
            r"^(?:an? |the )?new [\w -]{2,40} (?:for (?:me|us|my|our|the)|of mine|of ours)\b.{0,40}: ",
            r"\bsaid (?:yes|no)\b",
            r"\bno [\w -]{2,40} (?:at all|after all|any ?more)\b",
            r"\bfinally\b",
            (
                r"\b(?:came|went|fell|broke|signed|moved|taken?|took|taking|handed|sent|given?|gave|pulled|dropped|"
                r"turned) (?:in|out|over|through|off|down|up|back)\b"
            ),
            (
                r"\b(?:asked|invited|offered|hired|told|wants?|chose|picked) (?:me|us)\b|\bgot (?:a|an|the|my|our|"
                r"into|accepted)\b|\b(?:enrolled|accepted|admitted|promoted|diagnosed|born)\b"
            ),
            r"\b(?:pick up|hand in|hand over|collect|bring|deliver) ",
        ),
    ),
    Sign("relation", 0.15, any_of(rf"\b(?:my|our|his|her|'s|’s) (?:[\w-]+ ){{0,2}}{RELATION}\b")),
    Sign(
        "health",
        0.2,
        any_of(
            r"\b(?:surgery|operation|diagnos\w+|prescri\w+|medication|pills?|dose|mg|blood (?:type|pressure)|"
            r"pregnan\w+|injur\w+|therapy|treatment|symptoms?)\b"
        ),
    ),
    Sign(
        "event",
        0.2,
        any_of(
            (
                r"\b(?:appointment|meeting|flight|train|exam|interview|wedding|birthday|party|concert|trip|holiday|"
                r"vacation|deadline|delivery|move|surgery|check-?up|visit|class|course|shift|conference|workshop|"
                r"viewing|inspection|rehearsal|recital|match|race|marathon|tournament|launch|opening|closing|lease|"
                r"contract|subscription|insurance|rent|mortgage|loan|salary|deposit|invoice|passport|visa|licen[cs]e|"
                r"reservation|booking|ticket)s?\b"
            ),
        ),
    ),
    Sign(
        "third",
        0.2,
        any_of(
            r"^(?:[\w-]+ ){1,3}(?:is|are) (?:on|in|at|due|set|now|from|until)\b",
            (
                r"\b(?:he|she|they) (?:is|was|has|lives?|works?|moved|starts?|started|studies|teaches|plays?|loves?|"
                r"hates?|can't|likes?|prefers?|needs?|wants?|runs?|got|will|turned|turns)\b"
            ),
            (
                r"\b(?:he's|she's|they're|he’s|she’s|they’re) (?:a|an|the|in|at|from|on|allergic|\d+|into|vegan|"
                r"vegetarian|getting|moving|starting|called|not)\b"
            ),
            rf"\bthe (?:[\w-]+ ){{1,4}}?{_BE}\s",
            (
                r"\bthe (?:[\w-]+ ){1,3}(?:costs?|starts?|ends?|opens?|closes?|leaves?|arrives?|moved|got|has|"
                r"expires?|needs?|takes?|comes?|goes|runs?)\b"
            ),
        ),
    ),
    Sign(
        "done",
        0.15,
        any_of(
            (
                r"^(?:\w+ ){1,4}(?:finished|done|sent|paid|booked|ordered|sorted|submitted|fixed|scanned|signed|"
                r"delivered|bought|cleared|confirmed)\b"
            ),
            (
                rf"\b{WE}(?:'ve|’ve| have)?(?: finally| just| already| also| now)? (?:paid|sent|rang|redrawn|measured|"
                r"called|finished|submitted|booked|bought|ordered|fixed|renewed|signed|completed|handed in|"
                r"dropped off|picked up|passed|returned|cancell?ed|sorted|filed|got|received|won|started|joined|met|"
                r"adopted)\b"
            ),
            (
                r"\b(?:is|are|'s|’s|all|now|finally|got) (?:done|sorted|finished|fixed|paid|booked|sent|complete|"
                r"submitted|over|signed|delivered|approved)\b"
            ),
        ),
    ),
)
