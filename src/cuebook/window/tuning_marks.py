"""What tuning does to a placed path: posts marked as of little use stand in their short form, or not at all (T7).

It only takes away: a window that fitted fits. Where a conversation is below its trigger, all stands as it is.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.memory.actions import leave_out
from cuebook.records.conversation import PathPost
from cuebook.records.tuning import Tuning
from cuebook.records.turn import Manifest, ManifestRange
from cuebook.window.budget import Limits
from cuebook.window.partition import Partition
from cuebook.window.post_forms import Placed


class Marks(Struct, frozen=True, kw_only=True):
    """A tuning as a window uses it: the parameters after a run, and the posts (seqs) marked up to it."""

    run: int = 0  # 0: nothing is tuned
    window: int = 0
    trigger: float = 0.0
    compressed: frozenset[int] = frozenset()
    dropped: frozenset[int] = frozenset()


NO_MARKS = Marks()


def newest(tuning: Tuning | None) -> Marks:
    """Return a tuning as its last run left it."""
    if tuning is None or not tuning.runs:
        return NO_MARKS
    return Marks(
        run=tuning.runs,
        window=tuning.full_message_window,
        trigger=tuning.compression_trigger,
        compressed=frozenset(tuning.compressed),
        dropped=frozenset(tuning.dropped),
    )


def in_force(tuning: Tuning | None, metadata: Mapping[str, Any]) -> Marks:
    """Return a tuning as a turn used it, told by its metadata."""
    told = metadata.get("window", {}).get("tuning")
    if tuning is None or not told:
        return NO_MARKS
    return Marks(
        run=told["run"],
        window=told["fullMessageWindow"],
        trigger=told["compressionTrigger"],
        compressed=frozenset(seq for seq, run in tuning.compressed.items() if run <= told["run"]),
        dropped=frozenset(seq for seq, run in tuning.dropped.items() if run <= told["run"]),
    )


def marks_metadata(marks: Marks) -> dict[str, Any]:
    """Return what `in_force` reads again, for `metadata.window`; nothing where nothing is tuned."""
    if not marks.run:
        return {}
    parameters = {"fullMessageWindow": marks.window, "compressionTrigger": marks.trigger}
    return {"tuning": {"run": marks.run, **parameters}}


def limited(limits: Limits, marks: Marks) -> Limits:
    """Return the limits with what is tuned of them."""
    if not marks.run:
        return limits
    return msgspec.structs.replace(limits, window_posts=marks.window, trigger_ratio=marks.trigger)


def lighten(parted: Partition, marks: Marks, *, spare: int) -> tuple[Partition, list[PathPost]]:
    """Shorten and leave out what is marked of a path that passed its trigger; answers also with what is left out.

    The post with seq `spare`, the query, stays as it is.
    """
    kept, dropped = list(parted.kept), marks.dropped - {spare}
    marked = [at for at, placed in enumerate(kept) if placed.post.seq in dropped]
    gone = set(leave_out([placed.post.role for placed in kept], marked))
    left = [kept[at].post for at in sorted(gone)]
    short = marks.compressed - {spare}
    kept = [_shorter(placed, short) for at, placed in enumerate(kept) if at not in gone]
    tokens = sum(placed.tokens for placed in kept)
    return Partition(kept=tuple(kept), dropped=parted.dropped, tokens=tokens), left


def _shorter(placed: Placed, short: frozenset[int]) -> Placed:
    post = placed.post
    if placed.form != "full" or post.seq not in short or post.small is None:
        return placed
    return Placed(post, "compressed", post.small_tokens)


def moves(before: Manifest, now: Manifest) -> bool:
    """Return whether a window changes what stood before its new posts: another summary, or another cut."""
    reach = before.path[-1].last if before.path else 0
    return before.summary_version != now.summary_version or _until(before, reach) != _until(now, reach)


def _until(manifest: Manifest, reach: int) -> list[tuple[int, int, str]]:
    ranges: list[ManifestRange] = [each for each in manifest.path if each.first <= reach]
    return [(each.first, min(each.last, reach), each.form) for each in ranges]
