"""Score the posts of a conversation for relevance and redundancy, and suggest an action for each (C, "Memory
Analyzer").

No action erases anything. A compressed post appears in prompts in its short form, a dropped one not at all. A promoted
post is listed among the conversation's items at once. The transcript never changes.

Scores are integers from 0 to 100 (hundredths): 0.3 as a sum of tenths in floating point is not 0.3.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from math import inf
from typing import Final, Literal

import msgspec
from msgspec import Struct

from cuebook.memory.redundancy import Redundancy
from cuebook.records.conversation import ASSISTANT, TOOL, PathPost
from cuebook.records.expression import Expression, lowered
from cuebook.records.tuning import TuningState

ActionType = Literal["compress", "drop", "promote"]

#: A post below this score is compressed, or dropped if it is compressed already. In hundredths, before any tuning.
LEAST: Final = 30
#: A post with key facts and at least this score is promoted.
PROMOTED: Final = 80
#: The listed patterns: addresses, failures, selectors, API references, credentials, steps. BrowserOS's code
#: also finds "key" inside "monkey".
_KEY_FACT: Final = Expression(
    r"https?://|error|failed|exception|selector|xpath|endpoint|password|credential"
    r"|(?<![a-z])(?:css|apis?|tokens?|keys?)(?![a-z])|\b(?:step|phase)\s+\d"
)


class Action(Struct, frozen=True, gc=False):
    """A suggested action for a post, with its reason."""

    type: ActionType
    number: int
    reason: str


def has_key_facts(text: str) -> bool:
    """Return whether a text contains one of the listed key facts."""
    return _KEY_FACT.search(lowered(text)) is not None


def suggest(
    number: int,
    score: int,
    *,
    least: int = LEAST,
    compressed: bool = False,
    gone: bool = False,
    promoted: bool = False,
    held: bool = False,
    facts: bool = False,
    repeated_by: int = -1,
) -> Iterator[Action]:
    """Yield the suggested actions of a post; `score` and `least`, the lowest that is kept in full, are in hundredths.

    `compressed`: prompts already use its short form. `gone`: already left out of prompts, or covered by a summary.
    `held`: part of a tool call, or no chat message: never left out by itself. `facts`: it has key facts. `repeated_by`
    is the newer post that repeats it, -1 for none.
    """
    low = score < least
    if not gone and low and compressed and not held:
        yield Action("drop", number, f"relevance {_shown(score)} < {_shown(least)}, compressed already")
    elif not gone and not compressed and low:
        yield Action("compress", number, f"relevance {_shown(score)} < {_shown(least)}")
    elif not gone and not compressed and repeated_by >= 0:
        yield Action("compress", number, "repeated by a newer post")
    if score >= PROMOTED and facts and not promoted:
        yield Action("promote", number, f"relevance {_shown(score)} and key facts")


def leave_out(roles: Sequence[str], marked: Collection[int]) -> list[int]:
    """Return the marked posts of a path that can be left out without making two posts of one role adjacent.

    `roles` are the path's, oldest first; `marked` are positions in it. Adjacent posts are left out together or not at
    all. The first and the last post of the path stay.
    """
    gone: list[int] = []
    run: list[int] = []
    for place in sorted(marked):
        if run and place != run[-1] + 1:
            gone += run if _parted(roles, run) else []
            run = []
        run.append(place)
    return gone + (run if run and _parted(roles, run) else [])


def _parted(roles: Sequence[str], run: Sequence[int]) -> bool:
    before, behind = run[0] - 1, run[-1] + 1
    return before >= 0 and behind < len(roles) and roles[before] != roles[behind]


def _shown(score: int) -> str:
    return f"{score / 100:.2f}"


# ---- the posts of a path --------------------------------------------------------------------------------------------


class JudgementResult(Struct, frozen=True, kw_only=True):
    """A judgement. `used` counts the tokens that posts not yet summarized take in prompts."""

    total: int
    relevant: int
    redundant: int
    used: int
    actions: tuple[Action, ...]


class PathJudgement:
    """The posts of a path, oldest first, numbered from 0."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.seqs = array("q")
        self._tokens = array("q")
        self._small = array("q")  # tokens of the compressed form, or of the post if it has none
        self._facts = bytearray()
        self._held = bytearray()
        self._roles: list[str] = []
        self._repeated_by = array("q")
        self._scores = Scores()
        self._redundancy = Redundancy()

    def __len__(self) -> int:
        return len(self.seqs)

    @property
    def last(self) -> int:
        """Seq of the newest post, 0 for none."""
        return self.seqs[-1] if self.seqs else 0

    def add(self, post: PathPost, text: str) -> None:
        """Add the next post, with the text that memory uses of it."""
        number = len(self.seqs)
        self.ids.append(post.id)
        self.seqs.append(post.seq)
        self._tokens.append(post.tokens)
        self._small.append(post.tokens if post.small is None else post.small_tokens)
        self._facts.append(has_key_facts(text))
        self._held.append(post.parts is not None or post.role not in ("user", ASSISTANT))
        self._roles.append(post.role)
        self._repeated_by.append(-1)
        self._scores.add(number, when=post.created_at, points=standing(text, post.role))
        for older in self._redundancy.add(number, text):
            self._repeated_by[older] = number

    def judge(self, tuning: TuningState, *, now: float, mark: int) -> JudgementResult:
        """Return the judgement: posts are compressed and dropped as `tuning` says, and summarized up to seq `mark`."""
        least = round(tuning.min_relevance * 100)
        scores = self._scores.by_number(now)
        return JudgementResult(
            total=len(self),
            relevant=at_least(bytes(scores), least),
            redundant=len(self) - self._repeated_by.count(-1),
            used=self.used(tuning, mark=mark),
            actions=self._possible(list(self._actions(bytes(scores), tuning, mark, least)), tuning, mark),
        )

    def marked(self, tuning: TuningState, actions: Sequence[Action], *, mark: int) -> TuningState:
        """Return the tuning after the actions: it marks posts before the newest full window for the next run.

        Posts are only left out if their neighbors still alternate between roles.
        """
        run, newest = tuning.runs + 1, len(self) - tuning.full_message_window
        wanted: dict[str, list[int]] = {"compress": [], "drop": [], "promote": []}
        for action in actions:
            if action.number < newest or action.type == "promote" or not self._has_short(action.number):
                wanted[action.type].append(action.number)
        gone = self._droppable(wanted["drop"], tuning, mark)
        return msgspec.structs.replace(
            tuning,
            runs=run,
            compressed=tuning.compressed | {self.seqs[n]: run for n in wanted["compress"]},
            dropped=tuning.dropped | {self.seqs[n]: run for n in gone},
            promoted=tuning.promoted | {self.seqs[n]: run for n in wanted["promote"]},
        )

    def shortened(self, tuning: TuningState) -> int:
        """Return how many posts have a shorter form that prompts use; a short post is marked but has none."""
        return sum(self._has_short(number) for number, seq in enumerate(self.seqs) if seq in tuning.compressed)

    def _has_short(self, number: int) -> bool:
        return self._small[number] < self._tokens[number]

    def _droppable(self, numbers: Sequence[int], tuning: TuningState, mark: int) -> list[int]:
        """Return the posts that can be left out of prompts: their neighbors still alternate between roles."""
        first = bisect_right(self.seqs, mark)
        remaining = [n for n in range(first, len(self)) if self.seqs[n] not in tuning.dropped]
        places = {number: place for place, number in enumerate(remaining)}
        return [remaining[at] for at in leave_out([self._roles[n] for n in remaining], [places[n] for n in numbers])]

    def used(self, tuning: TuningState, *, mark: int) -> int:
        """Return the tokens that posts after `mark` take in prompts."""
        every = zip(self.seqs, self._tokens, self._small, strict=True)
        return sum(
            0 if seq in tuning.dropped else small if seq in tuning.compressed else tokens
            for seq, tokens, small in every
            if seq > mark
        )

    def _possible(self, actions: Sequence[Action], tuning: TuningState, mark: int) -> tuple[Action, ...]:
        """Return the actions without drops that cannot happen, which would be suggested forever."""
        newest = len(self) - tuning.full_message_window
        dropped = [each.number for each in actions if each.type == "drop" and each.number < newest]
        possible = set(self._droppable(dropped, tuning, mark)) if dropped else set()
        return tuple(each for each in actions if each.type != "drop" or each.number in possible)

    def _actions(self, scores: bytes, tuning: TuningState, mark: int, least: int) -> Iterator[Action]:
        for number, (seq, score) in enumerate(zip(self.seqs, scores, strict=True)):
            yield from suggest(
                number,
                score,
                least=least,
                compressed=seq in tuning.compressed,
                gone=seq <= mark or seq in tuning.dropped,
                promoted=seq in tuning.promoted,
                held=bool(self._held[number]),
                facts=bool(self._facts[number]),
                repeated_by=self._repeated_by[number],
            )


