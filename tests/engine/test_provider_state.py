"""A provider's state passes through the proxy: compaction, thinking and its tools, of Anthropic's wire and OpenAI's."""

import json
import re
from typing import Any

import pytest
from turn_helpers import NAME, cue_on

from cuebook import Cuebook
from cuebook.app.cuebook import Head, RelayCall
from cuebook.app.transcripts.write import write_transcript
from cuebook.errors import InvalidInput, NotFound
from cuebook.records.conversation import LoadedConversation
from cuebook.records.memory import Scope
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from cuebook.wire.anthropic_answers import MessagesReader
from scripted_answers import EVENTS, completion, output_text, response, streamed_response

#: An answer with all kinds of state, not in the usual order of blocks.
BLOCKS: list[dict[str, Any]] = [
    {"type": "compaction", "content": "The user plans a trip.", "encrypted_content": "ZW5j"},
    {"type": "thinking", "thinking": "First thought.", "signature": "c2lnMQ=="},
    {"type": "text", "text": "I look it up."},
    {"type": "thinking", "thinking": "Second thought.", "signature": "c2lnMg=="},
    {"type": "redacted_thinking", "data": "AAAA"},
    {"type": "tool_use", "id": "toolu_1", "name": "memory", "input": {"command": "view", "path": "/memories"}},
]
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "No files."}]}
FIELDS = {
    "model": "claude-opus-5", "max_tokens": 9, "tools": [{"type": "memory_20250818", "name": "memory"}],
    "context_management": {"edits": [{"type": "clear_tool_uses_20250919"}, {"type": "compact_20260112"}]},
}  # fmt: skip
EDITS = {"applied_edits": [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 2, "cleared_input_tokens": 9}]}


def whole(blocks: list[dict[str, Any]]) -> HttpReply:
    stop = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": blocks}
    answer |= {"stop_reason": stop, "context_management": EDITS, "usage": {"input_tokens": 1, "output_tokens": 1}}
    return HttpReply(pieces=(json.dumps(answer).encode(),))


