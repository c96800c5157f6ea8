"""What shadow mode keeps of OpenAI's Responses wire: the same turns a chat completion would have given."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cuebook import Cuebook
from cuebook.app.cuebook import Head, RelayCall, RelayRequest
from cuebook.config import build
from cuebook.testing.upstream import Answer, ScriptedUpstream

RULES = "Speak like a pirate."
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


def text(said: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": said, "annotations": []}
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}


def calling() -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"}


def response(id_: str, *output: Any, **fields: Any) -> dict[str, Any]:
    used = {"input_tokens": 20, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 16}}
    told = {"id": id_, "object": "response", "model": "gpt-5.2", "status": "completed", "error": None}
    return told | {"output": list(output), "usage": used} | fields


def whole(id_: str, *output: Any, **fields: Any) -> Answer:
    body = json.dumps(response(id_, *output, **fields)).encode()
    return Answer(headers={"content-type": "application/json"}, pieces=(body,))


def streamed(id_: str, said: str, *, ends: bool = True) -> Answer:
    events: list[dict[str, Any]] = [{"type": "response.created", "response": response(id_, status="in_progress")}]
    events += [{"type": "response.output_text.delta", "output_index": 0, "delta": word} for word in said.split("|")]
    if ends:
        events.append({"type": "response.output_item.done", "output_index": 0, "item": text(said.replace("|", ""))})
        events.append({"type": "response.completed", "response": response(id_, text(said.replace("|", "")))})
    chunks = tuple(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in events)
    return Answer(headers={"content-type": "text/event-stream"}, pieces=chunks)


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
async def cue(upstream: ScriptedUpstream) -> AsyncIterator[Cuebook]:
    settings = {"upstream.shadow": True, "upstream.url": "http://127.0.0.1:9/v1", "store.url": ":memory:"}
    async with Cuebook.open(build(arguments=settings), upstream=upstream) as opened:
        yield opened


async def asks(cue: Cuebook, given: Any, **fields: Any) -> None:
    body = json.dumps({"model": "gpt-5.2", "input": given, **fields}).encode()
    request = RelayRequest(method="POST", path="/responses", headers={}, body=body, verbatim=True)
    pieces = [piece async for piece in cue.pass_through(request, RelayCall(body=body, headers={}))]
    assert isinstance(pieces[0], Head)
    await cue.settle()


async def kept(cue: Cuebook) -> list[tuple[str, str]]:
    [found] = (await cue.conversations.list()).items
    return [(post.role, post.message or "") for post in await cue.conversations.posts(found.id)]


async def test_an_answer_continued_by_its_id_is_one_conversation_and_its_whole_prompt_is_reckoned(
    cue: Cuebook, upstream: ScriptedUpstream
) -> None:
    upstream.say(whole("resp_a", text("Arr.")), streamed("resp_b", "At |9:45."))
    await asks(cue, "The ferry leaves at 9:45.", instructions=RULES)
    await asks(cue, "When?", instructions=RULES, previous_response_id="resp_a", stream=True)
    said = [("user", "The ferry leaves at 9:45."), ("assistant", "Arr."), ("user", "When?"), ("assistant", "At 9:45.")]
    assert await kept(cue) == said
    report = await cue.shadow.report()
    assert (report.calls, report.lost) == (2, {})
    [found] = (await cue.conversations.list()).items
    entry = (await cue.turns.get(found.id, 2)).metadata["shadow"]["1"]
    assert entry["clientTokens"] == entry["windowTokens"]
    step = (await cue.turns.get(found.id, 2)).steps[0]
    assert (step.usage.input, step.usage.cache_read, step.usage.output) == (20, 16, 5)


async def test_a_resent_input_with_a_call_and_its_output_is_one_turn_of_two_steps(
    cue: Cuebook, upstream: ScriptedUpstream
) -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    upstream.say(whole("resp_a", reasoning, calling()), whole("resp_b", text("Seen.")))
    asked = {"role": "user", "content": "Look."}
    await asks(cue, [asked], tools=[TOOL])
    output = {"type": "function_call_output", "call_id": "c1", "output": "a ferry"}
    await asks(cue, [asked, reasoning, calling(), output], tools=[TOOL])
    [found] = (await cue.conversations.list()).items
    turn = await cue.turns.get(found.id, 1)
    assert (turn.state, len(turn.steps)) == ("finished", 2)
    assert [role for role, _ in await kept(cue)] == ["user", "assistant", "tool", "assistant"]


async def test_what_broke_off_is_kept_as_far_as_it_came_and_what_failed_as_failed(
    cue: Cuebook, upstream: ScriptedUpstream
) -> None:
    failed = {"status": "failed", "error": {"code": "server_error", "message": "out of luck"}}
    upstream.say(streamed("resp_a", "Half |a", ends=False), whole("resp_b", **failed))
    await asks(cue, "Tell me.", stream=True)
    assert [message for _, message in await kept(cue)] == ["Tell me.", "Half a"]
    await asks(cue, [{"role": "user", "content": "Other."}])
    turns = [await cue.turns.get(each.id, 1) for each in (await cue.conversations.list()).items]
    assert sorted(turn.state for turn in turns) == ["failed", "interrupted"]


async def test_what_only_its_provider_knows_passes_and_is_counted(cue: Cuebook, upstream: ScriptedUpstream) -> None:
    upstream.say(*(whole(f"resp_{n}", text("Yes.")) for n in range(4)))
    await asks(cue, "Who?", previous_response_id="resp_of_last_week")
    await asks(cue, "Who?", conversation="conv_1")
    await asks(cue, "Who?", tools=[{"type": "web_search"}])
    await asks(cue, "Who?")
    assert (await cue.shadow.report()).lost == {"unreadable": 3}
