"""Commands `cuebook conversation`: list, show, import, export, compress, share and delete conversations."""

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from cuebook import Posted
from cuebook.app.blocking.cuebook import BlockingCuebook
from cuebook.app.conversations import Conversations
from cuebook.app.files import write_whole
from cuebook.app.transcripts.sniff import read_transcripts
from cuebook.app.transcripts.store import store_transcript
from cuebook.app.transcripts.transcript import Transcript
from cuebook.app.transcripts.write import Format, write_transcript
from cuebook.cli.group import Conversation, Output, Tenant, TimeZone, User, Yes, command, new_app
from cuebook.cli.operations import add_operations, operation_command
from cuebook.cli.output import screen
from cuebook.cli.output.post import lines_of
from cuebook.cli.state import State
from cuebook.errors import InvalidInput
from cuebook.records.answer import Page, Time, to_wire
from cuebook.records.conversation_answers import ConversationEntry, PostEntry, SessionMessage, SummaryState
from cuebook.records.expression import counted
from cuebook.records.memory import DEFAULT_TENANT

app = new_app(
    "List, show, import, export and delete conversations.",
    "cuebook conversation import chat.json --conversation c1",
    "cuebook conversation show c1 --last 20",
)

#: Conversations loaded per page when all are exported.
PAGE = 200


@operation_command(
    app, Conversations.posts, "cuebook conversation show c1", "cuebook conversation show c1 --last 20 --json"
)
def show(
    state: State,
    values: Any,
    *,
    branches: Annotated[bool, typer.Option("--branches", help="Show all branches, ordered by post number.")] = False,
) -> None:
    """Show the transcript of a conversation."""
    with state.open() as cue:
        about = cue.conversations.get(values["conversation"], user=values["user"])
        page = cue.conversations.posts(**values, branches="all" if branches else "head")
    data = to_wire(page)
    answer = to_wire(about) | {"posts": data.pop("items")} | data
    state.report(answer, render=partial(_print_posts, about, page, branches=branches))


def _print_posts(about: ConversationEntry, page: Page[PostEntry], *, branches: bool) -> None:
    speakers = ", ".join(filter(None, (about.user, about.persona)))
    screen.heading(
        f"{about.id} · {counted(about.last_seq, 'post')} · {counted(about.turns, 'turn')}"
        + (speakers and f" · {speakers}")
    )
    for post in page:
        branch = f" (after {post.parent or 0})" if branches else ""
        half = " (interrupted)" if post.state == "interrupted" else ""
        screen.heading(f"\n{post.seq} {post.sender} {_minute(post.created_at)}{branch}{half}".strip())
        screen.say("\n".join(lines_of(post)))
    if page.next:
        screen.say(f"\nmore results: --cursor {page.next}")


@command(
    app,
    "cuebook conversation import chat.json",
    "cuebook conversation import messages.jsonl --conversation c1 --user ann",
    "cuebook conversation export --all | cuebook -C copy conversation import -",
    name="import",
)
def import_(
    state: State,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Transcript files; - reads standard input.", show_default=False)
    ],
    *,
    conversation: Annotated[
        str | None, typer.Option("--conversation", metavar="ID", help="Import into the conversation with this ID.")
    ] = None,
    user: Annotated[str | None, typer.Option("--user", metavar="USER", help="Owner of the conversation.")] = None,
    persona: Annotated[str | None, typer.Option("--persona", metavar="ID", help="Persona of the answers.")] = None,
    time_zone: TimeZone = None,
    yes: Yes = False,
) -> None:
    """Import transcripts. Importing the same file again stores only new posts. Asks before it restores erased data.

    Formats: OpenAI messages (JSON, {"messages": [...]}, or JSONL with a message or a conversation on each line),
    Cuebook exports, bodies of `POST /api/conversations/{id}/posts`, TaskWeaver JSON and YAML, and LoCoMo.
    """
    transcripts = [each for file in files for each in _read(file)]
    if conversation is not None and len(transcripts) > 1:
        msg = f"--conversation names one conversation, but the input has {len(transcripts)}. Omit the option."
        raise InvalidInput(msg, where="conversation")
    done = []
    with state.open() as cue:
        if not yes:
            _confirm_erased(cue, transcripts, conversation=conversation, user=user)
        for each in transcripts:
            name = conversation or each.conversation
            with screen.progress(f"importing {name}") as advance:
                for so_far in store_transcript(
                    cue, each, conversation=name, user=user, persona=persona, time_zone=time_zone
                ):
                    advance(so_far.done, len(each.posts))
            progress = {"posts": so_far.done, "stored": so_far.stored, "lastSeq": so_far.last_seq}
            done.append({"conversationId": name} | progress)
            if not state.json:
                text = f"{so_far.stored:,} of {counted(len(each.posts), 'post')} new"
                screen.say(f"{name}: {text} (from {each.source})")
    if state.json or any(each["stored"] for each in done):
        hint = "Run `cuebook settle` to summarize now; `cuebook chat` and `cuebook serve` do this in the background."
        state.report({"items": done}, hint)


def _confirm_erased(
    cue: BlockingCuebook, transcripts: Sequence[Transcript], *, conversation: str | None, user: str | None
) -> None:
    """Ask before importing posts that are older than an erasure of their user or conversation."""
    for each in transcripts:
        name, posts = conversation or each.conversation, [post for post in each.posts if isinstance(post, Posted)]
        users = {sender for sender in (user or each.user, *(post.sender for post in posts)) if sender}
        times = [post.created_at or 0.0 for post in posts] if len(posts) == len(each.posts) else []
        for found in cue.memory.earlier_erasures(users=users, conversations=[name]):
            if min(times, default=0.0) < datetime.fromisoformat(found.requested_at).timestamp():
                what = f"{name}: its {found.kind} was forgotten on {found.requested_at[:10]} ({found.id})."
                screen.confirm(f"{what} Import the erased data again?", f"{what} Nothing was imported.")
                break


