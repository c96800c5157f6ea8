"""Until when a statement says itself that it holds: what others promise to do, or how long they stay, has a term."""

import calendar
import re
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from cuebook.memory.slots import values
from cuebook.records.expression import Expression

#: What another will do, by when: a term past, nobody waits for it any more. One's own duties stay open until done.
_PROMISED: Final = Expression(
    r"\b(?:he|she|they|[\w-]+)(?:'ll|’ll| will)(?: \S+){1,8}? (?:before|by|until|"
    r"till)(?P<term>(?: the)?(?: end of)? .{3,24})"
    r"|\b(?:is|are|'s|’s|'re|’re) (?:staying|stopping|visiting|here|away|on (?:leave|holiday))(?: \S+){0,4}? "
    r"(?:until|till)(?P<stay>(?: the)?(?: end of)? .{3,24})",
    re.IGNORECASE,
)
_OWN: Final = Expression(r"\b(?:i|we)(?:'ll|’ll| will)\b", re.IGNORECASE)


def lapses(text: str, said: float, *, zone: tzinfo = UTC) -> float | None:
    """Return when (Unix seconds, as a day of `zone` ends) what a text of `said` promises is over by its own words, or
    None.
    """
    match = _PROMISED.search(text)
    if not match or _OWN.search(match[0]):
        return None
    term = match["term"] or match["stay"]
    dates = [value for kind, value in values(term) if kind == "date"]
    if not dates:
        return None
    month, _, day = max(dates).partition("-")  # of two the later one: it is not over before
    return _next(int(month), int(day or 0), datetime.fromtimestamp(said, zone)) if month else None


def _next(month: int, day: int, said: datetime) -> float:
    """Return the end of that day, or of that month, on or after `said`."""
    for year in (said.year, said.year + 1):
        last = calendar.monthrange(year, month)[1]
        end = datetime(year, month, min(day or last, last), tzinfo=said.tzinfo) + timedelta(days=1)
        if end > said:
            return end.timestamp()
    return said.timestamp()
