"""How texts differ line by line, and how two edits of one text go together. Lines are what stands between LFs.

The shortest script of deletions and insertions (Myers 1986, "An O(ND) Difference Algorithm"), with a bound: difflib
took five minutes for 22,000 lines with half as many inserted, and these texts come over the network.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

#: Lines of `unified` around a change, as diff prints them.
CONTEXT: Final = 3
#: Lines looked at in search of the shortest script: 0.2 s, measured. Enough for 700 lines, of those both texts have,
#: to be moved, doubled or left out. Beyond, all between the equal begin and the equal end counts as one edit.
MOST_STEPS: Final = 250_000


class Edit(NamedTuple):
    """Lines `start` to `end` of a text (from 0, `end` outside) stand as `new` in the other."""

    start: int
    end: int
    new: tuple[str, ...]


def edits(before: Sequence[str], after: Sequence[str]) -> list[Edit]:
    """Return what to change in `before` to get `after`, in order; no two touch."""
    head = 0
    shorter = min(len(before), len(after))
    while head < shorter and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < shorter - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    changes: list[Edit] = []
    x = y = 0
    for same, other in [*_pairs(old, new), (len(old), len(new))]:
        if x < same or y < other:
            changes.append(Edit(head + x, head + same, tuple(new[y:other])))
        x, y = same + 1, other + 1
    return changes


def unified(before: str, after: str) -> tuple[str, ...]:
    """Return the hunks of a unified diff, without the two lines that name files; none for equal texts."""
    old = before.split("\n")
    return tuple(line for hunk in _hunks(edits(old, after.split("\n"))) for line in _printed(old, *hunk))


def merge_lines(base: str, ours: str, theirs: str) -> str | None:
    """Return `base` with both sides' edits, None where they touch without being the same edit."""
    lines = base.split("\n")
    both = sorted({*edits(lines, ours.split("\n")), *edits(lines, theirs.split("\n"))})
    merged: list[str] = []
    last = -1
    at = 0
    for edit in both:
        if edit.start <= last:
            return None
        merged += lines[at : edit.start]
        merged += edit.new
        at = last = edit.end
    return "\n".join(merged + lines[at:])


def _hunks(changes: Sequence[Edit]) -> Iterator[tuple[int, list[Edit]]]:
    """Give the edits that share their context, each group with the lines all before it have added."""
    group = 0
    groups: list[int] = []
    for place, edit in enumerate(changes):
        group += place > 0 and edit.start - changes[place - 1].end > 2 * CONTEXT
        groups.append(group)
    added = 0
    for _, pairs in groupby(zip(groups, changes, strict=True), key=lambda pair: pair[0]):
        together = [edit for _, edit in pairs]
        yield added, together
        added += sum(len(edit.new) - (edit.end - edit.start) for edit in together)


def _printed(old: Sequence[str], added: int, together: Sequence[Edit]) -> Iterator[str]:
    """Give one hunk's lines, its header first."""
    start = max(0, together[0].start - CONTEXT)
    end = min(len(old), together[-1].end + CONTEXT)
    grown = sum(len(edit.new) - (edit.end - edit.start) for edit in together)
    yield f"@@ -{_span(start, end - start)} +{_span(start + added, end - start + grown)} @@"
    at = start
    for edit in together:
        yield from (f" {line}" for line in old[at : edit.start])
        yield from (f"-{line}" for line in old[edit.start : edit.end])
        yield from (f"+{line}" for line in edit.new)
        at = edit.end
    yield from (f" {line}" for line in old[at:end])


def _span(start: int, count: int) -> str:
    """Write where a hunk's lines are, as diff does: from 1, and the line before it for none."""
    if count == 1:
        return str(start + 1)
    return f"{start + 1 if count else start},{count}"


def _pairs(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Return the places of the lines that stay, in both texts; none when the search takes too long."""
    both = set(old).intersection(new)
    lefts = [place for place, line in enumerate(old) if line in both]
    rights = [place for place, line in enumerate(new) if line in both]
    numbers = {line: number for number, line in enumerate(both)}  # they compare faster than lines
    reached = _search([numbers[old[place]] for place in lefts], [numbers[new[place]] for place in rights])
    pairs = [] if reached is None else _path(reached, len(lefts), len(rights))
    return [(lefts[x], rights[y]) for x, y in pairs]


def _search(old: Sequence[int], new: Sequence[int]) -> list[list[int]] | None:
    """Return for each number of steps, from 0, how far it comes: the most lines of `old` on each diagonal.

    A step takes a line out or puts one in. The diagonals k = x - y are -steps, -steps + 2, … steps. The last row comes
    to the end. None when MOST_STEPS are over before.
    """
    rows: list[list[int]] = []
    entries = [0]
    left = MOST_STEPS
    goal = len(old) - len(new)
    for steps in range(len(old) + len(new) + 1):
        reach = []
        for place, entry in enumerate(entries):
            x, y = entry, entry - 2 * place + steps
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x += 1
                y += 1
            reach.append(x)
        rows.append(reach)
        if abs(goal) <= steps and (goal + steps) % 2 == 0 and reach[(goal + steps) // 2] == len(old):
            return rows
        left -= len(reach) + sum(reach) - sum(entries)
        if left < 0:
            return None
        entries = [max(put, taken + 1) for put, taken in zip([*reach, -1], [-2, *reach], strict=True)]
    return None


def _entered(reach: Sequence[int], place: int) -> tuple[int, int]:
    """Return where a diagonal is entered with one more step: by putting a line in, and by taking one out."""
    return reach[place] if place < len(reach) else -1, reach[place - 1] + 1 if place else -1


def _path(rows: Sequence[Sequence[int]], x: int, y: int) -> list[tuple[int, int]]:
    """Return the pairs of equal lines on the way to (x, y), in order."""
    pairs: list[tuple[int, int]] = []
    for steps in range(len(rows) - 1, -1, -1):
        inserted, deleted = _entered(rows[steps - 1], (x - y + steps) // 2) if steps else (0, 0)
        while x > max(inserted, deleted):
            x, y = x - 1, y - 1
            pairs.append((x, y))
        if inserted >= deleted:
            y -= 1
        else:
            x -= 1
    return pairs[::-1]
