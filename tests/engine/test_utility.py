"""Of what use memories were: by the answers that were given, and by asking with and without each."""

import json

import pytest
from stage import NAME, on, told

from cuebook.engine.replay.memory_use import ANSWER
from cuebook.errors import InvalidInput, NotFound, UpstreamError
from cuebook.testing import ScriptedModel

FACTS = ("I am allergic to walnuts.", "I live in Oslo.")


def answering(request):
    """Answer by what the window holds, as a model would."""
    text = b"".join(request.messages).decode()
    asked = json.loads(request.messages[-1])["content"]
    if "cook" not in str(asked):
        return "Noted."
    return "A pumpkin soup without walnuts." if "walnuts" in text else "A pumpkin soup with ginger."


async def talked(cue, clock, turns=10):
    for number, fact in enumerate(FACTS):
        await told(cue, clock, fact, f"c{number}")
    for number in range(turns):
        await told(cue, clock, f"What shall I cook on day {number}?", f"{NAME}-{number}")


def scores(found):
    return {each.memory.text: each.utility for each in found.items}


async def test_a_memory_whose_words_stand_in_the_answers_is_of_use(tmp_path, clock):
    async with on(tmp_path, clock, model=ScriptedModel(default=answering)) as cue:
        await talked(cue, clock)
        found = await cue.memory.utility()
        assert (found.by, found.turns, found.calls) == ("words", 10, 0), "the answer to the second fact said too little"
        known = scores(found)
        assert known["I live in Oslo."] == 0.0
        assert known["I am allergic to walnuts."] > 0.2
        assert [each.memory.text for each in found.items] == list(FACTS), "the most useful first"
        [useless] = [each for each in found.items if each.prunes]
        assert useless.memory.text == "I live in Oslo."
        assert [(each.conversation, each.turn) for each in useless.uses] == [
            (f"{NAME}-{n}", 1) for n in range(9, -1, -1)
        ]
        few = await cue.memory.utility([f"{NAME}-1", f"{NAME}-2"])
        assert few.turns == 2
        assert not [each for each in few.items if each.prunes], "two turns are not enough"
        assert (await cue.memory.utility(["c0"])).items == ()


async def test_with_a_model_it_is_asked_with_and_without_each_within_the_budget(tmp_path, clock):
    model = ScriptedModel(default=answering, name="gpt-4o-mini")
    async with on(tmp_path, clock, model=model) as cue:
        await talked(cue, clock)
        before = len(model.requests)
        cost = await cue.memory.utility_cost(user="ann", budget=60)
        assert len(model.requests) == before, "nobody is asked what it would cost"
        found = await cue.memory.utility(user="ann", budget=60)
        asked = model.requests[before:]
        assert (found.by, found.turns, found.calls) == ("model", 3, 12)
        assert len(asked) == 12
        assert (cost.by, cost.turns, cost.calls, cost.answer_tokens) == ("model", 3, 12, 12 * ANSWER)
        most = (cost.prompt_tokens * 0.15 + cost.answer_tokens * 0.6) / 1_000_000
        assert (cost.model, cost.costs) == ("gpt-4o-mini", {"USD": pytest.approx(most)})
        assert cost.prompt_tokens > 12 * 50
        assert {each.temperature for each in asked} == {0.0}
        known = scores(found)
        assert known["I live in Oslo."] == 0.0
        assert known["I am allergic to walnuts."] > 0.2
        [record] = await cue.audit.tail(1)
        assert record.event == "leave-one-out"
        before = len(model.requests)
        assert (await cue.memory.utility(budget=5)).calls == len(model.requests) - before == 4
        with pytest.raises(InvalidInput, match="2 calls are too few"):
            await cue.memory.utility(budget=2)
        assert (await cue.conversations.get(f"{NAME}-2")).turns == 1


async def test_what_changes_by_itself_is_not_the_memorys_doing(tmp_path, clock):
    said = iter(range(10_000))
    model = ScriptedModel(default=lambda _: f"Soup number {next(said)} with dish {next(said)}.")
    async with on(tmp_path, clock, model=model) as cue:
        await talked(cue, clock)
        assert set(scores(await cue.memory.utility(budget=60)).values()) == {0.0}


async def test_what_is_proposed_is_forgotten_with_a_receipt(tmp_path, clock):
    async with on(tmp_path, clock, model=ScriptedModel(default=answering)) as cue:
        await talked(cue, clock)
        found = await cue.memory.utility()
        receipt = await cue.memory.prune(found)
        assert receipt.counts["memories"] == 1
        assert "not useful" in receipt.reason
        assert [each.text for each in (await cue.memories.page(user="ann")).items] == ["I am allergic to walnuts."]
        assert await cue.memory.prune(await cue.memory.utility()) is None


async def test_what_was_said_by_hand_or_is_followed_silently_is_kept(tmp_path, clock):
    async with on(tmp_path, clock, model=ScriptedModel(default=answering)) as cue:
        await told(cue, clock, "I prefer answers in Dutch.", "c0")
        for number in range(10):
            await told(cue, clock, f"What shall I cook on day {number}?", NAME)
        found = await cue.memory.utility()
        assert [(each.memory.category, each.utility, each.prunes) for each in found.items] == [
            ("preferences", 0.0, False)
        ]
        asked = await cue.memory.utility(budget=60)
        assert [each.prunes for each in asked.items] == [True], "the model said the same without it"


async def test_answers_of_no_model_and_what_was_erased_are_not_measured(tmp_path, clock):
    async with on(tmp_path, clock, model=ScriptedModel(default=answering)) as cue:
        await talked(cue, clock, turns=1)
        await cue.memory.forget(conversation="c0")
        await cue.memory.forget(conversation="c1")
        assert (await cue.memory.utility()).items == ()
        with pytest.raises(NotFound):
            await cue.memory.utility(["nowhere"])
        assert (await cue.memory.utility(user="bob")).items == ()


async def test_a_model_that_fails_costs_the_turn_and_not_the_measure(tmp_path, clock):
    model = ScriptedModel(default=answering)
    async with on(tmp_path, clock, model=model) as cue:
        await talked(cue, clock)
        model.say("A soup.", UpstreamError("the model is gone", status=503))
        found = await cue.memory.utility(budget=60)
        assert found.missed == {"the model did not answer it": 1}
        assert found.turns == 3, "the others were measured"
        assert {each.max_tokens for each in model.requests[-3:]} == {300}


async def test_what_matters_seldom_is_kept_and_one_of_those_that_say_the_same(tmp_path, clock):
    async with on(tmp_path, clock, model=ScriptedModel(default=answering)) as cue:
        for number, fact in enumerate(
            ("I am allergic to shrimp.", "My car is a red Twingo.", "I drive a red Twingo car to work.")
        ):
            await told(cue, clock, fact, f"c{number}")
        for number in range(10):
            await told(cue, clock, f"What shall I cook on day {number}?", NAME)
        asked = await cue.memory.utility(budget=60)
        verdicts = {each.memory.text: each.verdict for each in asked.items}
        assert verdicts.pop("I am allergic to shrimp.") == "bound"
        assert sorted(verdicts.values()) == ["twin", "useless"], "without either the other says it"
        read = {each.memory.text: each for each in (await cue.memory.utility()).items}
        assert "My car is a red Twingo." not in read, "the other said all of its words"
        assert (read["I drive a red Twingo car to work."].verdict, read["I drive a red Twingo car to work."].said) == (
            "useless",
            10,
        )
