"""Page through the posts of one branch with its forks to other branches."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from cuebook.engine.core.services import Services
from cuebook.errors import NotFound
from cuebook.records.conversation import Post
from cuebook.records.expression import shortened
from cuebook.records.memory import Scope
from cuebook.records.turn import PostRun, TurnEntry
from cuebook.storage.store import Store

#: Posts per page, branches listed per fork, and characters shown of each branch.
POSTS: Final = 200
WAYS: Final = 20
SAID: Final = 80


class Way(Struct, frozen=True):
    """One of several branches after a post: its first post, its newest post, and its first words."""

    first: int
    last: int
    said: str
    here: bool  # it is the displayed branch


class TranscriptStretch(Struct, frozen=True, kw_only=True):
    """A page of one branch of a conversation's tree, or of all branches, oldest first."""

    posts: tuple[Post, ...]
    turns: tuple[TurnEntry, ...]  # that answered its rounds, on any branch
    partings: dict[int, tuple[Way, ...]]  # by the post before the fork, 0 for the start; at most WAYS each
    before: int  # posts on the branch before these
    count: int  # posts on the branch
    older: int | None  # seq after which the previous page starts; None on the first page
    newer: int | None
    last: int  # the branch's last post
    current: bool  # it is the head's path
    shared: int  # the last post shared with the head's path, 0 for none
    branches: int  # number of branches in all
    side: frozenset[int] = frozenset()  # posts that are not on the head's path


async def read_stretch(
    services: Services,
    conversation: str,
    *,
    user: str | None = None,
    branch: int | None = None,
    behind: int | None = None,
    around: str | None = None,
    every_branch: bool = False,
) -> TranscriptStretch:
    """Return a page of POSTS posts of the head's path, or of the newest branch through the post with seq `branch`.

    With `every_branch`, return the posts of all branches in the order in which they were stored.
    By default the newest posts; with `behind` those after a seq; with `around` those around a post's id, on a
    branch through it. Raises NotFound.
    """
    scope, store = Scope(user=user), services.store
    known = await store.conversation(scope, conversation)
    tree = _RunTree(await store.talks.runs(scope, conversation), known.head)
    middle = None
    if around:
        post_place = (await store.talks.places(scope, conversation, [around])).get(around)
        if post_place is None:
            msg = f"Unknown post {around!r} in conversation {conversation!r}."
            raise NotFound(msg)
        middle = post_place.seq
    if every_branch:
        way = _Path([(1, known.last_seq)] if known.last_seq else [])
    else:
        way = tree.way_through(branch if branch is not None else middle)
    if middle is not None:
        start = way.before(middle) - POSTS // 2
    else:
        start = way.count if behind is None else way.before(behind)
    start = max(0, min(start, way.count - POSTS))
    posts = await store.posts(
        scope, conversation, after=way.seq_at(start), limit=POSTS, head=way.last, path=not every_branch
    ) if way.count else []  # fmt: skip
    rounds = [each.round for each in posts]
    turns = await store.talks.answering(scope, conversation, first=min(rounds), last=max(rounds)) if rounds else []
    parents = [way.seq_at(start), *(each.seq for each in posts)]
    return TranscriptStretch(
        posts=tuple(posts),
        turns=tuple(turns),
        partings={} if every_branch else await _partings(store, scope, conversation, tree, way=way, parents=parents),
        before=start,
        count=way.count,
        older=way.seq_at(max(0, start - POSTS)) if start else None,
        newer=way.seq_at(start + POSTS) if start + POSTS < way.count else None,
        last=way.last,
        current=every_branch or way.last == known.head,
        shared=tree.shared(way),
        branches=tree.leaves,
        side=frozenset(each.seq for each in posts if not tree.is_current(each.seq)),
    )


async def _partings(
    store: Store, scope: Scope, conversation: str, tree: "_RunTree", *, way: "_Path", parents: Sequence[int]
) -> dict[int, tuple[Way, ...]]:
    """Return the forks of a branch: the branches after its posts that it does not follow."""
    results: dict[int, list[int]] = {}
    for parent in parents:
        ways = tree.behind(parent)
        if len(ways) > 1 or (ways and parent == way.last):
            recent_ways = ways[-WAYS:]
            own = next((each for each in ways if way.holds(each)), None)
            results[parent] = recent_ways if own is None or own in recent_ways else [own, *recent_ways[1:]]
    firsts = sorted({each for ways in results.values() for each in ways})
    posts = await store.posts_in(scope, conversation, [(each, each) for each in firsts])
    values = {each.seq: each.message or "" for each in posts}
    return {
        parent: tuple(
            Way(each, tree.newest(each), shortened(values.get(each, ""), SAID), way.holds(each)) for each in ways
        )
        for parent, ways in results.items()
    }