def streamed(blocks: list[dict[str, Any]]) -> HttpReply:
    """Return an answer as a stream whose state comes in deltas."""
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "msg_1", "model": "m", "content": []}}]
    for n, block in enumerate(blocks):
        kind, begun, deltas = block["type"], dict(block), list[dict[str, Any]]()
        if kind == "compaction":
            begun = {"type": kind, "content": None}
            deltas = [{"type": "compaction_delta", **{name: block[name] for name in ("content", "encrypted_content")}}]
        elif kind == "thinking":
            begun |= {"thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            deltas += [{"type": "signature_delta", "signature": block["signature"]}]
        elif kind == "tool_use":
            begun["input"] = {}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        events.append({"type": "content_block_start", "index": n, "content_block": begun})
        events += [{"type": "content_block_delta", "index": n, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": n})
    stop = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
    events.append({"type": "message_delta", "delta": {"stop_reason": stop}, "context_management": EDITS})
    events.append({"type": "message_stop"})
    pieces = [f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events]
    return HttpReply(pieces=pieces, headers={"content-type": EVENTS})


@pytest.mark.parametrize("kept", [False, True], ids=["resent", "server"])
@pytest.mark.parametrize("answer", [whole, streamed])
async def test_anthropic_state_is_unchanged_in_both_directions(tmp_path, answer, kept):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream) as cue:
        history: list[dict[str, Any]] = []
        new = [{"role": "user", "content": "Plan my trip."}]
        for blocks in (BLOCKS, [{"type": "text", "text": "Done."}], [{"type": "text", "text": "Bye."}]):
            history += new
            body = json.dumps(FIELDS | {"messages": new if kept else history, "stream": answer is streamed}).encode()
            reply = answer(blocks)
            upstream.say(reply)
            call = RelayCall(body=body, headers={}, conversation=NAME, server_history=kept)
            pieces = [piece async for piece in cue.message(call)]
            assert b"".join(pieces[1:]) == b"".join(reply.pieces)
            assert kept or upstream.requests[-1].body == body
            sent = upstream.sent()
            assert [as_blocks(each) for each in sent["messages"]] == [as_blocks(each) for each in history]
            assert {name: sent[name] for name in FIELDS} == FIELDS
            history.append({"role": "assistant", "content": blocks})
            new = [RESULT] if blocks is BLOCKS else [{"role": "user", "content": "Thanks."}]


def as_blocks(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with a text as its block."""
    content = message["content"]
    return message | {"content": [{"type": "text", "text": content}] if isinstance(content, str) else content}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_repeated_key_returns_anthropic_edits_of_the_context(tmp_path, stream):
    reply = (streamed if stream else whole)([*BLOCKS[:3], {"type": "text", "text": "Done."}])
    upstream = ScriptedUpstream(reply)
    async with cue_on(tmp_path, upstream=upstream) as cue:
        body = json.dumps(FIELDS | {"messages": [{"role": "user", "content": "Go."}], "stream": stream}).encode()
        call = RelayCall(body=body, headers={}, conversation=NAME, idempotency_key="k")
        readers = []
        for _ in range(2):
            answer = b"".join([piece async for piece in cue.message(call)][1:])
            reader = MessagesReader()
            if stream:
                for line in answer.splitlines(keepends=True):
                    reader.read_line(line)
            else:
                reader.read_body(answer)
            readers.append((reader.content, reader.answer.frame))
        assert readers[0] == readers[1]
        assert readers[0][1]["context_management"] == EDITS


# ---- OpenAI's Responses API -----------------------------------------------------------------------------------------

THOUGHT: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "cnM="}
COMPACTION: dict[str, Any] = {"id": "cmp_1", "type": "compaction", "encrypted_content": "Y21w", "created_by": "server"}
CUSTOM: dict[str, Any] = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "c1", "name": "sh", "input": "ls <a>"}
SEARCH: dict[str, Any] = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"query": "x"}}
SHELL: dict[str, Any] = {"id": "sh_1", "type": "shell_call", "call_id": "c2", "action": {"commands": ["ls"]}}
PHASED = output_text("I look.") | {"phase": "commentary"}


class Responses:
    """A client of the Responses API that sends what a test passes."""

    def __init__(self, cue: Cuebook, upstream: ScriptedUpstream) -> None:
        self.cue, self.upstream = cue, upstream
        self.body = b""
        self.head = Head(status=0, headers={})

    async def send(
        self, items: Any, *output: dict[str, Any], answer: Any = response, compacts: bool = False,
        key: str | None = None, conversation_name: str | None = None, **fields: Any,
    ) -> dict[str, Any]:  # fmt: skip
        """Send items. Return the answer, or its last event's."""
        if output:
            self.upstream.say(answer("resp_theirs", *output))
        self.body = json.dumps({"model": "gpt-5.2", "input": items, **fields}).encode()
        call = RelayCall(body=self.body, headers={}, idempotency_key=key, conversation=conversation_name)
        head, *pieces = [piece async for piece in self.cue.respond(call, compacts=compacts)]
        assert isinstance(head, Head)
        self.head, self.raw = head, b"".join(piece for piece in pieces if isinstance(piece, bytes))
        return json.loads(self.raw.split(b"data: ")[-1])

    @property
    def sent(self) -> list[dict[str, Any]]:
        return self.upstream.sent()["input"]


@pytest.fixture
async def client(tmp_path):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream) as cue:
        yield Responses(cue, upstream)


def asks(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


@pytest.mark.parametrize("answer", [response, streamed_response])
async def test_items_of_the_provider_are_sent_back_where_the_server_keeps_the_history(client, answer):
    output = [THOUGHT, PHASED, SEARCH, CUSTOM, SHELL]
    first = await client.send([asks("List."), asks("Now.")], *output, answer=answer, stream=answer is streamed_response)
    first = first.get("response", first)
    assert first["output"] == output
    results = [
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "a"},
        {"type": "shell_call_output", "call_id": "c2", "output": [{"stdout": "b"}]},
    ]
    second = await client.send(results, output_text("Done."), previous_response_id=first["id"], store=True)
    assert client.sent == [asks("List."), asks("Now."), *output, *results]
    assert "previous_response_id" not in client.upstream.sent()
    assert second["previous_response_id"] == first["id"]
    assert second["output"] == [output_text("Done.")]
    [turn] = await client.cue.turns.list(client.head.conversation)
    assert (turn.state, len(turn.steps)) == ("finished", 2), "the results continue the open turn"
    await client.send("Thanks.", output_text("Bye."), previous_response_id=second["id"])
    assert client.sent[-2:] == [output_text("Done."), {"role": "user", "content": "Thanks."}]
    assert client.sent[3:7] == output[1:]
    assert (await client.cue.responses.get(first["id"]))["output"] == output
    replay = await client.cue.turns.replay(client.head.conversation, client.head.turn)
    assert replay.verdict == "identical"


async def test_a_kept_history_begins_at_the_newest_compaction(client):
    first = await client.send("My name is Ann.", output_text("Hello."), context_management=[{"type": "compaction"}])
    assert client.upstream.sent()["context_management"] == [{"type": "compaction"}]
    second = await client.send("Go on.", COMPACTION, output_text("On."), previous_response_id=first["id"])
    assert client.sent[0]["content"] == "My name is Ann."
    await client.send("And?", output_text("Yes."), previous_response_id=second["id"])
    assert client.sent == [COMPACTION, output_text("On."), {"role": "user", "content": "And?"}]
    view = await client.cue.turns.replay(client.head.conversation, client.head.turn)
    assert view.verdict == "identical"
    assert {each.reason for each in view.window.dropped} == {"replaced by the provider's compaction"}
    items = await client.cue.openai_conversations.items(client.head.conversation, order="asc")
    kinds = [each["type"] for each in items["data"]]
    assert kinds == ["message"] * 3 + ["compaction"] + ["message"] * 3
    assert items["data"][3]["encrypted_content"] == COMPACTION["encrypted_content"]


@pytest.mark.parametrize("named", [None, NAME])
async def test_a_compacted_history_continues_its_conversation(client, named):
    history: list[dict[str, Any]] = []
    for n in range(4):
        history += [asks(f"u{n}")]
        history += (await client.send(history, THOUGHT, output_text(f"a{n}"), store=False, conversation_name=named))[
            "output"
        ]
    begun = client.head.conversation
    users = [each for each in history if each.get("role") == "user"]
    compacted = await client.send(history, *users, COMPACTION, compacts=True, conversation_name=named)
    assert client.upstream.requests[-1].path == "/responses/compact"
    assert (client.upstream.requests[-1].body, client.head.conversation) == (client.body, begun)
    assert client.raw == b"".join(response("resp_theirs", *users, COMPACTION).pieces)
    history = compacted["output"]
    for n in range(2):
        history = [*history, asks(f"v{n}")]
        history += (await client.send(history, THOUGHT, output_text(f"b{n}"), store=False, conversation_name=named))[
            "output"
        ]
        assert client.upstream.requests[-1].body == client.body, "also what precedes the item"
        assert (client.head.conversation, client.head.is_side_branch) == (begun, False)
    trimmed = [COMPACTION, asks("v0"), asks("w")]
    await client.send(trimmed, output_text("c"), store=False, conversation_name=named)
    assert client.head.conversation == begun
    assert client.upstream.requests[-1].body == client.body


async def test_nothing_is_added_to_a_request_to_compact_or_learned_from_it(tmp_path):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream, memory__user=True) as cue:
        client = Responses(cue, upstream)
        await cue.memory.add("Ann is allergic to shrimp.", user="ann")
        history = [asks("What am I allergic to?")]
        history += (await client.send(history, output_text("Shrimp."), user="ann"))["output"]
        assert "<recalled " in client.sent[0]["content"]
        await client.send(history, COMPACTION, compacts=True, user="ann")
        assert client.sent == history
        replay = await cue.turns.replay(client.head.conversation, client.head.turn, user="ann")
        assert (replay.verdict, len(replay.window.raw_messages)) == ("identical", 2)
        turn = await cue.turns.get(client.head.conversation, 2, user="ann")
        assert not turn.metadata["longTermMemoryRetrieval"]["didRetrieve"]
        assert len((await cue.conversations.list(user="ann")).items) == 1, "it is no utility call"


async def test_a_history_that_is_too_long_keeps_calls_beside_their_outputs(tmp_path):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream, budget__context=1_700, budget__reply=500) as cue:
        client, history = Responses(cue, upstream), [{"role": "developer", "content": "Be brief."}]
        for n in range(12):
            history += [asks(f"Question {n} about the harbor. " * 9)]
            history += (await client.send(history, THOUGHT, CUSTOM | {"call_id": f"c{n}"}, store=False))["output"]
            history += [{"type": "custom_tool_call_output", "call_id": f"c{n}", "output": "found " * 60}]
            history += (await client.send(history, output_text(f"Answer {n}. " * 9), store=False))["output"]
        sent = client.sent
        assert sent == [history[0], *history[-len(sent) : -1]], "the newest items, unchanged"
        assert len(sent) < len(history) / 2
        calls = [each["call_id"] for each in sent if each.get("type") == "custom_tool_call"]
        assert calls == [each["call_id"] for each in sent if each.get("type") == "custom_tool_call_output"]
        replay = await cue.turns.replay(client.head.conversation, client.head.turn, step=client.head.step)
        assert (replay.verdict, {each.kind for each in replay.window.dropped}) == ("identical", {"post"})


