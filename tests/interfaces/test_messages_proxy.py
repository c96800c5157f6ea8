"""Tests of the managed window on the Anthropic Messages API: restored history, budget and cache markers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from messages_upstream import CALLS, THINKING
from test_messages import MARK, REMINDER, TOOLS, conversations, run_tool_round, show, user
from upstream import Upstream

from conftest import Live
from cuebook.app.setup.project_files import load_config
from cuebook.config import Config

PERSONA = {"id": "pilot", "name": "Pilot", "baseSystemPrompt": "You are Pilot.", "model": "claude-opus-5"}
RECALLED = "Recalled for the message above"


@pytest.fixture
def cue(tmp_path: Path, upstream: Upstream, serve_live: Callable[..., Live]) -> Callable[..., Live]:
    (tmp_path / "personas").mkdir()
    (tmp_path / "personas/pilot.json").write_text(json.dumps(PERSONA))
    (tmp_path / "cuebook.toml").write_text("")

    def start_server(**more: Any) -> Live:
        given = {"upstream.url": upstream.url, "upstream.breakpoints": "on", "work.interval_s": 0.05}
        settings: Config = load_config(
            tmp_path, arguments=given | {name.replace("__", "."): value for name, value in more.items()}
        )
        return serve_live(settings)

    return start_server


def roles(fields: dict[str, Any]) -> list[str]:
    return [message["role"] for message in fields["messages"]]


def texts(message: dict[str, Any]) -> str:
    return json.dumps(message, ensure_ascii=False)


def marked_blocks(fields: dict[str, Any]) -> list[str]:
    """Return the text or type of each block with a cache marker."""
    blocks = [*fields.get("tools", []), *(fields["system"] if isinstance(fields.get("system"), list) else [])]
    for message in fields["messages"]:
        blocks += message["content"] if isinstance(message["content"], list) else []
    return [block.get("text") or block["type"] for block in blocks if "cache_control" in block]


def test_messages_that_the_client_left_out_stay_away(
    cue: Callable[..., Live], upstream: Upstream, anthropic_of: Callable[..., anthropic.Anthropic]
) -> None:
    live = cue()
    client = anthropic_of(live, "/c/trip")
    history = run_tool_round(client, stream=False, thinking=True, model="pilot", system="Be brief.")
    assert upstream.last.fields["model"] == "claude-opus-5"
    client.messages.create(
        model="pilot", max_tokens=9, system="Be brief.", messages=[history[-1], user([{"type": "text", "text": "Ta."}])]
    )
    sent = upstream.last.fields
    assert [block["text"] for block in sent["system"]] == ["Be brief.", "You are Pilot."]
    assert [message["role"] for message in sent["messages"]] == ["assistant", "user"]
    reply, query = (message["content"] for message in sent["messages"])
    assert (reply, query[0]["text"]) == (history[-1]["content"], "Ta.")
    assert marked_blocks(sent) == ["You are Pilot.", "Ta."]


def test_server_history_restores_thinking_blocks(
    cue: Callable[..., Live], upstream: Upstream, anthropic_of: Callable[..., anthropic.Anthropic]
) -> None:
    client = anthropic_of(cue(), "/c/trip", default_headers={"X-History": "server"})
    body: dict[str, Any] = {"model": "claude-opus-5", "max_tokens": 9, "tools": TOOLS}
    thinks: Any = {"type": "enabled", "budget_tokens": 1024}
    client.messages.create(messages=[user("Weather?")], thinking=thinks, **body)
    results: Any = [{"type": "tool_result", "tool_use_id": f"toolu_{each}", "content": "Rain."} for each in "ab"]
    client.messages.create(messages=[user([*results, REMINDER])], thinking=thinks, **body)
    sent = upstream.last.fields["messages"]
    assert [block["type"] for block in sent[1]["content"]] == [
        "thinking", "redacted_thinking", "text", "tool_use", "tool_use",
    ]  # fmt: skip
    assert sent[1]["content"][0] == THINKING
    assert sent[2]["content"][-1] == REMINDER | MARK


def test_long_history_is_cut_to_the_budget(
    cue: Callable[..., Live], upstream: Upstream, anthropic_of: Callable[..., anthropic.Anthropic]
) -> None:
    live = cue(budget__context=7500, budget__reply=1000, budget__system=500, budget__memory=600, memory__user=True)
    client = anthropic_of(live)
    options: dict[str, Any] = {"model": "claude-opus-5", "max_tokens": 9}
    history: list[Any] = [user("The ferry to Vlieland leaves at 9:45 on Friday."), _assistant("Noted.")]
    for n in range(60):
        use = {"type": "tool_use", "id": f"t{n}", "name": "read", "input": {"file": f"{n}.txt"}}
        thought = {"type": "thinking", "thinking": f"I read {n}.", "signature": "c2ln"}
        result = {"type": "tool_result", "tool_use_id": f"t{n}", "content": f"Line {n} of a file. " * 30}
        history += [_assistant("Read."), user(f"Read file {n}.")] if n % 20 == 0 else []
        history += [{"role": "assistant", "content": [thought, use]}, user([result])]
    history += [_assistant("All read."), user("When does the ferry to Vlieland leave?")]
    client.messages.create(messages=history[:-2], **options)
    live.ask_cue(live.cue.settle)
    history[-2]["content"] = "Grüße, 125 messages."
    before = len(upstream.last.body)
    assert before < len(json.dumps(history)) / 2
    _check_valid(upstream.last.fields)
    client.messages.create(messages=history, **options)
    sent = upstream.last.fields
    _check_valid(sent)
    query = sent["messages"][-1]["content"]
    assert query[0]["text"] == "When does the ferry to Vlieland leave?"
    assert RECALLED in query[1]["text"]
    assert "9:45" in query[1]["text"]
    assert marked_blocks(sent)[-1] == query[0]["text"]  # never after recalled text
    assert len(marked_blocks(sent)) <= 4
    [conversation] = conversations(live)
    blocks = show(live, conversation.id, conversation.turns)["window"]["blocks"]
    assert "summary" in [block["kind"] for block in blocks]


def _assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _check_valid(fields: dict[str, Any]) -> None:
    """Check that the provider accepts a request."""
    assert roles(fields)[0] == "user"
    assert all(one != other for one, other in zip(roles(fields), roles(fields)[1:], strict=False))
    called: list[str] = []
    for message in fields["messages"]:
        content = message["content"] if isinstance(message["content"], list) else []
        results = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
        assert results == called, "The next message must answer each call and nothing else."
        called = [block["id"] for block in content if block["type"] == "tool_use"]
        for block in content:
            assert block["type"] != "text" or block["text"].strip()
            assert "cache_control" not in block or block["type"] not in ("thinking", "redacted_thinking")
    assert not called


def test_client_markers_are_kept_and_none_are_added(cue: Callable[..., Live], upstream: Upstream) -> None:
    live = cue()
    body = json.dumps({
        "model": "m", "max_tokens": 9, "top_k": 1.50,
        "messages": [user([{"type": "text", "text": "Hi", **MARK}]), _assistant("Hello."), user("  How are you? ")],
    }).encode()  # fmt: skip
    httpx.post(f"{live.url}/v1/messages", content=body)
    sent, original = upstream.last.body, json.loads(body)
    assert json.loads(sent)["messages"] == original["messages"]
    assert list(json.loads(sent)) == list(original)
    assert sent.count(b"cache_control") == 1
    assert json.dumps(original["messages"][0]).encode() in sent  # every byte is unchanged


def test_system_message_in_the_history_keeps_a_valid_position(
    cue: Callable[..., Live], upstream: Upstream, anthropic_of: Callable[..., anthropic.Anthropic]
) -> None:
    """Claude Code sends its agents and skills this way, after user text and after tool results."""
    live = cue(upstream__breakpoints="off")
    client = anthropic_of(live, "/c/trip")
    agents: Any = {"role": "system", "content": "Agent types: Explore, Plan."}
    skills: Any = {"role": "system", "content": [{"type": "text", "text": "Skills: none."}]}
    history: list[Any] = [user("Weather in Oslo?"), agents]
    body: dict[str, Any] = {"model": "claude-opus-5", "max_tokens": 9}
    calls = client.messages.create(messages=history, tools=TOOLS, **body)
    history.append({"role": "assistant", "content": [block.to_dict() for block in calls.content]})
    results: Any = [{"type": "tool_result", "tool_use_id": call["id"], "content": "Rain."} for call in CALLS]
    history += [user(results), skills]
    last = client.messages.create(messages=history, tools=TOOLS, **body)
    assert upstream.last.fields["messages"] == history
    [turn] = [show(live, result.id, result.turns) for result in conversations(live)]
    assert (turn["turn"], turn["query"], len(turn["steps"])) == (1, "Weather in Oslo?", 2)
    history += [{"role": "assistant", "content": last.content[0].text}]
    client.messages.create(messages=[*history, user("And now?"), agents], **body)
    assert upstream.last.fields["messages"] == [*history, user("And now?"), agents]
    client.messages.create(messages=[history[-1], user("Thanks.")], **body)
    assert upstream.last.fields["messages"] == [history[-1], user("Thanks.")]


def test_empty_message_is_forwarded_to_the_provider(cue: Callable[..., Live], upstream: Upstream) -> None:
    live = cue()
    messages = [user("Hi"), _assistant("Hello."), user([])]
    httpx.post(f"{live.url}/v1/messages", json={"model": "m", "max_tokens": 9, "messages": messages})
    sent = upstream.last.fields["messages"]
    assert (len(sent), sent[1:]) == (3, messages[1:])


def test_errors_have_the_anthropic_format(
    cue: Callable[..., Live], anthropic_of: Callable[..., anthropic.Anthropic]
) -> None:
    live = cue()
    with pytest.raises(anthropic.BadRequestError, match="X-History") as refused:
        anthropic_of(live).messages.create(
            model="m", max_tokens=9, messages=[user("Hi")], extra_headers={"X-History": "mine"}
        )
    assert refused.value.body == {
        "type": "error",
        "error": {
            "type": "invalid_request_error", "message": "X-History: unknown value 'mine'. Available: client, server.",
        },
    }  # fmt: skip
