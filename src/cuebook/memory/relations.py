"""Who or what fills a place that only one can fill: roles, homes, suppliers, hours, duties; and who has gone."""

import re
from typing import Final, NamedTuple

from cuebook.memory.routine import clues_of, owned
from cuebook.memory.slots import WORD, stem, topic
from cuebook.memory.vocabulary import STOP
from cuebook.memory.wishes import wish_clues, wishes
from cuebook.records.expression import Expression

#: Words of one role, the first standing for all: "the landlady" is who "the landlord" was.
_ROLES: Final = (
    "landlord landlady",
    "boss manager supervisor",
    "doctor gp physician",
    "accountant bookkeeper",
    "lawyer solicitor attorney",
    "physio physiotherapist",
    "nanny babysitter childminder",
    "sitter dogsitter petsitter catsitter",
    "coach trainer",
    "principal headmaster headmistress headteacher",
    "hairdresser barber",
    "chair chairman chairwoman chairperson",
    "dentist",
    "vet",
    "tutor",
    "secretary",
    "treasurer",
    "agent",
    "plumber",
    "electrician",
    "mechanic",
    "cleaner",
    "gardener",
    "therapist",
    "midwife",
    "architect",
    "supplier",
    "editor",
    "captain",
    "conductor",
    "drummer",
    "singer",
    "bassist",
    "guitarist",
    "caterer",
    "photographer",
    "contact",
    "teacher instructor",
    "surgeon",
    "consultant",
)
_ROLE_OF: Final = {stem(word): stem(line.split()[0]) for line in _ROLES for word in line.split()}
#: Of these one has one at a time, so that naming another is a change without any word of change.
_SINGLE: Final = frozenset(map(stem, ("landlord", "boss", "accountant", "dentist", "tutor", "secretary", "treasurer")))
_ROLE_WORDS: Final = "|".join(sorted({word for line in _ROLES for word in line.split()}, key=len, reverse=True))
_NAME: Final = (
    r"(?:(?i:dr|mr|mrs|ms|miss|prof)\.? [\w'’-]+(?: [A-ZÀ-Þ][\w'’-]+)?|"
    r"[A-ZÀ-Þ][\w'’-]+(?: (?:(?:de|van|von|der|la|le|di|da|of|the|El|&) )*[A-ZÀ-Þ][\w'’-]+)*)"
)
_WHOSE: Final = r"(?i:my|our|the|a|an|new|your|his|her|their)"
_HOLDER: Final = Expression(
    rf"\b{_WHOSE} (?P<kind>(?:[\w-]+ ){{0,2}}?)(?P<role>(?i:{_ROLE_WORDS}))\b(?P<link>(?:,|:|(?i: (?:he|she)(?:'s|"
    rf"’s)| is| was| will be|'s|’s| called|"
    rf" named| now| from now on| then| a| an| at \w+))*) (?P<name>{_NAME})"
    rf"|(?P<name2>{_NAME})(?i:,|'s|’s| is| was| will be| becomes| as| has been)(?: (?i:now|also|still|the acting))* "
    rf"(?:{_WHOSE} )?(?:(?i:new|acting|own|allotment|line|[\w-]+) )?(?P<role2>(?i:{_ROLE_WORDS}))\b"
)
#: The same where names are typed small: "sarah is our treasurer", "my boss is karen".
_SMALL_HOLDER: Final = Expression(
    rf"(?:^|[,;.] |\band )(?P<name>[\w-]+)(?:'s|’s| is)(?: now)? (?:my|our|the) (?:new )?(?P<role>{_ROLE_WORDS})\b"
    rf"|\b(?:my|our) (?:new )?(?P<role2>{_ROLE_WORDS})(?:'s|’s| is)(?: now| called)? (?P<name2>[\w-]+)(?=[,.;!]|$|"
    rf" now)",
    re.IGNORECASE,
)
#: Where a thing is or where one does something.
_WHERE: Final = Expression(
    r"(?:\b(?:the|my|our) |^)(?P<thing>(?:[\w-]+ )?[\w-]+)(?:'s|’s| is| are| has| have)(?: now| been| still| being)* "
    r"(?:(?:kept|stored|moored|parked|switched|moved|held|going) )?(?:in|at|on|to|into|under) "
    r"(?P<place>(?:the |my |our |room |rack |berth |shelf |hall )[\w'’-]+(?: [\w'’-]+)?|(?-i:[A-Z])[\w'’ -]+)"
    r"|\b(?:moved|put|switched|shifted) (?:the|my|our) (?P<thing2>[\w-]+)(?: (?:up|down|over|out))? (?:to|into|in) "
    r"(?P<place2>(?:the |my |our )[\w'’-]+(?: [\w'’-]+)?|(?-i:[A-Z])[\w'’ -]+)"
    r"|\b(?:i|we|they)(?:'re|’re|'m|’m| are| am)? (?:now )?(?P<thing3>meet|practi[sc]e|rehearse|train|stay|staying|"
    r"moor|park|eat|"
    r"bank|study)(?: \w+){0,3}? (?:in|at|on) (?P<place3>(?:the )?[\w'’-]+(?: [\w'’-]+)?)"
    r"|\bwe(?:'re|’re| are) (?:at|in) (?P<place4>(?:the )?(?-i:[A-Z])[\w'’ -]+)",
    re.IGNORECASE,
)
#: One family of verbs for whoever does a job: what one "minds", another may "look after".
_DUTY: Final = Expression(
    rf"(?P<who>\b{_NAME}|^[\w-]+|\b(?:[Hh]e|[Ss]he|[Tt]hey|[Ww]ho)|\b(?:[Mm]y|[Oo]ur) [\w-]+)(?:'s|’s|'ll|’ll| is|"
    rf" are| will|"
    r" will be| has been|'ve been)?(?: (?:now|always|also|still|usually|going to|gonna|be|one|the|who|can|could|then))*"
    r" (?:look(?:s|ing)? after|mind(?:s|ing)?|tak(?:es?|ing) care of|(?:baby|dog|cat|house|pet)-?sit(?:s|"
    r"ting)?(?: for)?|"
    r"feed(?:s|ing)?|walk(?:s|ing)?|do(?:es|ing)?|run(?:s|ning)?|handl(?:es?|ing)|own(?:s|ing)?|lead(?:s|ing)?|"
    r"manag(?:es?|ing)|cover(?:s|ing)?|(?:in charge of|responsible for)|tak(?:es?|ing) over|teach(?:es|ing)?)"
    r" (?P<what>(?:(?:the|my|our|all|on) )*(?:[\w'’-]+)(?: [\w'’-]+){0,2})"
)
_HOUSE: Final = r"(?:flat|apartment|house|home|place|studio|cottage|room|bungalow|maisonette)"
_PLACE: Final = r"(?P<place>[A-ZÀ-Þ][\w'’-]+(?: [A-ZÀ-Þ\d][\w'’-]*)*|the shop|the \w+)"
#: Where the speaker lives, said in passing.
_HOME: Final = Expression(
    rf"\bgot (?:an?|our|the) (?:new )?(?:flat|house|apartment|cottage|bungalow|studio) (?:in|on|at|"
    rf"near) {_PLACE.replace('place', 'place2')}|"
    rf"(?:(?:from|in|at|out of) (?:[\w' -]{{1,30}}? (?:of|in) )?)?\b(?:my|our) (?:\w+ )?{_HOUSE} (?:is )?(?:in|on|at|"
    rf"near) "
    rf"{_PLACE}",
)
_LIVES: Final = Expression(
    rf"\b(?:[Ii]|[Ww]e)(?:'m|'re| am| are)?(?: \w+)? (?:live|living|based|rent|renting)(?: \w+){{0,3}}? "
    rf"(?:in|on|at|above|near|over) {_PLACE}"
    rf"|\b(?:[Ii]|[Ww]e)(?:'ve|’ve| have)?(?: \w+)? (?:moved|relocated)(?: (?:back|over|up|down|out))? to "
    rf"{_PLACE.replace('place', 'place2')}"
)
_HOME_NOW: Final = Expression(
    r"\b(?:i|we|me and \w+|\w+ and (?:i|me))(?:'ve|'re|'m|’ve|’re|’m| have| are| am)? (?:\w+ )?(?:moved|living|live|"
    r"based|settled|in our new|in my new|got (?:a|our|the) (?:new )?(?:flat|house|apartment))\b",
    re.IGNORECASE,
)
_SOURCE: Final = Expression(
    r"\b(?:get(?:ting|s)?|buy(?:ing|s)?|order(?:ing|s)?|have) (?:the|my|our|all) ([\w-]+)(?: now| delivered)? from "
    rf"(?:an? [\w-]+ in )?(?P<name>{_NAME})"
    rf"|\b(?:[Tt]he|[Mm]y|[Oo]ur) ([\w-]+) (?:now )?(?:comes?|is|are|is coming)(?: now)? from "
    rf"(?:an? [\w-]+ in )?(?P<name2>{_NAME})"
)
_HOURS: Final = Expression(
    r"\b(?:(?:my|our|the) (?:opening )?hours (?:are|is|will be)|(?:i|we)(?:'re|’re| are|'ll be|'m)? (?:now )?(?:open|"
    r"doing|do|work))(?: \w+){0,2}? (?P<hours>\d{1,2}(?:[:.]\d\d)?(?: ?[ap]m)? ?(?:-|–|to|til|till|until) ?"
    r"\d{1,2}(?:[:.]\d\d)?(?: ?[ap]m)?)\b(?! \w*(?:people|covers|sets|kilos?|euros?))(?P<rest>[^.;!?]*)",
    re.IGNORECASE,
)
_DAY: Final = Expression(r"\b(?:mon|tue|wed|thu|fri|sat|sun)\w*\b|\bweek(?:end|day)s?\b", re.IGNORECASE)
_LEAVES: Final = Expression(
    r"left|leav|gone|quit|resign|retir|pack(?:ed|ing) (?:it )?in|step|fired|sacked|let go|mov(?:ed|ing) |home|notice"
)
#: Somebody leaves what they did for or with the speaker.
_GONE: Final = Expression(
    r"(?P<who>(?:[Mm]r|[Mm]rs|[Mm]s|[Dd]r)\.? [\w-]+|[^\W\d_][\w-]*)(?:'s|’s)?(?: \w+'s)? ?(?:has |is |have |had )?"
    r"(?:just |now |finally |also )?(?:left (?:the|our|us)\b|left(?= ?[,.;!]| ?$)|leaving(?! (?:it|the house|early|"
    r"at|on))"
    r"|leaves (?:the|our)\b|quit\b|resign(?:ed|ing|s)\b|retir(?:ed|ing|es)\b|pack(?:ed|ing) (?:it )?in\b|"
    r"stepp(?:ed|ing) down\b|been (?:fired|sacked|let go)\b|mov(?:ed|ing) away\b|moved out\b|moved in with\b|"
    r"(?:gone|went|going) (?:back )?home\b|gone(?= ?[,.;!]| ?$)|flew (?:back )?home\b|hand(?:ed|ing) (?:in )?(?:his|"
    r"her|their) notice\b)"
)
_STAYS: Final = Expression(
    r"\b(?:stay\w*|stopping|visit\w*|lodging|here until) (?:with us|with me|at ours|until|here)\b"
)
_NO_NAME: Final = frozenset("i we you he she they it this that there what who is was not been and but or so".split())