async def test_persona_and_summary_are_items_around_the_clients_system_text(tmp_path):
    (tmp_path / "personas").mkdir()
    (tmp_path / "personas/helper.json").write_text(json.dumps({"id": "helper", "baseSystemPrompt": "You are Finn."}))
    upstream = ScriptedUpstream()
    settings = {"budget__context": 2_500, "budget__reply": 500, "budget__system": 500, "model__name": "gpt-5.2"}
    async with cue_on(tmp_path, upstream=upstream, **settings) as cue:
        client, history = Responses(cue, upstream), [{"role": "developer", "content": "Be brief."}]
        for n in range(25):
            history += [asks(f"My boat number {n} is moored in harbor {n}. " * 9)]
            history += (await client.send(history, output_text(f"Answer {n}."), model="helper", instructions="Rhyme."))[
                "output"
            ]
            await cue.settle()
        persona, own, summary, *path = client.sent
        assert (persona["role"], persona["content"]) == ("system", "You are Finn.")
        assert (own, summary["role"]) == (history[0], "system")
        assert "summarized" in summary["content"]
        assert path == history[-len(path) - 1 : -1]
        assert (upstream.sent()["instructions"], upstream.sent()["model"]) == ("Rhyme.", "gpt-5.2")
        replay = await cue.turns.replay(client.head.conversation, client.head.turn)
        assert replay.verdict == "identical"


