"""What a statement claims, read for comparison: its clauses with their values, and whether it tells of a change."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from cuebook.memory.cues import (
    ACRONYM,
    AHEAD,
    ANSWERED,
    ASKS,
    BOOKED,
    CHANGE,
    CLAUSES,
    CONTACT,
    DONE,
    DONE_STEMS,
    EXCLUSIVE,
    FAVOURITE,
    FRAGMENT,
    HOUSING,
    MONTHLY,
    MORE,
    NEGATIVE,
    NO_OWNER,
    NOT_YET,
    OFF,
    OVER,
    OWNER,
    PAST,
    PRICES,
    PURPOSE,
    ROLE,
    SETTLED,
    STATES,
    SUBJECT_FIRST,
    TASK,
    WILL_BE,
)
from cuebook.memory.ends import End, Said, ends, sayings
from cuebook.memory.relations import Relation, codes, gone, home_now, reached, relations
from cuebook.memory.sentences import sentences
from cuebook.memory.slots import AMOUNT, WORD, Value, stem, topic, values
from cuebook.memory.vocabulary import STOP
from cuebook.records.expression import Expression, lowered
from cuebook.records.memory import Item


class Frame(NamedTuple):
    """One clause: its words, what it is about, its names' stems among that, and its values."""

    text: str
    stems: frozenset[str]
    heads: frozenset[str]
    named: frozenset[str]
    values: frozenset[Value]
    change: bool
    done: bool
    past: bool
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
    reached: frozenset[str]
    home: bool
    ends: tuple[End, ...]
    said: tuple[Said, ...]
    text: str


def claim_of(item: Item, *, news: bool = False) -> Claim:
    """Read an item's text for comparison; of `news` also what only a new statement is asked: who fills what, who is
    gone.
    """
    text, lower = item.text, lowered(item.text)
    speaker, _, subject = item.subject.partition(" ") if item.subject.startswith("@") else ("", "", item.subject)
    frames = _in_context(_frames(text), subject)
    if news:
        frames = tuple(frame._replace(past=_past(frame)) for frame in frames)
    asks = bool(ASKS.search(lower))
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
        change=bool(CHANGE.search(lower)),
        task=item.category in {"todo", "open_loops"} or any(frame.task for frame in frames),
        more=bool(MORE.search(lower)),
        states=bool(STATES.search(lower)),
        negative=bool(NEGATIVE.search(lower)),
        exclusive=subject in EXCLUSIVE or bool(FAVOURITE.search(lower)),
        decided=item.category == "decisions" or bool(SETTLED.search(lower)),
        asks=asks,
        pending=item.category in {"todo", "open_loops"} or asks,
        restated=restated(text),
        answered=news and bool(ANSWERED.search(lower)),
        relations=tuple(relations(text)) if news else (),
        gone=gone(text) if news else frozenset(),
        reached=reached(text) if news else frozenset(),
        home=news and (subject == "home" or home_now(text)),
        ends=ends(text) if news else (),
        said=sayings(text) if news else (),
        text=text,
    )


def as_held(claim: Claim) -> Claim:
    """Return the claim of a new statement as that of one that is held: as `claim_of` reads its item without `news`."""
    return claim._replace(
        frames=tuple(frame._replace(past=False) for frame in claim.frames),
        answered=False,
        relations=(),
        gone=frozenset(),
        reached=frozenset(),
        home=False,
        ends=(),
        said=(),
    )


def role_of(frame: Frame) -> frozenset[str]:
    """Return the roles a clause fills with a name: of "my accountant is Amina Bel" the accountant."""
    return frozenset(stem(match[0]) for match in ROLE.finditer(frame.text)) if frame.named else frozenset()


def restated(text: str) -> frozenset[str]:
    """Return the things of which a text says what they are from now on: "the pergola will be steel"."""
    return frozenset().union(*(topic(match[1] or match[2]) for match in WILL_BE.finditer(text)))


def done_verbs(frame: Frame) -> frozenset[str]:
    """Return the stems of what a clause says was done."""
    return frozenset(stem(word) for match in DONE.finditer(lowered(frame.text)) for word in WORD.findall(match[0]))


def object_stems(stems: frozenset[str]) -> frozenset[str]:
    """Return the stems that are not verbs of doing: of "ordered the layers" the layers."""
    return stems - DONE_STEMS


def purpose(text: str) -> frozenset[str]:
    """Return what a text says a place or thing is booked for."""
    if not BOOKED.search(text):
        return frozenset()
    return frozenset().union(*(topic(match[1]) for match in PURPOSE.finditer(text)))


