"""What a statement says is so no more, or so again: a job left, a habit given up, a taste lost, a wish taken back, a
couple parted, a death.
"""

import re
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from cuebook.memory.cues import CLAUSES
from cuebook.memory.deaths import NO_NAME, deaths, of_the_dead
from cuebook.memory.slots import WORD, stem
from cuebook.memory.vocabulary import STOP
from cuebook.memory.whose import whose
from cuebook.records.expression import Expression, lowered

Kind = Literal["said", "again", "left", "parted", "died", "taken back"]


class End(NamedTuple):
    """What one clause ends: in which way, of whom (empty: the speaker), and the words of it."""

    kind: Kind
    who: frozenset[str]
    words: frozenset[str]


class Said(NamedTuple):
    """What a clause says of somebody (empty: the speaker), and whether it is so (True) or not."""

    who: frozenset[str]
    words: frozenset[str]
    holds: bool


#: What is denied in so many words or fewer is that alone.
FEW: Final = 3
#: Who it is that says so of the speaker: "the doctor says I'm not allergic".
_TOLD: Final = Expression(
    r"^(?:(?:the|my|our) )?[\w-]+(?: [\w-]+)? (?:says|said|told (?:me|us)|confirmed|tells (?:me|us)) (?:that )?"
    r"(?=(?:i|we|my|our)\b)",
    re.IGNORECASE,
)
_NO_LONGER: Final = Expression(r"\b(?:i|we)(?:['’](?:m|re))?(?: am| are)? no longer\b")
_ADVERB: Final = r"(?:(?:now|just|really|actually|also|finally|recently|already|officially|sadly|never|always|since) )*"
#: Words that turn what a clause says into its opposite; two of them leave it as it is ("I will never stop playing").
_TURNS: Final = Expression(
    r"\b(?:can['’]t stand|no longer|not|never|cannot|used to(?: be)?|no more|(?:do|does|did|is|are|was|were|wo|"
    r"ca|would|should|have|has|had|could|need)n['’]t|can['’]t|won['’]t"
    r"|(?:stop(?:ped|ping|s)?(?! (?:the|my|our) (?:car|bus|train|bike|van|music)\b)|quit(?:ting|s)?|"
    r"g[ai]ve(?:n|s)? up|giving up|done with|given up on|"
    r"through with)(?: being)?"
    r"|(?:lost|losing|leaving|left) (?:my|our|the)(?= job\b)"
    r"|(?:hate|dislike|loathe|despise|detest)[sd]?)\b",
)
#: What is merely thought of, feared, wished or ahead is no end.
_UNSURE: Final = Expression(
    r"\b(?:if|might|maybe|perhaps|thinking (?:of|about)|considering|tempted|could|would|will|won't|may|"
    r"want(?:s|ed)? to|"
    r"wants?|wish|hope|plan(?:s|ning)? to|about to|should|must|have to|has to|need to|afraid|almost|"
    r"nearly|unless|dream\w*|"
    r"refuse\w*|hard to|difficult to|trying to|tried to|(?:am|is|are|'m|'s|'re|’m|’s|’re|not) going to "
    r"(?!the\b|an?\b|my\b|our\b))\b|\?\s*$|['’]ll\b|['’]d\b",
)
#: A wish, or a leave, that the assistant is given.
_GRANTED: Final = Expression(
    r"\byou (?:can|may|could|might|should|must|need|have|don['’]t|do not|no longer|are (?:allowed|free|welcome))\b|"
    r"\byour (?:answers?|replies|responses?|tone)\b|\bfeel free to\b"
)
#: What follows tells why or until when, not what.
_WHY: Final = Expression(
    r"\b(?:since|because|after(?! (?:noon|midnight|lunch|dinner|work|\d))|"
    r"when|while|until|due to|thanks to|as of|for good\b|from now|(?:for|on) "
    r"(?:\w+ )?(?:reasons?|grounds)|last|this|next|yesterday|today|in (?:january|february|march|april|may|june|july|"
    r"august|september|october|november|december|\d{4})|(?:on|last) (?:mon|tues|wednes|thurs|fri|satur|sun)day$)\b.*$"
)
#: Who or what a place is left behind with.
_LEFT: Final = Expression(
    r"\b(?:i|we)(?:['’]ve|['’]m|['’]re|['’]s| have| am| are| was| were| got| been| had)? " + _ADVERB + r"(?:"
    r"(?:left|leaving|quit(?:ting)?|resigned from|retired from|(?:been |got |was )?(?:fired|sacked|laid off|let go|"
    r"dismissed|made redundant|expelled|kicked out|evicted)(?: from| by| at| of)|dropped out of|pulled out of|"
    r"stepped down (?:from|as)|moved (?:out of|away from|from)|no longer (?:with|at|in|part of|a member of)|"
    r"not (?:with|at|in|part of|a member of)(?= .*\b(?:any ?more|any longer)\b)|(?:lost|quit|left|resigned) "
    r"(?:my|our|the|a) (?:job|position|post|place|seat|role|work)(?: (?:at|with|for|in|as))?|"
    r"(?:unsubscribed|checked out|signed out|withdr[ae]wn?) (?:from|of))"
    r") (?P<what>[^,.;:!?]+)"
    r"|\b(?:hand(?:ed|ing)|gave|given|giving) in (?:my|our) (?:notice|resignation) (?:at|to|with) (?P<what2>[^,.;:!?]+)"
    r"|(?:^|\b(?:and|but|so|then) )(?P<what3>(?:[\w'’&-]+ ){1,4}?)(?:has |have |just |had )*(?:(?:let|laid) "
    r"(?:me|us) (?:go|off)|(?:fired|sacked|dismissed|evicted|expelled) (?:me|us)|made (?:me|us) redundant|"
    r"kicked (?:me|us) out)\b",
)
#: An hour, an errand or a thing left behind: who left it comes back.
_BRIEFLY: Final = Expression(
    r"^(?:(?:my|our|the) )?[\w-]+ (?:an?|the|some|my|our) \w|"
    r"\b(?:at (?:\d|noon|midnight|one|two|three|four|five|six|seven|eight|nine|ten|eleven|half|around|"
    r"about)|early|late|"
    r"on time|behind|for (?:lunch|dinner|work|the (?:day|night|weekend|evening|airport|station))|"
    r"to (?:get|buy|go|catch|"
    r"pick|fetch|meet|see))\b|^(?:my|our|a|an|the) (?:house|home|flat|office|building|room|car|umbrella|"
    r"keys?|bag|phone|"
    r"shop|station|airport|party|table)\b"
)
#: What somebody belongs to or lives in.
_BELONGS: Final = frozenset(
    map(
        stem,
        "work live study rent member play sing train volunteer intern teach dance row swim coach serve "
        "student resident "
        "lease stay based flat room studio apartment house bass drum violin guitar goalkeeper".split(),
    )
) | {"work", "live"}
#: What somebody is somewhere: a barista at a café, on a board.
_POST: Final = Expression(
    r"\b(?:i['’]m|i am|we['’]re|we are) (?:(?:an?|the) (?:[\w-]+ ){1,3}(?:at|for|with|of)|(?:on|in|part of) the)\b"
)
#: What a job is said by, of which the new statement names none.
_WORKS: Final = Expression(
    r"\b(?:i|we)(?:['’]m|['’]re| am| are)? (?:work|working|employed)(?: (?:\w+ ){0,4}?(?:at|for|in|as|with)\b)|"
    r"\b(?:i['’]m|i am) an? (?:[\w-]+ ){1,3}at\b|\bmy (?:job|employer|work) is\b"
)
#: No work at all any more, whichever it was.
_NO_WORK: Final = Expression(
    r"^(?:\w+ )?i(?:['’]ve|['’]m| have| am| was| got)?(?: been)? "
    + _ADVERB
    + r"(?:retired|laid off|fired|sacked|(?:lost|quit|left) "
    r"(?:my|the) job|unemployed|out of (?:work|a job)|between jobs|made redundant)(?= (?:last|this|in|on|since|now|"
    r"today|yesterday|early|because|for good)\b| ?[.,;!]?$)"
)
_HOUSES: Final = frozenset(map(stem, "place house home flat apartment".split()))
#: Two who were a couple are none.
_PARTED: Final = Expression(
    r"\b(?:broke(?:n)? up|split up|splitted up|separated|divorced|got (?:a )?divorce[d]?|getting (?:a )?divorced?|"
    r"(?:called|broke) off (?:the|our) engagement|(?:are|['’]re) no longer "
    r"(?:together|a couple|married|engaged|dating)|"
    r"(?:are|['’]re) not (?:together|a couple) any ?(?:more|longer)|(?:are|['’]re)n['’]t (?:together|a couple|married) "
    r"any ?(?:more|longer)|(?:left|dumped|divorced) me|ended (?:it|things|our relationship))\b"
)
#: Somebody named who did with the speaker what the next clause says: "Emma and I broke up".
_ALONE: Final = Expression(r"(?:\w+ )?[A-ZÀ-Þ][\w-]+$")
_COUPLE: Final = Expression(
    r"\b(?:i|we)\b(?!['’]?d\b)|\band i\b|\bme and\b|\b(?:left|dumped|divorced) me\b",
)
_PARTNER: Final = Expression(
    r"\b(?:my|our) (?:\w+ )?(?:girlfriend|boyfriend|wife|husband|partner|spouse|fianc[eé]e?|lover|"
    r"relationship|marriage)\b|"
    r"\b(?:i|we)(?:['’]m|['’]re| am| are)? (?:\w+ )?(?:married|engaged|dating|seeing|in a relationship|in love|"
    r"going out with|together with|living together)\b"
)
_PARTNERS: Final = frozenset("girlfriend boyfriend wife husband partner spouse married engaged dating".split())
_PARTNER_STEMS: Final = frozenset(map(stem, _PARTNERS))
_AGAIN: Final = Expression(r"\b(?:again|now|after all|(?:come|came|grown|learn\w+) to|these days|nowadays)\b")
#: A wish said before is to be forgotten.
_BACK: Final = Expression(
    r"\b(?:forget|ignore|disregard|scratch|never mind|nevermind|drop|scrap|i take back)(?: about)?,? "
    r"(?:(?:what|everything|anything|all) (?:that )?i (?:said|told you|wrote|asked)(?: \w+)? (?:about|on|"
    r"for|regarding)|"
    r"(?:my|the|that) (?:wish|request|rule|instruction|preference|thing|bit)s? (?:about|on|for|with)|the|about the) "
    r"(?P<what>[^,.;:!?]+)"
)
#: How one is asked to answer.
_WISH: Final = Expression(
    r"\b(?:please|pls|always|never|don['’]t|do not|from now on)\b|^(?:answer|reply|use|write|keep|call|"
    r"give|address|stop)\b"
)

