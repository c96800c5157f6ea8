"""Lay out the figures of summarization profiles as a table."""

from collections.abc import Sequence

from cuebook.app.reports.prices import UNKNOWN, money
from cuebook.app.reports.profiles import ProfileFigures

COLUMNS = ("profile", "tokens", "% of client", "cached", "input cost", "summarized", "tokens summarized", "recall")


def rows_of(profiles: Sequence[ProfileFigures]) -> list[tuple[str, ...]]:
    """Return a row for each profile, with the columns COLUMNS."""
    return [
        (
            each.profile,
            f"{each.tokens:,}",
            f"{each.tokens / max(1, each.client_tokens):.0%}",
            f"{each.cache_read:,}",
            money(each.costs) or UNKNOWN,
            f"{each.summarized_messages:,}",
            f"{each.summarized_tokens:,}",
            "" if each.recall is None else f"{each.recall:.0%} of {each.questions}",
        )
        for each in profiles
    ]


def lines_of(profiles: Sequence[ProfileFigures]) -> list[str]:
    """Return the table as lines of text."""
    rows = [COLUMNS, *rows_of(profiles)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            each.rjust(width) if n else each.ljust(width)
            for n, (each, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
