"""Tests of memory utility: measured by the answers' words, and by asking with and without each memory."""

import json

import pytest
from turn_helpers import NAME, ask_and_settle, open_with_memory

from cuebook import Ask
from cuebook.engine.replay.memory_use import ANSWER
from cuebook.errors import InvalidInput, NotFound, UpstreamError
from cuebook.testing import ScriptedModel

FACTS = ("I am allergic to walnuts.", "I live in Oslo.")


def answering(request):
    """Answer according to the window's content, as a model would."""
    text = b"".join(request.messages).decode()
    query = json.loads(request.messages[-1])["content"]
    if "cook" not in str(query):
        return "Noted."
    return "A pumpkin soup without walnuts." if "walnuts" in text else "A pumpkin soup with ginger."


async def run_conversations(cue, clock, turns=10):
    for number, fact in enumerate(FACTS):
        await ask_and_settle(cue, clock, fact, f"c{number}")
    for number in range(turns):
        await cue.ask(Ask(f"What shall I cook in Oslo on day {number}?", f"{NAME}-{number}", user="ann"))
        clock.advance(60)
    await cue.settle()


def scores(report):
    return {each.text: each.utility for each in report.items}


async def test_a_memory_whose_words_are_in_answers_is_useful(tmp_path, clock):
    async with open_with_memory(tmp_path, clock, model=ScriptedModel(default=answering)) as cue:
        await run_conversations(cue, clock)
        report = await cue.memory.utility()
        assert (report.by, report.turns, report.calls) == ("words", 10, 0), "the answer to the second fact is too short"
        scores_by_text = scores(report)
        assert scores_by_text["I live in Oslo."] == 0.0
        assert scores_by_text["I am allergic to walnuts."] > 0.2
        assert [each.text for each in report.items] == list(FACTS), "the most useful memory is first"
        [useless] = [each for each in report.items if each.prune]
        assert useless.text == "I live in Oslo."
        assert [(each.conversation_id, each.turn) for each in useless.turns] == [
            (f"{NAME}-{n}", 1) for n in range(9, -1, -1)
        ]
        few = await cue.memory.utility([f"{NAME}-1", f"{NAME}-2"])
        assert few.turns == 2
        assert not [each for each in few.items if each.prune], "two turns are not enough"
        assert (await cue.memory.utility(["c0"])).items == ()


async def test_a_model_is_asked_with_and_without_each_memory_within_budget(tmp_path, clock):
    model = ScriptedModel(default=answering, name="gpt-4o-mini")
    async with open_with_memory(tmp_path, clock, model=model) as cue:
        await run_conversations(cue, clock)
        before = len(model.requests)
        estimate = await cue.memory.utility(user="ann", budget=60, estimate=True)
        cost = estimate.cost
        assert len(model.requests) == before, "estimating the cost calls no model"
        report = await cue.memory.utility(user="ann", budget=60)
        new_requests = model.requests[before:]
        assert (report.by, report.turns, report.calls) == ("model", 3, 12)
        assert len(new_requests) == 12
        assert (estimate.by, cost.turns, cost.calls, cost.answer_tokens) == ("model", 3, 12, 12 * ANSWER)
        most = (cost.prompt_tokens * 0.15 + cost.answer_tokens * 0.6) / 1_000_000
        assert (cost.model, cost.costs) == ("gpt-4o-mini", {"USD": pytest.approx(most)})
        assert cost.prompt_tokens > 12 * 50
        assert {each.temperature for each in new_requests} == {0.0}
        scores_by_text = scores(report)
        assert scores_by_text["I live in Oslo."] == 0.0
        assert scores_by_text["I am allergic to walnuts."] > 0.2
        [record] = await cue.audit.tail(1)
        assert record.event == "leave-one-out"
        before = len(model.requests)
        assert (await cue.memory.utility(budget=5)).calls == len(model.requests) - before == 4
        with pytest.raises(InvalidInput, match="2 calls are too few"):
            await cue.memory.utility(budget=2)
        assert (await cue.conversations.get(f"{NAME}-2")).turns == 1


