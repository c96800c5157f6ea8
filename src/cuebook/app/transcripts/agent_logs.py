"""Read the sessions of coding agents: Claude Code, Codex, OpenCode and Hermes. Each reader takes parsed JSON."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from cuebook.app.transcripts.history import (
    UNFINISHED,
    ImportNotes,
    Kind,
    Record,
    TranscriptBuilder,
    answer_of,
    call_of,
    joined,
    text_of,
)
from cuebook.app.transcripts.transcript import FilePlace, Transcript
from cuebook.errors import InvalidInput
from cuebook.wire.answer import as_dict, dicts, read_json
from cuebook.wire.anthropic_messages import convert_messages
from cuebook.wire.responses_items import convert_items

#: Rows of a JSONL file, or of a table, with their positions.
Rows = Sequence[tuple[FilePlace, Mapping[str, Any]]]

# ---- Claude Code ----------------------------------------------------------------------------------------------------

_CLAUDE_CODE = "Claude Code"


def is_claude_code(rows: Rows) -> bool:
    """Return whether rows are a session of Claude Code."""
    return any("sessionId" in row and "uuid" in row and "parentUuid" in row for _, row in rows)


def read_claude_code(rows: Rows, stem: str, notes: ImportNotes) -> list[Transcript]:
    """Return a session with its branches. Messages of subagents and of the program are left out and counted."""
    builder = TranscriptBuilder(notes)
    posts: dict[str, str | None] = {}  # of each line: its post, or the post before it
    names = [str(row["sessionId"]) for _, row in rows if row.get("sessionId")]
    records = []
    for place, row in rows:
        line = row.get("uuid")
        record = _claude_record(place, row, notes) if isinstance(line, str) else None
        if record is not None:
            records.append(record)
        elif isinstance(line, str):
            posts[line] = _parent_of(row) or ""
        else:
            notes.left_out[f"{row.get('type') or 'unknown'} lines"] += 1
    for group in joined(records, notes):
        _add_claude(builder, group, posts)
    return builder.transcript(stem if stem in names or not names else names[0], _CLAUDE_CODE)


def _parent_of(row: Mapping[str, Any]) -> str | None:
    parent = row.get("parentUuid") or row.get("logicalParentUuid")
    return parent if isinstance(parent, str) else None


def _claude_record(place: FilePlace, row: Mapping[str, Any], notes: ImportNotes) -> Record | None:
    kind, message = row.get("type"), row.get("message")
    if kind not in ("user", "assistant"):
        notes.left_out[f"{kind or 'unknown'} lines"] += 1
        return None
    for field, what in (
        ("isSidechain", "messages of subagents"), ("isCompactSummary", "summaries of the program"),
        ("isMeta", "messages of the program"), ("isApiErrorMessage", "API errors"),
    ):  # fmt: skip
        if row.get(field):
            notes.left_out[what] += 1
            return None
    try:
        fields = place.at("message").mapping(message)
        when = place.at("timestamp").time(row.get("timestamp"))
    except InvalidInput as error:
        notes.skip(error)
        return None
    content = fields.get("content")
    blocks = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    kinds = {str(block.get("type")) if isinstance(block, Mapping) else "text" for block in blocks}
    return Record(
        kind=_claude_kind(str(kind), kinds), id=str(row["uuid"]), value=content, place=place, when=when,
        parent=_parent_of(row), answer=str(fields.get("id") or ""),
    )  # fmt: skip


def _claude_kind(role: str, kinds: set[Any]) -> Kind:
    if role == "user":
        return "result" if "tool_result" in kinds else "user"
    if "tool_use" in kinds:
        return "call"
    return "thought" if kinds and kinds <= {"thinking", "redacted_thinking"} else "answer"


def _add_claude(builder: TranscriptBuilder, group: list[Record], posts: dict[str, str | None]) -> None:
    first = group[0]
    role = "user" if first.kind in ("user", "result") else "assistant"
    content = first.value if len(group) == 1 else [block for each in group for block in _blocks(each.value)]
    parent = _post_of(first.parent, posts, builder.last)
    try:
        chats = convert_messages([Raw(msgspec.json.encode(builder.notes.storable({"role": role, "content": content})))])
    except InvalidInput as error:
        problem = str(error).removeprefix("messages[0].")
        builder.notes.skipped.append(f"{first.place.file}: {first.place.path}: {problem}")
        chats = []
    for n, chat in enumerate(chats):
        name = first.id if n == 0 else f"{first.id}-{n}"
        if builder.add_after(msgspec.json.decode(chat.chat), parent, name=name, when=first.when, place=first.place):
            parent = name
    for each in group:
        posts[each.id] = f"={parent}" if parent else ""


def _post_of(line: str | None, posts: Mapping[str, str | None], last: str | None) -> str | None:
    """Return the post of a line, or of the nearest line before it; the newest post for an unknown line."""
    passed = set[str]()
    while line and line not in passed:  # lines can name each other
        if line not in posts:
            return last
        before = posts[line]
        if before and before.startswith("="):
            return before[1:]
        passed.add(line)
        line = before
    return None


def _blocks(content: object) -> list[Any]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


# ---- Codex ----------------------------------------------------------------------------------------------------------

_CODEX = "Codex"
_CODEX_TYPES = ("session_meta", "response_item", "event_msg", "turn_context", "compacted")
#: Beginnings of user messages that Codex writes itself.
_BY_CODEX = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<permissions instructions>")


def is_codex(rows: Rows) -> bool:
    """Return whether rows are a session of Codex."""
    return any(row.get("type") in _CODEX_TYPES and isinstance(row.get("payload"), Mapping) for _, row in rows)


def read_codex(rows: Rows, stem: str, notes: ImportNotes) -> list[Transcript]:
    """Return a session. Its instructions, events and summaries are left out and counted."""
    about = next((as_dict(row.get("payload")) for _, row in rows if row.get("type") == "session_meta"), {})
    if isinstance(about.get("source"), Mapping) and "subagent" in about["source"]:
        notes.left_out["sessions of subagents"] += 1
        return []
    records = []
    for number, (place, row) in enumerate(rows, 1):
        if row.get("type") != "response_item":
            notes.left_out[f"{row.get('type') or 'unknown'} lines"] += 1
            continue
        try:
            item, when = place.at("payload").mapping(row.get("payload")), place.at("timestamp").time(row["timestamp"])
        except (InvalidInput, KeyError) as error:
            notes.skip(
                error if isinstance(error, InvalidInput) else InvalidInput(f"{place.file}: {place.path}: no timestamp")
            )
            continue
        if _is_by_codex(item):
            notes.left_out["messages of the program"] += 1
        else:
            records.append(Record(kind=item_kind(item), id=f"item-{number}", value=item, place=place, when=when))
    builder = TranscriptBuilder(notes)
    add_items(builder, records)
    return builder.transcript(str(about.get("id") or stem), _CODEX)


def _is_by_codex(item: Mapping[str, Any]) -> bool:
    if item.get("type") == "ghost_snapshot" or item.get("role") in ("developer", "system"):
        return True
    content = item.get("content")
    texts = [str(part.get("text", "")) for part in dicts(content)] if item.get("role") == "user" else []
    return bool(texts) and all(text.lstrip().startswith(_BY_CODEX) for text in texts)


def item_kind(item: Mapping[str, Any]) -> Kind:
    """Return the kind of an item of the Responses API."""
    kind = str(item.get("type") or "message")
    if kind == "message":
        return "answer" if item.get("role") == "assistant" else "user"
    if kind.endswith("_output"):
        return "result"
    if kind == "reasoning":
        return "thought"
    return "call" if item.get("call_id") else "answer"


def add_items(builder: TranscriptBuilder, records: Iterable[Record]) -> None:
    """Add items of the Responses API as chat messages."""
    for group in joined(records, builder.notes):
        first = group[0]
        try:
            chats = convert_items([Raw(msgspec.json.encode(builder.notes.storable(each.value))) for each in group])
        except InvalidInput as error:
            problem = str(error).removeprefix("input[0].")
            builder.notes.skipped.append(f"{first.place.file}: {first.place.path}: {problem}")
            continue
        for n, chat in enumerate(chats):
            name = first.id if n == 0 else f"{first.id}-{n}"
            builder.add(msgspec.json.decode(chat.chat), name=name, when=first.when, place=first.place)


# ---- OpenCode -------------------------------------------------------------------------------------------------------

_OPENCODE = "OpenCode"
_MILLISECONDS = 1_000


def is_opencode(document: object) -> bool:
    """Return whether a document is an export of OpenCode: `opencode export SESSION`."""
    if not isinstance(document, Mapping):
        return False
    return isinstance(document.get("info"), Mapping) and isinstance(document.get("messages"), list)


def read_opencode(
    session: Mapping[str, Any], messages: Sequence[Any], place: FilePlace, stem: str, notes: ImportNotes
) -> list[Transcript]:
    """Return a session from its messages with `info` and `parts`. Sessions of subagents are left out and counted."""
    if session.get("parentID"):
        notes.left_out["sessions of subagents"] += 1
        return []
    builder = TranscriptBuilder(notes)
    for n, raw in enumerate(messages):
        here = place.at("messages").at(n)
        try:
            message = here.mapping(raw)
            info = here.at("info").mapping(message.get("info"))
            parts = [each for each in here.at("parts").sequence(message.get("parts")) if isinstance(each, Mapping)]
            times = as_dict(info.get("time"))
            created = here.at("info").at("time").time(times.get("created"))
        except InvalidInput as error:
            notes.skip(error)
            continue
        when = None if created is None else created / _MILLISECONDS
        if info.get("role") == "assistant" and n == len(messages) - 1 and not times.get("completed"):
            notes.left_out[UNFINISHED] += 1
            continue
        chats = _open_user(info, parts, notes) if info.get("role") == "user" else _open_answer(parts, notes)
        for name, chat in chats:
            builder.add(chat, name=name, when=when, place=here)
    return builder.transcript(str(session.get("id") or stem), _OPENCODE)


def _open_user(
    info: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], notes: ImportNotes
) -> Iterator[tuple[str, dict[str, Any]]]:
    content: list[dict[str, Any]] = []
    for part in parts:
        if part.get("synthetic"):
            notes.left_out["messages of the program"] += 1
        elif part.get("type") == "text":
            content.append({"type": "text", "text": part.get("text", "")})
        elif part.get("type") == "file" and str(part.get("mime")).startswith("image/"):
            content.append({"type": "image_url", "image_url": {"url": part.get("url", "")}})
        elif part.get("type") == "file":
            content.append({"type": "text", "text": f"[file] {part.get('filename') or part.get('url')}"})
        else:
            notes.left_out[f"{part.get('type')} parts"] += 1
    if content:
        plain = len(content) == 1 and content[0]["type"] == "text"
        yield str(info.get("id")), {"role": "user", "content": content[0]["text"] if plain else content}


def _open_answer(parts: Sequence[Mapping[str, Any]], notes: ImportNotes) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the posts of an answer: its texts, and each call with its result."""
    thoughts = ""
    for part in parts:
        kind, name = part.get("type"), str(part.get("id"))
        state = as_dict(part.get("state"))
        if kind == "reasoning":
            thoughts = f"{thoughts}\n{part.get('text', '')}".strip()
        elif kind == "text" and part.get("text"):
            yield name, answer_of(str(part["text"]), thoughts)
            thoughts = ""
        elif kind == "tool" and state.get("status") in ("completed", "error"):
            call = str(part.get("callID") or name)
            yield name, answer_of("", thoughts, [call_of(call, part.get("tool"), state.get("input", {}))])
            result = state.get("output") if state["status"] == "completed" else state.get("error")
            yield f"{name}-result", {"role": "tool", "tool_call_id": call, "content": text_of(result or "")}
            thoughts = ""
        elif kind not in ("text", "step-start", "step-finish"):
            notes.left_out["unfinished tool calls" if kind == "tool" else f"{kind} parts"] += 1
    if thoughts:
        yield f"{parts[-1].get('id')}-reasoning", answer_of("", thoughts)


