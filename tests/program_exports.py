"""Examples of what other programs export or leave in a database, as JSON values and as tables."""

CLAUDE = [
    {"type": kind, "uuid": f"u{n}", "parentUuid": f"u{n - 1}" if n else None, "sessionId": "s1",
     "timestamp": "2026-03-01T10:00:00.000Z", "message": {"role": kind, "content": content, "id": "m1"}}
    for n, (kind, content) in enumerate([
        ("user", "Compare the budgets."),
        ("assistant", [{"type": "tool_use", "id": "t1", "name": "Read", "input": {"file": "a"}}]),
        ("user", [{"type": "tool_result", "tool_use_id": "t1", "content": "400"}]),
        ("assistant", [{"type": "thinking", "thinking": "So."}, {"type": "text", "text": "The second."}]),
    ])
]  # fmt: skip
CODEX = [
    {"timestamp": "2026-04-02T09:00:00Z", "type": kind, "payload": payload}
    for kind, payload in [
        ("session_meta", {"id": "codex-1", "cwd": "/project"}),
        ("response_item", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List."}]}),
        ("response_item", {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"}),
        ("response_item", {"type": "function_call_output", "call_id": "c1", "output": "a.py"}),
    ]
]
OPENCODE = {"info": {"id": "ses_1", "title": "Files"}, "messages": [
    {"info": {"id": "m1", "role": "user", "time": {"created": 1772359200000}},
     "parts": [{"id": "p0", "type": "text", "text": "List the files."}]},
    {"info": {"id": "m2", "role": "assistant", "time": {"created": 1772359201000}}, "parts": [
        {"id": "p1", "type": "reasoning", "text": "I look."},
        {"id": "p2", "type": "tool", "callID": "c1", "tool": "ls",
         "state": {"status": "completed", "input": {"path": "."}, "output": "a.py"}},
        {"id": "p3", "type": "text", "text": "There is a.py."}]},
]}  # fmt: skip
HERMES = {"id": "h1", "source": "cli", "user_id": "ann", "started_at": 1772359200.0, "messages": [
    {"id": 1, "role": "user", "content": "List the files.", "timestamp": 1772359200.0},
    {"id": 2, "role": "assistant", "content": None, "timestamp": 1772359200.0,
     "tool_calls": '[{"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}]'},
    {"id": 3, "role": "tool", "content": "a.py", "tool_call_id": "c1", "timestamp": 1772359200.0},
]}  # fmt: skip
CHATGPT = [{"title": "A move", "conversation_id": "chat-1", "current_node": "a1", "mapping": {
    "root": {"id": "root", "parent": None, "children": ["u1"], "message": None},
    "u1": {"id": "u1", "parent": "root", "children": ["a1"], "message": {"author": {"role": "user"},
           "create_time": 1772359200.5, "content": {"content_type": "text", "parts": ["Where to?"]}}},
    "a1": {"id": "a1", "parent": "u1", "children": [], "message": {"author": {"role": "assistant"},
           "metadata": {}, "content": {"content_type": "text", "parts": ["Bergen."]}}},
}}]  # fmt: skip
CLAUDE_AI = [{"uuid": "ai-1", "name": "A move", "chat_messages": [
    {"uuid": "u1", "sender": "human", "text": "Read it.", "created_at": "2026-03-01T10:00:00Z",
     "attachments": [{"file_name": "a.txt", "extracted_content": "The rent is 900."}], "files": [{"file_name": "b"}]},
    {"uuid": "u2", "sender": "assistant", "created_at": "2026-03-01T10:01:00Z", "parent_message_uuid": "u1",
     "content": [{"type": "thinking", "thinking": "900"}, {"type": "text", "text": "It is 900."}]},
]}]  # fmt: skip
MEM0 = {"results": [{"id": "m1", "memory": "Lives in Bergen.", "user_id": "ann", "created_at": "2026-03-01T10:00:00Z"}]}
LOCOMO = {"sample_id": "l1", "conversation": {
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": [{"speaker": "Ann", "dia_id": "D1:1", "text": "Hi!", "blip_caption": "a cat"}],
}, "qa": [{"question": "Who?", "evidence": ["D1:1"], "answer": "Ann", "category": 1}]}  # fmt: skip
TRANSCRIPT = {"format": "cuebook.transcript/1",
    "conversation": {"id": "c1", "userId": "ann", "timeZone": "Europe/Oslo"},
    "posts": [{"id": "p1", "sendFrom": "User", "message": "Hi", "timestamp": "2026-03-01T10:00:00Z"},
              {"id": "p2", "sendFrom": "Assistant", "message": "Hello", "parent": "p1",
               "attachments": [{"type": "text", "content": "x"}]}],
    "questions": [{"question": "Who?", "evidence": ["p1"]}]}  # fmt: skip
TASKWEAVER = {"id": "conv-1", "plugins": [], "enabled": True, "rounds": [
    {"id": "round-1", "user_query": "hello", "state": "created", "post_list": [
        {"id": "post-1", "message": "hello", "send_from": "User", "send_to": "Planner",
         "attachment_list": [{"id": "a1", "type": "plan", "content": "1. x", "extra": {"a": 1}}]}]}]}  # fmt: skip
OPENAI = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": [{"type": "text", "text": "Hi."}]}]
LANGGRAPH = {"ts": "2026-03-01T10:00:00+00:00", "channel_values": {"messages": [
    {"type": "human", "id": "h1", "content": "Where do I live?"},
    {"lc": 1, "type": "constructor", "id": ["langchain", "AIMessage"], "kwargs": {
        "type": "ai", "id": "a1", "content": [{"type": "text", "text": "In Bergen."}],
        "tool_calls": [{"id": "c", "name": "f", "args": {}}]}}]}}  # fmt: skip

#: Tables of programs, and the row with stored text (`:text`) or bytes.
SESSIONS = (
    (
        """CREATE TABLE session (id TEXT, parent_id TEXT, title TEXT);
        CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT);
        CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT);
        INSERT INTO session VALUES ('s1', NULL, 'Files');
        INSERT INTO part VALUES ('p', 'm', 's1', '{"type": "text", "text": "x"}')""",
        "INSERT INTO message VALUES ('m', 's1', 1, :text)",
    ),
    (
        """CREATE TABLE sessions (id TEXT, source TEXT, user_id TEXT, started_at REAL);
        CREATE TABLE messages (id INTEGER, session_id TEXT, role TEXT, content TEXT, tool_calls TEXT,
        tool_call_id TEXT, timestamp REAL); INSERT INTO sessions VALUES ('h1', 'cli', 'ann', 1.0)""",
        "INSERT INTO messages VALUES (1, 'h1', 'assistant', 'x', :text, :text, :text)",
    ),
    (
        """CREATE TABLE agent_sessions (session_id TEXT); INSERT INTO agent_sessions VALUES ('s1');
        CREATE TABLE agent_messages (id INTEGER, session_id TEXT, message_data TEXT, created_at TEXT)""",
        "INSERT INTO agent_messages VALUES (1, 's1', :text, '2026-03-01 10:00:00')",
    ),
)
CHECKPOINTS = """CREATE TABLE checkpoints (thread_id, checkpoint_ns, checkpoint_id, type, checkpoint, metadata);
    CREATE TABLE writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value);"""
NO_STATE = "INSERT INTO checkpoints VALUES ('t1', '', 'c1', 'json', '{}', '')"
THREADS = (
    (CHECKPOINTS, "INSERT INTO checkpoints VALUES ('t1', '', 'c1', 'json', :text, :text)"),
    (CHECKPOINTS, "INSERT INTO checkpoints VALUES ('t1', '', 'c1', 'msgpack', :bytes, '')"),
    (CHECKPOINTS + NO_STATE, "INSERT INTO writes VALUES ('t1', '', 'c1', 't', 0, 'messages', 'msgpack', :bytes)"),
)
