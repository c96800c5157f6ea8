"""Tests of `cuebook import`: it detects each program's format, imports only what is new and loses nothing silently."""

import json
import sqlite3
import tracemalloc
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from commands import CommandRunner, cuebook

from cuebook import BlockingCuebook
from cuebook.app.transcripts.import_run import import_sources, survey
from cuebook.app.transcripts.sniff import MOST_BYTES
from cuebook.app.transcripts.sources import read_sources
from cuebook.app.transcripts.transcript import Transcript
from parsers import long_archive

Line = dict[str, Any]


def lines(file: Path, values: Sequence[Line | str]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in values))
    return file


def read(path: Path) -> list[Transcript]:
    return [each for file in read_sources(path) for each in file.transcripts]


def texts(transcript: Transcript) -> list[tuple[str, Any]]:
    return [(post["role"], post["content"]) for post in transcript.posts if isinstance(post, dict)]


# ---- Claude Code


def claude(kind: str, uuid: str, parent: str | None, content: Any, **more: Any) -> Line:
    message = {"role": kind, "content": content} | ({"id": more.pop("answer", "m1")} if kind == "assistant" else {})
    return {
        "type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s1", "timestamp": "2026-03-01T10:00:00.000Z",
        "message": message,
    } | more  # fmt: skip


def use(id_: str) -> Line:
    return {"type": "tool_use", "id": id_, "name": "Read", "input": {"file": id_}}


def result(id_: str) -> Line:
    return {"type": "tool_result", "tool_use_id": id_, "content": f"content of {id_}"}


CLAUDE = [
    {"type": "summary", "summary": "Budget", "leafUuid": "a3"},
    claude("user", "u1", None, "Compare the two budgets."),
    claude("assistant", "a0", "u1", [{"type": "thinking", "thinking": "Both files.", "signature": "s"}]),
    claude("assistant", "a1", "a0", [use("t1")]),
    claude("assistant", "a2", "a1", [use("t2")]),
    claude("user", "r1", "a1", [result("t1")]),
    claude("user", "r2", "a2", [result("t2")]),
    {"type": "system", "uuid": "x1", "parentUuid": "r2", "sessionId": "s1", "subtype": "turn_duration"},
    claude("assistant", "a3", "x1", [{"type": "text", "text": "The second is 400 euros higher."}], answer="m2"),
]


def test_claude_code_joins_parallel_calls_and_keeps_one_path(tmp_path: Path) -> None:
    [transcript] = read(lines(tmp_path / "s1.jsonl", CLAUDE))
    assert (transcript.conversation, transcript.source, transcript.parents) == ("s1", "Claude Code", {})
    assert [post["role"] for post in transcript.posts] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [call["id"] for call in transcript.posts[1]["tool_calls"]] == ["t1", "t2"]
    assert transcript.posts[1]["thinking_blocks"][0]["thinking"] == "Both files."
    assert transcript.posts[3]["content"] == "content of t2"
    assert transcript.posts[0]["timestamp"] == 1772359200.0


def test_claude_code_edit_is_a_branch_and_a_compaction_is_not(tmp_path: Path) -> None:
    grown = [
        *CLAUDE,
        {"type": "system", "subtype": "compact_boundary", "uuid": "b1", "parentUuid": None, "logicalParentUuid": "a3",
         "sessionId": "s1"},
        claude("user", "c1", "b1", "The conversation so far …", isCompactSummary=True),
        claude("user", "u2", "c1", "And the third?"),
        claude("user", "side", "u2", "Search the files.", isSidechain=True),
        claude("user", "u3", "a3", "No: the first again."),
    ]  # fmt: skip
    [file] = read_sources(lines(tmp_path / "s1.jsonl", grown))
    [transcript] = file.transcripts
    assert (transcript.parents["u2"], transcript.parents["u3"], transcript.head) == ("a3", "a3", "u3")
    assert file.left_out["messages of subagents"] == 1
    assert file.left_out["summaries of the program"] == 1
    assert file.left_out["system lines"] == 2


