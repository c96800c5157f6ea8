"""Partition a path for the window: which posts are full, compressed, cut or omitted (C, "Message Partitioning").

Rules: the kept posts are a suffix of the path, except the query of an open turn, which always stays. Compressed posts
count with their real size. A tool call and its results stay together. The sum never exceeds the room.

Cut points are on a grid over the running sum of tokens of the path, one step of the room apart. A cut point moves to
the next grid line, so that it, and the text before it, stay fixed until a step was added.

Tuning marks shorten or omit posts of low relevance (T7). They only remove text, so that a fitting window still fits.
Below a conversation's trigger nothing changes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.config import BudgetConfig
from cuebook.memory.judgement import leave_out
from cuebook.memory.rolling import held_together
from cuebook.records.conversation import TOOL, PathPost
from cuebook.records.tuning import TuningState
from cuebook.records.turn import Manifest, ManifestRange
from cuebook.window.budget import most_posts
from cuebook.window.post_forms import PostInForm, calls_of, can_cut, least_of

#: Shares of the budget: for older posts in full, and with compressed posts after those.
FULL_SHARE, SMALL_SHARE = 0.85, 0.95
#: The step of cut points as a share of the room, which keeps the front of a prompt stable; of a client's own list.
STEP_SHARE, LISTED_STEP_SHARE = 0.05, 0.1
#: Largest share of the room for one post that is not required.
POST_SHARE = 0.25

#: Least share of the room that is filled before a client's message is left out. At least 0.85 of the provider's count,
#: of which the estimate may have more.
LEAST_FILL = 0.9

#: Tokens by which shares of a room, each rounded down, may differ from the share of all.
_ROUNDING = 8

_tokens, _role = attrgetter("tokens"), attrgetter("role")
_message, _parts = attrgetter("message"), attrgetter("parts")


class Partition(Struct, frozen=True, kw_only=True):
    """The kept posts, oldest first, and the omitted ones. Together they are the path, each once.

    A cut post has the tokens that it may take; `post_forms.cut_down` computes the real ones.
    """

    kept: tuple[PostInForm, ...]
    dropped: tuple[PathPost, ...]
    tokens: int


class Reach(Struct, frozen=True):
    """The furthest reach of a partition, in tokens of its posts: how much of a path to load."""

    full: int  # of the newest posts, in full
    small_after: int  # after this many
    small: int  # this many in compressed form
    post: int  # limit per post


def reach(limits: BudgetConfig, token_budget: int | None) -> Reach:
    """Return how far back a window of this budget may reach, whatever else it contains."""
    room = most_posts(limits, token_budget)
    full, small = int(room * FULL_SHARE), int(room * SMALL_SHARE)
    return Reach(full=room + _ROUNDING, small_after=full, small=small - full + _ROUNDING, post=int(room * POST_SHARE))


def least(path: Sequence[PathPost], query: int) -> tuple[int, int]:
    """Return the tokens of a path's required posts, whole and cut: the query, the newest call with its results."""
    posts = [path[i] for i in _pinned(path, query)]
    return sum(map(_tokens, posts)), sum(map(least_of, posts))


