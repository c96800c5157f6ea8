"""Property of the proxy: the upstream gets what the client sent, in its order, and nothing that the client left out."""

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turn_helpers import NAME, Client, cue_on

from cuebook.app.cuebook import RelayCall
from cuebook.engine.jobs.erasure import forget
from cuebook.errors import UpstreamError
from cuebook.records.erasure import Target
from cuebook.records.memory import Scope
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from cuebook.wire.responses_items import read_items
from scripted_answers import call, completion, output_text, response, result, streamed

#: What a client does to its history before it sends it.
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("trim front"), st.integers(1, 6)),
        st.tuples(st.just("trim middle"), st.integers(1, 4)),
        st.tuples(st.just("summary in front"), st.integers(1, 2)),
        st.tuples(st.just("pair before the last four"), st.just(0)),
        st.tuples(st.just("insert"), st.integers(0, 8)),
        st.tuples(st.just("edit"), st.integers(0, 8)),
        st.tuples(st.just("drop the last answer"), st.just(0)),
        st.tuples(st.just("other fields"), st.integers(0, 8)),
        st.tuples(st.just("repeat"), st.integers(0, 8)),
        st.tuples(st.just("go on"), st.integers(1, 3)),
        st.tuples(st.just("use a tool"), st.integers(1, 2)),
    ),
    min_size=1,
    max_size=7,
)


def edited(history: list[dict[str, Any]], name: str, size: int, number: int) -> list[dict[str, Any]]:
    """Return a client's history after an edit. Calls stay next to their results."""
    starts = [n for n, each in enumerate(history) if each.get("role") == "user" and not is_result(each)] or [0]
    answers = [n for n, each in enumerate(history) if each.get("role") == "assistant" and each.get("content")] or [-1]
    place, answer, last = starts[size % len(starts)], answers[size % len(answers)], starts[-1]
    pair = [{"role": "user", "content": f"p{number}"}, {"role": "assistant", "content": f"q{number}"}]
    summary = [
        {"role": "user", "content": f"Summary {number} of what was said."},
        {"role": "assistant", "content": "Understood."},
    ]
    again = [{"role": "user", "content": history[place]["content"]}, {"role": "assistant", "content": "Again."}]
    resent = [{"content": history[answer]["content"], "role": "assistant", "x": [1]}] if answer >= 0 else []
    changed = {
        "trim front": history[starts[min(size, len(starts) - 1)] :],
        "trim middle": history[: starts[1:2][0] if starts[1:] else 0]
        + history[starts[min(1 + size, len(starts) - 1)] :],
        "summary in front": [*summary[:size], *history[-4:]],
        "pair before the last four": history[: starts[-2:][0]] + pair + history[starts[-2:][0] :],
        "insert": [*history[:place], {"role": "user", "content": f"i{number}"}, *history[place:]],
        "edit": [*history[:place], {**history[place], "content": f"e{number}"}, *history[place + 1 :]],
        "drop the last answer": history[:last] if history[-1].get("role") == "assistant" else history,
        "other fields": [*history[:answer], *resent, *history[answer + 1 :]] if resent else history,
        "repeat": [*history, *again],
    }
    return changed.get(name, history)


def is_result(message: Mapping[str, Any]) -> bool:
    """Return whether a user's message of Anthropic's wire has tool results."""
    content = message["content"]
    return isinstance(content, list) and any(block["type"] == "tool_result" for block in content)