# ---- Hermes ---------------------------------------------------------------------------------------------------------

_HERMES = "Hermes"
#: Beginning of a content that Hermes stores as JSON.
_JSON_CONTENT = "\x00json:"


def is_hermes(document: object) -> bool:
    """Return whether a document is a session of Hermes: `hermes sessions export`, or a file of its sessions folder."""
    if not isinstance(document, Mapping) or not isinstance(document.get("messages"), list):
        return False
    return "session_start" in document or ("started_at" in document and "source" in document)


def read_hermes(session: Mapping[str, Any], place: FilePlace, stem: str, notes: ImportNotes) -> list[Transcript]:
    """Return a session. Messages that were undone are left out and counted."""
    builder = TranscriptBuilder(notes)
    records = []
    for n, raw in enumerate(session["messages"], 1):
        here = place.at("messages").at(n - 1)
        try:
            row = here.mapping(raw)
            when = here.at("timestamp").time(row.get("timestamp"))
        except InvalidInput as error:
            notes.skip(error)
            continue
        role = row.get("role")
        if role not in ("user", "assistant", "tool") or row.get("active") == 0:
            notes.left_out["undone messages" if row.get("active") == 0 else f"{role or 'unknown'} messages"] += 1
            continue
        chat = _hermes_chat(row)
        kind: Kind = (
            "user" if role == "user" else "result" if role == "tool" else "call" if chat.get("tool_calls") else "answer"
        )
        name = f"message-{row.get('id', n)}"
        records.append(Record(kind=kind, id=name, value=chat, place=here, when=when, answer=name))
    for [record] in joined(records, notes):
        builder.add(record.value, name=record.id, when=record.when, place=record.place)
    user = place.at("user_id").name(session.get("user_id"))
    return builder.transcript(str(session.get("id") or session.get("session_id") or stem), _HERMES, user=user)


def _hermes_chat(row: Mapping[str, Any]) -> dict[str, Any]:
    content = row.get("content")
    if isinstance(content, str) and content.startswith(_JSON_CONTENT):
        content = read_json(content.removeprefix(_JSON_CONTENT))
    if row["role"] == "tool":
        return {"role": "tool", "tool_call_id": str(row.get("tool_call_id") or ""), "content": content or ""}
    if row["role"] == "user":
        return {"role": "user", "content": content or ""}
    calls = row.get("tool_calls")
    calls = read_json(calls) if isinstance(calls, str) and calls else calls
    chat = answer_of("", str(row.get("reasoning_content") or row.get("reasoning") or ""), calls or None)
    return chat | ({"content": content} if content else {})