def test_unanswered_call_at_the_end_waits_for_its_result(tmp_path: Path) -> None:
    [file] = read_sources(lines(tmp_path / "s1.jsonl", CLAUDE[:5]))
    assert len(file.transcripts[0].posts) == 1
    assert file.left_out["unfinished answers at the end"] == 1


# ---- Codex


def codex(kind: str, **payload: Any) -> Line:
    return {"timestamp": "2026-04-02T09:00:00Z", "type": kind, "payload": payload}


def said(role: str, text: str) -> Line:
    kind = "output_text" if role == "assistant" else "input_text"
    return codex("response_item", type="message", role=role, content=[{"type": kind, "text": text}])


CODEX = [
    codex("session_meta", id="codex-1", cwd="/project"),
    said("user", "<environment_context>linux</environment_context>"),
    said("user", "List the files."),
    codex("event_msg", type="user_message", message="List the files."),
    codex("response_item", type="reasoning", summary=[], encrypted_content="abc"),
    codex("response_item", type="function_call", name="shell", arguments='{"c":"ls"}', call_id="c1"),
    codex("response_item", type="function_call_output", call_id="c1", output="a.py"),
    said("assistant", "There is a.py."),
]


def test_codex_session_has_calls_and_results(tmp_path: Path) -> None:
    [file] = read_sources(lines(tmp_path / "rollout-1.jsonl", CODEX))
    [transcript] = file.transcripts
    assert (transcript.conversation, transcript.source) == ("codex-1", "Codex")
    assert texts(transcript) == [
        ("user", "List the files."), ("assistant", None), ("tool", "a.py"), ("assistant", "There is a.py."),
    ]  # fmt: skip
    assert transcript.posts[1]["tool_calls"][0]["function"] == {"name": "shell", "arguments": '{"c":"ls"}'}
    assert dict(file.left_out) == {"session_meta lines": 1, "messages of the program": 1, "event_msg lines": 1}


# ---- OpenCode

PARTS: list[Line] = [
    {"id": "p1", "type": "reasoning", "text": "I look."},
    {"id": "p2", "type": "tool", "callID": "c1", "tool": "ls",
     "state": {"status": "completed", "input": {"path": "."}, "output": "a.py"}},
    {"id": "p3", "type": "text", "text": "There is a.py."},
]  # fmt: skip
OPENCODE = {
    "info": {"id": "ses_1", "title": "Files"},
    "messages": [
        {"info": {"id": "m1", "role": "user", "time": {"created": 1772359200000}},
         "parts": [{"id": "p0", "type": "text", "text": "List the files."}]},
        {"info": {"id": "m2", "role": "assistant", "time": {"created": 1772359201000, "completed": 1772359202000}},
         "parts": PARTS},
    ],
}  # fmt: skip
OPENCODE_TEXTS = [
    ("user", "List the files."), ("assistant", None), ("tool", "a.py"), ("assistant", "There is a.py."),
]  # fmt: skip


def opencode_export(folder: Path) -> Path:
    return lines(folder / "export.json", [OPENCODE])


def opencode_storage(folder: Path) -> Path:
    lines(folder / "storage/session/global/ses_1.json", [OPENCODE["info"]])
    for message in OPENCODE["messages"]:
        name = message["info"]["id"]  # type: ignore[index]
        lines(folder / f"storage/message/ses_1/{name}.json", [message["info"]])  # type: ignore[index]
        for part in message["parts"]:  # type: ignore[index]
            lines(folder / f"storage/part/{name}/{part['id']}.json", [part])
    return folder