#: Words of one meaning, by their stems; the first stands for all.
_ALIKE: Final = {
    stem(word): line.split()[0]
    for line in (
        "work job employed working works worked employee employment",
        "live living lives lived reside residing resident",
        "like love enjoy adore likes liked loves fond hate dislike loathe despise detest fan",
        "have has own owned owning possess",
        "answer reply respond",
        "use uses used using",
        "take takes took taken taking",
        "go goes going went gone",
        "make makes made making",
        "eat ate eaten",
    )
    for word in line.split()
}
#: Verbs that elsewhere are about nothing and here are what is denied.
_KEPT: Final = frozenset(
    "like likes liked use uses used using take takes took taking have has own go goes going went make "
    "makes making keep keeps want wants need needs get gets give gives put see say long longer night noon midnight "
    "morning afternoon evening".split()
)
_FILLERS: Final = frozenset(
    "anymore longer again come grown got actually turn turns turned out started need want allowed free feel may might "
    "together never stop stopped quit quitting stopping give gave given up any more".split()
)
_AUXILIARY: Final = Expression(
    r"\b(?:have|has|had)(?= (?:\w+ ){0,2}?(?:to\b|been|come|never|not|no|stopped|quit|given|lost|left|grown|started|"
    r"become|\w+ed\b))|\bused to\b|\bgoing to\b|\bhave to\b|\bneed to\b|\bdecided to\b|\bany ?more\b|\bany longer\b|"
    r"\bno longer\b|\b(?:have|has|had)n['’]t\b|\bto (?:be|have)\b"
)
_PAST: Final = Expression(r"\b(?:i|we) (?:worked|lived|studied|played|sang|rented|used to)\b")


