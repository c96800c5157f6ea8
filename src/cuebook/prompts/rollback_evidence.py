"""What is known of a new version and the one before it: each observation is read once, and folded in.

So a judgement costs what has come since the last one, however long a prompt was observed.
"""

import statistics
from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from cuebook.prompts.rollback import (
    UNAIDED,
    EvidenceUnits,
    RollbackVerdict,
    Unit,
    either,
    halved,
    judged,
    openings,
    talks,
    units,
)
from cuebook.prompts.trial import GuardSettings, Pair, Trial, tried, wealth
from cuebook.records.prompt import Observation

#: Conversations remembered one by one, the newest: more than any window or baseline asks for.
KEPT = 200
#: Conversations a mean runs over where it is shown how it went.
RUNNING = 10


class ConversationEvidence:
    """A conversation by what was said so far."""

    def __init__(self, first: Observation) -> None:
        self.number = first.number
        self.began = first.at
        self.is_one = True  # no other version spoke in it
        self._sum = 0.0
        self._count = 0

    @property
    def mean(self) -> float:
        """The mean score."""
        return self._sum / self._count

    def add(self, seen: Observation) -> None:
        """Add what was said of it."""
        self.is_one &= seen.number == self.number
        self._sum += seen.score
        self._count += 1


class Docket:
    """The evidence of a branch's newest version since it is on trial; `mark` is behind the last observation."""

    def __init__(self, name: str, new: int, control: int, since: float, *, settings: GuardSettings) -> None:
        self.name = name
        self.new = new
        self.control = control
        self.since = since
        self.mark = 0
        self.revised = 0  # how often observations had been corrected when it was begun
        #: Conversations that have ended: the control's of before, the new version's since.
        self.before: deque[Unit] = deque(maxlen=KEPT)
        self.now: deque[Unit] = deque(maxlen=KEPT)
        #: Those that have begun: the control's of before and since, the new version's first ones and the others.
        self.said_before: deque[ConversationEvidence] = deque(maxlen=KEPT)
        self.said_beside: deque[ConversationEvidence] = deque(maxlen=KEPT)
        self.said_first: list[ConversationEvidence] = []
        self.said_now: deque[ConversationEvidence] = deque(maxlen=KEPT)
        self._least = settings.least
        self._half = halved(settings)
        self._began = self._ended = Trial()
        self._talks = EvidenceUnits()
        self._said: dict[str, ConversationEvidence] = {}
        self._watched: set[str] = set()

    @property
    def watched(self) -> bool:
        """Whether the control was observed in conversations enough, before, to be compared with."""
        return len(self._watched) >= self._least

    @property
    def by_lot(self) -> bool:
        """Whether lots are drawn between the two: the control had one."""
        return self._began.control > 0

    def verdict(self) -> RollbackVerdict:
        """Judge by the control: half of the stake is on how conversations began, half on how they were."""
        return either(judged(self._began, self._half), judged(self._ended, self._half))

    def add(self, seen: Sequence[Observation], mark: int, now: float, *, cut: bool = False) -> None:
        """Fold in what was heard of the two; `cut` where there was more than was read, and so enough before."""
        self.mark = mark
        drawn = [structs.replace(each, propensity=each.share) if each.share else each for each in seen]
        for unit in openings(each for each in drawn if each.conversation not in self._said):
            self._began = self._bet(self._began, unit)
        for each in drawn:
            if (cut or (each.number == self.control and each.at < self.since)) and not self.watched:
                self._watched.add(each.conversation)
            self._say(each)
        for unit in self._talks.add_observations(drawn, now):
            self._ended = self._bet(self._ended, unit)
            if unit.number == self.control and unit.began < self.since:
                self.before.append(unit)
            elif unit.number == self.new and unit.began >= self.since:
                self.now.append(unit)

    def _bet(self, trial: Trial, unit: Unit) -> Trial:
        return bet(trial, unit, new=self.new, since=self.since, settings=self._half)

    def _say(self, seen: Observation) -> None:
        talk = self._said.get(seen.conversation) if seen.conversation else None
        if talk is None:
            talk = ConversationEvidence(seen)
            if seen.conversation:
                self._said[seen.conversation] = talk
            if talk.number == self.control:
                (self.said_before if talk.began < self.since else self.said_beside).append(talk)
            elif talk.began >= self.since:
                (self.said_first if len(self.said_first) < UNAIDED.baseline else self.said_now).append(talk)
        talk.add(seen)


class Course(Struct, frozen=True, kw_only=True):
    """How the evidence of a trial went: points of time (Unix seconds) and value.

    `means` by version: the mean score of its last RUNNING conversations. `wealth` by what was bet on, how conversations
    `began` and how they were as a `whole`: what is left of a stake of 1; empty where no lots were drawn.
    """

    means: Mapping[int, tuple[tuple[float, float], ...]]
    wealth: Mapping[str, tuple[tuple[float, float], ...]]


def course(
    seen: Sequence[Observation], *, new: int, control: int, since: float, until: float, settings: GuardSettings
) -> Course:
    """Return how a version's trial beside its control went, of the observations of both up to a time."""
    drawn = [structs.replace(each, propensity=each.share) if each.share else each for each in seen if each.at <= until]
    half, bets = halved(settings), dict[str, tuple[tuple[float, float], ...]]()
    for name, found in (("began", openings(drawn)), ("whole", units(drawn, until))):
        trial, points = Trial(), list[tuple[float, float]]()
        for unit in found:
            after = bet(trial, unit, new=new, since=since, settings=half)
            if after is not trial:
                points.append((unit.began, wealth(after)))
            trial = after
        if points:
            bets[name] = tuple(points)
    means = dict[int, tuple[tuple[float, float], ...]]()
    for number in (control, new):
        said = [each for each in talks(drawn) if each.number == number]
        last = [said[max(0, at - RUNNING) : at] for at in range(1, len(said) + 1)]
        running = [statistics.fmean(each.mean for each in some) for some in last]
        means[number] = tuple((each.began, mean) for each, mean in zip(said, running, strict=True))
    return Course(means=means, wealth=bets)


def bet(trial: Trial, unit: Unit, *, new: int, since: float, settings: GuardSettings) -> Trial:
    """Fold a conversation in; those of before, and those that were not drawn by lot, say nothing in a trial."""
    if unit.began < since or not 0.0 < unit.propensity < 1.0:
        return trial
    share = unit.propensity if unit.number == new else 1.0 - unit.propensity
    return tried(trial, Pair(new=unit.number == new, share=share, mean=unit.mean), settings)
