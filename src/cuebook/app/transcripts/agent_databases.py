"""Read conversations from SQLite databases: OpenCode, Hermes, OpenAI Agents' sessions and LangGraph's checkpoints."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from cuebook.app.transcripts.agent_logs import add_items, item_kind, read_hermes, read_opencode
from cuebook.app.transcripts.history import ImportNotes, Kind, Record, TranscriptBuilder, answer_of, call_of, joined
from cuebook.app.transcripts.transcript import FilePlace, Transcript
from cuebook.errors import InvalidInput
from cuebook.wire.answer import as_dict, dicts

MAGIC = b"SQLite format 3\x00"
#: Tables that identify a program's database.
_TABLES = {
    "OpenCode": {"session", "message", "part"},
    "Hermes": {"sessions", "messages"},
    "OpenAI Agents": {"agent_sessions", "agent_messages"},
    "LangGraph": {"checkpoints", "writes"},
}


def read_database(file: Path, name: str, notes: ImportNotes) -> Iterator[Transcript]:
    """Yield the conversations of a database, one at a time. Raises InvalidInput if it is of no known program."""
    place = FilePlace(name)
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            program = next((each for each, needed in _TABLES.items() if needed <= tables), None)
            if program is None:
                place.refuse(f"a SQLite database of no known program. Supported: {', '.join(_TABLES)}")
            yield from _READERS[program](database, place, notes)
    except sqlite3.Error as error:
        place.refuse(f"cannot be read ({error}). Close the program that uses it, or import a copy.")


def _rows(database: sqlite3.Connection, statement: str, *values: Any) -> Iterator[dict[str, Any]]:
    for row in database.execute(statement, values):
        yield dict(row)


# ---- OpenCode and Hermes --------------------------------------------------------------------------------------------


def _opencode(database: sqlite3.Connection, place: FilePlace, notes: ImportNotes) -> Iterator[Transcript]:
    for session in _rows(database, "SELECT * FROM session ORDER BY id"):
        parts: dict[str, list[Any]] = defaultdict(list)
        for part in _rows(
            database, "SELECT id, message_id, data FROM part WHERE session_id = ? ORDER BY id", session["id"]
        ):
            parts[part["message_id"]].append(_json(part["data"]) | {"id": part["id"]})
        rows = _rows(
            database, "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id", session["id"]
        )
        messages = [{"info": _json(row["data"]) | {"id": row["id"]}, "parts": parts[row["id"]]} for row in rows]
        about = {"id": session["id"], "parentID": session.get("parent_id")}
        yield from read_opencode(about, messages, place.at(session["id"]), session["id"], notes)


def _hermes(database: sqlite3.Connection, place: FilePlace, notes: ImportNotes) -> Iterator[Transcript]:
    for session in _rows(database, "SELECT * FROM sessions ORDER BY id"):
        messages = list(_rows(database, "SELECT * FROM messages WHERE session_id = ? ORDER BY id", session["id"]))
        yield from read_hermes(session | {"messages": messages}, place.at(session["id"]), session["id"], notes)


def _json(text: object) -> dict[str, Any]:
    """Return a stored JSON object, an empty one for anything else."""
    try:
        value = msgspec.json.decode(text) if isinstance(text, str | bytes) else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


# ---- OpenAI Agents --------------------------------------------------------------------------------------------------


def _openai_agents(database: sqlite3.Connection, place: FilePlace, notes: ImportNotes) -> Iterator[Transcript]:
    for [session] in database.execute("SELECT session_id FROM agent_sessions ORDER BY session_id"):
        builder, records = TranscriptBuilder(notes), []
        statement = "SELECT id, message_data, created_at FROM agent_messages WHERE session_id = ? ORDER BY id"
        for row in _rows(database, statement, session):
            here = place.at(f"agent_messages {row['id']}")
            if not (item := _json(row["message_data"])):
                notes.skipped.append(f"{here.file}: {here.path}: invalid JSON")
                continue
            when = here.time(row["created_at"])
            records.append(Record(kind=item_kind(item), id=f"item-{row['id']}", value=item, place=here, when=when))
        add_items(builder, records)
        yield from builder.transcript(session, "OpenAI Agents")


# ---- LangGraph ------------------------------------------------------------------------------------------------------

#: The state of a graph that has the conversation.
_CHANNEL = "messages"
#: Extension types of LangGraph's serializer: objects as (module, class, values, …), and snapshots of a channel.
_OBJECTS, _SNAPSHOT = range(6), 7
_ROLES = {"human": "user", "HumanMessage": "user", "ai": "assistant", "AIMessage": "assistant", "tool": "tool",
          "ToolMessage": "tool", "system": "system", "SystemMessage": "system"}  # fmt: skip


def _langgraph(database: sqlite3.Connection, place: FilePlace, notes: ImportNotes) -> Iterator[Transcript]:
    threads = [row[0] for row in database.execute("SELECT DISTINCT thread_id FROM checkpoints ORDER BY thread_id")]
    for thread in threads:
        messages: dict[str, Record] = {}
        user = None
        statement = "SELECT * FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = '' ORDER BY checkpoint_id"
        for row in _rows(database, statement, thread):
            here = place.at(f"thread {thread}")
            try:
                checkpoint = _unpacked(row["type"], row["checkpoint"])
                when = here.time(checkpoint.get("ts"))
            except (InvalidInput, ValueError, TypeError, AttributeError, RecursionError) as error:
                notes.skipped.append(f"{place.file}: checkpoint {row['checkpoint_id']}: cannot be decoded ({error})")
                continue
            user = user or _json(row["metadata"]).get("user_id")
            _add_messages(messages, as_dict(checkpoint.get("channel_values")).get(_CHANNEL), here, when)
        if not messages:
            _add_writes(database, thread, messages, place, notes)
        if not messages:
            notes.left_out["LangGraph threads without messages"] += 1
        builder = TranscriptBuilder(notes)
        for [record] in joined(messages.values(), notes):
            builder.add(record.value, name=record.id, when=record.when, place=record.place)
        yield from builder.transcript(thread, "LangGraph", user=user if isinstance(user, str) else None)


def _add_writes(
    database: sqlite3.Connection, thread: str, messages: dict[str, Record], place: FilePlace, notes: ImportNotes
) -> None:
    """Add the messages of a channel that stores only changes."""
    statement = (
        "SELECT checkpoint_id, type, value FROM writes WHERE thread_id = ? AND checkpoint_ns = '' AND channel = ?"
        " ORDER BY checkpoint_id, task_id, idx"
    )
    for row in _rows(database, statement, thread, _CHANNEL):
        try:
            written = _unpacked(row["type"], row["value"])
        except (ValueError, TypeError, RecursionError) as error:
            notes.skipped.append(f"{place.file}: write of {row['checkpoint_id']}: cannot be decoded ({error})")
            continue
        with_ids = [each for each in _listed(written) if each.get("id")]
        _add_messages(messages, with_ids, place.at(f"thread {thread}"), None)


def _add_messages(messages: dict[str, Record], found: object, place: FilePlace, when: float | None) -> None:
    for n, message in enumerate(_listed(found)):
        role = _ROLES.get(str(message.get("type")), "")
        name = str(message.get("id") or f"message-{n}")
        if role and role != "system" and name not in messages:
            chat = _langchain_chat(message, role)
            kind: Kind = "user" if role == "user" else "result" if role == "tool" else "answer"
            kind = "call" if chat.get("tool_calls") else kind
            messages[name] = Record(kind=kind, id=name, value=chat, place=place, when=when, answer=name)


def _listed(value: object) -> list[dict[str, Any]]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, dict)]


def _langchain_chat(message: Mapping[str, Any], role: str) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list):  # calls are repeated in `tool_calls`
        parts = [{"type": "text", "text": each} if isinstance(each, str) else each for each in content]
        kept = [
            each for each in parts if isinstance(each, dict) and each.get("type") not in ("tool_use", "function_call")
        ]
        content = kept[0].get("text", "") if len(kept) == 1 and kept[0].get("type") == "text" else kept
    if role == "assistant":
        calls = [
            call_of(each.get("id"), each.get("name"), each.get("args") or {})
            for each in dicts(message.get("tool_calls"))
        ]
        chat = answer_of("", "", calls or None)
        return chat | ({"content": content} if content else {})
    chat = {"role": role, "content": content or ""}
    return chat | ({"tool_call_id": str(message.get("tool_call_id") or "")} if role == "tool" else {})


def _unpacked(kind: str, data: bytes) -> Any:
    """Return a stored value. Objects become the mapping of their values: no class is loaded."""
    if kind == "json":
        return json.loads(data, object_hook=_constructed)
    return msgspec.msgpack.decode(data, ext_hook=_extension)


def _extension(code: int, data: memoryview) -> Any:
    if code not in _OBJECTS and code != _SNAPSHOT:
        return None
    value = msgspec.msgpack.decode(data, ext_hook=_extension)
    return value[2] if code in _OBJECTS and isinstance(value, list) and len(value) > 2 else value


def _constructed(value: dict[str, Any]) -> Any:
    """Return the values of an object in LangChain's JSON, with its class as type."""
    name = value.get("id")
    if value.get("lc") and isinstance(value.get("kwargs"), dict):
        return {"type": str(name[-1]) if isinstance(name, list) and name else "", **value["kwargs"]}
    return value


_READERS = {"OpenCode": _opencode, "Hermes": _hermes, "OpenAI Agents": _openai_agents, "LangGraph": _langgraph}