def ends(text: str) -> tuple[End, ...]:
    """Give what a statement says is so no more, or is so from now on after it was not."""
    found: list[End] = []
    before = ""
    for clause in _clauses(text):
        last, before = before, clause
        lower = lowered(clause)
        who = whose(clause)
        if _BACK.search(lower):
            found.extend(End("taken back", who, _words(match["what"])) for match in _BACK.finditer(lower))
            continue
        if _UNSURE.search(lower) and not _GRANTED.search(lower) and not _TURNS.search(lower):
            continue
        found.extend(_of_clause(clause, lower, who, with_whom=last if _ALONE.match(last) else ""))
    return tuple(end for end in found if end.words or end.kind == "parted")


def over(new: Iterable[End], news: Iterable[Said], clause: str) -> bool:
    """Tell whether a clause of an older statement is over by what a new one ends or says."""
    lower = lowered(clause)
    held = said(clause)
    who = whose(clause)
    mine = _words(lower)
    return any(_ended(end, clause, lower, who, mine) for end in new) or any(
        _opposite(each, held) for each in news if held is not None
    )


def sayings(text: str) -> tuple[Said, ...]:
    """Give what the clauses of a statement say, each with its sign; not what is only thought of."""
    return tuple(each for clause in _clauses(text) if (each := said(clause)) is not None and each.words)


