"""Which posts of a path stand in the window, and in which form (C, "Message Partitioning").

Rules of this file: the kept posts are a suffix of the path, but for the query of an open round, which always stays;
compressed posts are charged their real size; a tool call and its results stay together; the sum never exceeds the room.

Cut points lie on a grid: lines a step of the room apart, over the running sum of tokens of the path. A cut point is
moved on to the next line, so it stands still until a step was added, and what stands in front of it stays the same.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from operator import attrgetter

from msgspec import Struct

from cuebook.memory.rolling import held_together
from cuebook.records.conversation import TOOL, PathPost
from cuebook.window.budget import Limits, most_posts
from cuebook.window.post_forms import Placed, calls_of, can_cut, least_of

#: The largest part of the room one post may take: the query, and any other.
QUERY_SHARE, POST_SHARE = 0.5, 0.25

#: Tokens by which shares of a room, each rounded down, may differ from the share of all.
_ROUNDING = 8

_seq, _tokens, _role = attrgetter("seq"), attrgetter("tokens"), attrgetter("role")
_message, _parts = attrgetter("message"), attrgetter("parts")


class Partition(Struct, frozen=True, kw_only=True):
    """The kept posts, oldest first, and those left out. Together they are the path, each once.

    The tokens of a cut post are what it may take; `forms.cut_down` says what it does.
    """

    kept: tuple[Placed, ...]
    dropped: tuple[PathPost, ...]
    tokens: int


class Reach(Struct, frozen=True):
    """How far back a partition may reach, in tokens of its posts: what there is to read of a path."""

    full: int  # of the newest posts, in full
    small_after: int  # behind so many
    small: int  # so many in compressed form
    post: int  # no post counts for more


def reach(limits: Limits, token_budget: int | None) -> Reach:
    """Return how far back a window of this budget may reach, whatever else will stand in it."""
    room = most_posts(limits, token_budget)
    full, small = int(room * limits.full_share), int(room * limits.small_share)
    return Reach(full=small + _ROUNDING, small_after=full, small=small - full + _ROUNDING, post=int(room * POST_SHARE))


def least(path: Sequence[PathPost], query: int) -> int:
    """Tokens that what must stand of a path needs: the query and the newest call with its results, cut as can be."""
    return sum(least_of(path[i]) for i in _pinned(path, query))


def partition(path: Sequence[PathPost], room: int, limits: Limits, *, query: int = 0, begins: bool = True) -> Partition:
    """Place the posts of a path, oldest first, into `room` tokens, at least `least` of them.

    `query` is the seq of the open round's query. `begins` says that nothing was left out before the first post.
    """
    lay = _lay(path, room, limits, query)
    full = _first_full(lay, limits, begins=begins)
    small = _first_small(lay, full, limits, begins=begins)
    if small == full and not (full == 0 and begins):
        small = full = _whole(lay, full)
    early = [i for i in lay.pinned if i < small]  # the query of an open round, before all else
    kept = [_full(path[i], lay.caps[i]) for i in sorted(early)]
    kept += [
        _full(path[i], lay.caps[i]) if i in lay.pinned else _small(path[i], lay.caps[i]) for i in range(small, full)
    ]
    kept += _newest(path, full, lay.caps)
    dropped = [path[i] for i in range(small) if i not in early]
    return Partition(kept=tuple(kept), dropped=tuple(dropped), tokens=sum(map(_tokens, kept)))


class _Lay(Struct, frozen=True):
    """A path as it is laid into a room: what each post takes in full, what must stay, where no cut may fall."""

    path: Sequence[PathPost]
    caps: list[int]
    pinned: frozenset[int]
    kept: int  # tokens of the pinned
    newest: list[int]  # tokens of the others: of the newest post, the newest two, and so on
    whole: int  # index of the oldest of the newest posts that were all read in full
    held: frozenset[int]
    room: int
    step: int


def _lay(path: Sequence[PathPost], room: int, limits: Limits, query: int) -> _Lay:
    pinned = _pinned(path, query)
    caps = _caps(path, room, query)
    if sum(caps[i] for i in pinned) > room:
        _squeeze(path, caps, pinned, room)
    loose = caps[::-1]
    for i in pinned:
        loose[~i] = 0
    return _Lay(
        path=path,
        caps=caps,
        pinned=pinned,
        kept=sum(caps[i] for i in pinned),
        newest=list(accumulate(loose)),
        whole=_whole_from(path),
        held=_held(path),
        room=room,
        step=max(1, int(room * limits.step_share)),
    )


def _whole_from(path: Sequence[PathPost]) -> int:
    """Index of the oldest post from which all were read in full."""
    if all(map(_message, path)):
        return 0
    return next((i + 1 for i in range(len(path) - 1, -1, -1) if path[i].message is None), 0)


def _held(path: Sequence[PathPost]) -> frozenset[int]:
    """Return where no cut may fall: between a call and its results."""
    if not any(map(_parts, path)) and TOOL not in map(_role, path):
        return frozenset()
    calls = {i: calls_of(post) for i, post in enumerate(path)}
    return held_together({i: made for i, made in calls.items() if made is not None})


def _caps(path: Sequence[PathPost], room: int, query: int) -> list[int]:
    """Return what each post takes in full: an oversized one a share of the room that depends on the room alone."""
    most, own = int(room * POST_SHARE), int(room * QUERY_SHARE)
    caps = list(map(_tokens, path))
    for i in [i for i, tokens in enumerate(caps) if tokens > most]:
        cap = own if path[i].seq == query else most
        if caps[i] > cap and can_cut(path[i]):
            caps[i] = max(cap, least_of(path[i]))
    return caps


def _pinned(path: Sequence[PathPost], query: int) -> frozenset[int]:
    """Return what must stay: the query, and the newest call with its results."""
    if not path:
        return frozenset()
    last = start = len(path) - 1
    while start > 0 and _answers(path[start]):
        start -= 1
    at = bisect_left(path, query, key=_seq)
    return frozenset(range(start, last + 1)) | ({at} if at <= last and path[at].seq == query else frozenset())


def _squeeze(path: Sequence[PathPost], caps: list[int], pinned: frozenset[int], room: int) -> None:
    """Cut what must stay until it fits: the largest to the same height, none below its least."""
    least = {i: min(caps[i], least_of(path[i])) for i in pinned}
    spare = max(0, room - sum(least.values()))
    wanting = sorted(pinned, key=lambda i: (caps[i] - least[i], i))
    for position, i in enumerate(wanting):
        given = min(caps[i] - least[i], spare // (len(wanting) - position))
        caps[i] = least[i] + given
        spare -= given


def _answers(post: PathPost) -> bool:
    calls = calls_of(post)
    return calls is not None and bool(calls.answered)


# ---- cut points -----------------------------------------------------------------------------------------------------


def _first_full(lay: _Lay, limits: Limits, *, begins: bool) -> int:
    """Index of the oldest post in full: up to a share of the room, a larger one for as many posts as limits name."""
    older, newest = _fitting(lay, limits.full_share, begins=begins), _fitting(lay, limits.small_share, begins=begins)
    return min(older, max(newest, _window_start(lay, limits.window_posts)))


def _fitting(lay: _Lay, share: float, *, begins: bool) -> int:
    """Index of the oldest post from which all later ones fit a share of the room, moved on to the grid."""
    fit = bisect_right(lay.newest, lay.room * share - lay.kept)
    first = max(len(lay.path) - fit, lay.whole)
    return first if first == 0 and begins else _on_grid(lay, first)


def _window_start(lay: _Lay, posts: int) -> int:
    """Index of the last place on the grid that leaves at least so many posts."""
    start = len(lay.path) - posts
    if start <= 0:
        return 0
    first = _search(lay, _before(lay, start) // lay.step * lay.step)
    while first in lay.held:
        first -= 1
    return max(0, first)


def _first_small(lay: _Lay, full: int, limits: Limits, *, begins: bool) -> int:
    """Index of the oldest compressed post. It depends on the first full one alone, so that both move together."""
    used = lay.kept + (lay.newest[len(lay.path) - full - 1] if full < len(lay.path) else 0)
    full_room, small_room = int(lay.room * limits.full_share), int(lay.room * limits.small_share)
    room = small_room - full_room if used <= full_room else 0
    first = full
    for i in range(full - 1, -1, -1):
        room -= 0 if i in lay.pinned else _small(lay.path[i], lay.caps[i]).tokens
        if room < 0:
            break
        first = i
    if first == 0 and begins:
        return 0
    return min(_on_grid(lay, first), full) if first < full else full


def _newest(path: Sequence[PathPost], first: int, caps: Sequence[int]) -> list[Placed]:
    """Place the posts from an index on in full, as far as they may."""
    placed = [Placed(post, "full", post.tokens) for post in path[first:]]
    for i in [i for i, cap in enumerate(caps[first:]) if cap < placed[i].tokens]:
        placed[i] = _full(placed[i].post, caps[first + i])
    return placed


def _full(post: PathPost, cap: int) -> Placed:
    return Placed(post, "cut" if cap < post.tokens else "full", cap)


def _small(post: PathPost, cap: int) -> Placed:
    if post.small is not None:
        return Placed(post, "compressed", post.small_tokens)
    return Placed(post, "cut", cap) if cap < post.tokens else Placed(post, "full", post.tokens)


def _on_grid(lay: _Lay, first: int) -> int:
    """Move a cut point on to the next line of the grid."""
    if first >= len(lay.path):
        return first
    return _at_line(lay, -(-_before(lay, first) // lay.step) * lay.step)


def _at_line(lay: _Lay, line: int) -> int:
    """Return the cut point of a line: the first post behind it, the first round if one begins before the next line."""
    path = lay.path
    first = _search(lay, line)
    for i in range(first, len(path)):
        if _before(lay, i) >= line + lay.step:
            break
        if path[i].round == path[i].seq and i not in lay.held:
            return i
    return _whole(lay, first)


def _search(lay: _Lay, line: int) -> int:
    """Index of the first post behind a line."""
    return bisect_left(lay.path, line, key=lambda post: post.path_tokens - post.tokens)


def _before(lay: _Lay, i: int) -> int:
    """Tokens of the path before a post."""
    return lay.path[i].path_tokens - lay.path[i].tokens


def _whole(lay: _Lay, first: int) -> int:
    """Move a cut point behind the results of a call that is left out."""
    while first < len(lay.path) and first in lay.held:
        first += 1
    return first