def without_recall(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without the text that memory added to it."""
    content = message.get("content")
    if isinstance(content, str):
        message = {**message, "content": content.partition("\n\n<recalled ")[0]}
    elif isinstance(content, list) and content and str(content[-1].get("text", "")).startswith("<recalled "):
        content = content[:-1]
        alone = len(content) == 1 and set(content[0]) == {"type", "text"}
        message = {**message, "content": content[0]["text"] if alone else content}
    return message


@settings(max_examples=min(25, settings().max_examples // 2), suppress_health_check=list(HealthCheck), deadline=None)
@given(edits=EDITS, named=st.booleans(), owned=st.booleans())
async def test_chat_upstream_gets_what_the_client_sent(tmp_path_factory, edits, named, owned):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path_factory.mktemp("db"), upstream=upstream) as cue:
        client = Client(cue, upstream, conversation=NAME if named else None, user_id="ann" if owned else None)
        for n in range(4):
            await client.say(f"u{n}", f"a{n}")
        for number, (name, size) in enumerate(edits):
            client.history = edited(client.history, name, size, number)
            if name == "use a tool":
                calls = [call(f"c{number}{k}") for k in range(size)]
                client.history.append({"role": "user", "content": f"t{number}"})
                upstream.say(completion("", calls=calls))
                client.history.append(json.loads(await client.send())["choices"][0]["message"])
                client.history += [result(each["id"]) for each in calls]
                upstream.say(completion(f"r{number}"))
                client.history.append(json.loads(await client.send())["choices"][0]["message"])
            else:
                for n in range(size if name == "go on" else 1):
                    await client.say(f"n{number}.{n}", f"m{number}.{n}")
            assert [without_recall(each) for each in upstream.messages()] == client.history[:-1]
            assert owned or upstream.messages() == client.history[:-1], "memory is only for named users"
            head = client.head
            place = {"conversation": head.conversation, "n": head.turn, "step": head.step, "user": client.user_id}
            replay = await cue.turns.replay(**place)
            assert (replay.verdict, replay.window.dropped) == ("identical", ())
            shown = [json.loads(each) for each in replay.window.raw_messages]
            assert [without_recall(each)["content"] for each in shown] == [
                each["content"] for each in client.history[:-1]
            ]


async def test_a_large_open_result_is_sent_whole_and_older_messages_are_left_out(tmp_path):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream, budget__context=4500, budget__reply=500) as cue:
        client = Client(cue, upstream)
        for n in range(40):
            await client.say(f"Question {n} about the harbor. " * 6, f"Answer {n}. " * 6)
        client.history.append({"role": "user", "content": "List the boats."})
        upstream.say(completion("", calls=[call("c1")]))
        client.history.append(json.loads(await client.send())["choices"][0]["message"])
        boats = json.dumps([{"boat": n, "name": f"Boat {n}"} for n in range(150)])
        client.history.append(result("c1", boats))
        upstream.say(completion("Many."))
        await client.send()
        sent = upstream.messages()
        assert [each["role"] for each in sent[-3:]] == ["user", "assistant", "tool"]
        assert sent[-1]["content"] == boats
        replay = await cue.turns.replay(NAME, client.head.turn, step=client.head.step)
        assert replay.verdict == "identical"
        assert replay.window.tokens >= 0.85 * replay.window.budget
        assert {each.reason for each in replay.window.dropped if each.kind == "post"} == {
            "older than the token budget allows"
        }


async def test_memory_is_recalled_only_if_its_own_words_are_not_in_the_window(tmp_path):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream) as cue:
        client = Client(cue, upstream, conversation=None, user_id="ann")
        await client.say("My ferry to Vlieland leaves at 9:45.", "Okay.")
        await cue.settle()
        await client.say("And back?", "Later.")
        assert upstream.messages() == client.history[:-1]
        client.history = client.history[-2:]  # the client forgets it
        await client.say("When is the ferry?", "At 9:45.")
        assert "leaves at 9:45" in upstream.messages()[-1]["content"]
        other = Client(cue, upstream, conversation=None, user_id="ann")
        await other.say("When does my ferry leave?", "At 9:45.")
        assert "leaves at 9:45" in upstream.messages()[-1]["content"]


# ---- Other wires ----------------------------------------------------------------------------------------------------


class MessagesClient:
    """A client of Anthropic's wire that keeps and resends its own history."""

    settings: Mapping[str, Any] = {}

    def __init__(self, cue: Any, upstream: ScriptedUpstream, **names: Any) -> None:
        self.cue, self.upstream, self.names = cue, upstream, names
        self.history: list[dict[str, Any]] = []
        self.body = b""
        self.system = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}]

    async def send(self, text: str = "", calls: Sequence[str] = ()) -> None:
        """Send the history and append the answer: thinking, a text, and tool calls."""
        content: list[Any] = [{"type": "thinking", "thinking": f"I say {text}", "signature": "c2ln"}]
        content += [{"type": "text", "text": text}] if text else []
        content += [{"type": "tool_use", "id": each, "name": "look", "input": {"b": [1e3], "a": 1}} for each in calls]
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content}
        answer |= {"stop_reason": "tool_use" if calls else "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}}
        self.upstream.say(HttpReply(pieces=(json.dumps(answer).encode(),)))
        fields = {"model": "m", "max_tokens": 900, "system": self.system, "messages": self.history}
        self.body = json.dumps(fields).encode()
        pieces = [piece async for piece in self.cue.message(RelayCall(body=self.body, headers={}, **self.names))]
        assert json.loads(b"".join(pieces[1:])) == answer
        self.history = [*self.history, {"role": "assistant", "content": content}]

    def results(self, calls: Sequence[str]) -> list[dict[str, Any]]:
        """Return the message with the results of tool calls."""
        blocks = [{"type": "tool_result", "tool_use_id": each, "content": "found"} for each in calls]
        return [{"role": "user", "content": blocks}]

    def check(self, *, owned: bool) -> None:
        """Check that the upstream got the last request of the client."""
        sent = self.upstream.sent()
        assert sent["system"] == self.system
        assert [without_recall(each) for each in sent["messages"]] == self.history[:-1]
        assert owned or self.upstream.requests[-1].body == self.body


async def test_texts_that_claude_code_writes_teach_nothing(tmp_path):
    upstream = ScriptedUpstream()
    reminder = {"type": "text", "text": f"<system-reminder>\n{'The tools are many. ' * 400}\n</system-reminder>"}
    compact = (
        "CRITICAL: Respond with TEXT ONLY. Do NOT call any tools.\n\nI always want the exact file names and all code."
    )
    summary = (
        "This session is being continued from a previous conversation that ran out of context. The summary below covers"
        " the earlier portion of the conversation.\n\nI decided to live in Oslo and my sister is called Berta."
    )
    async with cue_on(tmp_path, upstream=upstream) as cue:
        client = MessagesClient(cue, upstream, user="ann")

        async def say(*texts):
            blocks = [each if isinstance(each, dict) else {"type": "text", "text": each} for each in texts]
            client.history = [*client.history, {"role": "user", "content": blocks}]
            await client.send(f"a{len(client.history)}")
            await cue.settle()

        await say(reminder, "My ferry to Vlieland leaves at 9:45.")
        known = [each.text for each in (await cue.memory.list(user="ann")).items]
        assert known == ["My ferry to Vlieland leaves at 9:45."]
        await say(compact)
        client.check(owned=True)
        client.history = []
        await say(reminder, summary, "And back?")
        client.check(owned=True)
        assert [each.text for each in (await cue.memory.list(user="ann")).items] == known
        titles = {each.title for each in (await cue.conversations.list(user="ann")).items}
        assert titles == {"My ferry to Vlieland leaves at 9:45.", "And back?"}
        assert (await cue.conversations.list(q="ferry", user="ann")).items[0].title in titles


class ResponsesClient:
    """A client of OpenAI's Responses wire that keeps and resends its own items. The upstream knows chat completions."""

    settings: Mapping[str, Any] = {"upstream__responses": "chat"}

    def __init__(self, cue: Any, upstream: ScriptedUpstream, **names: Any) -> None:
        self.cue, self.upstream, self.names = cue, upstream, names
        self.history: list[dict[str, Any]] = []
        self.sent = 0

    async def send(self, text: str = "", calls: Sequence[str] = ()) -> None:
        """Send the history and append the items of the answer."""
        self.upstream.say(completion(text, calls=[call(each) for each in calls], refusal=None, annotations=[]))
        body = json.dumps({"model": "m", "instructions": "Be brief.", "input": self.history}).encode()
        pieces = [piece async for piece in self.cue.respond(RelayCall(body=body, headers={}, **self.names))]
        self.sent = len(self.history)
        self.history = [*self.history, *json.loads(b"".join(pieces[1:]))["output"]]

    def results(self, calls: Sequence[str]) -> list[dict[str, Any]]:
        """Return the items with the results of tool calls."""
        return [{"type": "function_call_output", "call_id": each, "output": "found"} for each in calls]

    def check(self, *, owned: bool) -> None:
        """Check that the upstream got the last request of the client as a chat completion."""
        expected = [{"role": "system", "content": "Be brief."}, *read_items(self.history[: self.sent], "input")]
        assert [without_recall(each) for each in self.upstream.messages()] == expected
        assert owned or self.upstream.messages() == expected


class NativeClient(ResponsesClient):
    """The same client of an upstream that answers on the same wire: with state, a custom tool and unknown fields."""

    settings: Mapping[str, Any] = {}
    body = b""

    async def send(self, text: str = "", calls: Sequence[str] = ()) -> None:
        """Send the history and append the items of the answer: reasoning, a text, and calls."""
        number = len(self.upstream.requests)
        items: list[Any] = [
            {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": f"e{number}"}
        ]
        items += [output_text(text)] if text else []
        named = {"type": "custom_tool_call", "name": "look", "input": "at <b>"}
        items += [{"id": f"ctc_{each}", "call_id": each, **named} for each in calls]
        answer = response("resp_theirs", *items, store=False)
        self.upstream.say(answer)
        fields = {"model": "m", "instructions": "Be brief.", "include": ["reasoning.encrypted_content"], "store": False}
        self.body = json.dumps(
            {**fields, "tools": [{"type": "custom", "name": "look"}], "input": self.history}
        ).encode()
        call_ = RelayCall(body=self.body, headers={}, **self.names)
        pieces = [piece async for piece in self.cue.respond(call_)]
        assert b"".join(pieces[1:]) == b"".join(answer.pieces)
        self.sent = len(self.history)
        self.history = [*self.history, *items]

    def results(self, calls: Sequence[str]) -> list[dict[str, Any]]:
        """Return the items with the results of tool calls."""
        return [{"type": "custom_tool_call_output", "call_id": each, "output": "found"} for each in calls]

    def check(self, *, owned: bool) -> None:
        """Check that the upstream got the last request of the client."""
        assert self.upstream.requests[-1].path == "/responses"
        body = self.upstream.sent()
        assert [without_recall(each) for each in body.pop("input")] == self.history[: self.sent]
        assert body.items() <= json.loads(self.body).items()
        assert owned or self.upstream.requests[-1].body == self.body


@pytest.mark.parametrize("wire", [MessagesClient, ResponsesClient, NativeClient])
@settings(max_examples=17, suppress_health_check=list(HealthCheck), deadline=None)
@given(edits=EDITS, named=st.booleans(), owned=st.booleans())
@pytest.mark.slow
async def test_upstream_gets_what_the_client_of_another_wire_sent(tmp_path_factory, wire, edits, named, owned):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path_factory.mktemp("db"), upstream=upstream, **wire.settings) as cue:
        client = wire(cue, upstream, conversation=NAME if named else "", user="ann" if owned else None)
        for n in range(4):
            client.history.append({"role": "user", "content": f"u{n}"})
            await client.send(f"a{n}")
        for number, (name, size) in enumerate(edits):
            client.history = edited(client.history, name, size, number)
            if name == "use a tool":
                calls = [f"c{number}{k}" for k in range(size)]
                client.history.append({"role": "user", "content": f"t{number}"})
                await client.send(calls=calls)
                client.history += client.results(calls)
                await client.send(f"r{number}")
            else:
                for n in range(size if name == "go on" else 1):
                    client.history.append({"role": "user", "content": f"n{number}.{n}"})
                    await client.send(f"m{number}.{n}")
            client.check(owned=owned)


# ---- Fields of stored messages --------------------------------------------------------------------------------------

#: Fields of a provider's reply that no request may contain.
REPLY_FIELDS: dict[str, Any] = {
    "annotations": [{"type": "url_citation", "url": "https://a.example"}], "refusal": None,
    "audio": {"id": "audio_1", "data": "AAAA", "expires_at": 1, "transcript": "Hi"},
    "reasoning_content": "I think.", "provider_extra": {"a": 1},
}  # fmt: skip


async def test_reply_fields_that_the_client_left_out_are_not_sent(tmp_path):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream) as cue:
        client = Client(cue, upstream)
        for n in range(3):
            client.history.append({"role": "user", "content": f"u{n}"})
            upstream.say(completion(f"a{n}", **REPLY_FIELDS))
            await client.send()
            assert upstream.messages() == client.history
            client.history.append({"role": "assistant", "content": f"a{n}"})


