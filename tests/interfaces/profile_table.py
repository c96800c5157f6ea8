"""Writes the table of profiles in README.md from `cuebook demo`. Run it with .venv/bin/python."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from cuebook.app.reports.profiles import ProfileFigures
from cuebook.cli.output.profiles import COLUMNS, rows_of

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
BEGIN, END = "<!-- table: tests/interfaces/profile_table.py -->\n", "<!-- end of the table -->\n"


def readme(profiles: Sequence[Any]) -> str:
    """Return README.md with the table of a demo's profiles."""
    rows = rows_of(msgspec.convert(profiles, list[ProfileFigures]))
    lines = [COLUMNS, ["---", *["---:"] * (len(COLUMNS) - 1)], *rows]
    table = "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    before, _, rest = README.read_text("utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    command = [Path(sys.executable).with_name("cuebook"), "demo", "--json"]
    [report] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)["items"]
    README.write_text(readme(report["profiles"]), "utf-8")
