"""The ledger of shadow mode: tokens, cost, and what either prompt lacks, on conversations whose answers are known."""

import json
from pathlib import Path
from typing import Any

import pytest

from cuebook import Cuebook
from cuebook.app.cuebook import RelayCall, RelayRequest
from cuebook.app.reports.prices import load_prices
from cuebook.app.reports.shadow import ShadowReport
from cuebook.config import build
from cuebook.engine.proxy.shadow_ledger import parted
from cuebook.errors import InvalidInput, NotFound
from cuebook.records.memory import Scope
from cuebook.records.usage import Reckoned
from cuebook.testing.upstream import Answer, ScriptedUpstream, call, completion, result

USAGE = {"prompt_tokens": 1000, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 400}}
LONG = "The quarterly report of the harbour lists every ship that came in, and what it carried. " * 8


def shadowing(*answers: Answer, **more: Any) -> Cuebook:
    settings = {"upstream.shadow": True, "upstream.url": "http://127.0.0.1:9/v1", "store.url": ":memory:"}
    upstream = ScriptedUpstream(*answers, default=completion("Noted.", usage=USAGE))
    return Cuebook.open(build(arguments=settings | {"memory.profile": "off"} | more), upstream=upstream)


async def says(cue: Cuebook, messages: list[Any], model: str = "gpt-4.1", conversation: str = "talk") -> None:
    body = json.dumps({"model": model, "messages": messages}).encode()
    request = RelayRequest(method="POST", path="/chat/completions", headers={}, body=body, verbatim=True)
    kept = RelayCall(body=body, headers={}, conversation=conversation)
    assert [piece async for piece in cue.pass_through(request, kept)]
    await cue.settle()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


NOTED = {"role": "assistant", "content": "Noted."}


async def talks(cue: Cuebook, rounds: int, *, sends: int, text: str = LONG) -> ShadowReport:
    """Talk for some rounds with a client that sends its newest messages alone."""
    history: list[Any] = []
    for n in range(rounds):
        history.append(user(f"{n}: {text}"))
        await says(cue, history[-sends:])
        history.append(NOTED)
    return await cue.shadow.report()


async def test_where_both_hold_all_nothing_is_lost_and_the_tokens_are_the_same() -> None:
    async with shadowing() as cue:
        found = await talks(cue, 4, sends=100)
    assert (found.calls, found.conversations, found.posts) == (4, 1, 6)
    assert (found.neither, found.client_alone, found.window_alone, found.condensed) == (0, 0, 0, 0)
    assert found.client_tokens == pytest.approx(found.window_tokens, rel=0.02)
    assert (found.reported_calls, found.reported_tokens, found.reported_cached) == (4, 4000, 1600)


async def test_what_a_client_trims_stands_in_ours_while_the_budget_holds_it() -> None:
    async with shadowing() as cue:
        found = await talks(cue, 6, sends=3)
    assert (found.posts, found.window_alone, found.neither) == (10, 8, 0)
    assert found.window_tokens > found.client_tokens


async def test_what_neither_holds_is_counted_and_shown() -> None:
    async with shadowing(**{"budget.context": 1500, "budget.reply": 500, "memory.recall": False}) as cue:
        found = await talks(cue, 12, sends=3)
    assert 0 < found.neither < found.posts
    assert {each.why for each in found.examples} == {"gone"}
    assert all(each.text for each in found.examples)


async def test_what_ours_leaves_out_and_the_client_sends_is_told_too() -> None:
    async with shadowing(**{"budget.context": 1500, "budget.reply": 500, "memory.recall": False}) as cue:
        found = await talks(cue, 12, sends=100)
    assert found.neither == 0
    assert found.client_alone > 0
    assert found.window_tokens < found.client_tokens


async def test_a_post_the_client_cuts_short_is_counted_once() -> None:
    async with shadowing() as cue:
        await says(cue, [user("Begin."), NOTED, user(LONG)])
        cut = user(LONG[:100] + "…")
        await says(cue, [user("Begin."), NOTED, cut, NOTED, user("And now?")])
        await says(cue, [user("Begin."), NOTED, cut, NOTED, user("And now?"), NOTED, user("Then?")])
        found = await cue.shadow.report()
    assert found.truncated == 1
    [example] = found.examples
    assert (example.why, example.seq, example.text) == ("cut short", 3, LONG[:200])