@pytest.mark.parametrize("calls", [[], [{**call("c1"), "index": 0}]])
async def test_server_kept_replies_are_sent_with_request_fields_only(tmp_path, calls):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream) as cue:
        client = Client(cue, upstream)
        upstream.say(completion("a0", calls=calls, **REPLY_FIELDS))
        await client.send([{"role": "user", "content": "u0"}], server_history=True)
        upstream.say(completion("a1"))
        new = [result("c1")] if calls else [{"role": "user", "content": "u1"}]
        await client.send(new, server_history=True)
        reply = {"role": "assistant", "content": "a0", "audio": {"id": "audio_1"}}
        assert upstream.messages() == [
            {"role": "user", "content": "u0"}, reply | ({"tool_calls": [call("c1")]} if calls else {}), *new,
        ]  # fmt: skip
        messages = [
            {"role": "assistant", "content": "mine", "reasoning_content": "kept"},
            {"role": "user", "content": "u2"},
        ]
        upstream.say(completion("a2"))
        await client.send(messages, server_history=True)
        assert upstream.messages()[-2:] == messages, "the client's own copy keeps its fields"


async def test_continued_response_is_sent_with_request_fields_only(tmp_path):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream, upstream__responses="chat") as cue:
        previous = None
        for n in range(2):
            upstream.say(completion(f"a{n}", **REPLY_FIELDS))
            body = {"model": "m", "input": f"u{n}", "previous_response_id": previous}
            pieces = [piece async for piece in cue.respond(RelayCall(body=json.dumps(body).encode(), headers={}))]
            previous = json.loads(b"".join(pieces[1:]))["id"]
        assert upstream.messages() == [
            {"role": "user", "content": "u0"},
            {"role": "assistant", "content": "a0", "audio": {"id": "audio_1"}},
            {"role": "user", "content": "u1"},
        ]


