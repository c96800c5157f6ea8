"""Tests of shadow mode: stored turns, limits and the calls that it could not store."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cuebook import Cuebook
from cuebook.app.cuebook import Head, RelayCall, RelayRequest
from cuebook.config import build
from cuebook.engine.proxy.shadow import Shadow
from cuebook.errors import NotFound
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from scripted_answers import completion, streamed


def requested(*messages: Any, conversation: str | None = "talk", **fields: Any) -> tuple[RelayRequest, RelayCall]:
    entries = [{"role": "user", "content": each} if isinstance(each, str) else each for each in messages]
    body = json.dumps({"model": "gpt-5.2", "messages": entries, **fields}).encode()
    request = RelayRequest(method="POST", path="/chat/completions", headers={}, body=body, verbatim=True)
    return request, RelayCall(body=body, headers={}, conversation=conversation)


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream(default=completion("Noted."))


@pytest.fixture
async def cue(upstream: ScriptedUpstream) -> AsyncIterator[Cuebook]:
    settings = {"upstream.shadow": True, "upstream.url": "http://127.0.0.1:9/v1", "store.url": ":memory:"}
    async with Cuebook.open(build(arguments=settings), upstream=upstream) as handle:
        yield handle


async def pass_through(cue: Cuebook, *messages: Any, **fields: Any) -> bytes:
    request, call = requested(*messages, **fields)
    pieces = [piece async for piece in cue.pass_through(request, call)]
    assert isinstance(pieces[0], Head)
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


async def test_the_request_is_unchanged_and_the_turn_is_marked(cue: Cuebook, upstream: ScriptedUpstream) -> None:
    request, _ = requested("hi")
    answer = await pass_through(cue, "hi")
    assert upstream.requests[0] is not None
    assert upstream.requests[0].body == request.body
    assert json.loads(answer)["choices"][0]["message"]["content"] == "Noted."
    await cue.settle()
    assert "shadow" in (await cue.turns.get("talk", 1)).metadata


async def test_an_error_for_a_long_prompt_teaches_the_context_window(cue: Cuebook, upstream: ScriptedUpstream) -> None:
    error = {"message": "This model's maximum context length is 900 tokens. Your messages resulted in 1200 tokens."}
    refused = json.dumps({"error": {**error, "code": "context_length_exceeded"}}).encode()
    upstream.say(HttpReply(pieces=(refused,), status=400))
    assert await pass_through(cue, *["word " * 40] * 21) == refused
    await pass_through(cue, "hi", conversation="other")
    await cue.settle()
    context = (await cue.turns.get("other", 1)).metadata["window"]["context"]
    assert (context["tokens"], context["source"]) == (900, "error")


async def test_a_turn_stored_after_its_answer_has_no_durations(cue: Cuebook, upstream: ScriptedUpstream) -> None:
    upstream.say(streamed("an answer in pieces", size=4))
    await pass_through(cue, "hi")
    await cue.settle()
    [record] = await cue.live.newest()
    assert (record.shadow, record.state, record.reply) == (True, "finished", "an answer in pieces")
    assert (record.seconds, record.first_s) == (None, None)


async def test_a_disconnected_client_keeps_the_partial_answer(cue: Cuebook, upstream: ScriptedUpstream) -> None:
    upstream.say(streamed("a long answer that nobody hears to its end", size=4))
    request, call = requested("hi")
    pieces: Any = cue.pass_through(request, call)
    for _ in range(4):
        await anext(pieces)
    await pieces.aclose()
    await cue.settle()
    turn = await cue.turns.get("talk", 1)
    assert (turn.state, turn.steps[-1].error) == ("interrupted", "the caller went away")


async def test_settle_waits_for_a_call_whose_client_has_the_last_byte(cue: Cuebook) -> None:
    request, call = requested("hi")
    pieces: Any = cue.pass_through(request, call)
    assert [type(await anext(pieces)) for _ in range(2)] == [Head, bytes]
    settling = asyncio.create_task(cue.settle())
    await asyncio.sleep(0)
    assert [piece async for piece in pieces] == []
    await settling
    assert (await cue.turns.get("talk", 1)).state == "finished"


async def test_an_unsent_prompt_is_not_audited_or_scored(cue: Cuebook) -> None:
    await cue.prompts.save("persona/default", {"body": "You help."})
    await pass_through(cue, "hi")
    await cue.settle()
    assert "render" not in {record.event for record in await cue.audit.list()}


async def test_a_call_beyond_the_buffer_passes_and_is_counted(cue: Cuebook, upstream: ScriptedUpstream) -> None:
    shadow = Shadow(upstream, most=1)  # not started yet: nothing leaves the queue
    for name in ("one", "two", "three"):
        request, call = requested("hi", conversation=name)
        assert len([piece async for piece in shadow.pass_on(cue.services, request, call)]) == 2
    assert (shadow.waiting, shadow.lost) == (1, {"overload": 2})
    shadow.start()
    await shadow.aclose()
    entry = (await cue.turns.get("one", 1)).metadata["shadow"]["1"]
    assert (entry["lost"], shadow.lost) == ({"overload": 2}, {})
    with pytest.raises(NotFound):
        await cue.turns.get("two", 1)


async def test_an_answer_larger_than_the_buffer_passes_and_is_dropped(cue: Cuebook, upstream: ScriptedUpstream) -> None:
    shadow = Shadow(upstream, most_bytes=1500)
    upstream.say(completion("x" * 1000))
    request, call = requested("hi")
    pieces = [piece async for piece in shadow.pass_on(cue.services, request, call)]
    assert sum(len(piece) for piece in pieces if isinstance(piece, bytes)) > 1000
    assert (shadow.waiting, shadow.lost) == (0, {"overload": 1})


async def test_other_requests_pass_and_are_counted(cue: Cuebook) -> None:
    request, call = requested("hi")
    broken = RelayCall(body=b"{", headers={}, conversation="talk")
    assert [piece async for piece in cue.pass_through(request, broken)]
    assert [piece async for piece in cue.pass_through(request, call)]
    await cue.settle()
    assert (await cue.turns.get("talk", 1)).metadata["shadow"]["1"]["lost"] == {"unreadable": 1}


async def test_turns_lost_in_a_crash_return_with_the_next_request(cue: Cuebook, upstream: ScriptedUpstream) -> None:
    died = Shadow(upstream)  # it stores nothing any more
    request, call = requested("My name is Ann.")
    assert [piece async for piece in died.pass_on(cue.services, request, call)]
    await pass_through(cue, "My name is Ann.", {"role": "assistant", "content": "Noted."}, "What is it?")
    await cue.settle()
    posts = await cue.conversations.posts("talk")
    assert [post.message for post in posts] == ["My name is Ann.", "Noted.", "What is it?", "Noted."]
    assert (await cue.turns.get("talk", 1)).state == "finished"
