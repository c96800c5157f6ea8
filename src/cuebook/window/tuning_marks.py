"""Apply tuning marks to a partitioned path: posts of low relevance are shortened or omitted (T7).

Marks only remove text, so that a window that fitted still fits. Below a conversation's trigger nothing changes.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from cuebook.memory.judgement import leave_out
from cuebook.records.conversation import PathPost
from cuebook.records.tuning import TuningState
from cuebook.records.turn import Manifest, ManifestRange
from cuebook.window.budget import Limits
from cuebook.window.partition import Partition
from cuebook.window.post_forms import PostInForm


class Marks(Struct, frozen=True, kw_only=True):
    """A tuning as used by a window: the parameters after a run, and the posts (seqs) marked so far."""

    run: int = 0  # 0: nothing is tuned
    window: int = 0
    trigger: float = 0.0
    compressed: frozenset[int] = frozenset()
    dropped: frozenset[int] = frozenset()


NO_MARKS = Marks()


def newest(tuning: TuningState | None) -> Marks:
    """Return a tuning after its last run."""
    if tuning is None or not tuning.runs:
        return NO_MARKS
    return Marks(
        run=tuning.runs,
        window=tuning.full_message_window,
        trigger=tuning.compression_trigger,
        compressed=frozenset(tuning.compressed),
        dropped=frozenset(tuning.dropped),
    )


def in_force(tuning: TuningState | None, metadata: Mapping[str, Any]) -> Marks:
    """Return a turn's tuning from its metadata."""
    value = metadata.get("window", {}).get("tuning")
    if tuning is None or not value:
        return NO_MARKS
    return Marks(
        run=value["run"],
        window=value["fullMessageWindow"],
        trigger=value["compressionTrigger"],
        compressed=frozenset(seq for seq, run in tuning.compressed.items() if run <= value["run"]),
        dropped=frozenset(seq for seq, run in tuning.dropped.items() if run <= value["run"]),
    )


def marks_metadata(marks: Marks) -> dict[str, Any]:
    """Return the input of `in_force` for `metadata.window`, empty without tuning."""
    if not marks.run:
        return {}
    parameters = {"fullMessageWindow": marks.window, "compressionTrigger": marks.trigger}
    return {"tuning": {"run": marks.run, **parameters}}


def limited(limits: Limits, marks: Marks) -> Limits:
    """Return the limits with tuned values."""
    if not marks.run:
        return limits
    return msgspec.structs.replace(limits, window_posts=marks.window, trigger_ratio=marks.trigger)


def lighten(parted: Partition, marks: Marks, *, spare: int) -> tuple[Partition, list[PathPost]]:
    """Shorten and omit marked posts of a path above its trigger. Return the omitted ones too.

    The post with seq `spare`, the query, stays unchanged.
    """
    post_in_forms, dropped = list(parted.kept), marks.dropped - {spare}
    marked = [at for at, post_in_form in enumerate(post_in_forms) if post_in_form.post.seq in dropped]
    gone = set(leave_out([post_in_form.post.role for post_in_form in post_in_forms], marked))
    left = [post_in_forms[at].post for at in sorted(gone)]
    short = marks.compressed - {spare}
    post_in_forms = [_shorter(post_in_form, short) for at, post_in_form in enumerate(post_in_forms) if at not in gone]
    tokens = sum(post_in_form.tokens for post_in_form in post_in_forms)
    return Partition(kept=tuple(post_in_forms), dropped=parted.dropped, tokens=tokens), left


def _shorter(post_in_form: PostInForm, short: frozenset[int]) -> PostInForm:
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
