"""What a statement claims, read for comparison: its clauses with their values, and whether it tells of a change."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from cuebook.memory.patterns import SUBJECTS
from cuebook.memory.relations import Relation, gone, home_now, relations
from cuebook.memory.sentences import sentences
from cuebook.memory.signs import RELATION
from cuebook.memory.slots import AMOUNT, WORD, Value, stem, topic, values
from cuebook.memory.vocabulary import STOP
from cuebook.records.memory import Item

#: Words that say: this is new, it was otherwise before.
_CHANGE: Final = re.compile(
    r"\b(?:moved|moving|relocat\w+|now|instead|no longer|any ?more|chang(?:e|ed|es|ing)|switch(?:ed|es|"
    r"ing)?|reschedul\w+|postpon\w+|cancel\w*|called off|"
    r"(?:push(?:ed|es|ing)?|put|puts|putting|set|mov(?:ed|e|ing)|shift(?:ed|ing)?|bring|brought|"
    r"pulled)(?: \S+){0,5} (?:back|off|out|forward|to|up|till|until)|bumped|delayed|shifted|actually|"
    r"scrap(?:ped)?|correction|"
    r"turns? out|turned out|new|swapp?\w*|replac\w+|rather than|drop(?:ped)?|quit|left|sold|gave up|"
    r"given up|stopped|off the table|after all|update|upgrad\w+|downgrad\w+|raised|raising|cut|"
    r"(?:go|goes|went|gone|came|come|comes) (?:up|down)|went with|gone for|ended up|extended|final(?:ly|"
    r"ised|ized)?|back to|fell through|broke up|split up|wrong|mistaken?|misremember\w*|i meant|expired|"
    r"increase[ds]?|revised|tak(?:es?|en|ing) over|took over|(?:more|extra) (?:days?|weeks?|months?|time)|"
    r"(?:days?|weeks?|months?) more|as of|from now on|from here on|in (?:its|his|her|their) place|"
    r"isn't .{1,40} (?:till|until)|this time|re-?booked|rearranged|having to wait|ha(?:s|ve) to wait|"
    r"(?:go|gone|going) to the \w+ instead|pack(?:ed|ing) (?:it )?in|has it now|no more|reduced|lowered|doubled|"
    r"put (?:me|us|him|her|it|them) (?:back|on|to|off)|gone to \w+ instead|a change|called it a day|not (?:before|"
    r"until|till)|"
    r"found (?:us )?(?:an?|the) (?:new )?(?:flat|house|apartment|place|unit|room|job))\b",
    re.IGNORECASE,
)
#: What comes after these words held before and is over.
_OVER: Final = re.compile(
    r"\b(?:instead of|rather than|no longer|any longer|used to(?: be| have| go)?|replac(?:es?|ed|ing)|"
    r"scrap(?:ped|ping)?|forget(?: about)?|cancel(?:led|ed|ling|ing)?|call(?:ed)? off|dropp(?:ed|"
    r"ing)(?! off)|drop|quit(?:ting)?|"
    r"left (?:my|our)|leaving (?:my|our)|sold(?= (?:the|my|our|his|her|their)\b)|stopp(?:ed|ing)|gave up|"
    r"given up|giving up|done with|(?:finished|out of|through|over|finished off|pulled out of|"
    r"backed out of|dropped out of)(?= (?:with )?(?:the|my|our)\b)(?: with)?|broke up with|away from|"
    r"no more|from(?= (?:\S+ ){1,4}to\b)|not(?= (?:\S+ ){1,4}(?:but|any ?more|anymore)\b)|"
    r"don't(?= (?:\S+ ){1,5}any ?more\b))"
    r"\s+((?:[^\s.,;:!?—–-]+[ -]?){1,5})",
    re.IGNORECASE,
)
#: The thing before these words is over.
_OFF: Final = re.compile(
    r"(?<!\S)((?:[^\s.,;:!?—–-]+ ){1,5}?)(?:(?:(?:is|are|was|were|has been|have been|got)|"
    r"(?<='s) ) ?(?:now |all |finally )?(?:off(?! (?:to|on|at|work|from))|dropped|no more|gone|over|"
    r"finished|done with|(?:finished|out of|through|over|finished off|pulled out of|backed out of|"
    r"dropped out of)(?= (?:with )?(?:the|my|our)\b)(?: with)?|sold|history|dead|out of the question)"
    r"|(?:is |are |was |were |has been |have been |got )?(?:cancell?ed|called off|frozen|shelved|suspended|scrapped|"
    r"fell through|"
    r"fallen through|(?:filed for |went |gone )bankrupt(?:cy)?|went bust|closed down|shut down))\b"
    r"|\b(?:put(?:ting|s)?|placed) ((?:[^\s.,;:!?—–-]+ ){1,5}?)on (?:hold|ice)\b"
    r"|\bwith (?:the|my|our) ((?:[^\s.,;:!?—–-]+ ){1,3})gone\b",
    re.IGNORECASE,
)
_NEGATIVE: Final = re.compile(
    (
        r"\b(?:no longer|not|never|no|without|cancel\w*|called off|scrap\w*|any ?more|stopped|quit|gave up|"
        r"given up|sold|dropped|fell through)\b|n['’]t\b"
    ),
    re.IGNORECASE,
)
_DONE_WORDS: Final = (
    r"done|sorted|finished|fixed|paid|booked|sent|submitted|bought|ordered|called|renewed|signed|"
    r"completed|handed|dropped off|picked up|collected|passed|returned|cancell?ed|filed|received|"
    r"arrived|came|heard back|approved|granted|went|decided|settled|chose|chosen|picked|delivered|"
    r"took care|ticked off|crossed off|replied|visited|met|wrote|written|posted|mailed|emailed|rang|spoke|"
    r"talked|"
    r"told|repaired|installed|cleaned|serviced|registered|enrolled|scheduled|reserved|made|measured|tested|checked|"
    r"scanned|painted|built|planted|removed|joined|no longer needed"
)
_DONE: Final = re.compile(rf"\b(?:{_DONE_WORDS})\b|\btick (?:it|that) off\b", re.IGNORECASE)
_DONE_STEMS: Final = frozenset(stem(word) for word in re.findall(r"[a-z]+", _DONE_WORDS)) | {"do", "hav"}
_TASK: Final = re.compile(
    r"\b(?:needs? to|have to|has to|must|should|got to|gotta|ought to|owe|remind me|"
    r"don't (?:let me )?forget|to[- ]do|waiting (?:for|on|to)|haven't|hasn't|have not|"
    r"(?:i|we)(?:'ll|’ll| will)|still (?:deciding|undecided|looking|needs?|has|have|open)|undecided|"
    r"torn between|pending|not yet|up in the air|planning to|going to|want to|find out|figure out|"
    r"on (?:my|the) list|whether|(?:is|are|was|falls|comes|'s|’s) (?:now )?due|(?:i|we)['’]?(?:ve|m) to|"
    r"needs?(?= \w+ing\b)|"
    r"expires?|runs out|has to be|(?:^|[,.;:] ?)need to)\b",
    re.IGNORECASE,
)
_ASKS: Final = re.compile(
    (
        r"\b(?:whether|find out|figure out|undecided|unclear|don't know (?:if|when|where|who)|not sure|"
        r"waiting to hear|torn between|haven't decided|still deciding)\b"
    ),
    re.IGNORECASE,
)
_MORE: Final = re.compile(
    r"\b(?:another|second|also|additional|as well|on top of|in addition|extra|too)\b", re.IGNORECASE
)
_STATES: Final = re.compile(
    (
        r"\b(?:is|are|am|has|have|costs?|will|starts?|ends?|opens?|closes?|leaves?|arrives?|lives?|works?|"
        r"takes?|stands at|booked for|due|set for|scheduled for|named|called)\b|['’](?:s|m|re|ll|ve)\b"
    ),
    re.IGNORECASE,
)
_OWNER: Final = re.compile(
    rf"\b(?:[Mm]y|[Oo]ur|[Hh]is|[Hh]er|[Tt]heir)\s+(?:[\w-]+\s){{0,2}}?({RELATION})\b"
    r"|\b([A-ZÀ-Þ][\w-]+)['’]s\b(?! (?:an?|the|not|in|on|at|been|got|going)\b)"
)
_NO_OWNER: Final = frozenset("it that there what he she here where who how everything nothing".split())
#: Capitals that name no person: "the MOT", "the VAT return".
_ACRONYM: Final = re.compile(r"\b[A-Z]{2,5}\b")
_EXCLUSIVE: Final = frozenset(subject for subject, _ in SUBJECTS)
_FAVOURITE: Final = re.compile(r"\bfavou?rite\b", re.IGNORECASE)
_CLAUSES: Final = re.compile(
    (
        r"[,;:.!?…—–]+\s+|\s+[-–—]\s+|\s+(?:so|but|because|which)\s+|\s+and\s+(?=(?:i|we|he|she|they|it|you|"
        r"my|our|his|her|their|then|i'm|i've|she's|he's|we're|we've|it's)\b|"
        r"(?:the|an?) (?:[\w-]+ ){1,3}(?:is|are|was|were|will|has|have|needs?|costs?)\b)"
    ),
    re.IGNORECASE,
)


#: What has a price, and what one pays by the month to live in or to work from.
_PRICES: Final = frozenset(map(stem, "rent price fee salary wage deposit budget mortgage pension bill".split()))
_HOUSING: Final = frozenset(map(stem, "flat apartment house landlord landlady unit studio room".split()))
_MONTHLY: Final = re.compile(r"\b(?:a|per|each|every) month\b|\bmonthly\b", re.IGNORECASE)
#: Roles that one person or firm has at a time.
_ROLE: Final = re.compile(
    rf"\b(?:{RELATION}|contact|principal|head|chair|director|president|secretary|treasurer|captain|editor|"
    r"agent|caterer|photographer|florist|supplier|provider|insurer|bank|host|sitter|dog-sitter|guide|"
    r"engineer|"
    r"lead|owner|driver|guardian|sponsor|examiner|reviewer|consultant|surgeon|nurse|specialist|"
    r"hairdresser|mechanic|baker|band|dj|venue|school|gym|club|firm)\b",
    re.IGNORECASE,
)
#: What a booking is for: "reserved the upper room for the party".
_PURPOSE: Final = re.compile(r"\bfor (?:the|my|our|his|her|their|[\w'’]+['’]s) ((?:[\w-]+ ){0,2}[\w-]+)", re.IGNORECASE)
_BOOKED: Final = re.compile(
    r"\b(?:reserved|booked|rented|hired|takes? place|held (?:at|in)|is (?:at|in))\b", re.IGNORECASE
)
#: What follows these words is about whom they name: "I rang Dr Aerts and the dentist is now on the 18th".
_CONTACT: Final = re.compile(
    r"\b(?:rang|called|phoned|texted|e?mailed|asked|begged|spoke (?:to|with)|wrote to)\b", re.IGNORECASE
)
#: Somebody gave the answer that was waited for.
_ANSWERED: Final = re.compile(
    r"\b(?:said|says|say) (?:yes|no|it's fine|ok(?:ay)?|they|he|she|we)\b|\b(?:agreed|approved|answered|confirmed|"
    r"okayed|"
    r"replied|is fine with|are fine with|gave (?:me|us) the (?:go-ahead|green light)|turned (?:it|us|me) down|"
    r"refused)\b",
    re.IGNORECASE,
)
_SETTLED: Final = re.compile(
    (
        r"\b(?:reserved|booked|decided|chosen|chose|settled|picked|agreed|takes? place|held (?:at|in)|"
        r"going with|went with|ordered)\b"
    ),
    re.IGNORECASE,
)
_WILL_BE: Final = re.compile(
    (
        r"\b(?:the|my|our|his|her|their|[\w-]+['’]s)\s+((?:[\w-]+\s){1,3}?)(?:(?:at|in|for|of|"
        r"on) (?:[\w-]+\s){1,3}?)?(?:is|are|will be|becomes?|'ll be|has moved|moved|moves|goes)(?: now| moving)?\b"
    ),
    re.IGNORECASE,
)


class Frame(NamedTuple):
    """One clause: its words, what it is about, its names' stems among that, and its values."""

    text: str
    stems: frozenset[str]
    heads: frozenset[str]
    named: frozenset[str]
    values: frozenset[Value]
    change: bool
    done: bool
    task: bool
    negative: bool


