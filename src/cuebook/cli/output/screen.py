"""Print to the terminal: escaped text, tables, JSON, progress bars and one-line errors."""

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import typer

from cuebook.records.expression import shortened

#: Table width if the output is not a terminal.
PIPE_WIDTH = 140
#: Minimum width of a column, and the space between two columns.
NARROWEST, GAP = 8, 3
#: Columns that wrap are narrowed first, down to this width, so that dates and names beside them stay complete.
READABLE = 40
#: Control characters except tab and line feed; bidi marks, separators and tags; lone surrogates.
_HARMFUL = (
    *range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F),
    *range(0x2066, 0x206A), 0xFEFF, *range(0xD800, 0xE000), *range(0xE0000, 0xE0080),
)  # fmt: skip
_SHOWN = {code: f"\\x{code:02x}" if code <= 0xFF else f"\\u{{{code:x}}}" for code in _HARMFUL}
_SHOWN_IN_JSON = {code: json.dumps(chr(code))[1:-1] if code != 0x7F else "\\u007f" for code in _HARMFUL if code >= 0x7F}
_STYLES = {"ok": "green", "info": "cyan", "warn": "yellow", "fail": "bold red"}

_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}

Row = Sequence[str]
#: Reports progress: the number of items done, and the total.
Advance = Callable[[int, int], None]


def harmless(text: str) -> str:
    """Escape control characters, bidi overrides and hidden tags; keep line breaks and tabs."""
    return text.translate(_SHOWN)


def line_of(text: str, most: int = 0) -> str:
    """Return a text as one escaped line of at most `most` characters (0 = no limit)."""
    line = harmless(" ".join(text.split()))
    return line if not most or len(line) <= most else line[: most - 1] + "…"


def quote(text: str, most: int) -> str:
    """Return a text in quotation marks, as one line of at most `most` characters."""
    return f"“{shortened(text, most)}”"


def say(text: str = "", *, end: str = "\n") -> None:
    """Print an escaped text."""
    print(harmless(text), end=end, flush=True)


def say_json(value: object, *, compact: bool = False) -> None:
    """Print a value as JSON, with JSON escapes."""
    print(json_text(value, compact=compact), flush=True)


def json_text(value: object, *, compact: bool = False) -> str:
    """Serialize to JSON that is safe to print on a terminal."""
    plain = msgspec.to_builtins(value, str_keys=True)
    return harmless_json(json.dumps(plain, ensure_ascii=False, indent=None if compact else 2))


def harmless_json(document: str) -> str:
    """Replace terminal control characters in a JSON document with JSON escapes."""
    return document.translate(_SHOWN_IN_JSON)


def complain(text: str) -> None:
    """Print an error or a notice as one line on stderr."""
    print(f"cuebook: {line_of(text)}", file=sys.stderr, flush=True)


def on_terminal() -> bool:
    """Return whether stdin and stdout are both a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def agreed(question: str) -> bool:
    """Ask a question. Without a terminal the answer is no."""
    return on_terminal() and typer.confirm(harmless(question))


def confirm(question: str, refusal: str) -> None:
    """Ask a question. If the answer is no, print the refusal and exit with 1."""
    if not agreed(question):
        complain(f"{refusal} Use --yes to skip the confirmation.")
        raise typer.Exit(1)


# ---- tables ---------------------------------------------------------------------------------------------------------


def _console(*, stderr: bool = False) -> Any:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def table(columns: Sequence[str], rows: Sequence[Row], *, right: Sequence[str] = (), fold: Sequence[str] = ()) -> None:
    """Print a table and narrow wide columns to fit; columns named in `right` are right-aligned.

    Truncate text that does not fit, except in the columns named in `fold`: these wrap, so that IDs stay complete.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    console = _console()
    cells = [[Text(line_of(cell)) for cell in row] for row in rows]
    wanted = [max([len(name), *(row[at].cell_len for row in cells)]) for at, name in enumerate(columns)]
    shown = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name, width in zip(columns, fit(wanted, console.width, [name in fold for name in columns]), strict=True):
        justify: Any = "right" if name in right else "left"
        folds = name in fold
        shown.add_column(
            name, justify=justify, no_wrap=not folds, overflow="fold" if folds else "ellipsis", width=width
        )
    for row in cells:
        shown.add_row(*row)
    console.print(shown)