async def test_other_wires_do_not_send_the_items_of_this_one(client):
    await client.send("Hi", THOUGHT, COMPACTION, output_text("Hello."), conversation_name=NAME)
    await client.send("Go on.", COMPACTION, conversation=NAME, compacts=True)
    client.upstream.say(completion("Bye."))
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Who?"}]}).encode()
    call = RelayCall(body=body, headers={}, conversation=NAME, server_history=True)
    assert [piece async for piece in client.cue.relay(call)]
    texts = [each["content"] for each in client.upstream.messages()]
    assert [each[0]["text"] if isinstance(each, list) else each for each in texts] == ["Hi", "Hello.", "Go on.", "Who?"]
    assert b"encrypted_content" not in client.upstream.requests[-1].body
    posts = await client.cue.services.store.posts(Scope(), NAME)
    conversation = await client.cue.services.store.conversation(Scope(), NAME)
    exported = write_transcript(LoadedConversation(conversation=conversation, posts=tuple(posts)), form="openai")
    assert [each["role"] for each in json.loads(exported)["messages"]] == [
        "user",
        "assistant",
        "user",
        "user",
        "assistant",
    ]
    assert "encrypted_content" not in exported


@pytest.mark.parametrize("asked", [None, "Compact."])
async def test_compacting_a_kept_history_sends_it_whole(client, asked):
    first = await client.send("My name is Ann.", output_text("Hello."))
    begun, new = client.head.conversation, [{"role": "user", "content": asked}] if asked else []
    compacted = await client.send(
        asked, asks("My name is Ann."), COMPACTION, compacts=True, previous_response_id=first["id"]
    )
    assert client.sent == [asks("My name is Ann."), output_text("Hello."), *new]
    assert "previous_response_id" not in client.upstream.sent()
    await client.send([*compacted["output"], asks("Who am I?")], output_text("Ann."))
    assert (client.head.conversation, client.head.is_side_branch) == (begun, False)
    with pytest.raises(InvalidInput, match="input"):
        await client.send(None, previous_response_id=first["id"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("store", [False, True])
async def test_an_answer_is_relayed_unchanged_except_for_an_id_that_can_be_continued(client, stream, store):
    answer = streamed_response if stream else response
    output = [THOUGHT, output_text("Two words."), CUSTOM]
    await client.send("Go.", *output, answer=answer, stream=stream, store=store, key="k")
    theirs = b"".join(answer("resp_theirs", *output).pieces)
    relayed = client.raw
    if not store:
        assert relayed == theirs
    ours = re.search(rb'"id": ?"(resp_\w+)"', relayed)[1]
    events = [json.loads(line[6:]) if stream else json.loads(line) for line in relayed.splitlines() if b"{" in line]
    expected = theirs.replace(b"resp_theirs", ours)
    assert events == [
        json.loads(line[6:]) if stream else json.loads(line) for line in expected.splitlines() if b"{" in line
    ]
    again = await client.send("Go.", stream=stream, store=store, key="k")
    assert len(client.upstream.requests) == 1
    last = again.get("response", again)
    assert (last["id"].encode(), last["output"]) == (ours, output)


# ---- Upstreams without the Responses API ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b'{"detail":"Not Found"}'),
        (404, b'{"error":{"message":"Invalid URL (POST /v1/responses)","type":"invalid_request_error","code":null}}'),
        (404, b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'),
        (404, b"404 page not found"),
        (405, b""),
        (501, b""),
        (400, b'{"error":"Unexpected endpoint or method. (POST /v1/responses)"}'),
    ],
)
async def test_an_upstream_without_the_api_gets_the_same_request_as_a_chat_completion(client, status, body):
    client.upstream.say(HttpReply(status=status, pieces=(body,)), completion("Hello."), completion("Bye."))
    first = await client.send([THOUGHT, asks("Hi")], include=["reasoning.encrypted_content"])
    assert first["output"][0]["content"][0]["text"] == "Hello."
    assert client.head.headers["x-cuebook-left-out"] == "include, input.reasoning"
    assert client.upstream.messages() == [{"role": "user", "content": "Hi"}]
    second = await client.send("Go on.", previous_response_id=first["id"])
    assert second["output"][0]["content"][0]["text"] == "Bye."
    assert [each.path for each in client.upstream.requests] == ["/responses", *["/chat/completions"] * 2]
    assert [turn.state for turn in await client.cue.turns.list(client.head.conversation)] == ["finished"] * 2


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (404, {"message": "The model `gpt-5.2` does not exist", "code": "model_not_found", "param": None}),
        (404, {"message": "The model `gpt-5.2` does not exist.", "type": "NotFoundError", "param": None, "code": 404}),
        (404, {"message": "Item with id 'rs_1' not found.", "param": "input", "code": None}),
        (400, {"message": "Unsupported parameter: 'x'.", "param": "x", "code": "unsupported_parameter"}),
        (429, {"message": "Slow down."}),
    ],
)
async def test_other_errors_are_relayed(client, status, error):
    body = json.dumps({"error": error}).encode()
    client.upstream.say(HttpReply(status=status, pieces=(body,)))
    await client.send("Hi")
    assert (client.head.status, client.raw) == (status, body)
    await client.send("Hi", output_text("Hello."))
    client.upstream.say(HttpReply(status=404, pieces=(b'{"detail":"Not Found"}',)))
    await client.send("Hi")
    assert client.head.status == 404, "known to have the API"


async def test_a_request_only_the_provider_can_answer_is_refused_by_a_chat_upstream(client):
    client.upstream.say(HttpReply(status=404))
    with pytest.raises(InvalidInput, match="web_search"):
        await client.send("Hi", tools=[{"type": "web_search"}])
    with pytest.raises(InvalidInput, match="compaction"):
        await client.send([COMPACTION, asks("Hi")])
    assert len(client.upstream.requests) == 1


async def test_an_upstream_that_cannot_compact_is_named(client):
    client.upstream.say(HttpReply(status=404))
    with pytest.raises(NotFound, match="no upstream can compact"):
        await client.send([asks("Hi")], compacts=True)
    await client.send("Hi", output_text("Hello."))
    assert client.upstream.requests[-1].path == "/responses", "it may still have the rest of the API"
