"""Why a new statement ends an old one, and how surely: a task done, a value changed, a thing dropped, a role filled."""

from collections.abc import Callable
from math import fsum
from typing import Final

from cuebook.memory.change import Claim, Frame, done_verbs, object_stems, purpose, role_of
from cuebook.memory.cues import OWN, OWNER
from cuebook.memory.ends import beside, over
from cuebook.memory.occasions import once, one_of_many, other_label
from cuebook.memory.relations import codes, gone, relations, role, stays, to_reach
from cuebook.memory.routine import per_unit, prices
from cuebook.memory.sentences import sentences
from cuebook.memory.slots import clash, stem
from cuebook.memory.subject import about, statements
from cuebook.memory.whose import apart, beyond, elsewhere, other_people, places

#: How sure, and the clause of the old statement that is over ("" for all of it).
Verdict = tuple[float, str]
NOTHING: Final[Verdict] = (0.0, "")


#: Of these one has several, and another is nobody's successor.
MANY: Final = frozenset(
    map(
        stem,
        "sister brother cousin aunt uncle niece nephew son daughter child friend colleague neighbour client".split(),
    )
)
#: Of "no more quiz nights" the quiz is over, not the nights.
YEARLY: Final = frozenset({"birthday", "anniversary"})
#: What every number may be called: the stall's number is not the house's.
NUMBERED: Final = frozenset({"number"})
TIMES: Final = frozenset({"night", "morning", "evening", "afternoon", "session"})


