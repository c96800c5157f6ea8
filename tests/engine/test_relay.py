"""Tests of the relay: upstream bytes pass unchanged and are stored, including errors and partial streams."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from turn_helpers import NAME, Client, all_texts, cue_on, path, user

from cuebook import Ask
from cuebook.app.cuebook import RelayCall
from cuebook.errors import UpstreamError
from cuebook.records.memory import Scope
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from cuebook.wire.chat_answers import ChatReader
from cuebook.wire.event_stream import LONGEST_LINE, ByteLines
from scripted_answers import DONE, EVENTS, call, completion, cut, event, result, streamed


@pytest.fixture
def upstream():
    return ScriptedUpstream()


@pytest.fixture
async def cue(tmp_path, upstream):
    async with cue_on(tmp_path, upstream=upstream) as handle:
        yield handle


@pytest.fixture
def client(cue, upstream):
    handle = Client(cue, upstream)
    handle.history = [user("u1")]
    return handle


def stream_of(body: bytes, cuts=(), **fields) -> HttpReply:
    return HttpReply(pieces=cut(body, cuts), headers={"content-type": EVENTS}, **fields)


def body_of(answer: HttpReply) -> bytes:
    return b"".join(answer.pieces)


async def last(cue):
    """Return the newest turn and the posts on the head's path."""
    [turn] = await cue.services.store.turns(Scope(), NAME, last=1)
    return turn, await path(cue)


# ---- bytes ----------------------------------------------------------------------------------------------------------

lines = st.one_of(
    st.text(max_size=12).map(lambda text: event({"content": text})),
    st.just(event({"content": "naïve 👩‍👩‍👧 漢字"}).replace(b"\n\n", b"\r\n\r\n")),
    st.sampled_from([
        b": a comment\n\n", b"event: ping\n", b"data: {\n", b"data: [1]\n\n", b"data: null\n\n", b'data:{"choices":7}\n\n',  # noqa: E501
        b"\r\n", b"\r", b"\n", b"garbage \xff\xfe line\n", b'data: {"choices":[{"delta":5},3]}\n\n', b"id: 7\r\n", b"data:\n",  # noqa: E501
    ]),
    st.binary(max_size=8),
)  # fmt: skip


@given(st.lists(lines, max_size=12), st.lists(st.integers(0, 400), max_size=12), st.booleans())
def test_splitting_into_lines_changes_no_byte(some, cuts, done):
    body = b"".join(some) + (DONE if done else b"")
    cutter, lines_out = ByteLines(), []
    for piece in cut(body, cuts):
        lines_out += cutter.feed(piece)
    rest = cutter.rest()
    assert b"".join(lines_out) + rest == body
    assert lines_out + ([rest] if rest else []) == body.splitlines(keepends=True)


@given(st.lists(st.text(min_size=1, max_size=9), max_size=8), st.lists(st.integers(0, 2000), max_size=10))
def test_parsing_does_not_depend_on_chunk_boundaries(texts, cuts):
    body = b"".join(event({"content": text}) for text in texts) + event({}, finish="stop") + DONE
    cutter, reader, added = ByteLines(), ChatReader(), []
    for piece in cut(body, cuts):
        added += [reader.read_line(line) for line in cutter.feed(piece)]
    assert "".join(added) == "".join(texts)
    assert reader.answer.done
    assert reader.answer.whole
    if texts:
        assert json.loads(reader.message()) == {"role": "assistant", "content": "".join(texts)}


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 10_000])
async def test_a_stream_passes_byte_for_byte_and_is_stored(cue, client, size):
    body = b": hello\r\n\r\n" + body_of(streamed("Grüße aus Köln 👋🏽, said he.", size=3))
    body = body.replace(DONE, b"event: x\nid: 9\n\ndata: not json\n\n" + DONE) + b": bye\n\n"
    client.upstream.say(stream_of(body, range(0, len(body), size)))
    assert await client.send(stream=True) == body
    assert client.head.headers == {"content-type": EVENTS}
    turn, texts = await last(cue)
    assert texts == ["u1", "Grüße aus Köln 👋🏽, said he."]
    assert turn.state == "finished"


