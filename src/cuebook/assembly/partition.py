"""Which posts of a path stand in the window in full, which compressed, which are cut and which are left out (C, "Message Partitioning").

Rules of this file: the kept posts are a suffix of the path, but for the query of an open round, which always stays; compressed
posts are charged their real size; a tool call and its results stay together; cut points move in steps, so that they stand still for
many turns and the front of the prompt with them; the sum never exceeds the room.
"""

from collections.abc import Sequence
from itertools import islice

from msgspec import Struct

from cuebook.assembly.budget import Limits
from cuebook.errors import InvalidInput
from cuebook.records.conversation import PathPost
from cuebook.records.turn import Form

#: The least an oversized post is cut to, in tokens: a head, a marker and a tail.
LEAST_POST = 24
#: Parts that cannot be shortened: calls, and what is no text.
_WHOLE = (b'"function"', b'"image_url"', b'"file"', b'"audio"', b'"input_audio"', b'"opaque"')
#: The largest part of the room one post may take: the query, and any other.
QUERY_SHARE, POST_SHARE = 0.5, 0.25


class Placed(Struct, frozen=True, gc=False):
    """A kept post, its form, and the tokens it may take in it."""

    post: PathPost
    form: Form
    tokens: int


class Partition(Struct, frozen=True, kw_only=True):
    """The kept posts, oldest first, and those of the read path left out. Together they are the path read, each once."""

    kept: tuple[Placed, ...]
    dropped: tuple[PathPost, ...]
    tokens: int


def partition(path: Sequence[PathPost], room: int, limits: Limits, *, query: int = 0) -> Partition:
    """Place the posts of a path, oldest first, into `room` tokens. `query` is the seq of the open round's query.

    Raises InvalidInput when even the posts that must stay, cut as far as they can be, do not fit.
    """
    if not path:
        return Partition(kept=(), dropped=(), tokens=0)
    caps = _caps(path, room, query)
    pinned = _pinned(path, query)
    reserved = sum(caps[i] for i in pinned)
    if reserved > room:
        caps = _squeeze(path, caps, pinned, room)
        reserved = sum(caps[i] for i in pinned)
    full = _first_full(path, caps, pinned, room, limits, reserved)
    small = _first_small(path, caps, pinned, room, limits, reserved, full)
    kept: list[Placed] = []
    dropped: list[PathPost] = []
    for i, post in enumerate(path):
        if i >= full or i in pinned:
            kept.append(Placed(post, "cut" if caps[i] < post.tokens else "full", caps[i]))
        elif i >= small:
            kept.append(Placed(post, *_small(post, caps[i])))
        else:
            dropped.append(post)
    return Partition(kept=tuple(kept), dropped=tuple(dropped), tokens=sum(placed.tokens for placed in kept))


def _small(post: PathPost, cap: int) -> tuple[Form, int]:
    if post.small is not None:
        return "compressed", post.small_tokens
    return ("cut", cap) if cap < post.tokens else ("full", post.tokens)


def _small_size(post: PathPost, cap: int) -> int:
    return _small(post, cap)[1]


def _caps(path: Sequence[PathPost], room: int, query: int) -> list[int]:
    """Give the most each post takes: an oversized one is cut to a share of the room that depends on the room alone."""
    other, own = max(LEAST_POST, int(room * POST_SHARE)), max(LEAST_POST, int(room * QUERY_SHARE))
    least = min(other, own)  # most posts are below both, and need no look at what they hold
    return [
        post.tokens
        if post.tokens <= least or not can_cut(post)
        else min(post.tokens, own if post.seq == query else other)
        for post in path
    ]


def can_cut(post: PathPost) -> bool:
    """Whether a post may be cut: its text may, its tool calls' arguments never."""
    return post.tokens > LEAST_POST and (post.parts is None or not any(kind in post.parts for kind in _WHOLE))


def _pinned(path: Sequence[PathPost], query: int) -> set[int]:
    """Say what must stay: the query, and the newest call with its results."""
    last = len(path) - 1
    start = last
    while start > 0 and path[start].role == "tool":
        start -= 1
    pinned = set(range(start, last + 1))
    if query:
        pinned.update(islice((i for i in range(last, -1, -1) if path[i].seq == query), 1))
    return pinned


def _squeeze(path: Sequence[PathPost], caps: list[int], pinned: set[int], room: int) -> list[int]:
    """Cut what must stay until it fits: the largest first, all to the same height."""
    fixed = sum(caps[i] for i in pinned if not can_cut(path[i]))
    loose = sorted((caps[i], i) for i in pinned if can_cut(path[i]))
    left = room - fixed
    squeezed = list(caps)
    for position, (size, i) in enumerate(loose):
        share = left // (len(loose) - position)
        squeezed[i] = min(size, share)
        left -= squeezed[i]
    if any(squeezed[i] < min(LEAST_POST, caps[i]) for _, i in loose) or left < 0:
        needed = fixed + LEAST_POST * len(loose)
        msg = f"the posts that must stand in the window need at least {needed} tokens and it has room for {room}; allow more"
        raise InvalidInput(msg, where="tokenBudget")
    return squeezed


def _first_full(
    path: Sequence[PathPost], caps: list[int], pinned: set[int], room: int, limits: Limits, reserved: int
) -> int:
    """Index of the oldest post of the full part: exact by the sums, then moved on to the next step of the grid."""
    used, first = reserved, len(path)
    window_start = len(path) - limits.window_posts
    for i in range(len(path) - 1, -1, -1):
        used += 0 if i in pinned else caps[i]
        share = limits.small_share if i >= window_start else limits.full_share
        if used > room * share:
            break
        first = i
    if first == 0:
        return 0
    snapped = _snap(path, first, max(1, int(room * limits.step_share)))
    return snapped if first > window_start else min(snapped, window_start)


def _first_small(
    path: Sequence[PathPost],
    caps: list[int],
    pinned: set[int],
    room: int,
    limits: Limits,
    reserved: int,
    full: int,
) -> int:
    """Index of the oldest post of the compressed part."""
    used = reserved + sum(caps[i] for i in range(full, len(path)) if i not in pinned)
    first = full
    for i in range(full - 1, -1, -1):
        used += 0 if i in pinned else _small_size(path[i], caps[i])
        if used > room * limits.small_share:
            break
        first = i
    if first:
        first = min(full, _snap(path, first, max(1, int(room * limits.step_share))))
    return _whole(path, first)


def _snap(path: Sequence[PathPost], first: int, step: int) -> int:
    """Move a cut point on to the first post behind the next multiple of `step` tokens of the path, at a round if one is near."""
    if first >= len(path):
        return first
    before = path[first].path_tokens - path[first].tokens
    line = -(-before // step) * step
    i = first
    while i < len(path) - 1 and path[i].path_tokens - path[i].tokens < line:
        i += 1
    for j in range(i, len(path)):
        if path[j].path_tokens - path[j].tokens >= line + step:
            break
        if path[j].round == path[j].seq:
            return j
    return _whole(path, i)


def _whole(path: Sequence[PathPost], first: int) -> int:
    """Move a cut point behind the results of a call that is left out."""
    while 0 < first < len(path) and path[first].role == "tool":
        first += 1
    return first
