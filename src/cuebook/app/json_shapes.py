"""Formats of times in JSON objects."""

from datetime import UTC, datetime, tzinfo
from typing import Any

Wire = dict[str, Any]


def iso(when: float | None) -> str | None:
    """Return a Unix time as ISO 8601 UTC."""
    if when is None:
        return None
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def day(when: float, zone: tzinfo) -> str:
    """Return the day of a time in a zone."""
    return datetime.fromtimestamp(when, zone).date().isoformat()
