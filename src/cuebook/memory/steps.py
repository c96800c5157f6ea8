"""Where a row of posts may be cut: nowhere between a tool call and its results."""

from collections.abc import Mapping, Sequence

from msgspec import Struct


class Calls(Struct, frozen=True):
    """The ids of the calls a post makes, and of those it answers ("" for one nobody named)."""

    made: Sequence[str] = ()
    answered: Sequence[str] = ()


def held_together(posts: Mapping[int, Calls]) -> frozenset[int]:
    """Give the places no cut may fall before, by the numbers of the posts that make or answer calls, in order.

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