def test_an_endless_line_is_not_buffered_forever():
    cutter = ByteLines()
    passed = sum(len(line) for _ in range(40) for line in cutter.feed(b"x" * (LONGEST_LINE // 16)))
    assert passed >= 2 * LONGEST_LINE


def test_a_stream_with_bare_carriage_returns_is_not_delayed():
    cutter = ByteLines()
    assert list(cutter.feed(b"data: 1\r\rdata: 2\r")) == [b"data: 1\r", b"\r"]
    assert list(cutter.feed(b"\r")) == [b"data: 2\r"]
    assert list(cutter.feed(b"\nx")) == [b"\r\n"]


# ---- parsing --------------------------------------------------------------------------------------------------------


def parse_deltas(*deltas, field="delta"):
    reader = ChatReader()
    for delta in deltas:
        chunk = {"choices": [{"index": 0, field: delta}]}
        reader.add(chunk) if field == "delta" else reader.add_document(chunk)
    return json.loads(reader.message())


def test_tool_calls_are_assembled_by_index():
    parts = [
        {"role": "assistant", "content": None, "tool_calls": [{"index": 0, **call("c1", "look")}]},
        {"tool_calls": [{"index": 1, "id": "c2", "type": "function", "function": {"name": "find", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": '{"a"'}}, {"index": 0, "id": "c1"}]},
        {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "find", "arguments": ": 1}"}}]},
    ]
    calls = parse_deltas(*parts)["tool_calls"]
    assert calls == [
        call("c1", "look"),
        {"id": "c2", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}},
    ]  # noqa: E501, RUF100


def test_unknown_fields_are_stored():
    message = parse_deltas(
        {"role": "assistant", "reasoning_content": "hm", "audio": {"id": "x", "data": "AA"}},
        {"reasoning_content": " so", "audio": {"data": "BB"}, "annotations": [{"url": 1}], "odd": 3},
        {"content": "yes", "annotations": [{"url": 2}], "odd": 4},
    )
    assert message["reasoning_content"] == "hm so"
    assert message["audio"] == {"id": "x", "data": "AABB"}
    assert message["annotations"] == [{"url": 1}, {"url": 2}]
    assert (message["odd"], message["content"], message["role"]) == (4, "yes", "assistant")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["choices", "delta", "index", "content", "tool_calls", "function", "arguments", "usage",
                         "finish_reason", "error", "message", "role", "id", "prompt_tokens_details"]),
        inner, max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@given(st.lists(json_values, max_size=6), json_values)
def test_no_malformed_event_breaks_a_relay(events, document):
    reader = ChatReader()
    for each in events:
        reader.read_line(b"data: " + json.dumps(each).encode())
    reader.read_body(json.dumps(document).encode())
    for choice in reader.answer.choices:
        assert json.loads(reader.message(choice) or b"{}") is not None


@pytest.mark.slow
async def test_a_long_answer_in_small_pieces_takes_linear_time(cue, client):
    text = "word " * 40_000
    client.upstream.say(streamed(text, size=5))
    await asyncio.wait_for(client.send(stream=True), 60)
    assert (await path(cue))[-1] == text


async def test_usage_and_cached_tokens_are_stored(cue, client):
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}
    body = body_of(streamed("hi")).replace(DONE, event(None, usage=usage) + DONE)
    client.upstream.say(stream_of(body))
    await client.send(stream=True)
    turn, _ = await last(cue)
    assert (turn.steps[0].usage.input, turn.steps[0].usage.output, turn.steps[0].usage.cache_read) == (12, 3, 8)


# ---- the end of a stream --------------------------------------------------------------------------------------------


async def test_the_end_of_a_stream_waits_until_the_turn_is_durable(cue, client):
    client.upstream.say(streamed("hello"))
    store, closing_begins, gate, events = cue.services.store, asyncio.Event(), asyncio.Event(), []

    class Slow:
        def __getattr__(self, name):
            return getattr(store, name)

        async def close(self, lease, closing):
            closing_begins.set()
            await gate.wait()
            return await store.close(lease, closing)

    cue.services.store = Slow()
    body = json.dumps({"model": "m", "messages": client.history, "stream": True}).encode()

    async def read():
        async for piece in cue.relay(RelayCall(body=body, headers={}, conversation=NAME)):
            events.append(piece)  # noqa: PERF401

    reading = asyncio.create_task(read())
    await closing_begins.wait()
    await asyncio.sleep(0.05)  # the end of the stream could overtake
    assert b"hello" in b"".join(events[1:])
    assert b"[DONE]" not in b"".join(events[1:]), "not before the turn is stored"
    gate.set()
    await reading
    assert b"".join(events[1:]) == body_of(streamed("hello"))
    cue.services.store = store


async def test_a_stream_with_finish_but_without_done_is_complete(cue, client):
    body = body_of(streamed("hi")).removesuffix(DONE)
    client.upstream.say(stream_of(body))
    assert await client.send(stream=True) == body
    turn, texts = await last(cue)
    assert (turn.state, texts) == ("finished", ["u1", "hi"])


def pretty(data: bytes) -> bytes:
    """Return an event with multi-line JSON."""
    lines = json.dumps(json.loads(data.removeprefix(b"data: ")), indent=1).encode().splitlines()
    return b"".join(b"data: " + line + b"\n" for line in lines) + b"\n"


HELLO = [event({"role": "assistant", "content": "hel"}), event({"content": "lo"}), event({}, finish="stop"), DONE]


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" + b"".join(HELLO),
        b"".join(HELLO).replace(b"\n", b"\r"),
        b"".join(HELLO).replace(b"\n", b"\r\n").replace(b"data: ", b"data:"),
        pretty(HELLO[0]) + b": note\n\n" + b"".join(pretty(each) for each in HELLO[1:3]) + DONE,
        b"data: {\n\n" + b"".join(HELLO),
    ],
    ids=["byte order mark", "carriage returns", "both", "several lines", "half an event before"],
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_every_standard_event_format_is_parsed(cue, client, body, size):
    client.upstream.say(stream_of(body, range(0, len(body), size)))
    assert await client.send(stream=True) == body
    turn, texts = await last(cue)
    assert (turn.state, texts) == ("finished", ["u1", "hello"])