class _Path:
    """A path from the root to a post, as spans of consecutive seqs, oldest first."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self._firsts = [first for first, _ in spans]
        self._lasts = [last for _, last in spans]
        self._before = [0]  # posts before each span
        for first, last in spans:
            self._before.append(self._before[-1] + last - first + 1)
        self.count = self._before[-1]
        self.last = self._lasts[-1] if spans else 0

    def holds(self, seq: int) -> bool:
        """Return whether a post is on the path."""
        at = bisect_right(self._firsts, seq) - 1
        return at >= 0 and seq <= self._lasts[at]

    def before(self, seq: int) -> int:
        """Return the number of its posts up to a seq, inclusive."""
        at = bisect_right(self._firsts, seq) - 1
        return 0 if at < 0 else self._before[at] + min(seq, self._lasts[at]) - self._firsts[at] + 1

    def seq_at(self, count: int) -> int:
        """Return the seq of its post number `count`, from 1; 0 for 0."""
        if not count:
            return 0
        at = bisect_right(self._before, count - 1) - 1
        return self._firsts[at] + count - 1 - self._before[at]


class _RunTree:
    """A conversation's tree of runs (chains of consecutive posts)."""

    def __init__(self, runs: Sequence[PostRun], head: int) -> None:
        self._runs = runs
        self._firsts = [each.first for each in runs]
        self._behind: dict[int, list[int]] = {}  # first posts of runs by parent
        for each in runs:
            self._behind.setdefault(each.parent, []).append(each.first)
        self._newest: dict[int, int] = {}  # the newest descendant of a run's first post
        self._deep: dict[int, list[tuple[int, int]]] = {}  # children of a run's posts, each with its newest descendant
        for each in reversed(runs):  # a child run starts after its parent
            newest = max([each.last, *(last for _, last in self._deep.get(each.first, ()))])
            self._newest[each.first] = newest
            if each.parent:
                self._deep.setdefault(self._run(each.parent).first, []).append((each.parent, newest))
        self.leaves = sum(each.last not in self._behind for each in runs)
        self._head = self._path(head)

    def _run(self, seq: int) -> PostRun:
        return self._runs[bisect_right(self._firsts, seq) - 1]

    def _path(self, last: int) -> _Path:
        spans = []
        while last:
            run = self._run(last)
            spans.append((run.first, last))
            last = run.parent
        return _Path(spans[::-1])

    def behind(self, seq: int) -> list[int]:
        """Return the children of a post, oldest first; of 0 the root posts."""
        own = [seq + 1] if seq and seq < self._run(seq).last else []
        return own + self._behind.get(seq, [])

    def newest(self, seq: int) -> int:
        """Return the end of the branch through a post: the head if it is a descendant, else the newest descendant."""
        if self._head.holds(seq):
            return self._head.last
        run = self._run(seq)
        if run.first == seq:
            return self._newest[seq]
        return max([run.last, *(last for post, last in self._deep.get(run.first, ()) if post >= seq)])

    def is_current(self, seq: int) -> bool:
        """Return whether a post is on the head's path."""
        return self._head.holds(seq)

    def shared(self, way: _Path) -> int:
        """Return the last post of a path that is also on the head's path; 0 for none."""
        low, high = 0, min(way.count, self._head.count)
        while low < high:  # two paths share the posts before their fork
            middle = (low + high + 1) // 2
            same = way.seq_at(middle) == self._head.seq_at(middle)
            low, high = (middle, high) if same else (low, middle - 1)
        return way.seq_at(low)

    def way_through(self, seq: int | None) -> _Path:
        """Return the path of the branch through a post, the head's for None. Raises NotFound."""
        if seq is None:
            return self._head
        if not self._runs or not 1 <= seq <= self._runs[-1].last:
            msg = f"Unknown post number {seq}."
            raise NotFound(msg)
        return self._path(self.newest(seq))