class Claim(NamedTuple):
    """One statement as merging compares it."""

    stems: frozenset[str]
    named: frozenset[str]
    values: frozenset[Value]
    frames: tuple[Frame, ...]
    subject: str
    speaker: str
    owners: frozenset[str]
    over: tuple[frozenset[str], ...]
    seq: int
    change: bool
    task: bool
    more: bool
    states: bool
    negative: bool
    exclusive: bool
    decided: bool
    asks: bool
    pending: bool
    restated: frozenset[str]
    answered: bool
    relations: tuple[Relation, ...]
    gone: frozenset[str]
    home: bool
    text: str


def claim_of(item: Item, *, news: bool = False) -> Claim:
    """Read an item's text for comparison; of `news` also what only a new statement is asked: who fills what, who is
    gone.
    """
    text = item.text
    speaker, _, subject = item.subject.partition(" ") if item.subject.startswith("@") else ("", "", item.subject)
    frames = _in_context(_frames(text), subject, topic(text))
    return Claim(
        stems=frozenset().union(*(frame.stems for frame in frames)),
        named=frozenset().union(*(frame.named for frame in frames)),
        values=frozenset().union(*(frame.values for frame in frames)),
        frames=frames,
        subject=subject,
        speaker=speaker,
        owners=_owners(text),
        over=_over(text),
        seq=item.seq,
        change=bool(_CHANGE.search(text)),
        task=item.category in {"todo", "open_loops"} or any(frame.task for frame in frames),
        more=bool(_MORE.search(text)),
        states=bool(_STATES.search(text)),
        negative=bool(_NEGATIVE.search(text)),
        exclusive=subject in _EXCLUSIVE or bool(_FAVOURITE.search(text)),
        decided=item.category == "decisions" or bool(_SETTLED.search(text)),
        asks=bool(_ASKS.search(text)),
        pending=item.category in {"todo", "open_loops"} or bool(_ASKS.search(text)),
        restated=restated(text),
        answered=news and bool(_ANSWERED.search(text)),
        relations=tuple(relations(text)) if news else (),
        gone=gone(text) if news else frozenset(),
        home=news and (subject == "home" or home_now(text)),
        text=text,
    )