def said(clause: str) -> Said | None:
    """Read one clause; None where it says nothing for certain."""
    lower = lowered(clause)
    granted = bool(_GRANTED.search(lower))
    turns = len(_TURNS.findall(lower))
    if (
        granted
        and turns
        and re.search(r"\b(?:n['’]t|not|no longer) (?:need|have)|(?:don['’]t|do not) (?:need|have) to\b", lower)
    ):
        turns = 1
    if lower.rstrip().endswith("?") or (_UNSURE.search(lower) and not granted and not _WISH.search(lower)):
        return None
    who = whose(clause)
    if not (who or granted or _SPEAKS.search(lower) or _WISH.search(lower)):
        return None
    if _PAST.search(lower) and not re.search(r"\bused to\b", lower):
        return None
    plain = _AUXILIARY.sub(" ", _TURNS.sub(_kept_taste, _WHY.sub("", lower)))
    return Said(who, _words(plain), turns % 2 == 0)


def beside(new: str, old: str) -> bool:
    """Tell whether a clause denies, in few words, more than an older one says: "I no longer take the bike to work"."""
    denied = said(new) if _NO_LONGER.search(lowered(new)) else None
    return denied is not None and len(denied.words) <= FEW and not denied.words <= _words(old)


def lost(new: Iterable[End], news: Iterable[Said]) -> frozenset[str]:
    """Give the stems of all that a statement ends or denies."""
    ended = (end.words for end in new if end.kind in {"left", "died", "taken back"})
    return frozenset().union(*ended, *(each.words for each in news if not each.holds))


def parted(new: Iterable[End], news: Iterable[Said]) -> bool:
    """Tell whether somebody is no longer who they were to the speaker: two parted, or "Karin is no longer my wife"."""
    return any(end.kind == "parted" for end in new) or any(
        not each.holds and each.words & _PARTNER_STEMS for each in news
    )


def anew(new: Iterable[End], old: str) -> bool:
    """Tell whether what a statement ends or says again is no mere repeat of an older one that ends nothing."""
    return bool(new) and not ends(old)