#: Whom one has to reach, and whom one has reached.
_REACH: Final = Expression(
    r"\b(?:need to|have to|must|should|ought to|got to|gotta|'ve to|remind me to|forget to|going to|i'll) "
    r"(?:tell|ring|call|phone|text|e?mail|ask|speak (?:to|with)|talk to|write to|message|answer) ((?:[\w'’-]+ ?){1,3})"
    r"|\bhear(?:ing)?(?: back)? from (?:the |my )?((?:[\w'’-]+ ?){1,2})",
    re.IGNORECASE,
)
_REACHED: Final = Expression(
    r"(?:^|\b(?:i|we)(?:'ve|’ve| have)? (?:just |finally )?|[,;.] (?:and )?)"
    r"(?:told|rang|called|phoned|texted|e?mailed|asked|spoke (?:to|with)|"
    r"talked to|wrote to|messaged|answered) ((?:[\w'’-]+ ?){1,3})"
    r"|^(?:the )?((?:[\w'’-]+ ){1,2})(?:says|said|rang|called|replied|got back|wrote|answered|phoned|confirmed)\b",
    re.IGNORECASE,
)


class Relation(NamedTuple):
    """A place that one holder fills: `slot` names it, `holder` are the holder's stems, `text` is where it is said."""

    slot: str
    holder: frozenset[str]
    text: str
    single: bool
    kind: frozenset[str] = frozenset()  # which of several: the piano teacher