CALLING = {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]}


@pytest.mark.parametrize(
    ("messages", "broken"),
    [
        ([user("hi"), CALLING, result("a"), result("b"), NOTED], 0),
        ([user("hi"), CALLING], 0),  # the results are yet to come
        ([result("a"), result("b"), NOTED, user("hi")], 2),
        ([user("hi"), CALLING, result("a"), user("go on")], 1),
        ([user("hi"), CALLING, user("go on")], 2),
        ([user("hi"), {"role": "assistant", "tool_calls": "odd"}, {"role": "tool"}], 0),
    ],
)
def test_pairs_that_trimming_broke_are_counted(messages: list[Any], broken: int) -> None:
    assert parted(messages) == broken


async def test_costs_follow_the_caches_rule_and_the_price_of_the_model() -> None:
    async with shadowing() as cue:
        await talks(cue, 12, sends=100, text=LONG * 2)
        [entry, *_] = [each.entry for each in (await cue.desk.store.shadow.calls(Scope(), "talk"))[-1:]]
        found = await cue.shadow.report()
    assert entry.rule == "openai-prefix"
    assert entry.client is not None
    assert entry.client.read >= 1024
    [cost] = found.models
    assert cost.client_cost is not None
    assert 0 < cost.client_cost < found.client_tokens * 2.0 / 1e6  # some of it was read from the cache
    assert cost.reported_cost == pytest.approx(12 * (600 * 2.0 + 400 * 0.5) / 1e6)
    assert cost.output_cost == pytest.approx(12 * 10 * 8.0 / 1e6)


async def test_what_the_upstream_refuses_cost_nothing_and_is_in_no_cache() -> None:
    async with shadowing(Answer(status=429, pieces=(b'{"error": {}}',))) as cue:
        await says(cue, [user(LONG * 20)])
        await says(cue, [user(LONG * 20)])
        found = await cue.shadow.report()
        assert (found.calls, found.refused_calls, len(await cue.shadow.calls())) == (1, 1, 1)
        assert found.client_read == 0, "its prompt was not there before"


async def test_a_model_without_a_price_is_told_in_tokens_alone() -> None:
    async with shadowing() as cue:
        await says(cue, [user("hi")], model="nobodys-model")
        [cost] = (await cue.shadow.report()).models
    assert (cost.currency, cost.client_cost, cost.window_cost, cost.output_cost) == (None, None, None, None)
    assert cost.client_tokens > 0


def test_a_projects_prices_go_before_the_shipped_ones(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    file = tmp_path / "config" / "prices.json"
    file.write_text('{"prices": {"gpt-4.1*": {"input": 1, "cachedInput": 0.5, "output": 2, "currency": "EUR"}}}')
    prices = load_prices(build(folder=str(tmp_path)))
    own, shipped = prices.of("openai/gpt-4.1-2025-04-14"), prices.of("gpt-4o-mini-2024-07-18")
    assert own is not None
    assert shipped is not None
    assert (own.currency, own.of(Reckoned(1_000_000, 1_000_000, 1_000_000), write=1.25)) == ("EUR", 2.75)
    assert shipped.input == 0.15
    tiered = prices.of("claude-haiku-5-5-20261007")
    assert tiered is not None
    assert tiered.of(Reckoned(90_000, 10_000), write=1.0) == pytest.approx(0.0091)
    assert tiered.of(Reckoned(90_000, 10_001), write=1.0) == pytest.approx(0.0455, rel=1e-3), "the whole request"
    assert tiered.of_output(1_000_000, Reckoned(200_000)) == 2.5
    assert prices.of("gpt-9") is None
    file.write_text('{"prices": {"a": {"input": "much"}}}')
    with pytest.raises(InvalidInput, match=r"config/prices.json"):
        load_prices(build(folder=str(tmp_path)))


async def test_what_is_forgotten_is_in_the_ledger_no_more() -> None:
    async with shadowing() as cue:
        await says(cue, [user("hi")])
        await says(cue, [user("ho")], conversation="other")
        assert (await cue.shadow.report("talk")).calls == 1
        await cue.conversations.delete("talk")
        assert (await cue.shadow.report()).calls == 1
        with pytest.raises(NotFound):
            await cue.shadow.report("talk")
