"""Which posts a compaction pass covers, and when: the plan of rolling memory (R1, R2)."""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Literal

from msgspec import Struct

from cuebook.memory.profiles import Compaction, CompactionProfile
from cuebook.records.memory import Line

# ---- where posts may be cut -----------------------------------------------------------------------------------------


class Calls(Struct, frozen=True):
    """The ids of the calls a post makes, and of those it answers ("" for one nobody named)."""

    made: Sequence[str] = ()
    answered: Sequence[str] = ()


def held_together(posts: Mapping[int, Calls]) -> frozenset[int]:
    """Return the places no cut may fall before, by the numbers of the posts that make or answer calls, in order.

    A result whose call is not there belongs to the post before it.
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

#: Posts read beyond a pass's own, to find a place where no call is parted from its result.
LOOKAHEAD = 64
#: The longest a failing pass is put off, in seconds.
LONGEST_S = 3600.0


class PassDue(Struct, frozen=True):
    """Whether a pass is due, why or why not, and when to look again (Unix seconds, 0: when something changes)."""

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
    """Return whether a conversation's backlog calls for a pass.

    `room` is what posts may take of a window, `not_before` when a failed pass may be tried again. A backlog larger than
    a pass goes on at once; the cool-down separates passes that keep up. `hurry` waits for nothing (`settle`).
    """
    behind = backlog - profile.tail
    if not profile.enabled:
        return PassDue("disabled")
    if not backlog:
        return PassDue("no_messages")
    if behind < max(1, profile.least) or (profile.trigger == "budget" and backlog_tokens <= room * trigger_ratio):
        return PassDue("below_threshold")
    wait = not_before
    if behind <= profile.most and last_at <= now:  # a clock set back must not stop passes
        wait = max(wait, last_at + profile.cooldown_ms / 1000 if last_at else 0.0)
    return PassDue("cooldown", wait) if wait > now and not hurry else PassDue("due")


def least_backlog(compaction: Compaction) -> int:
    """Return how many posts behind no summary call for a pass by the keenest profile."""
    least = [each.tail + max(1, each.least) for each in compaction.profiles.values() if each.enabled]
    return min(least, default=1)


def covered(
    lines: Sequence[Line], profile: CompactionProfile, *, backlog: int, held: Collection[int] = frozenset()
) -> int:
    """How many of the oldest posts behind the mark a pass covers; 0 where no boundary lies within reach.

    The end is a round's if one ends within the pass, else a place between steps. `held` are the places no cut may fall
    before: calls and results stay together.
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
    """Return whether a cut before number `end` parts no tool call from its results."""
    if lines[end - 1].calls:
        return False
    return end >= len(lines) or lines[end].role != "tool"


def backoff_s(failures: int, cooldown_ms: int) -> float:
    """Seconds to wait after so many failures in a row: the cool-down, doubled each time, an hour at most."""
    doublings = 1 << min(failures, 16)
    return min(LONGEST_S, max(1.0, cooldown_ms / 1000) * doublings)