def opencode_database(folder: Path) -> Path:
    with closing(sqlite3.connect(folder / "opencode.db")) as database, database:
        database.execute("CREATE TABLE session (id TEXT, parent_id TEXT, title TEXT)")
        database.execute("CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT)")
        database.execute("CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT)")
        database.execute("INSERT INTO session VALUES ('ses_1', NULL, 'Files')")
        for n, message in enumerate(OPENCODE["messages"]):
            row = (message["info"]["id"], n, json.dumps(message["info"]))  # type: ignore[index]
            database.execute("INSERT INTO message VALUES (?, 'ses_1', ?, ?)", row)
            for part in message["parts"]:  # type: ignore[index]
                database.execute("INSERT INTO part VALUES (?, ?, 'ses_1', ?)", (part["id"], row[0], json.dumps(part)))
    database.close()
    return folder / "opencode.db"


@pytest.mark.parametrize("make", [opencode_export, opencode_storage, opencode_database])
def test_opencode_is_read_from_export_storage_and_database(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    [transcript] = read(make(tmp_path))
    assert (transcript.conversation, transcript.source) == ("ses_1", "OpenCode")
    assert texts(transcript) == OPENCODE_TEXTS
    assert transcript.posts[1]["reasoning_content"] == "I look."
    assert [post["timestamp"] for post in transcript.posts] == [1772359200.0, *[1772359201.0] * 3]


# ---- Hermes, OpenAI Agents, LangGraph


def test_hermes_database_and_export_are_equal(tmp_path: Path) -> None:
    calls = json.dumps([{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}])
    rows = [
        (1, "user", "List the files.", None, None), (2, "assistant", None, calls, None),
        (3, "tool", "a.py", None, "c1"), (4, "assistant", "There is a.py.", None, None),
    ]  # fmt: skip
    with closing(sqlite3.connect(tmp_path / "state.db")) as database, database:
        database.execute("CREATE TABLE sessions (id TEXT, source TEXT, user_id TEXT, started_at REAL)")
        database.execute(
            "CREATE TABLE messages (id INTEGER, session_id TEXT DEFAULT 'h1', role TEXT, content TEXT, tool_calls TEXT,"
            " tool_call_id TEXT, timestamp REAL DEFAULT 1772359200.0)"
        )
        database.execute("INSERT INTO sessions VALUES ('h1', 'cli', 'ann', 1772359200.0)")
        statement = "INSERT INTO messages (id, role, content, tool_calls, tool_call_id) VALUES (?, ?, ?, ?, ?)"
        database.executemany(statement, rows)
    database.close()
    names = ("id", "role", "content", "tool_calls", "tool_call_id")
    messages = [dict(zip(names, row, strict=True)) | {"timestamp": 1772359200.0} for row in rows]
    session = {"id": "h1", "source": "cli", "user_id": "ann", "started_at": 1772359200.0, "messages": messages}
    [stored] = read(tmp_path / "state.db")
    assert [stored] == read(lines(tmp_path / "export.jsonl", [session]))
    assert (stored.conversation, stored.source, stored.user) == ("h1", "Hermes", "ann")
    assert texts(stored) == OPENCODE_TEXTS


def test_openai_agents_sessions_are_read(tmp_path: Path) -> None:
    items = [
        {"role": "user", "content": "Where do I live?"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "In Bergen."}]},
    ]
    with closing(sqlite3.connect(tmp_path / "agents.db")) as database, database:
        database.execute("CREATE TABLE agent_sessions (session_id TEXT)")
        database.execute(
            "CREATE TABLE agent_messages (id INTEGER, session_id TEXT, message_data TEXT, created_at TEXT)"
        )
        database.execute("INSERT INTO agent_sessions VALUES ('s1')")
        for n, item in enumerate(items):
            row = (n, json.dumps(item))
            database.execute("INSERT INTO agent_messages VALUES (?, 's1', ?, '2026-03-01 10:00:00')", row)
        database.execute("INSERT INTO agent_messages VALUES (9, 's1', '{broken', '2026-03-01 10:00:00')")
    database.close()
    [first, second] = read_sources(tmp_path / "agents.db")
    assert texts(first.transcripts[0]) == [("user", "Where do I live?"), ("assistant", "In Bergen.")]
    assert second.skipped == ("agents.db: agent_messages 9: invalid JSON",)