async def test_partial_answer_is_sent_as_the_client_sends_it(tmp_path):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream) as cue:
        client = Client(cue, upstream)
        client.history.append({"role": "user", "content": "u0"})
        upstream.say(streamed("A partial answer", done=False, error=UpstreamError("The connection broke.")))
        with pytest.raises(UpstreamError):
            await client.send(stream=True)
        client.history += [{"role": "assistant", "content": "A partial answer"}, {"role": "user", "content": "Go on."}]
        upstream.say(completion("a1"))
        await client.send()
        assert upstream.messages() == client.history


def marks_in(value: Any) -> int:
    """Count the cache markers in a request."""
    return json.dumps(value).count('"cache_control"') + json.dumps(value).count('"prompt_cache_breakpoint"')


@pytest.mark.parametrize("kept", [False, True], ids=["resent", "server"])
@pytest.mark.parametrize("own", [False, True], ids=["ours", "client's"])
async def test_cache_markers_do_not_accumulate_on_the_chat_wire(tmp_path, kept, own):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream, upstream__breakpoints="on") as cue:
        client = Client(cue, upstream)
        for n in range(12):
            part = {"type": "text", "text": f"u{n}"} | ({"cache_control": {"type": "ephemeral"}} if own else {})
            question = {"role": "user", "content": [part]}
            upstream.say(completion(f"a{n}"))
            await client.send([question] if kept else [*client.history, question], server_history=kept)
            assert marks_in(upstream.messages()) <= 4
            client.history += [{"role": "user", "content": f"u{n}"}, {"role": "assistant", "content": f"a{n}"}]


