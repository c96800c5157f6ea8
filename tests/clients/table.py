"""Writes the table of docs/clients.md; with `--relock`, pins the newest programs first. scripts/clients runs it."""

import sys
from pathlib import Path

from clients.environments import ROOT, UV, Pins, Program, programs, run

PAGE = ROOT / "docs/clients.md"
BEGIN, END = "<!-- table: scripts/clients -->\n", "<!-- end of the table -->\n"


def table() -> str:
    """Return the table as Markdown."""
    rows = ["| program | API | run | requests | stored as |", "| --- | --- | --- | --- | --- |"]
    rows += [f"| {' | '.join(_cells(each))} |" for each in programs()]
    return "\n".join(rows) + "\n"


def _cells(program: Program) -> list[str]:
    stored = [f"{program.conversations} conversation{'s' * (program.conversations > 1)}"]
    stored += [f"{program.utility} utility call{'s' * (program.utility > 1)}"] if program.utility else []
    same = "; ".join(program.differences) or "equal"
    return [f"{program.title} {program.version}", program.wire, program.runs, same, ", ".join(stored)]


def page() -> str:
    """Return the page with the current table."""
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"


def relock(path: Path) -> None:
    """Pin the newest versions of a file's packages."""
    pins = Pins(path)
    if pins.node:
        found = "".join(
            f"{name}\n" if "@" in name[1:] else f"{name}@{run(['npm', 'view', name, 'version']).strip()}\n"
            for name in pins.packages  # some with a version
        )
    else:
        options = ["--quiet", "--universal", "--python-version", "3.11", "--no-header", "--no-annotate"]
        found = run([UV, "pip", "compile", *options, "-"], input="\n".join(pins.packages))
    path.write_text(f"{path.read_text().splitlines()[0]}\n{found}")


if __name__ == "__main__":
    if "--relock" in sys.argv:
        for each in sorted((ROOT / "requirements/clients").glob("*.txt")):
            relock(each)
    PAGE.write_text(page(), "utf-8")