def partition(
    path: Sequence[PathPost],
    room: int,
    limits: BudgetConfig,
    *,
    query: int = 0,
    reserved: int = 0,
    begins: bool = True,
    listed: bool = False,
) -> Partition:
    """Partition the posts of a path, oldest first, into `room` tokens, at least `least` of them.

    `query` is the seq of the open turn's query. `reserved` tokens beside the room are part of the budget. `begins`:
    nothing was omitted before the first post. `listed`: the path is a client's own list of messages, and stays whole if
    it fits. Otherwise the newest ones stay whole.
    """
    tokens = sum(map(_tokens, path))
    if listed and tokens <= room:
        return Partition(kept=tuple(PostInForm(post, "full", post.tokens) for post in path), dropped=(), tokens=tokens)
    lay = _lay(path, room, query, budget=room + reserved, listed=listed)
    if listed:
        full = small = _fill(lay)
    else:  # full posts fill a share of the room, or more if limits require more of them
        older = _fitting(lay, FULL_SHARE, begins=begins)
        newest = _fitting(lay, SMALL_SHARE, begins=begins)
        full = min(older, max(newest, _window_start(lay, limits.window_posts)))
        small = _first_small(lay, full, begins=begins)
        if small == full and not (full == 0 and begins):
            small = full = _whole(lay, full)
    early = [i for i in lay.pinned if i < small]  # the query of an open turn, before all else
    post_in_forms = [_full(path[i], lay.caps[i]) for i in sorted(early)]
    post_in_forms += [
        _full(path[i], lay.caps[i]) if i in lay.pinned else _small(path[i], lay.caps[i]) for i in range(small, full)
    ]
    post_in_forms += [
        PostInForm(post, "cut" if cap < post.tokens else "full", cap)
        for post, cap in zip(path[full:], lay.caps[full:], strict=True)
    ]
    dropped = [path[i] for i in range(small) if i not in early]
    return Partition(kept=tuple(post_in_forms), dropped=tuple(dropped), tokens=sum(map(_tokens, post_in_forms)))


class _Lay(Struct, frozen=True):
    """A path with its tokens: each post in full, the required posts, and positions without cuts."""

    path: Sequence[PathPost]
    caps: list[int]
    pinned: frozenset[int]
    kept: int  # tokens of the pinned
    newest: list[int]  # cumulative tokens of the others, from the newest
    whole: int  # index of the oldest of the newest posts that were all loaded in full
    held: frozenset[int]
    room: int
    budget: int  # the room and what is reserved beside it
    step: int


def _lay(path: Sequence[PathPost], room: int, query: int, *, budget: int, listed: bool) -> _Lay:
    pinned, caps = _pinned(path, query), list(map(_tokens, path))
    if not listed:  # an oversized post gets a share of the room that depends only on the room, unless it is required
        most = int(room * POST_SHARE)
        for i in [i for i, tokens in enumerate(caps) if tokens > most and i not in pinned]:
            if can_cut(path[i]):
                caps[i] = max(most, least_of(path[i]))
    if sum(caps[i] for i in pinned) > room:
        _squeeze(path, caps, pinned, room)
    messages, loose = list(map(_message, path)), caps[::-1]
    for i in pinned:
        loose[~i] = 0
    return _Lay(
        path=path,
        caps=caps,
        pinned=pinned,
        kept=sum(caps[i] for i in pinned),
        newest=list(accumulate(loose)),
        whole=len(path) - messages[::-1].index(None) if None in messages else 0,
        held=_held(path),
        room=room,
        budget=budget,
        step=max(1, int(room * (LISTED_STEP_SHARE if listed else STEP_SHARE))),
    )


def _held(path: Sequence[PathPost]) -> frozenset[int]:
    """Return the positions where no cut may fall: between a call and its results."""
    if not any(map(_parts, path)) and TOOL not in map(_role, path):
        return frozenset()
    calls = {i: calls_of(post) for i, post in enumerate(path)}
    return held_together({i: made for i, made in calls.items() if made is not None})


def _pinned(path: Sequence[PathPost], query: int) -> frozenset[int]:
    """Return the required posts: the query, and the newest call with its results."""
    if not path:
        return frozenset()
    last = start = len(path) - 1
    while start > 0 and _answers(path[start]):
        start -= 1
    return frozenset(range(start, last + 1)) | frozenset(i for i, post in enumerate(path) if post.seq == query)


