"""Plan compaction passes of rolling memory: when a pass is due, and which posts it covers (R1, R2)."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Literal

from msgspec import Struct

from cuebook.memory.profiles import Compaction, CompactionProfile
from cuebook.records.memory import Line

# ---- possible cuts --------------------------------------------------------------------------------------------------


class Calls(Struct, frozen=True):
    """The ids of the calls that a post makes, and of those it answers ("" for a call without an id)."""

    made: Sequence[str] = ()
    answered: Sequence[str] = ()


def held_together(posts: Mapping[int, Calls]) -> frozenset[int]:
    """Return the positions before which no cut is allowed, by the posts that make or answer calls, in order.

    A result without its call belongs to the post before it.
    """
    made: dict[str, int] = {}
    reach: dict[int, int] = {}
    for number, calls in posts.items():
        for call in calls.answered:
            reach[made.get(call, number - 1)] = number
        made.update(dict.fromkeys(calls.made, number))
    places: set[int] = set()
    end = -1
    for start in sorted(reach):
        places.update(range(max(start, end) + 1, reach[start] + 1))
        end = max(end, reach[start])
    return frozenset(places)


Reason = Literal["due", "disabled", "below_threshold", "cooldown", "no_messages"]

#: Extra posts loaded for a pass, to find a cut that separates no call from its result.
LOOKAHEAD = 64
#: The longest retry delay of a failing pass, in seconds.
LONGEST_S = 3600.0


class PassDue(Struct, frozen=True):
    """A decision whether a pass is due, its reason, and the time of the next check (Unix seconds; 0: on a change)."""

    reason: Reason
    not_before: float = 0.0


def due(
    profile: CompactionProfile,
    *,
    backlog: int,
    backlog_tokens: int,
    room: int,
    trigger_ratio: float,
    now: float,
    last_at: float,
    not_before: float,
    hurry: bool = False,
) -> PassDue:
    """Return whether a conversation's backlog needs a compaction pass.

    `room` is the part of a window for posts, `not_before` the earliest retry of a failed pass. A backlog larger than a
    pass continues at once; the cool-down separates passes that keep up. `hurry` skips all waiting (`settle`).
    """
    behind = backlog - profile.tail
    if not profile.enabled:
        return PassDue("disabled")
    if not backlog:
        return PassDue("no_messages")
    if behind < max(1, profile.least) or (profile.trigger != "posts" and backlog_tokens <= room * trigger_ratio):
        return PassDue("below_threshold")
    wait = not_before
    if behind <= profile.most and last_at <= now:  # a clock set back must not stop passes
        wait = max(wait, last_at + profile.cooldown_ms / 1000 if last_at else 0.0)
    return PassDue("cooldown", wait) if wait > now and not hurry else PassDue("due")


def least_backlog(compaction: Compaction) -> int:
    """Return the smallest backlog of posts that starts a pass in any profile."""
    least = [each.tail + max(1, each.least) for each in compaction.profiles.values() if each.enabled]
    return min(least, default=1)


def covered(
    lines: Sequence[Line], profile: CompactionProfile, *, backlog: int, held: Collection[int] = frozenset()
) -> int:
    """Return how many of the oldest posts after the mark a pass covers; 0 if no boundary is within reach.

    The pass ends at the end of a round if there is one, else between steps. No cut is allowed before the positions in
    `held`: calls and results stay together.
    """
    most = min(profile.most, backlog - profile.tail, len(lines))
    if most < 1:
        return 0
    for end in range(most, 0, -1):
        if end < len(lines) and lines[end].round == lines[end].seq and end not in held:
            return end
    for end in chain(range(most, 0, -1), range(most + 1, min(len(lines), backlog) + 1)):
        if between_steps(lines, end) and end not in held:
            return end
    return 0


def between_steps(lines: Sequence[Line], end: int) -> bool:
    """Return whether a cut before number `end` separates no tool call from its results."""
    if lines[end - 1].calls:
        return False
    return end >= len(lines) or lines[end].role != "tool"


def backoff_s(failures: int, cooldown_ms: int) -> float:
    """Return the seconds to wait after this many failures in a row: the cool-down, doubled each time, up to an hour."""
    doublings = 1 << min(failures, 16)
    return min(LONGEST_S, max(1.0, cooldown_ms / 1000) * doublings)
