"""Score the posts of a conversation for relevance and redundancy, each post parsed once (C, "Memory Analyzer")."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from cuebook.memory.actions import Action, JudgedPost, has_key_facts, leave_out, suggest
from cuebook.memory.redundancy import Redundancy
from cuebook.memory.relevance import Scores, at_least, standing
from cuebook.records.conversation import ASSISTANT, PathPost
from cuebook.records.tuning import TuningState


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
            actions=tuple(suggest(self._entries(bytes(scores), tuning, mark), least=least)),
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

    def _entries(self, scores: bytes, tuning: TuningState, mark: int) -> Iterator[JudgedPost]:
        for number, (seq, score) in enumerate(zip(self.seqs, scores, strict=True)):
            yield JudgedPost(
                number,
                score,
                compressed=seq in tuning.compressed,
                gone=seq <= mark or seq in tuning.dropped,
                promoted=seq in tuning.promoted,
                held=bool(self._held[number]),
                facts=bool(self._facts[number]),
                repeated_by=self._repeated_by[number],
            )
