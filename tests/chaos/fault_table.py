"""The table of `make chaos`: what the fault tests did to each database, and what was lost, doubled or missing."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


class FaultCount(Struct, frozen=True):
    """What a test counted: acknowledged writes, and posts that were lost, doubled or left a gap."""

    fault: str
    database: str
    runs: int
    acknowledged: int
    lost: int
    doubled: int
    gaps: int


_COUNTS = FaultCount.__struct_fields__[2:]


def fault_table(counts: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of the table: a row for each fault, and columns for each database."""
    rows = [FaultCount(**each) for each in counts]
    faults = list(dict.fromkeys(row.fault for row in rows))
    width = max(map(len, faults))
    lines = [
        " " * width + "".join(f"  {name:^41}" for name in NAMES.values()),
        f"{'fault':{width}}" + "".join(f"  {name:>{_width(name)}}" for _ in NAMES for name in _COUNTS),
    ]
    for fault in [*faults, "all"]:
        cells = [
            f"  {_cell([row for row in rows if row.database == database and fault in (row.fault, 'all')], name)}"
            for database in NAMES
            for name in _COUNTS
        ]
        lines.append(f"{fault:{width}}" + "".join(cells))
    return lines


def _width(name: str) -> int:
    return max(5, len(name))


def _cell(rows: Sequence[FaultCount], name: str) -> str:
    return f"{sum(structs.asdict(row)[name] for row in rows):>{_width(name)},}" if rows else f"{'-':>{_width(name)}}"
