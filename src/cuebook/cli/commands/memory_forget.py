"""Commands `cuebook memory forget|receipt`: erase data permanently (GDPR) and verify the signed receipts."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cuebook.app.forgetting import in_words
from cuebook.app.setup.database import owner_note
from cuebook.cli.group import Yes, command, new_app, read_input
from cuebook.cli.output import screen
from cuebook.cli.state import State
from cuebook.records.answer import to_wire
from cuebook.records.erasure import ForgetPreview
from cuebook.records.expression import counted

#: Maximum length of a listed memory, in characters.
WORDS: Final = 60

receipts = new_app(
    "List, show and verify erasure receipts.",
    "cuebook memory receipt list",
    "cuebook memory receipt verify receipt-3f2a90c41b7d5e68a0f1",
)

ReceiptId = Annotated[str, typer.Argument(metavar="RECEIPT", help="Receipt ID.", show_default=False)]


def add_to(app: typer.Typer) -> None:
    """Add the commands to `cuebook memory`."""
    command(
        app,
        "cuebook memory forget --user ann --dry-run",
        "cuebook memory forget --user ann",
        "cuebook memory forget --conversation c1 --reason 'requested by email' --yes --json",
        name="forget",
    )(forget)
    app.add_typer(receipts, name="receipt")


def forget(
    state: State,
    *,
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="Forget all data of this user, transcripts included.")
    ] = None,
    conversation: Annotated[
        list[str] | None, typer.Option("--conversation", metavar="ID", help="Forget this conversation; repeatable.")
    ] = None,
    persona: Annotated[
        str | None, typer.Option("--persona", metavar="ID", help="Forget the memories of this persona.")
    ] = None,
    organization: Annotated[
        str | None, typer.Option("--organization", metavar="ORG", help="Forget the memories of this organization.")
    ] = None,
    memory: Annotated[
        list[str] | None, typer.Option("--id", metavar="ID", help="Forget this memory; repeatable.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, recorded in the receipt.")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be erased and kept, and erase nothing.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Permanently erase data and create a signed receipt. Everything derived from the data is erased too."""
    named = {"user": user, "persona": persona, "organization": organization}
    lines = [f"{kind} {name}" for kind, name in named.items() if name is not None]
    lines += [f"conversation {each}" for each in conversation or ()] + [f"memory {each}" for each in memory or ()]
    if not lines:
        msg = "Nothing to forget. Use --user, --conversation, --persona, --organization or --id"
        raise typer.BadParameter(msg)
    target: Any = {
        "user": user, "conversation": conversation, "persona": persona, "organization": organization,
        "memories": memory or (),
    }  # fmt: skip
    if dry_run:
        with state.open() as cue:
            would_forget = cue.memory.would_forget(**target)
        state.report({"wouldForget": would_forget}, *_preview_lines(would_forget))
        return
    if not yes:
        question = f"Permanently forget {', '.join(lines)} and everything derived from it?"
        screen.confirm(question, "Nothing was forgotten.")
    with state.open() as cue:
        receipt = cue.memory.forget(**target, reason=reason)
        if receipt.state == "pending":
            cue.memory.finish_receipts()  # a background job rewrites a large file; no worker may be running
            receipt = cue.memory.receipt(receipt.id)
    erased = _counted(receipt.counts) or "nothing, because no data matched"
    remains = [f"The data may still be in {receipt.remains}."] if receipt.remains else []
    state.report({"receipt": receipt}, f"{receipt.id}: erased {erased}", *remains)
    if receipt.state == "pending" and not state.json:
        busy = "Another process still uses the data. The receipt will be signed when it ends."
        screen.complain(owner_note(state.settings()) or busy)


def _preview_lines(found: ForgetPreview) -> Iterator[str]:
    """Yield one line for each entry that would be erased or kept."""
    yield "dry run: nothing was erased; would erase: " + (_counted(found.counts) or "nothing")
    for touched in found.conversations:
        stays = f", keeping {counted(touched.left, 'post')}" if touched.left else ""
        yield f"  conversation {touched.conversation_id}: {counted(touched.posts, 'post')}{stays}"
    if found.more_conversations:
        yield f"  and {counted(found.more_conversations, 'other conversation')}"
    for each in found.memories:
        yield f"  memory {each.memory_id} ({each.scope}) {screen.line_of(each.text, WORDS)}"
    if found.more_memories:
        yield f"  and {counted(found.more_memories, 'other memory', 'other memories')}"
    if found.stays:
        yield "would keep:"
    for kept in found.stays:
        yield f"  {in_words(kept.what)} ({kept.count:,}): {kept.why}"


def _counted(counts: Mapping[str, int]) -> str:
    """List the counts that are not 0 with their labels: "posts (12), model calls (3)"."""
    return ", ".join(f"{in_words(kind)} ({count:,})" for kind, count in counts.items() if count)


@command(receipts, "cuebook memory receipt list", "cuebook memory receipt list --json", name="list")
def list_(
    state: State,
    *,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=1000, help="Show at most N receipts.")] = 20,
) -> None:
    """List erasure receipts, newest first."""
    with state.open() as cue:
        found = cue.memory.receipts(limit=limit)
    rows = [
        (each.id, each.requested_at[:19].replace("T", " "), each.kind, each.state, str(sum(each.counts.values())))
        for each in found
    ]
    columns = ("receipt", "time", "target", "state", "erased rows")
    table = partial(screen.table, columns, rows, right=("erased rows",))
    state.report({"items": found}, "no receipts yet", render=table if rows else None)


@command(receipts, "cuebook memory receipt show receipt-3f2a90c41b7d5e68a0f1", name="show")
def show(state: State, receipt: ReceiptId) -> None:
    """Show a signed receipt as JSON."""
    with state.open() as cue:
        screen.say_json({"receipt": to_wire(cue.memory.receipt(receipt))})


@command(
    receipts,
    "cuebook memory receipt verify receipt-3f2a90c41b7d5e68a0f1 --about ann",
    "cuebook memory receipt verify receipt.json",
    "cuebook memory receipt verify - < receipt.json",
    name="verify",
)
def verify(
    state: State,
    receipt: Annotated[
        str, typer.Argument(metavar="RECEIPT", help="Receipt ID, a file, or - for standard input.", show_default=False)
    ],
    *,
    about: Annotated[
        str | None,
        typer.Option(
            "--about",
            metavar="ID",
            help="Also check that the receipt covers this user, conversation, persona, organization or memory.",
        ),
    ] = None,
) -> None:
    """Verify the signature of a receipt. Exits with 1 if it was changed or not signed by this database."""
    raw = read_input(receipt) if receipt == "-" or Path(receipt).is_file() else None
    with state.open() as cue:
        checked = cue.memory.verify_receipt(raw if raw is not None else cue.memory.receipt(receipt), name=about)
    if not (checked.ok or state.json):
        screen.complain(f"Invalid receipt: {checked.reason}")
        raise typer.Exit(1)
    good = "ok: signed by this database and unchanged" + (f"; it is about {about!r}" if about else "")
    state.report({"ok": checked.ok, "reason": checked.reason, "about": checked.names}, good, failed=not checked.ok)
