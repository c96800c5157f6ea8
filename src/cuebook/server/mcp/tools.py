"""Define the MCP tools: remember, recall, forget, why and history, and those derived from operations."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, TypeVar, get_args, get_type_hints

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from cuebook import Cuebook, Posted
from cuebook.app.memories.search import MOST_IDS
from cuebook.app.turns.explanation import told_of, window_lines
from cuebook.errors import CuebookError, Denied, InvalidInput, NotFound
from cuebook.operations import Operation, operations_of, summary_of
from cuebook.records.answer import Wire, as_answer, to_wire
from cuebook.records.key import Role
from cuebook.server.api.types import In
from cuebook.server.mcp import schemas
from cuebook.server.mcp.schemas import Asker
from cuebook.validate import check

# ---- progress -------------------------------------------------------------------------------------------------------


T = TypeVar("T")
R = TypeVar("R")
Function = TypeVar("Function", bound=Callable[..., Any])

#: Seconds between two progress notifications.
PAUSE_S: Final = 1.0

#: Reports progress: a growing number and a message.
Tell = Callable[[float, str], Awaitable[None]]


async def at_work(work: Awaitable[T], tell: Tell, title: str) -> T:
    """Run work and report progress each second; cancel it with the caller."""
    task = asyncio.ensure_future(work)
    seconds = 0.0
    try:
        while not (await asyncio.wait((task,), timeout=PAUSE_S))[0]:
            seconds += PAUSE_S
            await tell(seconds, f"{title}: {seconds:.0f} s")
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


#: Characters of a text preview.
BEGINNING: Final = 300
#: Characters of a message in a history without `full`.
MESSAGE: Final = 4_000

#: A tool's result as text and as data.
Answer = tuple[str, R]
#: The sentence of an error that names a command, which an MCP client cannot run.
_COMMAND: Final = re.compile(r"(?<=\. )[A-Z][^`.]*`cuebook (?:memory|conversation) list`[^`.]*\.$")
_READS: Final = {"readOnlyHint": True}
_WRITES: Final = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False}


class Tool(Struct, frozen=True, kw_only=True):
    """A tool: its least role, arguments, result and function."""

    title: str
    about: str
    needs: Role
    takes: type[Struct]
    gives: type[Struct]
    run: Callable[..., Awaitable[Answer[Any]]]
    hints: Wire
    long: str = ""  # the title of a slow operation, reported as progress


#: By name, in the order in which they are listed.
TOOLS: Final[dict[str, Tool]] = {}


def tool(title: str, needs: Role, hints: Wire, *, long: str = "") -> Callable[[Function], Function]:
    """Register a function as a tool. Its docstring is the description, and its annotations are the schemas."""

    def register(function: Function) -> Function:
        TOOLS[function.__name__] = Tool(
            title=title,
            about=" ".join((function.__doc__ or "").split()),
            needs=needs,
            takes=schemas.arguments_of(function),
            gives=get_args(get_type_hints(function)["return"])[1],
            run=function,
            hints=hints,
            long=long,
        )
        return function

    return register


@tool("Remember", "editor", _WRITES)
async def remember(
    asker: Asker,
    *,
    text: Annotated[schemas.Text, Meta(description="Text to remember, as a self-contained sentence.")],
    category: schemas.Category = None,
    key: Annotated[
        str | None, Meta(description="Subject of the memory. A new text for the same key supersedes the old one.")
    ] = None,
    conversation: Annotated[
        str | None, Meta(description="Store it as a post of this conversation instead of a memory.")
    ] = None,
    user: schemas.User = None,
) -> Answer[schemas.RememberResult]:
    """Store a fact, a preference or a solution for later conversations. Without a conversation it becomes a
    memory of the user. Repeating it raises its confidence; the same key with another text supersedes it.
    """
    cue, user = asker.cue, asker.user(user)
    if conversation is None:
        memory = await cue.memory.add(text, category=category, key=key, user=user)
        result = as_answer(schemas.RememberResult, memory, kept="memory", key=memory.key or "", conversation_id=None)
        return f"Stored memory {memory.id} ({memory.category}).", result
    if not text.strip():
        msg = "text: empty. Provide the text to remember."
        raise InvalidInput(msg, where="text")
    if category is not None or key is not None:
        msg = "category, key: not allowed with conversation. Omit them, or omit conversation."
        raise InvalidInput(msg, where="category")
    appended = await cue.conversations.append(conversation, [Posted(sender=user or "user", message=text)], user=user)
    said = schemas.RememberResult(kept="conversation", conversation_id=conversation, seq=appended.last_seq)
    return f"Stored as post {said.seq} of conversation {conversation}.", said


@tool("Recall", "viewer", _READS)
async def recall(
    asker: Asker,
    *,
    query: Annotated[schemas.Text, Meta(description="A question or keywords.")],
    limit: Annotated[int, Meta(ge=1, le=100, description="Maximum number of results.")] = 10,
    conversation: Annotated[str | None, Meta(description="Search only posts of this conversation.")] = None,
    organization: Annotated[str | None, Meta(description="Also search this organization's memories.")] = None,
    user: schemas.User = None,
) -> Answer[schemas.Recalled]:
    """Search earlier messages and memories. Returns results with their source posts, best first. Use it before
    answering what depends on earlier conversations.
    """
    asker.caller.check_organization(organization)
    hits = await asker.cue.memory.search(
        query, conversation=conversation, user=asker.user(user), organization=organization, limit=limit
    )
    lines = []
    for hit in hits:
        where = ", ".join(filter(None, (hit.conversation, *hit.sources))) or "stored without a source post"
        lines.append(f"[{hit.day}] {hit.line}")
        lines.append(f"  {hit.memory_id} · {where}")
    return "\n".join(lines) or "No results.", schemas.Recalled(hits=list(hits))


@tool("Forget", "editor", {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False}, long="Forgetting")
async def forget(
    asker: Asker,
    *,
    ids: Annotated[
        list[schemas.Text] | None,
        Meta(description=f"Memory IDs from recall or from a query; at most {MOST_IDS}."),
    ] = None,
    query: Annotated[str | None, Meta(description="Lists matching memories with their IDs. Forgets nothing.")] = None,
    conversation: Annotated[str | None, Meta(description="With a query: only memories of this conversation.")] = None,
    reason: Annotated[str, Meta(description="Reason, stored in the receipt.")] = "",
    user: schemas.User = None,
) -> Answer[schemas.ForgetResult]:
    """Delete memories permanently, with everything derived from them; returns a signed receipt. With a query
    nothing is deleted: the tool lists matching memories. Show them to the user, then call again with the ids
    that the user confirms.
    """
    user = asker.user(user)
    if user is None:
        asker.caller.need("owner", "Forgetting other users' memories")
    if (ids is None) == (query is None):
        msg = "ids: pass either ids to forget, or a query to list candidates."
        raise InvalidInput(msg, where="ids")
    if ids is None:
        memories = await asker.cue.memory.forgettable(query or "", conversation=conversation, user=user)
        if not memories:
            return "Nothing was forgotten: no memory matches.", schemas.ForgetResult()
        listed = "\n".join(f"{each.id}: {each.text}" for each in memories)
        text = "Nothing was forgotten yet. Ask the user which of these to forget, then call forget with their ids:"
        candidates = tuple(as_answer(schemas.MemoryCandidate, each) for each in memories)
        return f"{text}\n{listed}", schemas.ForgetResult(candidates=candidates)
    receipt = await asker.cue.memory.forget_known(ids, user=user, reason=reason)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in receipt.counts.items() if count)
    text = f"Forgotten permanently ({counts or 'nothing'}). Receipt {receipt.id}, {receipt.state}."
    return text, schemas.ForgetResult(receipt=to_wire(receipt))


@tool("Explain a turn", "viewer", _READS)
async def why(
    asker: Asker,
    *,
    conversation: schemas.Conversation,
    turn: Annotated[schemas.Number | None, Meta(description="Turn number. Default: the last turn.")] = None,
    full: Annotated[bool, Meta(description="Return the full texts of all blocks instead of previews.")] = False,
    user: schemas.User = None,
) -> Answer[schemas.Explained]:
    """Explain a turn of a conversation: the blocks of its prompt with sources and tokens, what was left out
    and why, the sentiment, and the selected prompts. Default: last turn.
    """
    user, turns = asker.user(user), asker.cue.turns
    if turn is None:
        last = await turns.list(conversation, user=user, last=1)
        if not last:
            msg = f"Conversation {conversation!r} has no turns. Send a message through Cuebook first."
            raise NotFound(msg)
        turn = last[0].turn
    detail = await turns.show(conversation, turn, user=user)
    data, window = to_wire(detail), detail.window
    explained = as_answer(
        schemas.Explained,
        detail,
        conversation_id=conversation,
        query=_beginning(detail.query, full),
        reply=_beginning(detail.reply, full),
        tokens=window.tokens if window else None,
        budget=window.budget if window else None,
        blocks=tuple(replace(each, text=_beginning(each.text, full)) for each in (window.blocks if window else ())),
        dropped=window.dropped if window else (),
        why=list(told_of(data)),
    )
    lines = [
        f"turn {turn} of {conversation}, {data['state']}, {data['createdAt']}",
        f"asked: {explained.query}",
        f"answered: {explained.reply}",
        *(window_lines(data["window"]) if window else [f"prompt not available: {detail.replay}"]),
        *explained.why,
    ]
    return "\n".join(lines), explained


@tool("History", "viewer", _READS)
async def history(
    asker: Asker,
    *,
    conversation: schemas.Conversation,
    last: Annotated[int, Meta(ge=1, le=500, description="Number of newest posts.")] = 20,
    full: Annotated[bool, Meta(description="Return full messages of any length.")] = False,
    user: schemas.User = None,
) -> Answer[schemas.TranscriptResult]:
    """Return the newest posts of a conversation, oldest first."""
    posts = [
        as_answer(
            schemas.TranscriptPost,
            each,
            send_from=each.sender,
            message=each.message if full else each.message[:MESSAGE],
            timestamp=str(each.created_at),
            cut=not full and len(each.message) > MESSAGE,
        )
        for each in await asker.cue.conversations.posts(conversation, user=asker.user(user), last=last)
    ]
    lines = [f"{each.seq}. {each.send_from}: {each.message}{'…' if each.cut else ''}" for each in posts]
    return "\n".join(lines) or "No posts yet.", schemas.TranscriptResult(conversation_id=conversation, posts=posts)


def derived(operation: Operation) -> Tool:
    """Return the tool of an operation that declares one. Its text is the text of the answer."""
    reads = operation.declaration.method == "GET"

    async def run(asker: Asker, **values: Any) -> Answer[Any]:
        for each in operation.parameters:
            if each.argument.source == "user":
                values[each.name] = asker.user(values[each.name])
            elif each.argument.source == "caller":
                values[each.name] = asker.caller
        answer = await operation.bind(asker.cue)(**values)
        return str(answer), operation.wire_answer(answer)

    return Tool(
        title=operation.declaration.tool.replace("_", " ").capitalize(),
        about=" ".join(summary_of(operation.doc).split()),
        needs=operation.declaration.role,
        takes=operation.request_type(tool=True) or In,
        gives=operation.answer_type(),
        run=run,
        hints=_READS if reads else _WRITES,
    )


TOOLS.update({each.declaration.tool: derived(each) for each in operations_of(Cuebook) if each.declaration.tool})


def list_tools(asker: Asker, cursor: str | None) -> Wire:
    """Return the tools that the caller may use, all on one page. Raises InvalidInput."""
    if cursor:
        msg = f"cursor: invalid: {cursor!r}. The list has one page; omit the cursor."
        raise InvalidInput(msg, where="cursor")
    bound = "user" if asker.caller.user is not None else None  # a key of one user names it
    rows = [
        {
            "name": name,
            "title": each.title,
            "description": each.about,
            "inputSchema": schemas.schema_of(each.takes, without=bound),
            "outputSchema": schemas.schema_of(each.gives),
            "annotations": {"title": each.title, "openWorldHint": False, **each.hints},
        }
        for name, each in TOOLS.items()
        if asker.caller.may(each.needs)
    ]
    return {"tools": rows}


async def call_tool(asker: Asker, name: str, arguments: Wire | None, tell: Tell) -> Wire:
    """Call a tool, and report progress with `tell`. A tool's error is returned as a result with its message.

    Raises NotFound for an unknown tool.
    """
    tool = TOOLS.get(name)
    if tool is None:
        msg = f"Unknown tool {name!r}. Available: {', '.join(TOOLS)}."
        raise NotFound(msg)
    try:
        asker.caller.need(tool.needs, f"Tool {name!r}")
        values = asdict(check(arguments or {}, tool.takes))
        if tool.long:
            await tell(0, tool.long)
        text, data = await at_work(tool.run(asker, **values), tell, tool.long or tool.title)
    except CuebookError as error:
        hint = "" if not isinstance(error, Denied) else " Nothing was changed."
        text = _COMMAND.sub("The results of recall have the IDs.", str(error))
        return {"content": [{"type": "text", "text": f"{text}{hint}"}], "isError": True}
    return {"content": [{"type": "text", "text": text}], "structuredContent": to_wire(data), "isError": False}


def _beginning(text: str, full: bool) -> str:  # noqa: FBT001
    return text if full or len(text) <= BEGINNING else f"{text[: BEGINNING - 1]}…"
