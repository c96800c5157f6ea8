"""Score the posts of a conversation for relevance and redundancy, and suggest an action for each (C, "Memory
Analyzer").

No action erases anything. A compressed post appears in prompts in its short form, a dropped one not at all. A promoted
post becomes a long-term memory when a summary covers it. The transcript never changes.
"""

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from cuebook.memory.redundancy import Redundancy
from cuebook.memory.relevance import Scores, at_least, standing
from cuebook.records.conversation import ASSISTANT, PathPost
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
            actions=tuple(self._actions(bytes(scores), tuning, mark, least)),
        )

    def marked(self, tuning: TuningState, actions: Sequence[Action], *, mark: int) -> TuningState:
        """Return the tuning after the actions: it marks posts before the newest full window for the next run.

        Posts are only left out if their neighbours still alternate between roles.
        """
        run, newest = tuning.runs + 1, len(self) - tuning.full_message_window
        wanted: dict[str, list[int]] = {"compress": [], "drop": [], "promote": []}
        for action in actions:
            if action.number < newest or action.type == "promote":
                wanted[action.type].append(action.number)
        first = bisect_right(self.seqs, mark)
        remaining = [n for n in range(first, len(self)) if self.seqs[n] not in tuning.dropped]
        places = {number: place for place, number in enumerate(remaining)}
        gone = leave_out([self._roles[n] for n in remaining], [places[n] for n in wanted["drop"]])
        return msgspec.structs.replace(
            tuning,
            runs=run,
            compressed=tuning.compressed | {self.seqs[n]: run for n in wanted["compress"]},
            dropped=tuning.dropped | {self.seqs[remaining[place]]: run for place in gone},
            promoted=tuning.promoted | {self.seqs[n]: run for n in wanted["promote"]},
        )

    def used(self, tuning: TuningState, *, mark: int) -> int:
        """Return the tokens that posts after `mark` take in prompts."""
        every = zip(self.seqs, self._tokens, self._small, strict=True)
        return sum(
            0 if seq in tuning.dropped else small if seq in tuning.compressed else tokens
            for seq, tokens, small in every
            if seq > mark
        )

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