def relations(text: str) -> list[Relation]:
    """Return the places a text says are filled, and by what."""
    return [
        *_holders(text),
        *_duties(text),
        *_homes(text),
        *_sources(text),
        *_hours(text),
        *_places(text),
        *_own(text),
        *_wished(text),
    ]


def clues(slot: str) -> frozenset[str]:
    """Return the words one of which stands in every text that fills a slot, where the slot itself does not name it."""
    kind, _, what = slot.partition(" ")
    if kind == "role":
        return frozenset(word for line in _ROLES for word in line.split() if role(stem(word)) == what)
    if kind == "own":
        return clues_of(what)
    if kind == "wish":
        return wish_clues(slot)
    if kind == "where":
        return frozenset({what, *what.split(), f"{what}ing", "we're"})
    if kind == "home":
        return frozenset("live living based rent renting flat apartment house home place studio cottage room".split())
    return frozenset("open hours doing work".split()) if kind == "hours" else frozenset()


def home_now(text: str) -> bool:
    """Tell whether a text says where the speaker lives from now on."""
    return bool(_HOME_NOW.search(text))


def gone(text: str) -> frozenset[str]:
    """Return the names of those who leave, as stems."""
    if not _LEAVES.search(text):
        return frozenset()
    found = (WORD.findall(match["who"])[-1:] for match in _GONE.finditer(text))
    return frozenset(stem(word) for words in found for word in words if _name_like(word))