class Judge:
    """Weighs reasons, by how rare the words are that two statements share."""

    def __init__(self, rarity: Callable[[str], float], common: Callable[[], float]) -> None:
        self._rarity = rarity
        self._common = common

    def evidence(self, new: Claim, old: Claim) -> Verdict:
        """Return how surely `new` ends `old` by the strongest of its reasons, and the clause it ends; 0: it cannot."""
        if new.speaker != old.speaker or new.seq < old.seq:
            return NOTHING
        done = max(
            self._done(new, old),
            self._answered(new, old),
            self._filled(new, old),
            self._left(new, old),
            self._reached(new, old),
            self._repriced(new, old),
        )
        if done > NOTHING or (new.owners and old.owners and not new.owners & old.owners):
            return done
        reasons = (self._ended, self._moved, self._over, self._exclusive, self._denied, self._restated)
        return max(reason(new, old) for reason in reasons)

    def _ended(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: what is so no more, or so again, against the clause that says the opposite."""
        if not new.ends and not new.said:
            return NOTHING
        parts = (part for frame in old.frames for part in statements(frame.text))
        return next(((1.1, part) for part, told in parts if over(new.ends, new.said, told)), NOTHING)

    def _filled(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: a place that only one fills, filled anew: a landlord, a home, a supplier, whoever minds the dog."""
        best = NOTHING
        theirs = relations(old.text) if new.relations else ()
        for one in new.relations:
            for two in theirs:
                if (
                    one.slot != two.slot
                    or one.holder & two.holder
                    or (one.kind and two.kind and not one.kind & two.kind)
                ):
                    continue
                sure = one.single or new.change or (one.slot.startswith("source ") and new.decided)
                if one.slot == "home":
                    sure = new.home
                if sure and not new.more and (one.slot == "home" or not _others(new, old)):
                    best = max(best, (1.1, two.text))
        return best

    def _repriced(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: what one of a thing costs from now on, against the one price the old statement gives it."""
        if not new.change or new.more or not any(kind == "money" for kind, _ in old.values):
            return NOTHING
        for thing, amount in prices(new.text):
            told = [frame for frame in old.frames if any(kind == "money" for kind, _ in frame.values)]
            if thing <= old.stems and len(told) == 1 and amount not in old.values and per_unit(old.text):
                return (1.05, told[0].text)
        return NOTHING

    def _reached(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: whoever had to be told or rung was."""
        common = new.reached & old.stems
        return (1.05, "") if common and old.task and common & to_reach(old.text) else NOTHING

    def _left(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: somebody has gone, against what they did for the speaker or that they were staying."""
        if not new.gone & old.stems or new.gone & gone(old.text):
            return NOTHING
        for two in relations(old.text):
            if two.slot.startswith(("duty ", "role ")) and two.holder & new.gone:
                return (1.05, two.text)
        if stays(old.text) and len(sentences(old.text)) == 1:
            return (1.05, next((frame.text for frame in old.frames if new.gone & frame.stems), ""))
        return NOTHING

    def _answered(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: somebody answered, against what had to be asked, found out or agreed: two words of it, one a thing."""
        if not new.answered or not old.pending or any(frame.task for frame in new.frames):
            return NOTHING
        common = new.stems & old.stems
        things = object_stems(common) - new.named - old.named
        rare = [found for found in things if self._rarity(found) >= self._common()]
        return (1.05, "") if len(common) >= 2 and rare else NOTHING

    def _done(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: a clause that reports something done, against a task: "ordered the layers" and "I have to order the
        layers".

        What is no task but has a date ends by the very verb: "the submission is on the 19th" by "we submitted".
        """
        best = NOTHING
        tasks = [frame for frame in old.frames if frame.task] or [frame for frame in old.frames if old.task]
        dated = [
            frame
            for frame in old.frames
            if not old.task and any(kind in {"date", "weekday"} for kind, _ in frame.values) and not once(frame.text)
        ]
        names = new.named | old.named
        for frame in new.frames:
            common = frame.stems & old.stems
            enough = (
                len(common) >= 2
                and object_stems(common) - names
                and self._mass(common) >= 0.6 * self._mass(frame.stems)
            )
            if old.task and enough and not frame.task and (frame.done or old.asks):
                best = max(best, (1.05, ""))
            if not frame.done and not frame.past:
                continue
            for task in (*tasks, *dated):
                common = frame.stems & task.stems
                things = object_stems(common) - names
                if self._whole(things, frame, task) and (task in tasks or _once(task)):
                    best = max(best, (1.05, task.text))
                elif (frame.done and task in tasks and things) or (task in dated and common & done_verbs(frame)):
                    share = self._share(
                        common, frame.stems - (frame.named - common), task.stems - (task.named - common)
                    )
                    best = max(best, (share + 0.45, task.text) if share >= 0.5 else NOTHING)
        return best

    def _whole(self, things: frozenset[str], frame: Frame, task: Frame) -> bool:
        """Tell whether the thing done is the task's own: all the done clause speaks of, and one rare noun of it."""
        mine = object_stems(frame.stems) - frame.named
        rare = any(self._rarity(found) >= self._common() for found in things)
        return rare and self._mass(things) >= 0.6 * self._mass(mine) and not (frame.named and task.named - frame.named)

    def _moved(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: clauses about one thing that give other values of one type, in a statement that reports a change."""
        best = NOTHING
        for one in new.frames:
            roles = {role(found) for found in role_of(one)} if one.change and old.named else set()
            for two in old.frames:
                if roles & MANY and other_people(one.text, two.text):
                    continue
                if (
                    roles & set(map(role, two.stems))
                    and old.named
                    and not one.named & old.named
                    and not _other_kind(new, old)
                ):
                    best = max(best, (1.1, two.text))
                best = max(best, self._revalued(new, old, one, two))
        return best

    def _revalued(self, new: Claim, old: Claim, one: Frame, two: Frame) -> Verdict:
        common = one.stems & two.stems
        if not (one.change or new.change) and (other_label(one.text, two.text) or (once(one.text) and once(two.text))):
            return NOTHING
        if other_people(one.text, two.text) or beside(one.text, two.text):
            return NOTHING
        clashes = clash(one.values, two.values) - {"name"}
        if one.change and not clashes:
            clashes = _bare_amount(one, two)
        if not common - NUMBERED or not clashes or (new.more and not one.change) or _of_another(one, two):
            return NOTHING
        mine, theirs = (object_stems(frame.stems) | common for frame in (one, two))
        share = self._share(common, mine - (one.named - common), theirs - (two.named - common))
        amounts = {kind for kind in clashes if kind == "money" or kind.startswith("number")}
        headed = bool(amounts and one.heads & two.heads)
        if headed:
            share = max(share, 0.7) if _same_thing(one, two, new, old) else 0.0
        if "place" in clashes and common & (new.named | old.named):
            share = max(share, 0.6)
        same_subject = bool(new.subject) and new.subject == old.subject and new.states and old.states
        changed = one.change or (new.change and share >= 0.7 and len(common) >= 2)
        measured = headed and share >= 0.9 and not new.more
        if share < 0.5 or not (changed or same_subject or measured) or (clashes == {"number"} and not headed):
            return NOTHING
        return (share + 0.5 + 0.1 * changed + 0.15 * same_subject, two.text)

    def _over(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: "quit the choir", "no longer X", "X is off": the phrase's words in the old statement, and how much of
        it they are.
        """
        best = NOTHING
        for phrase in new.over:
            things = object_stems(phrase) - TIMES or phrase
            said = [frame.text for frame in new.frames if phrase & frame.stems] or [new.text]
            for frame in old.frames:
                named = things & frame.stems
                if named and any(named <= places(text) and phrase - places(text) for text in said):
                    continue
                if all(_elsewhere(text, frame.text, old.text) for text in said):
                    continue
                common = things & (frame.stems | codes(frame.text))
                if common and self._mass(common) >= 0.6 * self._mass(things) and not (frame.negative and new.negative):
                    whole = self._mass(frame.stems)  # 0 where a clause holds nothing but a code: "I always do the 10k"
                    share = self._mass(common) / whole if whole else 1.0
                    if share >= (0.5 if frame.task else 0.2):
                        best = max(best, (0.8 + share, frame.text))
        return best

    def _exclusive(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: home, job, diet, name, favourites have one value at a time."""
        if not (new.exclusive and new.subject == old.subject) or new.more or bool(new.owners) != bool(old.owners):
            return NOTHING
        if not (new.change and not new.values & old.values):
            clashes = clash(new.values, old.values)
            if "place" not in clashes and (not clashes or new.values & old.values):
                return NOTHING
        return (1.1, about(old.text, old.subject))

    def _denied(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: the same said with the opposite sign, after a change."""
        best = NOTHING
        for one in new.frames:
            for two in old.frames:
                common = one.stems & two.stems
                if common and one.negative != two.negative and (apart(one.text, two.text) or beyond(one.text, common)):
                    continue
                if one.negative != two.negative and (one.change or one.negative) and new.change and len(common) >= 2:
                    best = max(best, (0.5 + self._share(common, one.stems, two.stems), two.text))
        return best

    def _restated(self, new: Claim, old: Claim) -> Verdict:
        """Weigh: after a change, what a thing will be now, against the decision about that thing."""
        if not (new.change and old.decided) or new.more:
            return NOTHING
        things = object_stems(new.restated)
        booked = things & purpose(old.text) if things & old.stems else frozenset()
        if booked and self._mass(booked) >= 0.5 * self._mass(things):
            return (1.05, "")
        for frame in old.frames:
            common = things & frame.stems
            if (
                common
                and self._mass(common) >= 0.5 * self._mass(frame.stems)
                and self._mass(common) >= 0.5 * self._mass(things)
            ):
                return (1.05, "")
        return NOTHING

    def _share(self, common: frozenset[str], one: frozenset[str], two: frozenset[str]) -> float:
        """Return the weighted share of `common` in the smaller of two statements, damped where both say much more."""
        if not common:
            return 0.0
        mass, left, right = self._mass(common), self._mass(one), self._mass(two)
        return 0.7 * mass / (min(left, right) or 1.0) + 0.3 * mass / (max(left, right) or 1.0)

    def _mass(self, stems: frozenset[str]) -> float:
        return fsum(map(self._rarity, stems))  # the same sum in whatever order a set gives them


def _elsewhere(new: str, clause: str, old: str) -> bool:
    """Tell whether a new clause is of other people, of another place, or of another side of a thing than an old one."""
    return apart(new, clause) or elsewhere(new, clause) or beside(new, old) or one_of_many(new, clause)


def _bare_amount(one: Frame, two: Frame) -> set[str]:
    """Return the one kind of amount the old clause has where the new one only says the number: "put up to 40"."""
    bare = {amount for kind, amount in one.values if kind == "number"}
    kinds = {kind for kind, _ in two.values if kind == "money" or kind.startswith("number")}
    known = {kind for kind, _ in one.values} & kinds
    if len(bare) != 1 or len(kinds) != 1 or known or bare & {amount for _, amount in two.values}:
        return set()
    return kinds


def _other_kind(new: Claim, old: Claim) -> bool:
    """Tell whether the role both name is another one after all: the piano teacher, the maths teacher."""
    mine = [one for one in new.relations if one.slot.startswith("role ") and one.kind]
    theirs = [two for two in relations(old.text) if two.kind] if mine else []
    return any(one.slot == two.slot and not one.kind & two.kind for one in mine for two in theirs)


def _once(frame: Frame) -> bool:
    """Tell whether a clause tells of one day only: a date, and nothing that comes back every year."""
    return any(kind == "date" for kind, _ in frame.values) and not frame.stems & YEARLY and not frame.change


def _others(new: Claim, old: Claim) -> bool:
    """Tell whether two statements are about different people's matters."""
    mine, theirs = new.owners - new.named, old.owners - old.named
    return bool(mine and theirs and not mine & theirs) and not {role(found) for found in mine} & set(map(role, theirs))


def _of_another(one: Frame, two: Frame) -> bool:
    """Tell whether one clause is of the speaker's own thing and the other of the same thing of somebody else's."""
    mine, theirs = (OWN.search(frame.text) for frame in (one, two))
    return bool(mine and OWNER.search(two.text) and not OWN.search(two.text)) or bool(
        theirs and OWNER.search(one.text) and not OWN.search(one.text)
    )


def _same_thing(one: Frame, two: Frame, new: Claim, old: Claim) -> bool:
    """Tell whether two amounts of one head are of one thing: the budget, but not the kitchen's and the terrace's."""
    mine, theirs = one.heads - two.heads, two.heads - one.heads
    return not mine or not theirs or bool(mine & old.stems) or bool(theirs & new.stems)