async def test_a_media_type_is_case_insensitive(cue, client):
    body = body_of(streamed("hi"))
    client.upstream.say(HttpReply(pieces=[body], headers={"content-type": "Text/Event-Stream"}))
    assert await client.send(stream=True) == body
    assert (await last(cue))[1] == ["u1", "hi"]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (rb"wave \ud83d", rb"\udc4b!", "wave 👋!"),
        (rb"half \ud83d", rb" a pair", "half � a pair"),
        (b"no UTF-8 \xff", b".", "no UTF-8 �."),
    ],
)
async def test_a_text_cut_inside_a_character_is_stored(cue, client, first, second, expected):
    body = b"".join(b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % each for each in (first, second))
    body += event({}, finish="stop") + DONE
    client.upstream.say(stream_of(body))
    assert await client.send(stream=True) == body
    turn, texts = await last(cue)
    assert (turn.state, texts) == ("finished", ["u1", expected])


@pytest.mark.parametrize("kind", ["application/json", EVENTS])
@pytest.mark.parametrize("levels", [200, 300, 940, 950, 960, 970, 980, 5000])
async def test_an_answer_of_any_nesting_depth_passes(cue, client, levels, kind):
    field = "message" if kind != EVENTS else "delta"
    deep = b'{"a":' * levels + b"1" + b"}" * levels
    body = b'{"choices":[{"index":0,"finish_reason":"stop","%s":{"role":"assistant","content":"hi","x":%s}}]}' % (
        field.encode(), deep,
    )  # fmt: skip
    body = body if kind != EVENTS else b"data: " + body + b"\n\n" + DONE
    client.upstream.say(HttpReply(pieces=[body], headers={"content-type": kind}))
    assert await client.send() == body
    assert (await last(cue))[0].state == ("finished" if levels < 250 else "failed")