@pytest.mark.parametrize("kept", [False, True], ids=["resent", "server"])
@pytest.mark.parametrize("own", [False, True], ids=["ours", "client's"])
async def test_cache_markers_do_not_accumulate_on_the_messages_wire(tmp_path, kept, own):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream, upstream__breakpoints="on") as cue:
        client = MessagesClient(cue, upstream, conversation=NAME, server_history=kept)
        for n in range(12):
            part = {"type": "text", "text": f"u{n}"} | ({"cache_control": {"type": "ephemeral"}} if own else {})
            question = {"role": "user", "content": [part]}
            history = [{**each, "content": [unmarked(block) for block in each["content"]]} for each in client.history]
            client.history = [question] if kept else [*history, question]
            await client.send(f"a{n}")
            assert marks_in(upstream.sent()) <= 4
            if own and not kept:
                assert upstream.requests[-1].body == client.body


def unmarked(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block without its cache marker."""
    return {name: value for name, value in block.items() if name != "cache_control"}


async def test_a_resent_copy_is_erased_with_its_post(tmp_path):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream) as cue:
        client = Client(cue, upstream)
        await client.say("Hello.", "Noted.")
        client.history[-1] = {"role": "assistant", "content": "Noted.", "note": ["quokka"]}
        await client.say("Thanks.")
        replay = await cue.turns.replay(NAME, 2)
        assert replay.verdict == "identical"
        assert b"quokka" in b"".join(replay.window.raw_messages), "the copy is stored"
        [_, answer, *_] = await cue.services.store.posts(Scope(), NAME)
        posts = {NAME: [answer.seq]}
        await forget(cue.services, Scope(), Target("item", (answer.id,)), posts=posts)
    files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"quokka" not in files


async def test_no_chained_digest_made_from_an_erased_post_is_left(tmp_path):
    upstream = ScriptedUpstream()
    async with cue_on(tmp_path, upstream=upstream) as cue:
        client = Client(cue, upstream, conversation=None)
        name = ""
        for n in range(3):
            name = await client.say(f"u{n}", f"a{n}")
        before = chains_in(tmp_path)
        [_, _, erased, *_] = await cue.services.store.posts(Scope(), name)
        await forget(cue.services, Scope(), Target("item", (erased.id,)), posts={name: [erased.seq]})
        after = chains_in(tmp_path)
        assert [old == new for old, new in zip(before, after, strict=True)] == [True, True, False, False, False, False]
        assert await client.say("u3", "a3") == name, "it is found by its answers"
        assert upstream.messages() == client.history[:-1]


def chains_in(folder):
    """Return the chained digests of all posts in the only database of a folder."""
    [file] = [path for path in folder.rglob("*.db") if path.is_file()]
    with closing(sqlite3.connect(file)) as database, database:
        return [chain for (chain,) in database.execute("SELECT chain FROM post ORDER BY conversation, seq")]