def _read(file: str) -> list[Transcript]:
    return read_transcripts(sys.stdin.read(), name="stdin") if file == "-" else read_transcripts(Path(file))


@command(
    app,
    "cuebook conversation export c1 > c1.json",
    "cuebook conversation export c1 --format openai -o messages.json",
    "cuebook conversation export --all -o everything.jsonl",
    "cuebook conversation export --all --markdown -o pages",
    name="export",
)
def export(
    state: State,
    conversations: Annotated[
        list[str] | None, typer.Argument(metavar="CONVERSATION", help="Conversation IDs.", show_default=False)
    ] = None,
    *,
    all_: Annotated[bool, typer.Option("--all", help="Export all conversations.")] = False,
    form: Annotated[
        Format, typer.Option("--format", help="Output format; only cuebook includes all branches.")
    ] = "cuebook",
    markdown: Annotated[bool, typer.Option("--markdown", help="The same as --format markdown, for people.")] = False,
    output: Output = None,
    user: User = None,
) -> None:
    """Export conversations as a backup or for other programs. With several, write JSONL: one conversation per line.

    With --markdown, several conversations are written to the folder --output, one file each.
    """
    form = "markdown" if markdown else form
    if bool(conversations) == all_:
        msg = "Pass conversation IDs, or use --all for all conversations"
        raise typer.BadParameter(msg, param_hint="CONVERSATION")
    with state.open() as cue:
        names = list(conversations or _every(cue, user))
        into = output if form == "markdown" and len(names) != 1 else None
        if form in ("taskweaver-yaml", "markdown") and len(names) != 1 and into is None:
            msg = f"--format {form} without a folder allows one conversation, not {len(names)}. Export each separately."
            raise InvalidInput(msg, where="format")
        one_line = len(names) != 1 or all_
        cue.audit.record_export("conversations", user=user)
        with screen.progress("exporting") as advance:
            texts = []
            for number, name in enumerate(names, 1):
                loaded = cue.conversations.load(name, user=user, branches=form == "cuebook")
                texts.append(write_transcript(loaded, form=form, one_line=one_line))
                advance(number, len(names))
    if output is None:
        sys.stdout.write(_printable("".join(texts), form))
        return
    if into is not None:
        into.mkdir(parents=True, exist_ok=True)
        for name, text in zip(names, texts, strict=True):
            write_whole(into / f"{quote(name, safe=' @+,=')}.md", [text])
    else:
        write_whole(output, texts)
    count = len(names)
    state.report({"file": str(output), "conversations": count}, f"wrote {output} ({counted(count, 'conversation')})")


def _printable(text: str, form: Format) -> str:
    """Return an export without control characters of a terminal. YAML escapes them itself."""
    if form == "taskweaver-yaml":
        return text
    return screen.harmless(text) if form == "markdown" else screen.harmless_json(text)


def _every(cue: BlockingCuebook, user: str | None) -> Iterator[str]:
    cursor = None
    while True:
        page = cue.conversations.list(user=user, limit=PAGE, cursor=cursor)
        yield from (each.id for each in page.items)
        if not (cursor := page.next):
            return


def print_session(page: Page[SessionMessage]) -> None:
    """Print the messages of a session."""
    for each in page:
        mark = " (compressed)" if each.is_compressed else ""
        screen.heading(f"\n{each.role} {_minute(each.timestamp)} {each.token_count:,} tokens{mark}".strip())
        screen.say(each.content)


def print_summary(made: SummaryState | None, *, conversation: str) -> None:
    """Print which posts a summary covers."""
    if made:
        screen.say(f"summary {made.version} of {conversation} covers the posts up to {made.upto_seq}")


@command(
    app, "cuebook conversation participants c1", "cuebook conversation participants c1 ann bob", name="participants"
)
def participants(
    state: State,
    conversation: Conversation,
    users: Annotated[
        list[str] | None,
        typer.Argument(metavar="USER", help="User IDs of the participants. Omit them to list the participants."),
    ] = None,
    *,
    nobody: Annotated[bool, typer.Option("--nobody", help="Remove all participants except the first user.")] = False,
    tenant: Tenant = DEFAULT_TENANT,
) -> None:
    """Show or set the participants. Only they can read the conversation; the first user always stays."""
    if users and nobody:
        msg = "USER and --nobody cannot be combined. Use one"
        raise typer.BadParameter(msg, param_hint="--nobody")
    with state.open() as cue:
        conversations = cue.of(tenant).conversations
        if users or nobody:
            about = conversations.participants(conversation, users or [], by="cli")
        else:
            about = conversations.get(conversation)
    state.report(about, ", ".join(about.participants) or "no participants")


@operation_command(
    app, Conversations.delete, "cuebook conversation delete c1", "cuebook conversation delete c1 --yes --json"
)
def delete(state: State, values: Any, *, yes: Yes = False) -> None:
    """Permanently delete a conversation and derived data."""
    with state.open() as cue:
        about = cue.conversations.get(**values)
        posts = counted(about.last_seq, "post")
        if not yes:
            screen.confirm(
                f"Permanently delete {about.id} with {posts}?", f"Conversation {about.id!r} was not deleted."
            )
        counts = cue.conversations.delete(**values)
    state.report({"conversationId": about.id, "deleted": counts}, f"deleted {about.id} ({posts})")


def _minute(when: Time) -> str:
    return str(when)[:16].replace("T", " ")


add_operations(app, "conversation", {"session": print_session, "compress": print_summary})
