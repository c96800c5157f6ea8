"""Collect the evidence for automatic rollbacks of a new version, incrementally: each observation is processed once.

The cost of a verdict depends on the new observations only, however long a prompt was observed.
"""

import statistics
from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from cuebook.prompts.rollback import (
    UNAIDED,
    EvidenceUnits,
    RollbackStatus,
    either,
    halved,
    judged,
    openings,
    talks,
    units,
)
from cuebook.prompts.trial import GuardSettings, Trial, tried, wealth
from cuebook.records.prompt import Observation

#: Maximum individually stored conversations, the newest: more than any window or baseline needs.
KEPT = 200
#: Conversations per running mean in the chart.
RUNNING = 10


class ConversationEvidence:
    """A conversation by its observations so far."""

    def __init__(self, first: Observation) -> None:
        self.number = first.number
        self.at = first.at
        self.is_one = True  # it used no other version
        self._sum = 0.0
        self._count = 0

    @property
    def score(self) -> float:
        """Return the mean score."""
        return self._sum / self._count

    def add(self, observation: Observation) -> None:
        """Add an observation."""
        self.is_one &= observation.number == self.number
        self._sum += observation.score
        self._count += 1


class Docket:
    """The evidence of a branch's newest version since its trial began; `mark` is after the last observation."""

    def __init__(self, name: str, new: int, control: int, since: float, *, settings: GuardSettings) -> None:
        self.name = name
        self.new = new
        self.control = control
        self.since = since
        self.mark = 0
        self.revised = 0  # number of corrected observations at its beginning
        #: Ended conversations: the control's from before, the new version's since.
        self.before: deque[Observation] = deque(maxlen=KEPT)
        self.now: deque[Observation] = deque(maxlen=KEPT)
        #: Begun conversations: the control's from before and since, the new version's first ones and the others.
        self.control_before: deque[ConversationEvidence] = deque(maxlen=KEPT)
        self.control_beside: deque[ConversationEvidence] = deque(maxlen=KEPT)
        self.new_first: list[ConversationEvidence] = []
        self.new_later: deque[ConversationEvidence] = deque(maxlen=KEPT)
        self._least = settings.least
        self._half = halved(settings)
        self._began = self._ended = Trial()
        self._units = EvidenceUnits()
        self._conversations: dict[str, ConversationEvidence] = {}
        self._watched: set[str] = set()

    @property
    def watched(self) -> bool:
        """Return whether the control has enough earlier conversations for a comparison."""
        return len(self._watched) >= self._least

    @property
    def baseline(self) -> str:
        """Return how many of the needed earlier conversations of the control were observed."""
        return f"{len(self._watched)} of {self._least} conversations observed with version {self.control} before it"

    @property
    def by_lot(self) -> bool:
        """Return whether conversations are randomized between the two, that is, the control had one."""
        return self._began.control > 0

    def verdict(self) -> RollbackStatus:
        """Return the verdict by the control: half of the stake on conversation starts, half on whole conversations."""
        return either(judged(self._began, self._half), judged(self._ended, self._half))

    def add(self, observations: Sequence[Observation], mark: int, now: float, *, cut: bool = False) -> None:
        """Add observations of the two; `cut` if more exist than were read, so that enough are from before."""
        self.mark = mark
        drawn = [_drawn(each) for each in observations]
        for unit in openings(each for each in drawn if each.conversation not in self._conversations):
            self._began = self._bet(self._began, unit)
        for each in drawn:
            if (cut or (each.number == self.control and each.at < self.since)) and not self.watched:
                self._watched.add(each.conversation)
            self._add_to_conversation(each)
        for unit in self._units.add_observations(drawn, now):
            self._ended = self._bet(self._ended, unit)
            if unit.number == self.control and unit.at < self.since:
                self.before.append(unit)
            elif unit.number == self.new and unit.at >= self.since:
                self.now.append(unit)

    def _bet(self, trial: Trial, unit: Observation) -> Trial:
        return bet(trial, unit, new=self.new, since=self.since, settings=self._half)

    def _add_to_conversation(self, observation: Observation) -> None:
        evidence = self._conversations.get(observation.conversation) if observation.conversation else None
        if evidence is None:
            evidence = ConversationEvidence(observation)
            if observation.conversation:
                self._conversations[observation.conversation] = evidence
            if evidence.number == self.control:
                (self.control_before if evidence.at < self.since else self.control_beside).append(evidence)
            elif evidence.at >= self.since:
                (self.new_first if len(self.new_first) < UNAIDED.baseline else self.new_later).append(evidence)
        evidence.add(observation)


class Course(Struct, frozen=True, kw_only=True):
    """The course of a trial's evidence: pairs of time (Unix seconds) and value.

    `means` by version: the mean score of its last RUNNING conversations. `wealth` by bet, on how conversations `began`
    and on `whole` conversations: the rest of a stake of 1; empty without randomization.
    """

    means: Mapping[int, tuple[tuple[float, float], ...]]
    wealth: Mapping[str, tuple[tuple[float, float], ...]]


def course(
    observations: Sequence[Observation], *, new: int, control: int, since: float, until: float, settings: GuardSettings
) -> Course:
    """Return the course of a version's trial against its control, from the observations of both up to a time."""
    drawn = [_drawn(each) for each in observations if each.at <= until]
    half, bets = halved(settings), dict[str, tuple[tuple[float, float], ...]]()
    for name, found in (("began", openings(drawn)), ("whole", units(drawn, until))):
        trial, points = Trial(), list[tuple[float, float]]()
        for unit in found:
            after = bet(trial, unit, new=new, since=since, settings=half)
            if after is not trial:
                points.append((unit.at, wealth(after)))
            trial = after
        if points:
            bets[name] = tuple(points)
    means = dict[int, tuple[tuple[float, float], ...]]()
    for number in (control, new):
        conversations = [each for each in talks(drawn) if each.number == number]
        last = [conversations[max(0, at - RUNNING) : at] for at in range(1, len(conversations) + 1)]
        running = [statistics.fmean(each.score for each in some) for some in last]
        means[number] = tuple((each.at, mean) for each, mean in zip(conversations, running, strict=True))
    return Course(means=means, wealth=bets)


def _drawn(observation: Observation) -> Observation:
    """Return an observation with the probability of its version in the trial."""
    return structs.replace(observation, propensity=observation.share) if observation.share else observation


def bet(trial: Trial, unit: Observation, *, new: int, since: float, settings: GuardSettings) -> Trial:
    """Add a conversation to the trial; earlier ones and non-randomized ones do not count."""
    if unit.at < since or not 0.0 < unit.propensity < 1.0:
        return trial
    share = unit.propensity if unit.number == new else 1.0 - unit.propensity
    return tried(trial, settings, new=unit.number == new, share=share, mean=unit.score)
