"""Define the MCP tools: remember, recall, forget, why and history, and those derived from operations."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from cuebook import Cuebook
from cuebook.app import by_hand
from cuebook.app.json_shapes import Wire
from cuebook.app.turns.explanation import told_of, window_lines
from cuebook.errors import CuebookError, Denied, InvalidInput, NotFound
from cuebook.operations import Operation, operations_of, summary_of
from cuebook.records.answer import to_wire
from cuebook.records.key import Role
from cuebook.server.api.types import In, Out
from cuebook.server.mcp import schemas
from cuebook.server.mcp.schemas import Asker
from cuebook.validate import check

# ---- progress -------------------------------------------------------------------------------------------------------


T = TypeVar("T")

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
Answer = tuple[str, Wire]


class Tool(Struct, frozen=True, kw_only=True):
    """A tool: its least role, arguments, result and function."""

    title: str
    about: str
    needs: Role
    takes: type[Struct]
    gives: type[Struct]
    run: Callable[..., Awaitable[Answer]]
    hints: Wire
    long: str = ""  # the title of a slow operation, reported as progress


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
) -> Answer:
    """Store a text as a memory or as a post."""
    stored_at = await by_hand.remember(
        asker.cue, text, category=category, key=key, conversation=conversation, user=asker.user(user)
    )
    if stored_at.memory is None:
        said = schemas.RememberResult(kept="conversation", conversation_id=stored_at.conversation, seq=stored_at.seq)
        return f"Stored as post {stored_at.seq} of conversation {stored_at.conversation}.", _wire(said)
    memory = stored_at.memory
    remember_result = schemas.RememberResult(
        kept="memory",
        id=memory.id,
        category=memory.category,
        key=memory.key or "",
        confidence=memory.confidence,
    )
    return f"Stored memory {memory.id} ({memory.category}).", _wire(remember_result)


async def recall(
    asker: Asker,
    *,
    query: Annotated[schemas.Text, Meta(description="A question or keywords.")],
    limit: Annotated[int, Meta(ge=1, le=100, description="Maximum number of results.")] = 10,
    conversation: Annotated[str | None, Meta(description="Search only posts of this conversation.")] = None,
    organization: Annotated[str | None, Meta(description="Also search this organization's memories.")] = None,
    user: schemas.User = None,
) -> Answer:
    """Search messages and memories."""
    asker.caller.check_organization(organization)
    hits = await asker.cue.memory.search(
        query, conversation=conversation, user=asker.user(user), organization=organization, limit=limit
    )
    lines = []
    for hit in hits:
        where = ", ".join(filter(None, (hit.conversation, *hit.sources))) or "added manually"
        lines.append(f"[{hit.day}] {hit.speaker or hit.kind}: {hit.text}")
        lines.append(f"  {hit.memory_id} · {where}")
    return "\n".join(lines) or "No results.", {"hits": to_wire(hits)}


async def forget(
    asker: Asker,
    *,
    ids: Annotated[
        list[schemas.Text] | None,
        Meta(description=f"Memory IDs from recall or from a query; at most {by_hand.MOST}."),
    ] = None,
    query: Annotated[str | None, Meta(description="Lists matching memories with their IDs. Forgets nothing.")] = None,
    conversation: Annotated[str | None, Meta(description="With a query: only memories of this conversation.")] = None,
    reason: Annotated[str, Meta(description="Reason, stored in the receipt.")] = "",
    user: schemas.User = None,
) -> Answer:
    """Forget memories by ID, or list those that match a query."""
    user = asker.user(user)
    if user is None:
        asker.caller.need("owner", "Forgetting other users' memories")
    if (ids is None) == (query is None):
        msg = "ids: pass either ids to forget, or a query to list candidates."
        raise InvalidInput(msg, where="ids")
    if ids is None:
        memories = await by_hand.matching_memories(asker.cue, query or "", conversation=conversation, user=user)
        memory_candidates = [
            schemas.MemoryCandidate(id=each.id, text=each.text, category=each.category) for each in memories
        ]
        if not memory_candidates:
            return "Nothing was forgotten: no memory matches.", _wire(schemas.ForgetResult())
        listed = "\n".join(f"{each.id}: {each.text}" for each in memory_candidates)
        text = "Nothing was forgotten yet. Ask the user which of these to forget, then call forget with their ids:"
        return f"{text}\n{listed}", _wire(schemas.ForgetResult(candidates=tuple(memory_candidates)))
    receipt = await by_hand.forget(asker.cue, ids, user=user, reason=reason)
    counts = ", ".join(f"{count:,} {kind}" for kind, count in receipt.counts.items() if count)
    forget_result = schemas.ForgetResult(receipt=to_wire(receipt))
    return f"Forgotten permanently ({counts or 'nothing'}). Receipt {receipt.id}, {receipt.state}.", _wire(
        forget_result
    )


async def why(
    asker: Asker,
    *,
    conversation: schemas.Conversation,
    turn: Annotated[schemas.Number | None, Meta(description="Turn number. Default: the last turn.")] = None,
    full: Annotated[bool, Meta(description="Return the full texts of all blocks instead of previews.")] = False,
    user: schemas.User = None,
) -> Answer:
    """Explain a turn: every block of its prompt with its source, what was left out, and why."""
    user, turns = asker.user(user), asker.cue.turns
    if turn is None:
        last = await turns.list(conversation, user=user, last=1)
        if not last:
            msg = f"Conversation {conversation!r} has no turns. Send a message through Cuebook first."
            raise NotFound(msg)
        turn = last[0].turn
    data = to_wire(await turns.show(conversation, turn, user=user))
    window = data["window"]
    reasons = list(told_of(data))
    explained = schemas.Explained(
        conversation_id=conversation,
        turn=turn,
        state=data["state"],
        query=_beginning(data["query"], full),
        reply=_beginning(data["reply"], full),
        tokens=window["tokens"] if window else None,
        budget=window["budget"] if window else None,
        blocks=[
            schemas.PromptBlock(**{**_block(each), "text": _beginning(each["text"], full)})
            for each in (window["blocks"] if window else ())
        ],
        dropped=window["dropped"] if window else [],
        why=reasons,
        replay=data["replay"],
    )
    gone = f"prompt not available: {data['replay']}"
    lines = [
        f"turn {turn} of {conversation}, {data['state']}, {data['createdAt']}",
        f"asked: {explained.query}",
        f"answered: {explained.reply}",
        *(window_lines(window) if window else [gone]),
        *reasons,
    ]
    return "\n".join(lines), _wire(explained)


async def history(
    asker: Asker,
    *,
    conversation: schemas.Conversation,
    last: Annotated[int, Meta(ge=1, le=500, description="Number of newest posts.")] = 20,
    full: Annotated[bool, Meta(description="Return full messages of any length.")] = False,
    user: schemas.User = None,
) -> Answer:
    """Return the newest posts of a conversation."""
    posts = await asker.cue.conversations.posts(conversation, user=asker.user(user), last=last)
    transcript_posts = [
        schemas.TranscriptPost(
            id=each.id,
            seq=each.seq,
            send_from=each.sender,
            role=each.role,
            message=(each.message or "") if full else (each.message or "")[:MESSAGE],
            timestamp=str(each.created_at),
            cut=not full and len(each.message or "") > MESSAGE,
        )
        for each in posts
    ]
    lines = [f"{each.seq}. {each.send_from}: {each.message}{'…' if each.cut else ''}" for each in transcript_posts]
    transcript_result = schemas.TranscriptResult(conversation_id=conversation, posts=transcript_posts)
    return "\n".join(lines) or "No posts yet.", _wire(transcript_result)


def derived(operation: Operation) -> Tool:
    """Return the tool of an operation that declares one. Its text is the text of the answer."""
    reads = operation.declaration.method == "GET"

    async def run(asker: Asker, **values: Any) -> Answer:
        for each in operation.parameters:
            if each.argument.source == "user":
                values[each.name] = asker.user(values[each.name])
            elif each.argument.source == "caller":
                values[each.name] = asker.caller
        answer = await operation.bind(asker.cue)(**values)
        return str(answer), to_wire(operation.wire_answer(answer))

    return Tool(
        title=operation.declaration.tool.replace("_", " ").capitalize(),
        about=summary_of(operation.doc),
        needs=operation.declaration.role,
        takes=operation.request_type(tool=True) or In,
        gives=operation.answer_type(),
        run=run,
        hints=_READS if reads else {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False},
    )


_READS: Final = {"readOnlyHint": True}
#: By name, in the order in which they are listed.
TOOLS: Final = {
    "remember": Tool(
        title="Remember",
        about="Store a fact, a preference or a solution for later conversations. Without a conversation it becomes a"
        " memory of the user. Repeating it raises its confidence; the same key with another text supersedes it.",
        needs="editor",
        gives=schemas.RememberResult,
        takes=schemas.arguments_of(remember),
        run=remember,
        hints={"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False},
    ),
    "recall": Tool(
        title="Recall",
        about="Search earlier messages and memories. Returns results with their source posts, best first. Use it before"
        " answering what depends on earlier conversations.",
        needs="viewer",
        gives=schemas.Recalled,
        takes=schemas.arguments_of(recall),
        run=recall,
        hints=_READS,
    ),
    "forget": Tool(
        title="Forget",
        about="Delete memories permanently, with everything derived from them; returns a signed receipt. With a query"
        " nothing is deleted: the tool lists matching memories. Show them to the user, then call again with the ids"
        " that the user confirms.",
        needs="editor",
        gives=schemas.ForgetResult,
        takes=schemas.arguments_of(forget),
        run=forget,
        hints={"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False},
        long="Forgetting",
    ),
    "why": Tool(
        title="Explain a turn",
        about="Explain a turn of a conversation: the blocks of its prompt with sources and tokens, what was left out"
        " and why, the sentiment, and the selected prompts. Default: last turn.",
        needs="viewer",
        gives=schemas.Explained,
        takes=schemas.arguments_of(why),
        run=why,
        hints=_READS,
    ),
    "history": Tool(
        title="History",
        about="Return the newest posts of a conversation, oldest first.",
        needs="viewer",
        gives=schemas.TranscriptResult,
        takes=schemas.arguments_of(history),
        run=history,
        hints=_READS,
    ),
    **{each.declaration.tool: derived(each) for each in operations_of(Cuebook) if each.declaration.tool},
}


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
        return {"content": [{"type": "text", "text": f"{error}{hint}"}], "isError": True}
    return {"content": [{"type": "text", "text": text}], "structuredContent": data, "isError": False}


def _wire(value: Out) -> Wire:
    data: Wire = msgspec.to_builtins(value)
    return data


def _block(data: Wire) -> Wire:
    return {name: data[name] for name in ("kind", "source", "role", "tokens")}


def _beginning(text: str, full: bool) -> str:  # noqa: FBT001
    return text if full or len(text) <= BEGINNING else f"{text[: BEGINNING - 1]}…"
