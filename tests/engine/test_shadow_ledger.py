"""Tests of the shadow ledger: tokens, cost and missing information of both prompts."""

import json
from pathlib import Path
from typing import Any

import pytest

from cuebook import Cuebook
from cuebook.app.cuebook import RelayCall, RelayRequest
from cuebook.app.reports.prices import load_prices, money
from cuebook.app.reports.shadow import ShadowReport
from cuebook.config import build
from cuebook.engine.proxy.shadow_ledger import broken_pairs
from cuebook.errors import InvalidInput, NotFound, UpstreamError
from cuebook.records.memory import Scope
from cuebook.records.turn import CacheEstimate
from cuebook.testing.upstream import HttpReply, ScriptedUpstream
from scripted_answers import call, completion, result

USAGE = {"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 400}}
LONG = "The quarterly report of the harbour lists every ship that came in, and what it carried. " * 8


def shadowing(*answers: HttpReply, **more: Any) -> Cuebook:
    settings = {"upstream.shadow": True, "upstream.url": "http://127.0.0.1:9/v1", "store.url": ":memory:"}
    upstream = ScriptedUpstream(*answers, default=completion("Noted.", usage=USAGE))
    return Cuebook.open(build(arguments=settings | {"memory.profile": "off"} | more), upstream=upstream)


async def send(cue: Cuebook, messages: list[Any], model: str = "gpt-4.1", conversation: str = "talk") -> None:
    body = json.dumps({"model": model, "messages": messages}).encode()
    request = RelayRequest(method="POST", path="/chat/completions", headers={}, body=body, verbatim=True)
    call = RelayCall(body=body, headers={}, conversation=conversation)
    assert [piece async for piece in cue.pass_through(request, call)]
    await cue.settle()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


NOTED = {"role": "assistant", "content": "Noted."}


async def run_rounds(cue: Cuebook, rounds: int, *, sends: int, text: str = LONG) -> ShadowReport:
    """Run several rounds with a client that sends only its newest messages."""
    history: list[Any] = []
    for n in range(rounds):
        history.append(user(f"{n}: {text}"))
        await send(cue, history[-sends:])
        history.append(NOTED)
    return await cue.shadow.report()


async def test_complete_prompts_lose_nothing_and_have_equal_tokens() -> None:
    async with shadowing() as cue:
        report = await run_rounds(cue, 4, sends=100)
    assert (report.calls, report.conversations, report.posts) == (4, 1, 6)
    assert (report.neither, report.client_alone, report.window_alone, report.condensed) == (0, 0, 0, 0)
    assert report.client_tokens == pytest.approx(report.window_tokens, rel=0.02)
    assert (report.reported_calls, report.reported_tokens, report.reported_cached) == (4, 4000, 1600)


async def test_messages_that_the_client_trimmed_are_in_neither_prompt() -> None:
    async with shadowing() as cue:
        report = await run_rounds(cue, 6, sends=3)
    assert (report.posts, report.window_alone, report.neither) == (10, 0, 8)
    assert report.window_tokens == report.client_tokens


async def test_information_missing_in_both_prompts_is_counted_and_shown() -> None:
    async with shadowing(**{"budget.context": 1500, "budget.reply": 500, "memory.recall": False}) as cue:
        report = await run_rounds(cue, 12, sends=3)
    assert 0 < report.neither < report.posts
    assert {each.why for each in report.examples} == {"gone"}
    assert all(each.text for each in report.examples)


async def test_information_missing_only_in_our_prompt_is_reported() -> None:
    async with shadowing(**{"budget.context": 1500, "budget.reply": 500, "memory.recall": False}) as cue:
        report = await run_rounds(cue, 12, sends=100)
    assert report.neither == 0
    assert report.client_alone > 0
    assert report.window_tokens < report.client_tokens


async def test_a_post_shortened_by_the_client_is_counted_once() -> None:
    async with shadowing() as cue:
        await send(cue, [user("Begin."), NOTED, user(LONG)])
        cut = user(LONG[:100] + "…")
        await send(cue, [user("Begin."), NOTED, cut, NOTED, user("And now?")])
        await send(cue, [user("Begin."), NOTED, cut, NOTED, user("And now?"), NOTED, user("Then?")])
        report = await cue.shadow.report()
    assert report.truncated == 1
    [example] = report.examples
    assert (example.why, example.seq, example.text) == ("cut short", 3, LONG[:200])


CALLING = {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]}


@pytest.mark.parametrize(
    ("messages", "broken"),
    [
        ([user("hi"), CALLING, result("a"), result("b"), NOTED], 0),
        ([user("hi"), CALLING], 0),  # the results follow later
        ([result("a"), result("b"), NOTED, user("hi")], 2),
        ([user("hi"), CALLING, result("a"), user("go on")], 1),
        ([user("hi"), CALLING, user("go on")], 2),
        ([user("hi"), {"role": "assistant", "tool_calls": "odd"}, {"role": "tool"}], 0),
    ],
)
def test_tool_pairs_broken_by_trimming_are_counted(messages: list[Any], broken: int) -> None:
    assert broken_pairs(messages) == broken