def role_of(frame: Frame) -> frozenset[str]:
    """Return the roles a clause fills with a name: of "my accountant is Amina Bel" the accountant."""
    return frozenset(stem(match[0]) for match in _ROLE.finditer(frame.text)) if frame.named else frozenset()


def restated(text: str) -> frozenset[str]:
    """Return the things of which a text says what they are from now on: "the pergola will be steel"."""
    return frozenset().union(*(topic(match[1]) for match in _WILL_BE.finditer(text)))


def done_verbs(frame: Frame) -> frozenset[str]:
    """Return the stems of what a clause says was done."""
    return frozenset(stem(word) for match in _DONE.finditer(frame.text) for word in WORD.findall(match[0]))


def object_stems(stems: frozenset[str]) -> frozenset[str]:
    """Return the stems that are not verbs of doing: of "ordered the layers" the layers."""
    return stems - _DONE_STEMS


def codes(phrase: str) -> frozenset[str]:
    """Return the words of a phrase that mix digits and letters: "the 10k"."""
    return frozenset(word.lower() for word in WORD.findall(phrase) if not word.isdigit() and not word.isalpha())


def purpose(text: str) -> frozenset[str]:
    """Return what a text says a place or thing is booked for."""
    if not _BOOKED.search(text):
        return frozenset()
    return frozenset().union(*(topic(match[1]) for match in _PURPOSE.finditer(text)))