def packed(value: Any) -> bytes:
    """Serialize as LangGraph does: a message is an extension with its module, class and fields."""

    def message(fields: Line) -> Any:
        return msgspec.msgpack.Ext(5, msgspec.msgpack.encode(["langchain_core.messages", "X", fields, "validate"]))

    return msgspec.msgpack.encode({**value, "channel_values": {"messages": [*map(message, value["messages"])]}})


def test_langgraph_thread_has_all_messages_of_its_checkpoints(tmp_path: Path) -> None:
    human = {"type": "human", "id": "h1", "content": "Where do I live?"}
    answer = {"type": "ai", "id": "a1", "content": [{"type": "text", "text": "In Bergen."}], "tool_calls": []}
    with closing(sqlite3.connect(tmp_path / "graph.db")) as database, database:
        database.execute(
            "CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, checkpoint BLOB, metadata BLOB)"
        )
        database.execute(
            "CREATE TABLE writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value)"
        )
        for n, messages in enumerate(([human], [answer])):  # the first message was trimmed from the second checkpoint
            data = packed({"ts": "2026-03-01T10:00:00+00:00", "messages": messages})
            row = (f"c{n}", data, b'{"user_id": "ann"}')
            database.execute("INSERT INTO checkpoints VALUES ('t1', '', ?, 'msgpack', ?, ?)", row)
        database.execute("INSERT INTO checkpoints VALUES ('t1', '', 'c9', 'msgpack', x'c1', x'')")
    database.close()
    [first, second] = read_sources(tmp_path / "graph.db")
    assert texts(first.transcripts[0]) == [("user", "Where do I live?"), ("assistant", "In Bergen.")]
    assert (first.transcripts[0].conversation, first.transcripts[0].user) == ("t1", "ann")
    assert second.skipped[0].startswith("graph.db: checkpoint c9: cannot be decoded")


# ---- ChatGPT, Claude.ai, mem0


def node(id_: str, parent: str | None, children: list[str], role: str = "", text: str = "", **content: Any) -> Line:
    body = {"content_type": "text", "parts": [text]} | content
    message = {"author": {"role": role}, "create_time": 1772359200.5, "content": body} if role else None
    return {"id": id_, "parent": parent, "children": children, "message": message}


CHATGPT = {
    "title": "A move", "conversation_id": "chat-1", "current_node": "a1",
    "mapping": {each["id"]: each for each in (
        node("root", None, ["s"]), node("s", "root", ["u1"], "system"),
        node("u1", "s", ["a1", "a2"], "user", "Where to?"),
        node("a1", "u1", [], "assistant", "Bergen."), node("a2", "u1", [], "assistant", "Oslo."),
    )},
}  # fmt: skip
CLAUDE_AI = {
    "uuid": "ai-1", "name": "A move", "chat_messages": [
        {"uuid": "u1", "sender": "human", "text": "Read it.", "created_at": "2026-03-01T10:00:00Z",
         "attachments": [{"file_name": "a.txt", "extracted_content": "The rent is 900."}]},
        {"uuid": "u2", "sender": "assistant", "created_at": "2026-03-01T10:01:00Z",
         "content": [{"type": "thinking", "thinking": "900"}, {"type": "text", "text": "It is 900."}]},
    ],
}  # fmt: skip