# ---- relevance ------------------------------------------------------------------------------------------------------

#: BrowserOS's code starts at a stored 1.0, so "ok" never falls below its own threshold.
BASE: Final = 50
HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0
_SHORT_CHARACTERS: Final = 20
_SHORT: Final = -20
_EMPTY: Final = -30
_ROLES: Final = {"system": 10, TOOL: 15}
#: A text gets the points once if it contains one of the words.
_SIGNALS: Final = (
    (15, ("error", "failed")),
    (10, ("http://", "https://")),
    (10, ("selector", "xpath")),
    (20, ("password", "credential")),
    (15, ("important", "critical")),
)
_NOTHING_SAID = Expression(r"\s*(?:ok|yes|no|sure|thanks|hi|hello)\b")


def standing(text: str, role: str) -> int:
    """Return a post's score without its age, in hundredths; -70 to 145."""
    low = lowered(text)
    points = BASE + _ROLES.get(role, 0)
    points += sum(given for given, words in _SIGNALS if any(word in low for word in words))
    points += _SHORT if len(text) < _SHORT_CHARACTERS else 0
    return points + (_EMPTY if _NOTHING_SAID.match(low) else 0)


def recency(age_s: float) -> int:
    """Return the points for a post's age, in hundredths; a post from the future counts as new."""
    return 20 if age_s <= HOUR_S else 10 if age_s <= DAY_S else -10