async def test_done_without_a_line_end_is_done(cue, client):
    body = body_of(streamed("hi")).removesuffix(b"\n\n")
    client.upstream.say(stream_of(body, [len(body) - 3]))
    assert await client.send(stream=True) == body
    assert (await last(cue))[0].state == "finished"


async def test_half_a_stream_is_stored_as_interrupted(cue, client):
    body = body_of(streamed("half an ans", done=False))
    client.upstream.say(stream_of(body))
    assert await client.send(stream=True) == body
    turn, texts = await last(cue)
    assert (turn.state, texts) == ("interrupted", ["u1", "half an ans…"])
    assert "ended before" in turn.steps[0].error


async def test_a_broken_stream_is_stored_and_breaks(cue, client):
    client.upstream.say(streamed("half an ans", done=False, error=UpstreamError("broken pipe")))
    with pytest.raises(UpstreamError):
        await client.send(stream=True)
    turn, texts = await last(cue)
    assert (turn.state, texts, turn.steps[0].error) == ("interrupted", ["u1", "half an ans…"], "broken pipe")
    assert client.upstream.closed == 1


async def test_a_connection_lost_after_the_end_is_ignored(cue, client):
    client.upstream.say(streamed("hi", error=UpstreamError("reset")))
    assert await client.send(stream=True) == body_of(streamed("hi"))
    assert (await last(cue))[0].state == "finished"


async def test_a_partial_tool_call_is_recorded_but_never_resent(cue, client):
    pieces = body_of(streamed("let me ", calls=[call("c1", "look", {"q": "x"})], done=False))
    client.upstream.say(stream_of(pieces))
    await client.send(stream=True)
    assert (await path(cue))[-1].startswith("let me ")
    client.upstream.say(completion("yes"))
    await client.send([*client.history, user("go on")])
    assert not any(message.get("tool_calls") for message in client.upstream.messages())


async def test_an_error_event_fails_the_turn_and_passes(cue, client):
    error = b'data: {"error": {"message": "overloaded", "code": 529}}\n\n'
    body = body_of(streamed("half", done=False)) + error + DONE
    client.upstream.say(stream_of(body))
    assert await client.send(stream=True) == body
    turn, texts = await last(cue)
    assert (turn.state, texts, turn.steps[0].error) == ("failed", ["u1", "half…"], "Upstream error: overloaded")


async def test_an_empty_stream_fails_the_turn(cue, client):
    client.upstream.say(stream_of(DONE))
    assert await client.send(stream=True) == DONE
    assert (await last(cue))[0].state == "failed"


async def test_a_disconnected_client_keeps_the_partial_answer(cue, client):
    client.upstream.say(streamed("a long answer nobody reads", size=4))
    body = json.dumps({"model": "m", "messages": client.history, "stream": True}).encode()
    pieces = cue.relay(RelayCall(body=body, headers={}, conversation=NAME))
    chunks = [await anext(pieces) for _ in range(5)]
    await pieces.aclose()
    turn, texts = await last(cue)
    assert turn.state == "interrupted"
    assert texts[-1].removesuffix("…") in "a long answer nobody reads"
    assert texts[-1] != "…"
    assert client.upstream.closed == 1, "the upstream connection is closed at once"
    assert len(chunks) == 5