def test_chatgpt_archive_keeps_branches_and_the_current_answer(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
        archive.writestr("conversations.json", json.dumps([CHATGPT]))
        archive.writestr("chat.html", "<html>")
        archive.writestr("user.json", "{}")
    found = survey(tmp_path / "export.zip")
    assert found.left_out == {"hidden messages": 1, "files of other types": 1}
    assert found.skipped[0].startswith("export.zip/user.json: unknown format")
    with BlockingCuebook.open() as cue:
        *_, done = import_sources(cue, tmp_path / "export.zip", user="ann")
        assert (done.stored_posts, done.refused) == (3, [])
        assert [each.message for each in cue.conversations.posts("chat-1")] == ["Where to?", "Bergen."]
        assert len(cue.conversations.posts("chat-1", branches="all")) == 3


@pytest.mark.parametrize("damage", ["content", "encrypted", "method", "offset"])
def test_a_damaged_member_of_an_archive_is_skipped(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "export.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.json", json.dumps([CLAUDE_AI]))
        archive.writestr("conversations.json", json.dumps([CHATGPT]))
    data = bytearray(file.read_bytes())
    entry = data.index(b"PK\x01\x02")
    where, value = {
        "content": (40, 0),
        "encrypted": (entry + 8, 1),
        "method": (entry + 10, 99),
        "offset": (entry + 42, 9),
    }[damage]
    data[where] = value
    file.write_bytes(data)
    found = survey(file)
    assert [each.split(" (")[0] for each in found.skipped] == ["export.zip/a.json: damaged or encrypted"]
    assert [each.conversation for each in read(file)] == ["chat-1"]


def test_a_member_that_expands_too_much_is_skipped_unread(tmp_path: Path) -> None:
    file = tmp_path / "export.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", json.dumps([CLAUDE_AI]) + " " * (20 << 20))
        archive.writestr("conversations.json", json.dumps([CHATGPT]))
    survey(file)  # the first one also imports modules
    tracemalloc.start()
    found = survey(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert file.stat().st_size < 50_000
    assert peak < 5 << 20
    assert found.skipped == [
        "export.zip/a.json: expands to more than 100 times its size. If you trust it, extract it, and import that."
    ]
    assert [each.conversation for each in read(file)] == ["chat-1"]


def test_an_archive_with_a_long_list_of_files_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "export.zip"
    file.write_bytes(long_archive(200_000))
    survey(file)
    tracemalloc.start()
    found = survey(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20, "zipfile takes 73 MB for it"
    problem = "damaged or encrypted (its list of files has 9,400,000 bytes)"
    assert found.skipped == [f"export.zip: {problem}. Extract it, and import that."]


def test_a_large_file_is_skipped_unread(tmp_path: Path) -> None:
    lines(tmp_path / "a.json", [json.dumps([CHATGPT])])
    with (tmp_path / "b.json").open("wb") as file:
        file.truncate(MOST_BYTES + 1)  # takes no space
    found = survey(tmp_path)
    assert found.skipped == ["b.json: exceeds 268,435,456 bytes. Split it into smaller files."]
    assert [each.source for each in found.found] == ["ChatGPT"]


def test_claude_ai_has_the_texts_of_attachments(tmp_path: Path) -> None:
    [transcript] = read(lines(tmp_path / "conversations.json", [json.dumps([CLAUDE_AI])]))
    assert (transcript.conversation, transcript.source) == ("ai-1", "Claude.ai")
    assert texts(transcript) == [("user", "Read it.\n\n[a.txt]\nThe rent is 900."), ("assistant", "It is 900.")]


def test_mem0_memories_are_added_once_and_updated(tmp_path: Path) -> None:
    memory = {"id": "m1", "memory": "Lives in Bergen.", "user_id": "ann", "created_at": "2026-03-01T10:00:00Z"}
    file = tmp_path / "mem0.json"
    with BlockingCuebook.open() as cue:
        for text, when, stored in (
            ("Lives in Bergen.", "2026-03-01", 1), ("Lives in Bergen.", "2026-03-01", 0),
            ("Lives in Oslo.", "2400-01-01", 1),
        ):  # fmt: skip
            file.write_text(
                json.dumps(
                    {"results": [memory | {"memory": text, "updated_at": when}, {"id": "x", "memory": "No owner."}]}
                )
            )
            *_, done = import_sources(cue, file)
            assert (done.memories, done.stored_memories) == (2, stored)
            assert done.refused == ["memory x: no user. Name the user with --user."]
        assert [each.text for each in cue.memory.list(user="ann")] == ["Lives in Oslo."]


def test_bad_lines_of_chat_messages_are_named_and_the_others_imported(tmp_path: Path) -> None:
    good = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi."}]
    [file] = read_sources(lines(tmp_path / "chat.jsonl", [good[0], '{"role": "us', {"role": "robot"}, good[1]]))
    assert texts(file.transcripts[0]) == [("user", "Hello"), ("assistant", "Hi.")]
    assert [each.partition(": ")[2][:12] for each in file.skipped] == ["line 2: inva", "line 3.role:"]


# ---- the command


def test_import_shows_what_it_found_and_needs_yes_in_a_pipe(tmp_path: Path, here: CommandRunner) -> None:
    file = lines(tmp_path / "old/s1.jsonl", [*CLAUDE, '{"type": "user", "uu'])
    shown = here("import", str(file), "--user", "ann", "--yes")
    assert "unreadable, skipped: 1" in shown
    assert "s1.jsonl: line 10: invalid JSON" in shown
    assert "Claude Code" in shown
    assert "2026-03-01" in shown
    assert "5 of 5 posts new in 1 conversation" in shown
    assert "To add them to memories across conversations too, set `user = true`" in shown
    assert "0 of 5 posts new" in here("import", str(file), "--user", "ann", "--yes")
    lines(file, [*CLAUDE, claude("user", "u9", "a3", "Thanks. I moved to Bergen.")])
    assert here.json("import", str(tmp_path / "old"), "--user", "ann", "--yes")["storedPosts"] == 1
    assert "Bergen" in here("memory", "search", "where did I move", "--user", "ann")


def test_import_in_a_pipe_without_yes_stores_nothing(tmp_path: Path, here: CommandRunner) -> None:
    file = lines(tmp_path / "s1.jsonl", CLAUDE)
    refused = cuebook("-C", str(here.folder), "import", str(file), cwd=tmp_path)
    assert (refused.returncode, refused.stderr) == (
        1, "cuebook: Nothing was imported. Use --yes to skip the confirmation.\n",
    )  # fmt: skip
    assert "5" in refused.stdout
    assert "memories across conversations" not in refused.stdout, "the conversation has no owner"
    assert here.json("conversation", "list")["items"] == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [("", "empty"), ("hello", "not JSON"), ('{"a": 1}', "unknown format (keys: a)"), ("[1]", "expected an object")],
)
def test_file_without_conversations_is_an_error_that_says_why(
    tmp_path: Path, here: CommandRunner, content: str, expected: str
) -> None:
    (tmp_path / "old.json").write_text(content)
    refused = cuebook("-C", str(here.folder), "import", str(tmp_path / "old.json"), "--yes", cwd=tmp_path)
    assert refused.returncode == 1
    assert f"  old.json: {expected}" in refused.stdout or expected in refused.stdout
    assert refused.stderr.startswith("cuebook: No conversation or memory found in ")


@pytest.mark.slow
def test_post_that_cannot_be_stored_is_named_and_the_others_are_imported(tmp_path: Path) -> None:
    values = [
        claude("user", "u1", None, "NUL \x00 and \ud83d surrogate"),
        claude("assistant", "a1", "u1", [{"type": "text", "text": "x" * 3_000_000}]),
        claude("user", "u2", "a1", "More"),
    ]
    lines(tmp_path / "s1.jsonl", values)
    with BlockingCuebook.open() as cue:
        *_, done = import_sources(cue, tmp_path)
        assert done.refused[0].startswith("s1: post a1: Post too large")
        assert [each.message for each in cue.conversations.posts("s1")] == ["NUL � and ��� surrogate", "More"]
    assert survey(tmp_path).left_out["messages with invalid characters, which were replaced"] == 1