def clamped(points: int) -> int:
    """Return a score clamped to 0..100."""
    return min(100, max(0, points))


class Scores:
    """The scores of a conversation's posts, ordered by time (posts of the same time in the order of arrival).

    A standing part from a post's words and role is computed once, when it is added. Recency allows only three scores
    per post, so all scores at a given time are three concatenated slices, and no post is processed again.
    """

    def __init__(self) -> None:
        self.numbers = array("q")  # the number of each post
        self._times = array("d")
        self._by_age = (bytearray(), bytearray(), bytearray())

    def __len__(self) -> int:
        return len(self.numbers)

    def add(self, number: int, *, when: float, points: int) -> None:
        """Add a post with its standing part. O(1) if it is the newest, as posts usually are."""
        at = len(self._times)
        if at and when < self._times[-1]:
            at = bisect_right(self._times, when)
        self.numbers.insert(at, number)
        self._times.insert(at, when)
        for scores, age_s in zip(self._by_age, (0.0, DAY_S, inf), strict=True):
            scores.insert(at, clamped(points + recency(age_s)))

    def at(self, now: float) -> bytes:
        """Return every post's score at a time, in the order of `numbers`."""
        day = bisect_left(self._times, now - DAY_S)
        hour = bisect_left(self._times, now - HOUR_S)
        new, recent, old = self._by_age
        return bytes(memoryview(old)[:day]) + memoryview(recent)[day:hour] + memoryview(new)[hour:]

    def by_number(self, now: float) -> Sequence[int]:
        """Return the scores by number, if the numbers are 0, 1, 2 and so on."""
        found = bytearray(len(self))
        for number, score in zip(self.numbers, self.at(now), strict=True):
            found[number] = score
        return found


def at_least(scores: bytes, least: int) -> int:
    """Count the scores that reach a threshold, in hundredths."""
    return sum(scores.count(score) for score in range(max(0, least), 101))
