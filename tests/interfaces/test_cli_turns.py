"""Tests of `cuebook turn show`: it accounts for every token and every post of a prompt."""

import json
import re
from typing import Any

import pytest
from commands import CommandRunner

from cuebook import Ask, Cuebook
from cuebook.app.setup.project_files import load_config
from cuebook.engine.proxy.request import RelayCall
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from cuebook.wire.responses_requests import AnswerId, write_id
from scripted_answers import call, completion, result

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}


async def relay(here: CommandRunner, messages: list[dict[str, Any]], *answers: HttpReply, **fields: Any) -> None:
    """Send one request per scripted answer, as an OpenAI client that keeps its own history."""
    upstream = ScriptedUpstream(*answers)
    config = load_config(here.folder, environment={})
    async with Cuebook.open(config, upstream=upstream, worker=False) as cue:
        for answer in answers:
            body = json.dumps({"model": "m", "messages": messages, **fields}).encode()
            async for _ in cue.relay(RelayCall(body=body, headers={}, conversation="c1")):
                pass
            reply_message = json.loads(b"".join(answer.pieces))["choices"][0]["message"]
            messages.append(reply_message)
            messages += [result(each["id"]) for each in reply_message.get("tool_calls", ())]


async def test_token_counts_add_up_with_tools_and_response_format(
    here: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = {"role": "system", "content": "Be brief."}
    messages = [system, {"role": "user", "content": "Look for apples."}]
    await relay(here, messages, completion("None."), tools=TOOLS, response_format=FORMAT)
    window = here.json("turn", "show", "c1", "1")["window"]
    assert window["toolsTokens"] > 20
    assert sum(block["tokens"] for block in window["blocks"]) + window["toolsTokens"] == window["tokens"]
    monkeypatch.setenv("COLUMNS", "120")
    output = here("turn", "show", "c1", "1")
    rows = re.findall(r"^ *\d* +(\w+) .*? ([\d,]+) +\S* +\d+%", output, re.MULTILINE)
    assert "tools" in dict(rows)
    assert sum(int(tokens.replace(",", "")) for _, tokens in rows) == window["tokens"]


async def test_request_without_tools_has_no_tools_row(here: CommandRunner) -> None:
    await relay(here, [{"role": "user", "content": "Hello"}], completion("Hi."))
    assert here.json("turn", "show", "c1", "1")["window"]["toolsTokens"] == 0
    assert "answer format" not in here("turn", "show", "c1", "1")


async def test_a_turn_is_named_by_number_latest_or_post(here: CommandRunner) -> None:
    messages = [{"role": "user", "content": "Look twice."}]
    await relay(here, messages, completion("", calls=[call("1")]), completion("Done."), tools=TOOLS)
    messages.append({"role": "user", "content": "Thanks."})
    await relay(here, messages, completion("Welcome."))
    ids = [each["id"] for each in here.json("conversation", "show", "c1")["posts"]]
    assert len(ids) == 6
    for name, turn in (("latest", 2), ("2", 2), *((id_, 1) for id_ in ids[:4]), (f"post:{ids[5]}", 2)):
        assert here.json("turn", "show", "c1", name)["turn"] == turn, name
    response = write_id(AnswerId("c1", 2, 1))
    assert here.json("turn", "show", "c1", response)["turn"] == 2
    assert here.json("turn", "replay", "c1", ids[4])["verdict"] == "identical"
    assert "Unknown turn 'x' of conversation 'c1'. Use a number, 'latest', or the ID" in here(
        "turn", "show", "c1", "x", code=1
    )


def _messages(first: int, count: int) -> list[dict[str, str]]:
    return [
        {"role": "user" if n % 2 else "assistant", "content": f"We decided to paint wall {n} blue."}
        for n in range(first, first + count)
    ]


@pytest.mark.slow
async def test_every_post_is_shown_summarized_or_left_out(here: CommandRunner) -> None:
    config = load_config(here.folder, environment={})
    async with Cuebook.open(config, worker=False) as cue:
        await cue.append("c1", _messages(1, 41))
        await cue.settle()
        [*_] = [chunk async for chunk in cue.stream(Ask("And wall 7?", "c1"))]
        await cue.conversations.move_head("c1", (await cue.conversations.posts("c1"))[-4].id)
        await cue.append("c1", _messages(51, 69))
        await cue.settle()
        [*_] = [chunk async for chunk in cue.stream(Ask("And wall 60?", "c1"))]
    for turn, branches in ((1, False), (2, True)):
        window = here.json("turn", "show", "c1", str(turn))["window"]
        covered = {n for each in window["covered"] for n in range(each["from"], each["to"] + 1)}
        assert len(covered) == sum(each["count"] for each in window["covered"]) > 20
        shown = sum(block["kind"] in ("post", "query") for block in window["blocks"])
        left_out = sum(each["count"] for each in window["dropped"] if each["kind"] == "post")
        there = here.json("conversation", "show", "c1")["posts"] if branches else range(41 + 2)
        assert len(covered) + shown + left_out == len(there) - 1  # the answer is stored after the prompt
        assert len(window["covered"]) == 1 + branches
    first = here.json("turn", "show", "c1", "1")["window"]["covered"][0]
    assert f"posts 1–{first['to']}: in the summary\n" in here("turn", "show", "c1", "1")


async def test_reported_cache_use_replaces_the_simulation(here: CommandRunner) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 0}}
    await relay(here, [{"role": "user", "content": "Look."}], completion("There.", usage=usage))
    cache = here.json("turn", "show", "c1", "1")["window"]["cache"]
    assert cache == {"readTokens": 0, "writeTokens": 0, "simulated": False}


@pytest.mark.slow
async def test_each_step_shows_its_own_cache_use(here: CommandRunner) -> None:
    usage = {"prompt_tokens": 90, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}}
    messages = [{"role": "user", "content": "Look twice."}]
    answers = [completion("", calls=[call("1")]), completion("", calls=[call("2")], usage=usage), completion("Two.")]
    await relay(here, messages, *answers, tools=TOOLS)
    windows = [here.json("turn", "show", "c1", "1", "--step", str(step))["window"] for step in (1, 2, 3)]
    assert windows[0]["cache"] == {}
    assert windows[1]["cache"] == {"readTokens": 64, "writeTokens": 0, "simulated": False}
    assert windows[2]["cache"]["simulated"] is True
    assert windows[2]["cache"] == here.json("turn", "show", "c1", "1")["window"]["cache"]
    assert "cache (" not in here("turn", "show", "c1", "1", "--step", "1")
    assert "cache (reported, provider): 64 tokens read" in here("turn", "show", "c1", "1", "--step", "2")
    assert "turn 1 of c1 · step 2 of 3 ·" in here("turn", "show", "c1", "1", "--step", "2")