def to_reach(text: str) -> frozenset[str]:
    """Return the stems of whom a text says has to be told, rung or asked."""
    return frozenset().union(*(topic(match[1] or match[2]) for match in _REACH.finditer(text)))


def reached(text: str) -> frozenset[str]:
    """Return the stems of whom a text says was told, rung or asked."""
    return frozenset().union(*(topic(match[1] or match[2]) for match in _REACHED.finditer(text)))


def stays(text: str) -> bool:
    """Tell whether a text speaks of somebody who is here for a while."""
    return bool(_STAYS.search(text))


def role(word: str) -> str:
    """Return the stem that stands for all words of a role's stem; any other stem is itself."""
    return _ROLE_OF.get(word, word)


def _name_like(word: str) -> bool:
    return word.lower() not in STOP and word.lower() not in _NO_NAME and len(word) > 1


def _holders(text: str) -> list[Relation]:
    found: list[Relation] = []
    for match in _HOLDER.finditer(text):
        name, word = match["name"] or match["name2"], match["role"] or match["role2"]
        holder = _stems(name)
        if holder:
            key = role(stem(word))
            named = bool(match["name2"] or match["link"])
            single = key in _SINGLE and named
            found.append(Relation(f"role {key}", holder, match[0], single=single, kind=topic(match["kind"] or "")))
    for match in () if found else _SMALL_HOLDER.finditer(text):
        holder, word = _stems(match["name"] or match["name2"]), match["role"] or match["role2"]
        if holder:
            found.append(Relation(f"role {role(stem(word))}", holder, match[0], single=False))
    return found


def _places(text: str) -> list[Relation]:
    found: list[Relation] = []
    for match in _WHERE.finditer(text):
        thing, place = _group(match, "thing"), topic(_group(match, "place")) | codes(_group(match, "place"))
        key = {"staying": "stay", "": "stay"}.get(thing, " ".join(sorted(topic(thing) or {stem(thing)})))
        if place:
            found.append(Relation(f"where {key}", place, match[0], single=False))
    return found


def _group(match: re.Match[str], name: str) -> str:
    return next((value for key, value in match.groupdict().items() if value and key.rstrip("234") == name), "")


def codes(phrase: str) -> frozenset[str]:
    """Return the words of a phrase that hold digits: "the 10k", "room 4"."""
    return frozenset(word.lower() for word in WORD.findall(phrase) if not word.isalpha())


def _duties(text: str) -> list[Relation]:
    found: list[Relation] = []
    for match in _DUTY.finditer(text):
        who = match["who"]
        if who.lower() in {"he", "she", "they", "who"}:
            before = re.findall(_NAME, text[: match.start()])
            who = before[-1] if before else ""
        holder, things = _stems(who), sorted(topic(match["what"]))
        found.extend(Relation(f"duty {thing}", holder, match[0], single=False) for thing in things if holder)
    return found


def _homes(text: str) -> list[Relation]:
    return [
        Relation("home", _stems(place), match[0].strip(), single=False)
        for pattern in (_HOME, _LIVES)
        for match in pattern.finditer(text)
        if _stems(place := next(filter(None, match.groups())))
    ]


def _sources(text: str) -> list[Relation]:
    return [
        Relation(
            f"source {stem(match[1] or match[3])}", _stems(match["name"] or match["name2"]), match[0], single=False
        )
        for match in _SOURCE.finditer(text)
    ]


def _hours(text: str) -> list[Relation]:
    found: list[Relation] = []
    for match in _HOURS.finditer(text):
        days = "" if not _DAY.search(match["rest"].partition(",")[0]) else " some days"
        found.append(
            Relation(f"hours{days}", frozenset({"-".join(re.findall(r"\d+", match["hours"]))}), match[0], single=True)
        )
    return found


def _own(text: str) -> list[Relation]:
    return [Relation(one.slot, one.value, one.text, single=False, kind=one.kind) for one in owned(text)]


def _wished(text: str) -> list[Relation]:
    return [Relation(one.slot, frozenset({one.value}), one.text, single=True) for one in wishes(text)]


def _stems(name: str) -> frozenset[str]:
    return frozenset(stem(word) for word in WORD.findall(name) if _name_like(word))
