"""Commands `cuebook audit tail|verify|replay|export|checkpoints`: the tamper-evident audit log."""

import itertools
import sys
from pathlib import Path
from typing import Annotated

import typer

from cuebook.app.json_shapes import Wire
from cuebook.app.reports import audit_shapes as shapes
from cuebook.app.setup.atomic_files import write_whole
from cuebook.cli.group import command, new_app
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.audit import Verdict
from cuebook.records.expression import counted

app = new_app(
    "Show, verify and export the audit log.",
    "cuebook audit tail --last 20",
    "cuebook audit verify",
)


@command(app, "cuebook audit tail", "cuebook audit tail --last 50 --json", name="tail")
def tail(
    state: State,
    *,
    last: Annotated[int, typer.Option("--last", metavar="N", min=1, max=1000, help="Show at most N records.")] = 10,
) -> None:
    """Show the newest records, oldest first."""
    with state.open() as cue:
        items = [shapes.record(each) for each in cue.audit.tail(last)]
    if state.json:
        screen.say_json({"items": items})
        return
    if not items:
        screen.say("no records yet. A record is written when a prompt is written, rendered or selected.")
        return
    rows = [
        (
            str(each["seq"]),
            each["timestamp"][:19].replace("T", " "),
            each["event"],
            each["promptId"],
            each["version"],
            each["agent"],
            "(erased)" if None in (each["interpolatedText"], each["outputSummary"]) else _text(each),
        )
        for each in items
    ]
    names = ("seq", "time", "event", "prompt", "version", "agent", "text")
    screen.table(names, rows, right=("seq",), fold=("prompt",))


def _text(shown: Wire) -> str:
    return str(shown["interpolatedText"] or shown["outputSummary"])


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
    kept = shapes.checkpoints_of(checkpoints.read_bytes()) if checkpoints else []
    with state.open() as cue:
        audit = cue.audit
        verdict = audit.verify(kept=kept) if mirror is None else audit.verify_mirror(mirror, kept=kept)
    if state.json:
        screen.say_json(shapes.verdict(verdict))
    else:
        screen.say(_sentence(verdict))
    if not verdict.ok:
        raise typer.Exit(1)


def _sentence(found: Verdict) -> str:
    count = counted(found.records, "record")
    if not found.ok:
        where = "" if found.first_bad else "invalid checkpoints: "
        return f"FAILED: {where}{found.reason} ({count})"
    erased = f"; {found.erased:,} with erased text, which does not affect integrity" if found.erased else ""
    signed = f"signed by checkpoints up to record {found.signed:,}" if found.signed else "no checkpoints yet"
    return f"ok: {count}; {signed}{erased}"


@command(app, "cuebook audit replay 2", "cuebook audit replay 2 --json", name="replay")
def replay(
    state: State,
    seq: Annotated[int, typer.Argument(metavar="SEQ", min=1, help="Record number.", show_default=False)],
) -> None:
    """Render the prompt of a record again and compare. Exits with 1 if it differs or the version is deleted."""
    with state.open() as cue:
        replayed_render = cue.audit.replay(seq)
    if state.json:
        screen.say_json(shapes.replayed(replayed_render))
    else:
        screen.say(replayed_render.verdict)
        if replayed_render.text:
            screen.say(replayed_render.text)
    if replayed_render.verdict in ("changed", "gone"):
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
        lines = shapes.lines(cue.audit.export())
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


@command(
    app,
    "cuebook audit checkpoints",
    "cuebook audit checkpoints --json > /mnt/elsewhere/checkpoints.json",
    name="checkpoints",
)
def checkpoints(state: State) -> None:
    """List the signed checkpoints. Store copies where database users cannot write: they reveal a truncated log."""
    with state.open() as cue:
        items = [shapes.checkpoint(each) for each in cue.audit.checkpoints()]
    if state.json:
        screen.say_json({"items": items})
    elif not items:
        screen.say(
            "no checkpoints yet. One is signed after 1,000 records or a minute, and when the database is closed."
        )
    else:
        rows = [(each["time"][:19].replace("T", " "), f"{each['size']:,}", each["root"]) for each in items]
        screen.table(("time", "records", "root"), rows, right=("records",), fold=("root",))