async def test_a_disconnect_after_the_last_word_finishes_the_turn(cue, client):
    client.upstream.say(
        HttpReply(pieces=[body_of(streamed("all said")).removesuffix(DONE), DONE], headers={"content-type": EVENTS})
    )  # noqa: E501, RUF100
    body = json.dumps({"model": "m", "messages": client.history, "stream": True}).encode()
    pieces = cue.relay(RelayCall(body=body, headers={}, conversation=NAME))
    while b'"finish_reason": "stop"' not in (piece if isinstance(piece := await anext(pieces), bytes) else b""):
        pass
    await pieces.aclose()
    turn, texts = await last(cue)
    assert (turn.state, texts) == ("finished", ["u1", "all said"])


async def test_a_cancelled_task_keeps_the_partial_answer(cue, client):
    reached = asyncio.Event()
    answer = streamed("a long answer nobody reads", size=4)
    count = 0

    def halfway():
        nonlocal count
        count += 1
        if count == 4:
            reached.set()

    client.upstream.say(structs.replace(answer, delay=0.05, waits=halfway))
    reading = asyncio.create_task(client.send(stream=True))
    await reached.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    turn, texts = await last(cue)
    assert (turn.state, texts[-1][-1]) == ("interrupted", "…")
    assert (await cue.services.store.conversation(Scope(), NAME)).lease_until == 0, "nobody waits for a lease"


# ---- responses without a stream -------------------------------------------------------------------------------------


async def test_a_complete_response_passes_unchanged(cue, client):
    body = (
        b'{ "choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop","index":0}],\n "odd":1.50}'  # noqa: E501, RUF100
    )
    client.upstream.say(HttpReply(pieces=cut(body, [5, 50]), headers={"content-type": "application/json", "x-id": "7"}))
    assert await client.send() == body
    assert client.head.headers["x-id"] == "7"
    assert (await last(cue))[1] == ["u1", "hi"]


async def test_a_complete_response_to_a_stream_request_is_stored(cue, client):
    client.upstream.say(completion("hi"))
    await client.send(stream=True)
    assert (await last(cue))[1] == ["u1", "hi"]


async def test_an_unrequested_stream_is_stored(cue, client):
    client.upstream.say(streamed("hi"))
    await client.send()
    assert (await last(cue))[1] == ["u1", "hi"]


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 529])
@pytest.mark.parametrize("kind", ["application/json", EVENTS])
async def test_an_error_response_passes_and_fails_the_turn(cue, client, status, kind):
    body = b'{"error":{"message":"no","type":"x"}}'
    headers = {"content-type": kind, "retry-after": "3"}
    client.upstream.say(HttpReply(pieces=[body], status=status, headers=headers))
    assert await client.send(stream=True) == body
    assert (client.head.status, client.head.headers["retry-after"]) == (status, "3")
    turn, texts = await last(cue)
    assert (turn.state, texts, turn.steps[0].error) == ("failed", ["u1"], f"The upstream answered {status}.")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>no</html>", b"\xff\xfe", b"[]", b"{}", b'{"choices":[]}', b'{"choices":[{"message":{"content":5}}]}',  # noqa: E501
        b'{"choices":[{"message":{"content":"x","tool_calls":[7]}}]}', b'{"error":{"message":"odd"}}', b"[" * 5000,
    ],
)  # fmt: skip
async def test_an_invalid_response_passes_and_fails_the_turn(cue, client, body):
    client.upstream.say(HttpReply(pieces=[body]))
    assert await client.send() == body
    turn, texts = await last(cue)
    assert (turn.state, texts) == ("failed", ["u1"])
    await client.say("again", "fine")
    assert (await path(cue))[-1] == "fine", "the conversation continues"


async def test_an_unreachable_upstream_fails_the_turn_and_keeps_the_query(cue, client):
    client.upstream.say(UpstreamError("connection refused", status=502))
    with pytest.raises(UpstreamError, match="refused"):
        await client.send()
    turn, texts = await last(cue)
    assert (turn.state, texts, turn.steps[0].error) == ("failed", ["u1"], "connection refused")


