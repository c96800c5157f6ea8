"""Suggest an action for each post: compress it, leave it out of prompts, or promote it to long-term memory (C).

No action erases anything. A compressed post appears in prompts in its short form, a dropped one not at all. A promoted
post becomes a long-term memory when a summary covers it. The transcript never changes.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct

from cuebook.records.expression import Expression, lowered

ActionType = Literal["compress", "drop", "promote"]

#: A post below this score is compressed, or dropped if it is compressed already. In hundredths, before any tuning.
LEAST: Final = 30
#: A post with key facts and at least this score is promoted.
PROMOTED: Final = 80
#: The listed patterns: addresses, failures, selectors, API references, credentials, steps. BrowserOS's code
#: also finds "key" inside "monkey".
_KEY_FACT: Final = Expression(
    r"https?://|error|failed|exception|selector|xpath|endpoint|password|credential"
    r"|(?<![a-z])(?:css|apis?|tokens?|keys?)(?![a-z])|\b(?:step|phase)\s+\d"
)


class JudgedPost(Struct, frozen=True, gc=False):
    """The input for judging one post: `number` identifies it, `score` is in hundredths."""

    number: int
    score: int
    compressed: bool = False  # prompts already use its short form
    gone: bool = False  # already left out of prompts, or covered by a summary
    promoted: bool = False  # already a long-term memory
    held: bool = False  # part of a tool call, or no chat message: never left out by itself
    facts: bool = False  # has key facts
    repeated_by: int = -1  # the newer post that repeats it, -1 for none


class Action(Struct, frozen=True, gc=False):
    """A suggested action for a post, with its reason."""

    type: ActionType
    number: int
    reason: str


def has_key_facts(text: str) -> bool:
    """Return whether a text contains one of the listed key facts."""
    return _KEY_FACT.search(lowered(text)) is not None


def suggest(entries: Iterable[JudgedPost], *, least: int = LEAST) -> Iterator[Action]:
    """Yield the suggested action of each post, in order; `least` is the lowest relevance that is kept in full."""
    for each in entries:
        low = each.score < least
        if not each.gone and low and each.compressed and not each.held:
            yield Action("drop", each.number, f"relevance {_shown(each.score)} < {_shown(least)}, compressed already")
        elif not each.gone and not each.compressed and low:
            yield Action("compress", each.number, f"relevance {_shown(each.score)} < {_shown(least)}")
        elif not each.gone and not each.compressed and each.repeated_by >= 0:
            yield Action("compress", each.number, "repeated by a newer post")
        if each.score >= PROMOTED and each.facts and not each.promoted:
            yield Action("promote", each.number, f"relevance {_shown(each.score)} and key facts")


def leave_out(roles: Sequence[str], marked: Collection[int]) -> list[int]:
    """Return the marked posts of a path that can be left out without making two posts of one role adjacent.

    `roles` are the path's, oldest first; `marked` are positions in it. Adjacent posts are left out together or not at
    all. The first and the last post of the path stay.
    """
    gone: list[int] = []
    run: list[int] = []
    for place in sorted(marked):
        if run and place != run[-1] + 1:
            gone += run if _parted(roles, run) else []
            run = []
        run.append(place)
    return gone + (run if run and _parted(roles, run) else [])


def _parted(roles: Sequence[str], run: Sequence[int]) -> bool:
    before, behind = run[0] - 1, run[-1] + 1
    return before >= 0 and behind < len(roles) and roles[before] != roles[behind]


def _shown(score: int) -> str:
    return f"{score / 100:.2f}"