def search_words(new: Iterable[End], news: Iterable[Said]) -> frozenset[str]:
    """Give the words by which older statements are found that some ends, or what is denied, may be about."""
    found: set[str] = set()
    new = [*new, *(End("said", each.who, each.words) for each in news if not each.holds)]
    for end in new:
        found |= end.words | (_PARTNERS if end.kind == "parted" else frozenset())
        found |= {form for word in end.words for form in _FORMS.get(word, ())}
    return frozenset(found)


#: A statement has somebody who it is of; "not with coffee" is none.
_SPEAKS: Final = Expression(r"\b(?:i|we|my|our)\b|^(?:stopped|quit|gave up|no longer)\b")
_FORMS: Final = {
    "work": ("work", "job", "employed"),
    "liv": ("live", "living"),
    "live": ("live", "living"),
    "like": ("like", "love", "enjoy", "hate", "dislike"),
    "us": ("use", "using"),
    "have": ("have", "own"),
    "answer": ("answer", "reply"),
}


def _of_clause(clause: str, lower: str, who: frozenset[str], *, with_whom: str) -> Iterable[End]:
    unsure = _UNSURE.search(lower)
    if _AGAIN.search(lower) or _GRANTED.search(lower):
        yield End("again", who, _words(lower))
    if not unsure:
        if _NO_WORK.search(lower):
            yield End("left", who, frozenset({"work"}))
        for match in _LEFT.finditer(lower):
            what = match["what"] or match["what2"] or match["what3"]
            negated = re.search(
                r"(?:\bnot|\bnever|n['’]t) $", lower[: match.start(match.lastgroup or 0)].rsplit(" ", 2)[0] + " "
            )
            if not negated and not _BRIEFLY.search(what):
                yield End("left", who, _words(_AUXILIARY.sub(" ", _WHY.sub("", what))))
        if _PARTED.search(lower) and _COUPLE.search(lower):
            named = {
                stem(word)
                for word in re.findall(r"\b[A-ZÀ-Þ][\w-]+", f"{with_whom} {clause}")
                if word.lower() not in NO_NAME
            }
            yield End("parted", frozenset(), frozenset(named))
        yield from (End("died", owner, dead) for owner, dead in deaths(clause))


def _ended(end: End, clause: str, lower: str, who: frozenset[str], mine: frozenset[str]) -> bool:
    if end.kind == "parted":
        return bool(_PARTNER.search(lower)) and (not end.words or end.words <= mine or not _names(clause))
    if end.kind == "died":
        return of_the_dead(end.who, end.words, clause)
    if end.kind == "taken back":
        return bool(_WISH.search(lower)) and end.words <= mine
    if end.kind != "left" or who or end.who:
        return False
    what = end.words - {"work"}
    if not what:
        return bool(_WORKS.search(lower))
    return bool(mine & _BELONGS or _POST.search(lower)) and ((what - _HOUSES) or what) <= mine


def _opposite(new: Said, old: Said) -> bool:
    """Tell whether one says the very thing that the other denies: what is denied of all is denied of each."""
    if new.holds == old.holds or not new.words or "?" in new.who | old.who:
        return False
    if new.who != old.who and not new.who & (old.who | old.words) and not old.who & new.words:
        return False
    return new.words <= old.words if old.holds else new.words == old.words


def _clauses(text: str) -> list[str]:
    return [_TOLD.sub("", part.strip()) for part in CLAUSES.split(text) if part and part.strip()]


def _words(text: str) -> frozenset[str]:
    found = set()
    for word in WORD.findall(text.lower().replace("’", "'")):
        if (word in STOP and word not in _KEPT) or word in _FILLERS or (len(word) < 2 and word.isascii()):
            continue
        base = stem(word)
        found.add(_ALIKE.get(base, base))
    return frozenset(found)


def _kept_taste(match: re.Match[str]) -> str:
    """Leave of a word that turns a clause what it is about: of "hate" a liking, denied."""
    tastes = match[0].startswith(("hate", "dislik", "loath", "despis", "detest")) or match[0].endswith("stand")
    return " like " if tastes else " "


def _names(clause: str) -> list[str]:
    return [word for word in re.findall(r"(?<!^)\b[A-ZÀ-Þ][\w-]+", clause) if word.lower() not in STOP]