async def test_a_secret_in_an_answer_passes_and_is_redacted_in_storage(cue, client, tmp_path):
    secret = "ghp_Zx9Yw8Vu7Ts6Rq5Po4Nm3Lk2Ji1Hg0FeDcBa"
    client.upstream.say(streamed(f"your token is {secret}", size=11))
    assert secret.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    await client.send(stream=True)
    assert "[[secret:" in (await all_texts(cue))[-1]
    assert secret.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "arguments",
    [{"password": 'pa"ss\\w0rd1'}, {"cmd": "login --password pässW0rt9"}, {"body": '{"api_key": "Zx9Yw8Vu7Ts6"}'}],
)
async def test_a_resent_answer_with_a_secret_is_matched(cue, client, arguments, stream):
    tool_call = call("c1", "login", arguments)
    client.upstream.say(streamed(calls=[tool_call]) if stream else completion(calls=[tool_call]))
    await client.send(stream=stream)
    client.history += [{"role": "assistant", "content": None, "tool_calls": [tool_call]}, result("c1", "in")]
    client.upstream.say(completion("done"))
    await client.send()
    assert await all_texts(cue) == ["u1", "<login>", "in", "done"]
    assert len((await last(cue))[0].steps) == 2


# ---- without an upstream --------------------------------------------------------------------------------------------


async def test_without_an_upstream_the_configured_model_answers(tmp_path):
    async with cue_on(tmp_path) as cue:
        mine = Client(cue, ScriptedUpstream())
        mine.history = [user("u1")]
        whole = json.loads(await mine.send())
        assert whole["choices"][0]["message"] == {"role": "assistant", "content": "Noted."}
        assert whole["usage"]["total_tokens"] > 0
        mine.history = [user("u1"), whole["choices"][0]["message"], user("u2")]
        events = (await mine.send(stream=True)).split(b"\n\n")
        assert events[-2:] == [b"data: [DONE]", b""]
        deltas = [json.loads(each[6:])["choices"][0]["delta"] for each in events[:-2]]
        assert "".join(delta.get("content", "") for delta in deltas) == "Noted."
        assert await path(cue) == ["u1", "Noted.", "u2", "Noted."]


async def test_each_answer_of_the_configured_model_has_its_own_id(tmp_path):
    async with cue_on(tmp_path) as cue:
        ids = []
        for name in ("a", "b", "a"):
            mine = Client(cue, ScriptedUpstream(), conversation=name)
            mine.history = [user("u1")]
            ids.append(json.loads(await mine.send())["id"])
        assert len(set(ids)) == 3


@pytest.mark.parametrize(("settings", "folded"), [({}, False), ({"memory__profile": "standard"}, True)])
async def test_a_clients_history_is_sent_whole_until_the_window_fills(tmp_path, settings, folded):
    """The client's requests keep their form; requests through the Python API are compacted early."""
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream, **settings) as cue:
        client = Client(cue, upstream)
        for n in range(20):
            await client.say(f"Fact {n}: the box of colour {n} holds {n} apples.")
        for n in range(20):
            await cue.ask(Ask(f"Fact {n}: the box of colour {n} holds {n} apples.", "own"))
        await cue.settle()
        await client.say("And now?")
        assert (len(client.upstream.messages()) < len(client.history) - 1) is folded
        assert (await cue.conversations.summary(NAME) is not None) is folded
        assert await cue.conversations.summary("own") is not None


async def test_a_response_is_a_document_unless_its_client_asks_for_a_stream(cue, upstream):
    upstream.say(HttpReply(status=404), streamed("hi"))
    pieces = cue.respond(RelayCall(body=b'{"model":"m","input":"Hello"}', headers={}))
    head, body = [piece async for piece in pieces]
    assert head.headers["content-type"] == "application/json"
    assert json.loads(body)["output"][0]["content"][0]["text"] == "hi"