def _in_context(frames: list[Frame], subject: str, said: frozenset[str]) -> tuple[Frame, ...]:
    """Return the clauses; one that opens with no thing of its own is about what the sentence before was about.

    That topic stands in the item's subject: the words of it that the text itself does not say.
    """
    context = frozenset(subject.split()) - said if " " in subject else frozenset()
    if not context or context <= _EXCLUSIVE or not frames or object_stems(topic(frames[0].text)):
        return tuple(frames)
    return (frames[0]._replace(stems=frames[0].stems | context), *frames[1:])


def _frames(text: str) -> list[Frame]:
    """Return the clauses of a text; one without a thing of its own speaks about the ones before, or opens the one
    after.
    """
    found: list[Frame] = []
    for sentence in sentences(text):
        found.extend(_of_sentence(sentence, found[-1:]))
    return found


def _of_sentence(sentence: str, last: list[Frame]) -> list[Frame]:
    found: list[Frame] = []
    opener: Frame | None = None
    for part in _CLAUSES.split(sentence):
        frame = _frame(part)
        if not frame.stems and not frame.values and not frame.done:
            continue
        if opener is not None:
            frame = frame._replace(
                stems=frame.stems | opener.stems, done=frame.done or opener.done, change=frame.change or opener.change
            )
            opener = None
        if not object_stems(frame.stems):
            if not found and not frame.values:
                opener = frame
                continue
            for earlier in (found[0], found[-1]) if found else last:
                frame = frame._replace(
                    stems=frame.stems | earlier.stems,
                    named=frame.named | earlier.named,
                    change=frame.change or earlier.change,
                )
        elif found and found[-1].named and _CONTACT.search(found[-1].text):
            frame = frame._replace(stems=frame.stems | found[-1].named, named=frame.named | found[-1].named)
        found.append(_priced(frame))
    return found or ([opener] if opener else [])