def fit(wanted: Sequence[int], room: int, last: Sequence[bool] = ()) -> list[int]:
    """Narrow columns until a table fits: always the widest, and none below NARROWEST.

    Columns marked in `last` shrink to READABLE first, then only after the others.
    """
    widths = list(wanted)
    over = sum(widths) + GAP * (len(widths) - 1) - room
    everywhere = list(range(len(widths)))
    first = [at for at in everywhere if not (last and last[at])]
    folding = [at for at in everywhere if last and last[at]]
    rest = everywhere[1:] if last else []  # the first column identifies the row
    for places, least in ((folding, READABLE), (first, NARROWEST), (rest, NARROWEST), (everywhere, NARROWEST)):
        while over > 0 and places and max(widths[at] for at in places) > least:
            widths[max(places, key=lambda at: widths[at])] -= 1
            over -= 1
    return widths


def verdict(state: str, name: str, result: str, advice: str = "") -> None:
    """Print the result of a check on one line: ok, info, warn or fail, its name, the finding and the advice."""
    from rich.text import Text

    text = Text.assemble((f"{state:<5}", _STYLES[state]), f" {name:<10} ", line_of(result))
    if advice:
        text.append(f" → {line_of(advice)}", style="dim")
    _console().print(text, soft_wrap=True)


def heading(text: str) -> None:
    """Print a bold line."""
    from rich.text import Text

    _console().print(Text(line_of(text), style="bold"), soft_wrap=True)


def diff(lines: Iterable[str]) -> None:
    """Print the lines of a unified diff: additions green, deletions red; no color in a pipe."""
    from rich.text import Text

    console = _console()
    for line in lines:
        console.print(Text(harmless(line), style=_DIFF_STYLES.get(line[:1], "")), soft_wrap=True)


def bar(share: float, width: int = 8) -> str:
    """Draw a share in [0, 1] as a bar of eighths."""
    eighths = round(max(0.0, min(1.0, share)) * width * 8)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + ("" if not rest else " ▏▎▍▌▋▊▉"[rest])).ljust(width)


@contextmanager
def progress(label: str) -> Iterator[Advance]:
    """Show a progress bar on a terminal; print nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = [
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    ]
    with Progress(*columns, console=_console(stderr=True), transient=True) as shown:
        task = shown.add_task(line_of(label, 60), total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


# ---- the process ----------------------------------------------------------------------------------------------------


class _OneLine(logging.Formatter):
    """Format a log record as one line with the error type and location; its message may contain user data."""

    def format(self, record: logging.LogRecord) -> str:
        if record.name == "cuebook.requests":  # JSON
            return record.getMessage()
        kind, error, trace = record.exc_info or (None, None, None)
        frames = traceback.extract_tb(trace)
        if kind is None or error is None or not frames:
            return f"cuebook: {line_of(record.getMessage())}"
        where = f"{Path(frames[-1].filename).name} line {frames[-1].lineno}"
        hint = "run `cuebook --debug …` for the traceback"
        return f"cuebook: {line_of(record.getMessage())}: {kind.__name__} in {where} ({hint})"


def prepare(*, debug: bool) -> None:
    """Let the streams accept any text, and print unexpected errors as one line; `debug` keeps the tracebacks."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if hasattr(sys.stdin, "reconfigure"):  # a C locale decodes invalid bytes as lone surrogates
        sys.stdin.reconfigure(errors="strict")
    if not debug:
        sys.excepthook = _last_words
        handler = logging.StreamHandler()
        handler.setFormatter(_OneLine())
        logging.getLogger("cuebook").addHandler(handler)


def _last_words(kind: type[BaseException], error: BaseException, _trace: object) -> None:
    complain(f"Internal error: {kind.__name__}: {error}. Please report it; `cuebook --debug …` shows the traceback.")
