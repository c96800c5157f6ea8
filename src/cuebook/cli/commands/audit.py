"""Commands `cuebook audit tail|verify|replay|export|checkpoints`: the tamper-evident audit log."""

import itertools
import sys
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.files import write_whole
from cuebook.app.reports.audit import checkpoints_of, mirror_lines
from cuebook.cli.group import Output, command, new_app
from cuebook.cli.operations import add_operations
from cuebook.cli.output import screen
from cuebook.cli.state import State
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
    state.report(verdict, str(verdict), failed=not verdict.ok)


@command(app, "cuebook audit export > audit.jsonl", "cuebook audit export -o audit.jsonl", name="export")
def export(
    state: State,
    *,
    output: Output = None,
) -> None:
    """Export all records as JSON lines. Includes checkpoints, for `cuebook audit verify --mirror FILE`."""
    with state.open() as cue:
        cue.audit.record_export("audit-log")  # first: the file then has all records that a checkpoint covers
        lines = mirror_lines(cue.audit.export())
        if output is None:
            for line in lines:
                sys.stdout.write(screen.harmless_json(line))
            return
        numbers = itertools.count()
        write_whole(output, (line for line, _ in zip(lines, numbers, strict=False)))
        count = next(numbers)  # the number of written lines
    state.report({"file": str(output), "records": count}, f"wrote {output} ({counted(count, 'record')})")