def _priced(frame: Frame) -> Frame:
    """Return a clause, its bare amount as money where it speaks of a price; a home's cost a month is its rent."""
    monthly = bool(_MONTHLY.search(frame.text))
    rent = frozenset({"rent"}) if monthly and frame.stems & _HOUSING else frozenset[str]()
    if not rent and not frame.stems & _PRICES:
        return frame
    kinds = {"number", "number per month"} if monthly else {"number"}
    given = frozenset(("money", amount) if kind in kinds else (kind, amount) for kind, amount in frame.values)
    return frame._replace(stems=frame.stems | rent, heads=frame.heads | rent, values=given)


def _frame(part: str) -> Frame:
    task = bool(_TASK.search(part))
    given = values(part)
    return Frame(
        text=part,
        stems=topic(part),
        heads=_heads(part),
        named=_named(part, given),
        values=given,
        change=bool(_CHANGE.search(part)),
        done=bool(_DONE.search(part)) and not task,
        task=task,
        negative=bool(_NEGATIVE.search(part)),
    )


def _heads(part: str) -> frozenset[str]:
    """Return the stems right before the clause's amounts and measures: of "the budget is 4,000 euro" the budget."""
    found: set[str] = set()
    if not any(map(str.isdigit, part)):
        return frozenset()
    for match in AMOUNT.finditer(part):
        before = [stem(word) for word in WORD.findall(part[: match.start()])]
        about = topic(part[: match.start()])
        found.update([word for word in before if word in about][-2:])
        after = re.match(r"(?:\s(?:a|an|per) \w+)?\s(?:for|in|as)\s(?:the |my |our )?([\w-]+)", part[match.end() :])
        found.update(topic(after[1]) if after else ())
    return frozenset(found)


def _named(part: str, given: Iterable[Value]) -> frozenset[str]:
    return frozenset(stem(word) for kind, name in given if kind == "name" for word in WORD.findall(name)) - frozenset(
        word.lower() for word in _ACRONYM.findall(part)
    )


def _owners(text: str) -> frozenset[str]:
    """Return whose matter a statement is: "my sister", "Lena's"; empty for the speaker's own."""
    return frozenset(
        stem(owner)
        for match in _OWNER.finditer(text)
        for owner in match.groups()
        if owner and owner.lower() not in STOP and owner.lower() not in _NO_OWNER
    )


def _over(text: str) -> tuple[frozenset[str], ...]:
    """Return, phrase by phrase, the stems of what a statement says is no more."""
    found: list[frozenset[str]] = []
    for match in _OVER.finditer(text):
        phrase = re.split(r"\b(?:to|and|but|because|so|for|with|at|on|in|since|after|by)\b", match[1])[0]
        found.append(topic(phrase) or codes(phrase))
    found.extend(topic(match[1] or match[2] or match[3]) for match in _OFF.finditer(text))
    return tuple(stems for stems in found if stems)