async def test_costs_follow_the_cache_rule_and_the_models_price() -> None:
    async with shadowing() as cue:
        await run_rounds(cue, 12, sends=100, text=LONG * 2)
        [entry, *_] = [each.entry for each in (await cue.services.store.talks.shadow_calls(Scope(), "talk"))[-1:]]
        report = await cue.shadow.report()
    assert entry.rule == "openai-prefix"
    assert entry.client is not None
    assert entry.client.read >= 1024
    [cost] = report.models
    assert cost.client_cost is not None
    assert 0 < cost.client_cost < report.client_tokens * 2.0 / 1e6  # a part was read from the cache
    assert cost.reported_cost == pytest.approx(12 * (600 * 2.0 + 400 * 0.5) / 1e6)
    assert cost.output_cost == pytest.approx(12 * 10 * 8.0 / 1e6)


async def test_refused_requests_cost_nothing_and_are_not_cached() -> None:
    async with shadowing(HttpReply(status=429, pieces=(b'{"error": {}}',))) as cue:
        await send(cue, [user(LONG * 20)])
        await send(cue, [user(LONG * 20)])
        report = await cue.shadow.report()
        assert (report.calls, report.refused_calls, len(await cue.shadow.calls())) == (1, 1, 1)
        assert report.client_read == 0, "its prompt was not cached"


async def test_a_call_that_the_upstream_never_answered_is_only_counted() -> None:
    async with shadowing(HttpReply(error=UpstreamError("unreachable"))) as cue:
        with pytest.raises(UpstreamError):
            await send(cue, [user(LONG * 20)])
        await cue.settle()
        report = await cue.shadow.report()
        assert (report.calls, report.unanswered_calls, report.refused_calls) == (0, 1, 0)
        assert (report.client_tokens, report.window_tokens, report.models, await cue.shadow.calls()) == (0, 0, [], [])
        await send(cue, [user(LONG * 20)])
        report = await cue.shadow.report()
        assert (report.calls, report.unanswered_calls, report.client_read) == (1, 1, 0), "its prompt was not cached"


async def test_a_model_without_a_price_is_reported_in_tokens_only() -> None:
    async with shadowing() as cue:
        await send(cue, [user("hi")], model="nobodys-model")
        [cost] = (await cue.shadow.report()).models
    assert (cost.currency, cost.client_cost, cost.window_cost, cost.output_cost) == (None, None, None, None)
    assert cost.client_tokens > 0


@pytest.mark.parametrize(
    ("costs", "text"),
    [
        ({"USD": 12.345}, "$12.35"),
        ({"USD": 0.034}, "$0.034"),
        ({"USD": 0.0000345}, "$0.000034"),
        ({"EUR": 0.5, "USD": 1234.0}, "0.50 EUR + $1,234.00"),
        ({"USD": 3e-8}, "<$0.0000010"),
        ({"USD": 0.0}, "$0.00"),
    ],
)
def test_costs_are_shown_with_significant_digits(costs: dict[str, float], text: str) -> None:
    assert money(costs) == text


def test_project_prices_override_the_built_in_ones(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    file = tmp_path / "config" / "prices.json"
    file.write_text('{"prices": {"gpt-4.1*": {"input": 1, "cachedInput": 0.5, "output": 2, "currency": "EUR"}}}')
    prices = load_prices(build(folder=str(tmp_path)))
    custom, shipped = prices.of("openai/gpt-4.1-2025-04-14"), prices.of("gpt-4o-mini-2024-07-18")
    assert custom is not None
    assert shipped is not None
    assert (custom.currency, custom.of(CacheEstimate(1_000_000, 1_000_000, 1_000_000), write=1.25)) == ("EUR", 2.75)
    assert shipped.input == 0.15
    tiered = prices.of("claude-haiku-5-5-20261007")
    assert tiered is not None
    assert tiered.of(CacheEstimate(90_000, 10_000), write=1.0) == pytest.approx(0.0091)
    assert tiered.of(CacheEstimate(90_000, 10_001), write=1.0) == pytest.approx(0.0455, rel=1e-3), "the whole request"
    assert tiered.of_output(1_000_000, CacheEstimate(200_000)) == 2.5
    assert prices.of("gpt-9") is None
    file.write_text('{"prices": {"a": {"input": "much"}}}')
    with pytest.raises(InvalidInput, match=r"config/prices.json"):
        load_prices(build(folder=str(tmp_path)))


async def test_forgotten_turns_leave_the_ledger() -> None:
    async with shadowing() as cue:
        await send(cue, [user("hi")])
        await send(cue, [user("ho")], conversation="other")
        assert (await cue.shadow.report("talk")).calls == 1
        await cue.conversations.delete("talk")
        assert (await cue.shadow.report()).calls == 1
        with pytest.raises(NotFound):
            await cue.shadow.report("talk")
