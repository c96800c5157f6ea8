"""Align a resent history with the stored tree of a conversation, by the longest common run.

A run is a series of messages stored one after another in the tree. The longest run selects the branch, and the messages
after it are new, with two exceptions. If the middle of a history was cut out, it continues with a run further down the
same branch. If the messages before or between runs are at least as many as the posts there, these posts were edited:
the history continues before them as a new branch. Fewer messages than posts mean that the client dropped posts or
replaced them with a summary, which is no edit: such messages are inserted as a side branch before the run.

A provider's compaction item stands for the messages before it: it determines the branch however much was left out.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from cuebook.interfaces.store import Alignment, PostSpot, StoredPath
from cuebook.records.conversation import Conversation

#: Least length of a run further down: a single "ok" does not determine a position.
TAIL = 2


class Continuation(Struct, frozen=True):
    """The position of new messages, and the stored posts of the others.

    New messages follow the stored post `parent` (0: the root, None: the head). `seqs` maps message numbers to posts.
    Posts on a side branch are stored apart and move no head. `matched` messages are on the branch of the history, an
    answer among them if `answered`. Messages after an edit are new even if they are equal. `gaps` are the new messages
    before runs, by the stored post that they follow.
    """

    conversation: Conversation
    parent: int | None = 0
    first_new: int = 0
    seqs: dict[int, int] = {}
    gaps: tuple[tuple[int, range], ...] = ()
    is_side_branch: bool = False
    matched: int = 0
    answered: bool = False
    paths: tuple[StoredPath, ...] | None = None  # those of the conversation that equal the start of the history


def continue_path(path: StoredPath, answers: frozenset[int]) -> Continuation:
    """Return the position after a stored path with which a history begins. See `continue_at`."""
    seqs = dict(enumerate(path.seqs))
    answered = bool(answers & seqs.keys())
    return Continuation(
        path.conversation,
        path.seqs[-1],
        len(seqs),
        seqs,
        is_side_branch=not (answered or path.leads_to_head),
        matched=len(seqs),
        answered=answered,
    )


def anchors(digests: Sequence[bytes], answers: frozenset[int], *, most: int) -> list[bytes]:
    """Return the digests of the newest answers, newest first, by which a conversation is searched."""
    return [digests[number] for number in sorted(answers, reverse=True)[:most]]


class _Run(Struct, frozen=True):
    """Messages `last - length + 1` to `last`, the last of them stored as `seq`."""

    length: int
    last: int
    seq: int

    @property
    def first(self) -> int:
        return self.last - self.length + 1


def continue_at(
    alignment: Alignment,
    answers: frozenset[int] = frozenset(),
    *,
    states: frozenset[int] = frozenset(),
    sure: bool = False,
) -> Continuation:
    """Return the position that a history continues. `answers` are the numbers of its answers.

    A provider's compaction item is unique: a history with a stored one (`states`) continues its branch.

    A history continues a branch if at least half of it is there (with `sure` more than half) with an answer, or if it
    is the start of the branch. Any other history is stored on the side, at the root. So is a call stored on the side
    before without an answer.
    """
    tree, conversation = _AlignmentTree(alignment), alignment.conversation
    run = tree.longest(alignment.places)
    if run is None:
        return Continuation(conversation, is_side_branch=True)
    runs = [*tree.in_front(run), run, *tree.behind(run, answers, states)]
    seqs = {number: seq for each in runs for number, seq in tree.members(each)}
    end, matched = max(seqs), len(seqs)
    answered = bool(answers & seqs.keys())
    is_known = not states.isdisjoint(seqs)
    if (2 * matched < end + 1 + sure and not is_known) or not (answered or tree.begins(seqs) or seqs[end] == tree.head):
        return Continuation(conversation, is_side_branch=True)
    is_side_branch = not answered and not tree.leads_to(seqs[end], tree.head)
    unedited, gaps = tree.unedited(runs)
    last = max(unedited, default=-1)
    return Continuation(
        conversation,
        unedited.get(last, 0),
        last + 1,
        unedited,
        gaps,
        is_side_branch=is_side_branch,
        matched=matched,
        answered=answered,
    )


def same_conversation(
    alignments: Sequence[Alignment], answers: frozenset[int], *, states: frozenset[int] = frozenset()
) -> Continuation | None:
    """Return the conversation that a history without an id continues, or None.

    An answer must match, so that two users' "hi" stay separate. Prefer the conversation with the most matches, then one
    continued at its head, then the most recently used.
    """
    best: tuple[tuple[int, bool, float], Continuation] | None = None
    for alignment in alignments:
        each = continue_at(alignment, answers, states=states, sure=True)
        if not each.answered:
            continue
        conversation = alignment.conversation
        rank = (each.matched, each.parent == conversation.head, conversation.updated_at)
        if best is None or rank > best[0]:
            best = (rank, each)
    return best[1] if best else None


class _AlignmentTree:
    """An alignment with methods to walk its tree."""

    def __init__(self, alignment: Alignment) -> None:
        self._places = alignment.places
        self._posts = alignment.posts
        self._parents = {seq: post_spot.parent for seq, post_spot in alignment.posts.items()}
        self._runs = alignment.runs
        self.head = alignment.conversation.head
        self._children: dict[int, list[int]] = {}
        for seq, parent in self._parents.items():
            self._children.setdefault(parent, []).append(seq)

    def longest(self, places: Sequence[Sequence[int]], start: int = 0) -> _Run | None:
        """Return the longest run.

        Among equal ones, prefer one from a root with the first message, then the later end, then the head's path, then
        the newest.
        """
        longest: list[_Run] = []
        before: dict[int, int] = {}  # seq -> length of the run that ends there, if longer than 1
        last: frozenset[int] = frozenset()
        for number, seqs in enumerate(places, start):
            here = frozenset(seqs)
            before = {seq: before.get(self._parents[seq], 1) + 1 for seq in self._following(here, last)}
            last = here
            top = max(before.values(), default=1 if here else 0)
            least = longest[0].length if longest else 1
            if top >= least:
                ends = [seq for seq, length in before.items() if length == top] if before else here
                longest = [*(longest if top == least else ()), *(_Run(top, number, seq) for seq in ends)]
        return max(longest, key=self._rank, default=None)

    def _rank(self, run: _Run) -> tuple[bool, int, bool, int]:
        rooted = run.first == 0 and self._posts[run.seq].depth == run.length
        return rooted, run.last, self.leads_to(run.seq, self.head), run.seq

    def _following(self, here: frozenset[int], last: frozenset[int]) -> Iterable[int]:
        """Return the posts among `here` that follow one among `last`, by iterating over the smaller set."""
        if len(here) <= len(last):
            return [seq for seq in here if self._parents[seq] in last]
        return [child for seq in last for child in self._children.get(seq, ()) if child in here]

    def members(self, run: _Run) -> list[tuple[int, int]]:
        """Return a run's messages with their posts, last first."""
        members, seq = [], run.seq
        for number in range(run.last, run.first - 1, -1):
            members.append((number, seq))
            seq = self._parents[seq]
        return members

    def leads_to(self, seq: int, below: int) -> bool:
        """Return whether a post is on the path that ends at another (0: none)."""
        if not below or not seq:
            return not seq
        end, start = below, self._posts[below].run
        while end >= seq:
            if start <= seq:
                return True
            end, start = self._runs[start]
        return False

    def begins(self, seqs: dict[int, int]) -> bool:
        """Return whether a history starts at a root with its first message."""
        return 0 in seqs and self._posts[seqs[0]].depth == 1

    def in_front(self, run: _Run) -> list[_Run]:
        """Return the run from the root before another on its branch, or None."""
        top = self.members(run)[-1][1]
        seq = length = 0
        for number in range(run.first):
            follows = [each for each in self._places[number] if self._parents[each] == seq and self.leads_to(each, top)]
            if not follows or follows[0] == top:
                break
            seq, length = follows[0], number + 1
        return [_Run(length, length - 1, seq)] if length else []

    def behind(self, run: _Run, answers: frozenset[int], states: frozenset[int]) -> list[_Run]:
        """Return the later runs on the branch that continue the history, in order."""
        runs: list[_Run] = []
        while True:
            below = [
                tuple(seq for seq in seqs if seq > run.seq and self.leads_to(run.seq, seq))
                for seqs in self._places[run.last + 1 :]
            ]
            tail = self.longest(below, run.last + 1)
            numbers = range(tail.first, tail.last + 1) if tail is not None else range(0)
            if tail is None or (states.isdisjoint(numbers) and (tail.length < TAIL or answers.isdisjoint(numbers))):
                return runs
            runs.append(tail)
            run = tail

    def unedited(self, runs: Sequence[_Run]) -> tuple[dict[int, int], tuple[tuple[int, range], ...]]:
        """Return the posts of the messages before the first edit, and the new messages between these runs.

        A new message before a run follows the post before that run, and so does one inserted there before.
        """
        remaining: dict[int, int] = {}
        gaps: list[tuple[int, range]] = []
        number, depth = 0, 0
        for run in runs:
            members = self.members(run)
            top = members[-1][1]
            first: PostSpot = self._posts[top]
            between, posts = run.first - number, first.depth - 1 - depth
            if between and between >= posts:
                break
            at = first.parent
            for n in range(number, run.first):
                inserted = next((seq for seq in self._places[n] if self._parents[seq] == at and seq != top), None)
                if inserted is None:
                    gaps.append((at, range(n, run.first)))
                    break
                remaining[n] = at = inserted
            remaining.update(members)
            number, depth = run.last + 1, first.depth - 1 + run.length
        return remaining, tuple(gaps)
