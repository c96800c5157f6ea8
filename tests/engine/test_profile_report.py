"""Tests of the figures of each summarization profile: recorded calls, as each profile would send them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cuebook import Ask, Cuebook
from cuebook.app.cuebook import RelayCall, RelayRequest
from cuebook.app.reports.profiles import ProfileFigures, profile_report
from cuebook.config import build
from cuebook.errors import InvalidInput
from cuebook.records.memory import Hit, Scope
from cuebook.testing import FrozenClock
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import completion

TURNS = 26
ANSWER = "The bed is planted as you said."


def opened(clock: FrozenClock, **settings: Any) -> Cuebook:
    values = {"upstream.url": "https://api.openai.com/v1", "store.url": ":memory:", **settings}
    upstream = ScriptedUpstream(default=completion(ANSWER, model="gpt-5-mini"))
    return Cuebook.open(build(arguments=values), upstream=upstream, clock=clock, worker=False)


async def send(cue: Cuebook, messages: list[Any], *, conversation: str = "garden", **fields: Any) -> None:
    body = json.dumps({"model": "gpt-5-mini", "messages": messages, **fields}).encode()
    call = RelayCall(body=body, headers={}, conversation=conversation)
    request = RelayRequest(method="POST", path="/chat/completions", headers={}, body=body, verbatim=True)
    pieces = cue.pass_through(request, call) if cue.shadows else cue.relay(call)
    assert [piece async for piece in pieces]


async def plant(cue: Cuebook, clock: FrozenClock, turns: int = TURNS, *, times: int = 3, **fields: Any) -> None:
    """Send a growing history, as most clients do. The summaries of each turn are ready before the next."""
    messages: list[Any] = [{"role": "system", "content": "You keep a garden."}]
    for number in range(turns):
        text = f"Bed {number} gets {number + 3} tulips of sort Rembrandt{number * 7}, and Kees{number} waters them. "
        messages.append({"role": "user", "content": text * times})
        await send(cue, messages, **fields)
        messages.append({"role": "assistant", "content": ANSWER})
        await cue.settle()
        clock.advance(120)


async def figures(cue: Cuebook) -> dict[str, ProfileFigures]:
    return {each.profile: each for each in (await cue.shadow.report()).replay.profiles}


async def sent_tokens(cue: Cuebook) -> int:
    return sum(turn.steps[0].manifest.tokens for turn in await cue.services.store.turns(Scope(), "garden", last=TURNS))


@pytest.mark.parametrize("shadow", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_each_profile_has_figures_of_the_same_calls(shadow: bool) -> None:
    clock = FrozenClock()
    async with opened(clock, **{"upstream.shadow": shadow}) as cue:
        await plant(cue, clock)
        found = await figures(cue)
        assert {each.calls for each in found.values()} == {TURNS}
        assert set(found) == {"off", "fit", "standard", "budget"}
        assert found["fit"].tokens == found["fit"].client_tokens == await sent_tokens(cue)
        assert (found["fit"].summarized_messages, found["fit"].recall) == (0, None)
        assert found["standard"].tokens < found["fit"].tokens
        assert found["standard"].summarized_messages > 0
        assert found["standard"].questions
        assert found["standard"].recall is not None
        assert found["fit"].costs["USD"] > 0


@pytest.mark.parametrize(
    "fields", [{}, pytest.param({"model": "gpt-4", "times": 17}, marks=pytest.mark.slow)], ids=["fits", "overflows"]
)
@pytest.mark.slow
async def test_the_figures_are_those_of_a_run_with_the_profile(fields: dict[str, Any]) -> None:
    clock = FrozenClock()
    async with opened(clock) as cue:
        await plant(cue, clock, **fields)
        replayed = (await figures(cue))["standard"]
    clock = FrozenClock()
    async with opened(clock, **{"memory.profile": "standard"}) as cue:
        await plant(cue, clock, **fields)
        assert replayed.tokens == await sent_tokens(cue)
        again = (await figures(cue))["standard"]
        assert (again.tokens, again.costs, again.recall) == (replayed.tokens, replayed.costs, replayed.recall)
        [turn] = await cue.services.store.turns(Scope(), "garden", last=1)
        reasons = {each.reason for each in turn.steps[0].manifest.dropped}
        assert reasons == {"replaced by the summary"}, "the summary is newer than what a small window leaves out"


async def test_a_model_without_a_price_is_named(clock: FrozenClock) -> None:
    async with opened(clock) as cue:
        await send(cue, [{"role": "user", "content": "hi"}], model="house-model")
        report = (await cue.shadow.report()).replay
        assert (report.profiles[0].costs, report.unpriced) == ({}, ("house-model",))


async def test_calls_of_a_history_kept_here_are_counted_as_not_replayed(clock: FrozenClock) -> None:
    async with opened(clock) as cue:
        await cue.ask(Ask("hi", "kept"))
        report = (await cue.shadow.report()).replay
        assert (report.left_out, {each.calls for each in report.profiles}) == (1, {0})


async def test_a_new_call_and_an_erasure_change_the_figures(clock: FrozenClock) -> None:
    async with opened(clock) as cue:
        await plant(cue, clock, turns=2)
        assert (await figures(cue))["fit"].calls == 2
        await plant(cue, clock, turns=3)
        assert (await figures(cue))["fit"].calls == 5
        await cue.memory.forget(conversation="garden")
        assert not await figures(cue)


async def test_a_conversation_forgotten_during_the_replay_is_omitted(clock: FrozenClock) -> None:
    async with opened(clock) as cue:
        await send(cue, [{"role": "user", "content": "hi"}], conversation="older")
        clock.advance(1)
        await plant(cue, clock, turns=14)

        async def forget_first(query: str, **terms: Any) -> Sequence[Hit]:
            await cue.memory.forget(conversation="older")
            return await cue.memory.search(query, **terms)

        report = await profile_report(cue.services, cue.config, Scope(), None, search=forget_first)
        assert report.profiles[0].calls == 14


async def test_a_switched_profile_applies_at_once_and_is_audited(clock: FrozenClock) -> None:
    async with opened(clock) as cue:
        assert (await cue.shadow.report()).profile == "fit"
        choice = await cue.shadow.use_profile("standard", by="ann")
        assert (choice.before, (await cue.shadow.report()).profile) == ("fit", "standard")
        await plant(cue, clock, turns=13)
        [turn] = await cue.services.store.turns(Scope(), "garden", last=1)
        assert turn.steps[0].manifest.summary_version == 1
        [record] = (await cue.audit.find(event="profile")).records
        assert (record.agent, record.input_context) == ("ann", {"profile": "standard", "before": "fit"})
        with pytest.raises(InvalidInput, match=r"profile: unknown profile 'x'. Available: budget, fit, off, standard"):
            await cue.shadow.use_profile("x")


async def test_a_switched_profile_outlives_a_changed_presets_file(tmp_path: Path, clock: FrozenClock) -> None:
    presets = tmp_path / "config" / "metaprompt-presets.json"
    presets.parent.mkdir()
    presets.write_text("{}")
    async with Cuebook.open(build(folder=str(tmp_path)), clock=clock, worker=False) as cue:
        await cue.shadow.use_profile("budget")
        presets.write_text('{"memoryCompaction": {"defaultProfile": "off"}}')
        await cue.assemble(Ask("hi", "c1"))
        assert (await cue.shadow.report()).profile == "budget"