async def test_random_answer_changes_are_not_attributed_to_memories(tmp_path, clock):
    numbers = iter(range(10_000))
    model = ScriptedModel(default=lambda _: f"Soup number {next(numbers)} with dish {next(numbers)}.")
    async with open_with_memory(tmp_path, clock, model=model) as cue:
        await run_conversations(cue, clock)
        assert set(scores(await cue.memory.utility(budget=60)).values()) == {0.0}


async def test_proposed_memories_are_pruned_with_a_receipt(tmp_path, clock):
    async with open_with_memory(tmp_path, clock, model=ScriptedModel(default=answering)) as cue:
        await run_conversations(cue, clock)
        report = await cue.memory.utility()
        receipt = await cue.memory.prune(report)
        assert receipt.counts["memories"] == 1
        assert "not useful" in receipt.reason
        assert [each.text for each in (await cue.memory.list(user="ann")).items] == ["I am allergic to walnuts."]
        assert await cue.memory.prune(await cue.memory.utility()) is None


async def test_manual_or_silently_followed_memories_are_kept(tmp_path, clock):
    async with open_with_memory(tmp_path, clock, model=ScriptedModel(default=answering)) as cue:
        await ask_and_settle(cue, clock, "I prefer answers in Dutch.", "c0")
        for number in range(10):
            await ask_and_settle(cue, clock, f"What shall I cook in Oslo on day {number}?", NAME)
        report = await cue.memory.utility()
        assert [(each.category, each.utility, each.prune) for each in report.items] == [("preferences", 0.0, False)]
        model_report = await cue.memory.utility(budget=60)
        assert [each.prune for each in model_report.items] == [True], "the model's answer was the same without it"


async def test_turns_without_a_model_or_with_erased_posts_are_not_measured(tmp_path, clock):
    async with open_with_memory(tmp_path, clock, model=ScriptedModel(default=answering)) as cue:
        await run_conversations(cue, clock, turns=1)
        await cue.memory.forget(conversation="c0")
        await cue.memory.forget(conversation="c1")
        assert (await cue.memory.utility()).items == ()
        with pytest.raises(NotFound):
            await cue.memory.utility(["nowhere"])
        assert (await cue.memory.utility(user="bob")).items == ()


async def test_a_failed_model_call_skips_only_its_turn(tmp_path, clock):
    model = ScriptedModel(default=answering)
    async with open_with_memory(tmp_path, clock, model=model) as cue:
        await run_conversations(cue, clock)
        model.say("A soup.", UpstreamError("the model is gone", status=503))
        report = await cue.memory.utility(budget=60)
        assert report.missed == {"the model did not answer it": 1}
        assert report.turns == 3, "the other turns were measured"
        assert {each.max_tokens for each in model.requests[-3:]} == {300}


async def test_rarely_needed_memories_are_kept_and_one_of_two_duplicates(tmp_path, clock):
    async with open_with_memory(tmp_path, clock, model=ScriptedModel(default=answering)) as cue:
        for number, fact in enumerate(
            ("I am allergic to shrimp.", "My car is a red Twingo.", "I drive a red Twingo car to work.")
        ):
            await ask_and_settle(cue, clock, fact, f"c{number}")
        for number in range(10):
            await ask_and_settle(cue, clock, f"What shall I cook for the Twingo trip on day {number}?", NAME)
        model_report = await cue.memory.utility(budget=60)
        verdicts = {each.text: each.verdict for each in model_report.items}
        assert verdicts.pop("I am allergic to shrimp.") == "bound"
        assert sorted(verdicts.values()) == ["twin", "useless"], "without one of them, the other contains the fact"
        read = {each.text: each for each in (await cue.memory.utility()).items}
        assert "My car is a red Twingo." not in read, "the other memory has all of its words"
        assert (read["I drive a red Twingo car to work."].verdict, read["I drive a red Twingo car to work."].said) == (
            "useless",
            10,
        )
