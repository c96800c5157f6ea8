"""Tests of shadow mode on OpenAI's Responses API: it stores the same turns as chat completions."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cuebook import Cuebook
from cuebook.app.cuebook import Head, RelayCall, RelayRequest
from cuebook.config import build
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import output_text, response, streamed_response

RULES = "Speak like a pirate."
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}


def function_call() -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{}"}


@pytest.fixture
def upstream() -> ScriptedUpstream:
    return ScriptedUpstream()


@pytest.fixture
async def cue(upstream: ScriptedUpstream) -> AsyncIterator[Cuebook]:
    settings = {"upstream.shadow": True, "upstream.url": "http://127.0.0.1:9/v1", "store.url": ":memory:"}
    async with Cuebook.open(build(arguments=settings), upstream=upstream) as handle:
        yield handle


async def send(cue: Cuebook, items: Any, *, path: str = "/responses", **fields: Any) -> None:
    body = json.dumps({"model": "gpt-5.2", "input": items, **fields}).encode()
    request = RelayRequest(method="POST", path=path, headers={}, body=body, verbatim=True)
    pieces = [piece async for piece in cue.pass_through(request, RelayCall(body=body, headers={}))]
    assert isinstance(pieces[0], Head)
    await cue.settle()


async def stored_messages(cue: Cuebook) -> list[tuple[str, str]]:
    [conversation] = (await cue.conversations.list()).items
    return [(post.role, post.message or "") for post in await cue.conversations.posts(conversation.id)]


async def test_answers_continued_by_id_form_one_conversation_with_full_token_counts(
    cue: Cuebook, upstream: ScriptedUpstream
) -> None:
    upstream.say(response("resp_a", output_text("Arr.")), streamed_response("resp_b", output_text("At 9:45.")))
    await send(cue, "The ferry leaves at 9:45.", instructions=RULES)
    await send(cue, "When?", instructions=RULES, previous_response_id="resp_a", stream=True)
    expected = [
        ("user", "The ferry leaves at 9:45."),
        ("assistant", "Arr."),
        ("user", "When?"),
        ("assistant", "At 9:45."),
    ]
    assert await stored_messages(cue) == expected
    report = await cue.shadow.report()
    assert (report.calls, report.lost) == (2, {})
    [conversation] = (await cue.conversations.list()).items
    entry = (await cue.turns.get(conversation.id, 2)).metadata["shadow"]["1"]
    assert entry["clientTokens"] == entry["windowTokens"]
    step = (await cue.turns.get(conversation.id, 2)).steps[0]
    assert (step.usage.input, step.usage.cache_read, step.usage.output) == (20, 16, 5)


async def test_a_resent_input_with_call_and_output_is_one_turn(cue: Cuebook, upstream: ScriptedUpstream) -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    upstream.say(response("resp_a", reasoning, function_call()), response("resp_b", output_text("Seen.")))
    query = {"role": "user", "content": "Look."}
    await send(cue, [query], tools=[TOOL])
    output = {"type": "function_call_output", "call_id": "c1", "output": "a ferry"}
    await send(cue, [query, reasoning, function_call(), output], tools=[TOOL])
    [conversation] = (await cue.conversations.list()).items
    turn = await cue.turns.get(conversation.id, 1)
    assert (turn.state, len(turn.steps)) == ("finished", 2)
    assert [role for role, _ in await stored_messages(cue)] == ["user", "assistant", "tool", "assistant"]


async def test_interrupted_answers_are_stored_partially_and_failed_ones_as_failed(
    cue: Cuebook, upstream: ScriptedUpstream
) -> None:
    failed = {"status": "failed", "error": {"code": "server_error", "message": "out of luck"}}
    upstream.say(streamed_response("resp_a", output_text("Half a"), done=False), response("resp_b", **failed))
    await send(cue, "Tell me.", stream=True)
    assert [message for _, message in await stored_messages(cue)] == ["Tell me.", "Half a"]
    await send(cue, [{"role": "user", "content": "Other."}])
    turns = [await cue.turns.get(each.id, 1) for each in (await cue.conversations.list()).items]
    assert sorted(turn.state for turn in turns) == ["failed", "interrupted"]


async def test_a_compaction_is_recorded_in_its_conversation(cue: Cuebook, upstream: ScriptedUpstream) -> None:
    query, item = {"role": "user", "content": "Who?"}, {"type": "compaction", "id": "c", "encrypted_content": "Y21w"}
    upstream.say(response("resp_a", output_text("Ann.")), response("resp_b", query, item), response("resp_c"))
    await send(cue, [query])
    await send(cue, [query, output_text("Ann.")], path="/responses/compact")
    await send(cue, [query, item, {"role": "user", "content": "And?"}])
    assert [role for role, _ in await stored_messages(cue)] == ["user", "assistant", "assistant", "user"]


async def test_state_held_by_the_provider_passes_and_is_counted(cue: Cuebook, upstream: ScriptedUpstream) -> None:
    upstream.say(*(response(f"resp_{n}", output_text("Yes.")) for n in range(3)))
    await send(cue, "Who?", previous_response_id="resp_of_last_week")
    await send(cue, "Who?", conversation="conv_1")
    await send(cue, "Who?", tools=[{"type": "web_search"}])
    assert (await cue.shadow.report()).lost == {"unreadable": 2}