def _squeeze(path: Sequence[PathPost], caps: list[int], pinned: frozenset[int], room: int) -> None:
    """Cut the required posts until they fit: the largest to equal size, none below its minimum."""
    least = {i: min(caps[i], least_of(path[i])) for i in pinned}
    spare = max(0, room - sum(least.values()))
    wanting = sorted(pinned, key=lambda i: (caps[i] - least[i], i))
    for position, i in enumerate(wanting):
        given = min(caps[i] - least[i], spare // (len(wanting) - position))
        caps[i] = least[i] + given
        spare -= given


def _answers(post: PathPost) -> bool:
    calls = calls_of(post)
    return calls is not None and bool(calls[1])


# ---- Cut points -----------------------------------------------------------------------------------------------------


def _fill(lay: _Lay) -> int:
    """Return the index of the oldest post that is sent with all newer ones.

    It is on the grid if these fill the room, so that it stays for some turns. Otherwise it is the oldest that fits. If
    even that leaves more than the LEAST_FILL of the room unused, the posts before it that belong together are
    shortened.
    """
    first = _whole(lay, _oldest(lay, 1.0))
    line = -(-_before(lay, first) // lay.step) * lay.step if first < len(lay.path) else 0
    for start in (_on_grid(lay, first), _whole(lay, _search(lay, line)), first):
        if _used(lay, start) >= LEAST_FILL * lay.room:
            return start
    start = first - 1
    while start in lay.held:
        start -= 1
    group = frozenset(range(max(start, 0), first)) - lay.pinned
    room = (lay.room - _used(lay, first)) // lay.step * lay.step  # in steps, so that the cut text stays for some turns
    if not group or sum(min(lay.caps[i], least_of(lay.path[i])) for i in group) > room:
        return first
    _squeeze(lay.path, lay.caps, group, room)
    return min(group)


def _used(lay: _Lay, first: int) -> int:
    """Return the tokens of the pinned posts and all others from an index on."""
    return lay.kept + (lay.newest[len(lay.path) - first - 1] if first < len(lay.path) else 0)


def _oldest(lay: _Lay, share: float) -> int:
    """Return the index of the oldest post from which all later ones fit the room and a share of the budget."""
    room = min(lay.room, lay.budget * share)
    return max(len(lay.path) - bisect_right(lay.newest, room - lay.kept), lay.whole)


def _fitting(lay: _Lay, share: float, *, begins: bool) -> int:
    """Return the index of the oldest post from which all later ones fit a share of the budget, on the grid."""
    first = _oldest(lay, share)
    return first if first == 0 and begins else _on_grid(lay, first)


def _window_start(lay: _Lay, posts: int) -> int:
    """Return the last grid index that leaves at least this many posts."""
    start = len(lay.path) - posts
    if start <= 0:
        return 0
    first = _search(lay, _before(lay, start) // lay.step * lay.step)
    while first in lay.held:
        first -= 1
    return max(0, first)


def _first_small(lay: _Lay, full: int, *, begins: bool) -> int:
    """Return the index of the oldest compressed post. It depends only on the first full one, so that both move
    together.
    """
    used = _used(lay, full)
    full_room, small_room = int(lay.budget * FULL_SHARE), min(lay.room, int(lay.budget * SMALL_SHARE))
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


def _full(post: PathPost, cap: int) -> PostInForm:
    return PostInForm(post, "cut" if cap < post.tokens else "full", cap)


def _small(post: PathPost, cap: int) -> PostInForm:
    if post.small is not None:
        return PostInForm(post, "compressed", post.small_tokens)
    return PostInForm(post, "cut", cap) if cap < post.tokens else PostInForm(post, "full", post.tokens)


def _on_grid(lay: _Lay, first: int) -> int:
    """Move a cut point to the next grid line."""
    if first >= len(lay.path):
        return first
    return _at_line(lay, -(-_before(lay, first) // lay.step) * lay.step)


def _at_line(lay: _Lay, line: int) -> int:
    """Return the cut point of a line: the first post after it, or the first turn that starts before the next line."""
    path = lay.path
    first = _search(lay, line)
    for i in range(first, len(path)):
        if _before(lay, i) >= line + lay.step:
            break
        if path[i].round == path[i].seq and i not in lay.held:
            return i
    return _whole(lay, first)


def _search(lay: _Lay, line: int) -> int:
    """Return the index of the first post after a line."""
    return bisect_left(lay.path, line, key=lambda post: post.path_tokens - post.tokens)


def _before(lay: _Lay, i: int) -> int:
    """Return the tokens of the path before a post."""
    return lay.path[i].path_tokens - lay.path[i].tokens


def _whole(lay: _Lay, first: int) -> int:
    """Move a cut point behind the results of an omitted call."""
    while first < len(lay.path) and first in lay.held:
        first += 1
    return first


# ---- Tuning marks ---------------------------------------------------------------------------------------------------


#: The tuning of a conversation before its first run.
UNTUNED = TuningState()


def in_force(tuning: TuningState | None, metadata: Mapping[str, Any]) -> TuningState:
    """Return the tuning of a turn's window: the parameters after its metadata's run, and the posts marked so far."""
    value = metadata.get("window", {}).get("tuning")
    if tuning is None or not value:
        return UNTUNED
    run = value["run"]
    return msgspec.structs.replace(
        tuning,
        runs=run,
        full_message_window=value["fullMessageWindow"],
        compression_trigger=value["compressionTrigger"],
        compressed={seq: marked for seq, marked in tuning.compressed.items() if marked <= run},
        dropped={seq: marked for seq, marked in tuning.dropped.items() if marked <= run},
    )


def tuning_metadata(tuning: TuningState) -> dict[str, Any]:
    """Return the input of `in_force` for `metadata.window`, empty without tuning."""
    if not tuning.runs:
        return {}
    parameters = {"fullMessageWindow": tuning.full_message_window, "compressionTrigger": tuning.compression_trigger}
    return {"tuning": {"run": tuning.runs, **parameters}}


def limited(limits: BudgetConfig, tuning: TuningState) -> BudgetConfig:
    """Return the limits with tuned values."""
    if not tuning.runs:
        return limits
    return msgspec.structs.replace(limits, window_posts=tuning.full_message_window, trigger=tuning.compression_trigger)


def lighten(parted: Partition, tuning: TuningState, *, spare: int) -> tuple[Partition, list[PathPost]]:
    """Shorten and omit marked posts of a path above its trigger. Return the omitted ones too.

    The post with seq `spare`, the query, stays unchanged.
    """
    post_in_forms, dropped = list(parted.kept), tuning.dropped.keys() - {spare}
    marked = [at for at, post_in_form in enumerate(post_in_forms) if post_in_form.post.seq in dropped]
    gone = set(leave_out([post_in_form.post.role for post_in_form in post_in_forms], marked))
    left = [post_in_forms[at].post for at in sorted(gone)]
    short = tuning.compressed.keys() - {spare}
    post_in_forms = [_shorter(post_in_form, short) for at, post_in_form in enumerate(post_in_forms) if at not in gone]
    tokens = sum(post_in_form.tokens for post_in_form in post_in_forms)
    return Partition(kept=tuple(post_in_forms), dropped=parted.dropped, tokens=tokens), left


def _shorter(post_in_form: PostInForm, short: Collection[int]) -> PostInForm:
    post = post_in_form.post
    if post_in_form.form != "full" or post.seq not in short or post.small is None:
        return post_in_form
    return PostInForm(post, "compressed", post.small_tokens)


def moves(before: Manifest, now: Manifest) -> bool:
    """Return whether a window changes the text before its new posts: another summary, or another cut."""
    reach = before.path[-1].last if before.path else 0
    return before.summary_version != now.summary_version or _until(before, reach) != _until(now, reach)


def _until(manifest: Manifest, reach: int) -> list[tuple[int, int, str]]:
    ranges: list[ManifestRange] = [each for each in manifest.path if each.first <= reach]
    return [(each.first, min(each.last, reach), each.form) for each in ranges]