def _in_context(frames: list[Frame], subject: str) -> tuple[Frame, ...]:
    """Return the clauses; one that opens with no thing of its own is about what the sentence before was about.

    That topic stands in the item's subject: the words of it that the text itself does not say.
    """
    context = (
        frozenset(subject.split()).difference(*(frame.stems for frame in frames)) if " " in subject else frozenset()
    )
    if not context or context <= EXCLUSIVE or not frames or object_stems(topic(frames[0].text)):
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
    lower = lowered(sentence)
    cues = tuple(pattern for pattern in (CHANGE, DONE, TASK, NEGATIVE) if pattern.search(lower))
    opener: Frame | None = None
    for part in CLAUSES.split(sentence):
        frame = _frame(part, cues)
        if not frame.stems and not frame.values and not frame.done:
            continue
        if opener is not None:
            frame = frame._replace(
                stems=frame.stems | opener.stems, done=frame.done or opener.done, change=frame.change or opener.change
            )
            opener = None
        if found and _fragment(part, frame):
            if object_stems(frame.stems):
                found.append(frame)
            frame = _after(frame, found[0])
        if not object_stems(frame.stems):
            if not found and not frame.values:
                opener = frame
                continue
            for earlier in (found[0], found[-1]) if found else last:
                frame = _after(frame, earlier)
        elif found and found[-1].named and CONTACT.search(found[-1].text):
            frame = frame._replace(stems=frame.stems | found[-1].named, named=frame.named | found[-1].named)
        found.append(_priced(frame))
    return found or ([opener] if opener else [])


def _after(frame: Frame, earlier: Frame) -> Frame:
    """Return a clause as one that goes on about what an earlier one was about."""
    return frame._replace(
        stems=frame.stems | earlier.stems, named=frame.named | earlier.named, change=frame.change or earlier.change
    )


def _past(frame: Frame) -> bool:
    lower = lowered(frame.text)
    return not frame.task and bool(PAST.search(lower)) and not AHEAD.search(lower)


def _fragment(part: str, frame: Frame) -> bool:
    """Tell whether a part of a sentence only adds a value to what it began with: "launch in June"."""
    return bool(
        frame.values
        and len(WORD.findall(part)) <= FRAGMENT
        and not frame.done
        and not STATES.search(lowered(part))
        and not SUBJECT_FIRST.match(part)
    )


def _priced(frame: Frame) -> Frame:
    """Return a clause, its bare amount as money where it speaks of a price; a home's cost a month is its rent."""
    monthly = bool(MONTHLY.search(frame.text))
    rent = frozenset({"rent"}) if monthly and frame.stems & HOUSING else frozenset[str]()
    if not rent and not frame.stems & PRICES:
        return frame
    kinds = {"number", "number per month"} if monthly else {"number"}
    given = frozenset(("money", amount) if kind in kinds else (kind, amount) for kind, amount in frame.values)
    return frame._replace(stems=frame.stems | rent, heads=frame.heads | rent, values=given)


def _frame(part: str, cues: tuple[Expression, ...]) -> Frame:
    """Read one clause; `cues` are the patterns that its sentence has at all."""
    lower = lowered(part)
    shown = {pattern for pattern in cues if pattern.search(lower)}
    task = TASK in shown
    given = values(part)
    return Frame(
        text=part,
        stems=topic(part),
        heads=_heads(part),
        named=_named(part, given),
        values=given,
        change=CHANGE in shown,
        done=DONE in shown and not task,
        past=False,
        task=task,
        negative=NEGATIVE in shown,
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
        word.lower() for word in ACRONYM.findall(part)
    )


def _owners(text: str) -> frozenset[str]:
    """Return whose matter a statement is: "my sister", "Lena's"; empty for the speaker's own."""
    return frozenset(
        stem(owner)
        for match in OWNER.finditer(text)
        for owner in match.groups()
        if owner and owner.lower() not in STOP and owner.lower() not in NO_OWNER
    )


def _over(text: str) -> tuple[frozenset[str], ...]:
    """Return, phrase by phrase, the stems of what a statement says is no more."""
    found: list[frozenset[str]] = []
    for match in OVER.finditer(text):
        if NOT_YET.search(text[max(0, match.start() - 24) : match.start()]):
            continue
        phrase = re.split(r"\b(?:to|and|but|because|so|for|with|at|on|in|since|after|by)\b", match[1])[0]
        found.append(topic(phrase) or codes(phrase))
    found.extend(topic(match[1] or match[2] or match[3]) for match in OFF.finditer(text))
    return tuple(stems for stems in found if stems)
