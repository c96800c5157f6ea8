"""Commands `cuebook audit tail|verify|replay|export|checkpoints`: the tamper-evident audit log."""

import itertools
import sys
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.files import write_whole
from cuebook.app.reports.audit import checkpoints_of, mirror_lines
from cuebook.cli.group import command, new_app
from cuebook.cli.operations import add_operations
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.answer import to_wire
from cuebook.records.expression import counted

app = new_app(
    "Show, verify and export the audit log.",
    "cuebook audit tail --last 20",
    "cuebook audit verify",
)


add_operations(app, "audit")


@command(
    app,
    "cuebook audit verify",
    "cuebook audit verify --mirror logs/prompts_audit.jsonl",
    "cuebook audit verify --checkpoints /mnt/elsewhere/checkpoints.json",
    name="verify",
)
def verify(
    state: State,
    *,
    mirror: Annotated[
        Path | None, typer.Option("--mirror", metavar="FILE", help="Verify this mirror file or export instead.")
    ] = None,
    checkpoints: Annotated[
        Path | None,
        typer.Option("--checkpoints", metavar="FILE", help="Also verify against these checkpoints, stored elsewhere."),
    ] = None,
) -> None:
    """Verify the integrity of the audit log. Exits with 1 and names the first changed record."""
    kept = checkpoints_of(checkpoints.read_bytes()) if checkpoints else []
    with state.open() as cue:
        audit = cue.audit
        verdict = audit.verify(kept=kept) if mirror is None else audit.verify_mirror(mirror, kept=kept)
    if state.json:
        screen.say_json(to_wire(verdict))
    else:
        screen.say(str(verdict))
    if not verdict.ok:
        raise typer.Exit(1)


@command(app, "cuebook audit export > audit.jsonl", "cuebook audit export -o audit.jsonl", name="export")
def export(
    state: State,
    *,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write to this file. Default: standard output."),
    ] = None,
) -> None:
    """Export all records as JSON lines. Includes checkpoints, for `cuebook audit verify --mirror FILE`."""
    with state.open() as cue:
        lines = mirror_lines(cue.audit.export())
        if output is None:
            for line in lines:
                sys.stdout.write(screen.harmless_json(line))
            return
        numbers = itertools.count()
        write_whole(output, (line for line, _ in zip(lines, numbers, strict=False)))
        count = next(numbers)  # the number of written lines
    if state.json:
        screen.say_json({"file": str(output), "records": count})
    else:
        screen.say(f"wrote {output} ({counted(count, 'record')})")
