"""Tests of automatic observations: the user's next message scores the prompts of the last round."""

import asyncio
import json
import random

import pytest
from msgspec.structs import replace
from simulated_users import Echo, SimulatedUsers, Taste
from turn_helpers import Client, cue_on

from cuebook import Ask, Posted
from cuebook.errors import CuebookError
from cuebook.prompts.learn import ema
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.answer import to_wire
from cuebook.records.memory import Scope
from cuebook.testing import ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import call, completion, result

SLUG = "persona/assistant"
LONG = " ".join(f"word{n}" for n in range(160))
THANKS = "That works now, thank you so much! Wonderful."
WRONG = "No, that's not what I asked. This is terrible and useless."


@pytest.fixture
async def cue(clock):
    async with cue_on(clock=clock) as handle:
        await handle.prompts.save(SLUG, {"body": "Be kind."})
        yield handle


def open_observing(folder, clock, **settings):
    return cue_on(folder, clock=clock, **settings)


async def ask_in_order(cue, *texts, name="c", user="ann", clock=None, **fields):
    """Ask several things in order and run the background jobs after each."""
    replies = []
    for text in texts:
        replies.append(await cue.ask(Ask(text, name, user=user, **fields)))
        await cue.work()
        if clock:
            clock.advance(60)
    return replies


async def observations_of(cue, slug=SLUG):
    """Return the observations of a prompt, oldest first."""
    return await cue.services.prompts.observations(Scope(), slug)


async def observation_of(cue, n, name="c"):
    return to_wire(await cue.turns.show(name, n))["observation"]


async def test_the_next_message_scores_the_previous_prompts(cue, clock):
    first, *_ = await ask_in_order(cue, "How do I sort a list?", THANKS, WRONG, clock=clock)
    pleased, displeased = await observations_of(cue)
    assert (pleased.turn, pleased.conversation, pleased.user) == (1, "c", "ann")
    assert (pleased.outcome, pleased.corrections, pleased.sentiment > 0.8) == ("success", 0, True)
    assert pleased.score == pytest.approx(0.5 * pleased.sentiment + 0.3 + 0.2)
    assert pleased.signals == first.metadata["promptVariant"]["signals"]
    assert pleased.at == (await cue.turns.get("c", 2)).created_at
    assert (displeased.turn, displeased.outcome, displeased.corrections >= 1) == (2, None, True)
    assert displeased.sentiment < 0.3
    observation = await observation_of(cue, 1)
    assert (observation["by"], observation["nextTurn"], observation["pending"], observation["reasons"]) == (
        "next",
        2,
        False,
        ('"That works"',),
    )
    assert observation["taught"] == ({"promptId": SLUG, "branch": "main", "version": 1, "counted": True},)
    assert await observation_of(cue, 3) == {"by": None, "reason": "no message follows it yet"}
    [branch] = (await cue.prompts.family(SLUG)).branches
    assert branch.weight == pytest.approx(0.9 * (0.45 + 0.1 * pleased.score) + 0.1 * displeased.score)
    assert (await cue.audit.verify()).ok


async def test_an_unknown_outcome_may_be_left_out_of_the_score(clock):
    async with cue_on(clock=clock, learning__missing="renormalise") as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        await ask_in_order(cue, "How do I sort a list?", "And in reverse?")
        [only] = await observations_of(cue)
        assert (only.outcome, only.score) == (None, pytest.approx((0.5 * only.sentiment + 0.3) / 0.8))
        await cue.turns.feedback("c", 2, thumb="up")
        assert [each.score for each in await observations_of(cue)][1:] == [pytest.approx(1.0)]
        assert (await cue.prompts.observe(SLUG, sentiment=1.0)).score == pytest.approx(1.0)
        assert (await cue.prompts.observe(SLUG, sentiment=1.0, missing="zero")).score == pytest.approx(0.8)


async def test_observing_delays_no_reply_and_settle_completes_it(cue):
    await cue.ask(Ask("hello", "c"))
    await cue.ask(Ask(THANKS, "c"))
    assert await observations_of(cue) == []
    assert (await observation_of(cue, 1))["pending"]
    assert await cue.settle() == {}
    assert len(await observations_of(cue)) == 1
    await cue.settle()
    assert len(await observations_of(cue)) == 1


async def test_a_message_in_an_unknown_language_scores_nothing(cue):
    await ask_in_order(
        cue, "How do I sort a list?", "Das ist ja wirklich ganz furchtbar und völlig unbrauchbar.", "你好，这个不行。"
    )
    assert await observations_of(cue) == []
    assert (await observation_of(cue, 1))["reason"] == "the next message (turn 2) implies no feedback"


async def test_switched_off_only_feedback_scores_prompts(clock):
    async with cue_on(clock=clock, learning__observe="off") as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        await ask_in_order(cue, "hello", THANKS)
        assert await observations_of(cue) == []
        assert (await observation_of(cue, 1))["reason"] == "learning.observe is off"
        await cue.turns.feedback("c", 1, thumb="down")
        assert [each.score for each in await observations_of(cue)] == [pytest.approx(0.3)]


async def test_the_reason_for_no_observation_is_reported(tmp_path, clock):
    async with cue_on(tmp_path, clock=clock, learning__observe="off") as cue:
        await ask_in_order(cue, "hello", THANKS)
    async with cue_on(tmp_path, clock=clock) as cue:
        assert (await observation_of(cue, 1))["reason"] == "this turn used no managed prompt"
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        await ask_in_order(cue, "hello", name="kept")
        await cue.append("kept", [Posted(sender="ann", message=THANKS)], user="ann")
        assert (await observation_of(cue, 1, "kept"))["reason"] == "the next message did not go through Cuebook"
    async with cue_on(tmp_path, clock=clock, learning__observe="off") as cue:
        await ask_in_order(cue, "hello", THANKS, name="unheard")
    async with cue_on(tmp_path, clock=clock) as cue:
        assert (await observation_of(cue, 1, "unheard"))["reason"].startswith("turn 2 was not analyzed")


async def test_a_rephrased_message_scores_no_second_time(clock):
    upstream = ScriptedUpstream()
    async with cue_on(clock=clock, upstream=upstream, model__name="m") as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        client = Client(cue, upstream, user_id="ann")
        await client.say("How do I sort a list?", model="assistant")
        before = list(client.history)
        await client.say(THANKS, model="assistant")
        for text in (THANKS, WRONG):  # the answer regenerated and the message rephrased
            client.history = [*before]
            await client.say(text, model="assistant")
        await cue.settle()
        assert len(await cue.turns.list("c")) == 4
        assert [(each.turn, each.outcome) for each in await observations_of(cue)] == [(1, "success")]


async def test_a_regenerated_answer_is_scored_by_its_successor(clock):
    upstream = ScriptedUpstream()
    async with cue_on(clock=clock, upstream=upstream, model__name="m") as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        client = Client(cue, upstream, user_id="ann")
        await client.say("How do I sort a list?", model="assistant")
        client.history = client.history[:1]
        upstream.say(completion("Use sorted."))
        client.history.append(json.loads(await client.send(model="assistant"))["choices"][0]["message"])
        await client.say(WRONG, model="assistant")
        await cue.settle()
        assert [each.turn for each in await observations_of(cue)] == [2]


async def test_a_tool_round_is_scored_once_and_by_its_results(clock):
    upstream = ScriptedUpstream()
    async with cue_on(clock=clock, upstream=upstream, model__name="m") as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        client = Client(cue, upstream, user_id="ann")
        client.history.append({"role": "user", "content": "Look for apples."})
        upstream.say(completion(calls=[call("1")]))
        client.history.append(json.loads(await client.send(model="assistant"))["choices"][0]["message"])
        client.history.append(result("1", "Error: the shelf cannot be reached"))
        upstream.say(completion("I could not look."))
        client.history.append(json.loads(await client.send(model="assistant"))["choices"][0]["message"])
        await client.say("And what about pears?", model="assistant")
        await cue.settle()
        [only] = await observations_of(cue)
        assert (only.turn, only.outcome) == (1, "failure")


async def test_every_prompt_of_the_turn_is_scored(clock, tmp_path):
    (tmp_path / "config").mkdir()
    presets = {"presets": [{"id": "p", "addonPromptKeys": ["_meta/short"]}], "routing": {"defaultPresetId": "p"}}
    async with cue_on(tmp_path, clock=clock) as cue:
        for slug in (SLUG, "_meta/short"):
            await cue.prompts.save(slug, {"body": "Be kind."})
    (tmp_path / "config" / "metaprompt-presets.json").write_text(json.dumps(presets))
    async with cue_on(tmp_path, clock=clock) as cue:
        await cue.prompts.fork("_meta/short", "terse")
        await ask_in_order(cue, "hello", THANKS)
        assert [(each.turn, each.propensity) for each in await observations_of(cue)] == [(1, 1.0)]
        [only] = await observations_of(cue, "_meta/short")
        assert (only.turn, only.propensity) == (1, pytest.approx(0.9) if only.branch == "main" else pytest.approx(0.1))
        await cue.turns.feedback("c", 1, thumb="up")
        for slug in (SLUG, "_meta/short"):
            assert [each.score for each in await observations_of(cue, slug)] == [pytest.approx(0.8)]


async def test_without_observation_an_edit_applies_to_everyone(clock):
    async with cue_on(clock=clock, learning__observe="off") as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        for n in range(25):
            await ask_in_order(cue, "hello", THANKS, name=f"before {n}")
            clock.advance(4000)
        await cue.prompts.save(SLUG, {"body": "Be quick."})
        for n in range(8):
            [reply] = await ask_in_order(cue, "hello", name=f"after {n}")
            assert reply.metadata["promptVariant"]["version"] == 2
        [status] = [each.rollback for each in await cue.prompts.branches(SLUG)]
        assert status.reason.startswith("no control group: 0 of 20 conversations observed with version 1 before it")
        assert status.reason.endswith("learning.observe is off, so only reported feedback counts")


@pytest.mark.parametrize("strategy", ["epsilon_greedy", pytest.param("thompson", marks=pytest.mark.slow)])
async def test_signals_select_a_variant_and_are_recorded_with_its_score(clock, key_file, strategy):
    async with cue_on(clock=clock, prompts__strategy=strategy, secrets__key_file=key_file) as cue:
        cue.services.settings = replace(cue.services.settings, epsilon=0.0)
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        await cue.prompts.fork(SLUG, "code")
        weights = {"context_weights": {"task_coding": 1.0}}
        await cue.prompts.save(SLUG, {"body": "Write code."}, branch="code", metadata=weights)
        coding = "Refactor this Python function so that the unit tests pass: def add(a, b): return a - b"
        branches = []
        for n in range(12):
            replies = await ask_in_order(
                cue, coding, THANKS, "Tell me a joke.", name=f"c{n}", user=f"u{n}", clock=clock
            )
            variants = [each.metadata["promptVariants"][SLUG] for each in replies]
            assert len({each["branch"] for each in variants}) == 1
            assert all(each["signals"] == variants[0]["signals"] for each in variants)
            assert variants[0]["signals"]["task_coding"] == 1.0
            branches.append(variants[0]["branch"])
        assert branches.count("code") >= 8
        for each in await observations_of(cue):
            assert each.signals["task_coding"] == 1.0
            assert 0.0 < each.propensity <= 1.0


async def test_the_optimizer_pauses_while_a_user_is_frustrated(clock):
    small = {"budget__context": 2_400, "budget__reply": 500, "budget__system": 100, "budget__memory": 0}
    triggers = {}
    for served, text in (("well", THANKS), ("badly", WRONG)):
        async with cue_on(clock=clock, model=ScriptedModel(default=LONG), **small) as cue:
            await cue.prompts.save(SLUG, {"body": "Be kind."})
            await ask_in_order(cue, "Tell me something.", *[text] * 6, clock=clock)
            snapshot = await cue.optimizer.run("c", user="ann")
            triggers[served] = (snapshot.compression_trigger_ratio, snapshot.served)
    assert triggers["well"][0] < triggers["badly"][0]
    assert triggers["well"][1] > 0.7
    assert triggers["badly"][1] < 0.5


async def test_two_processes_score_each_round_once(tmp_path, clock):
    async with open_observing(tmp_path, clock) as one, open_observing(tmp_path, clock) as other:
        await one.prompts.save(SLUG, {"body": "Be kind."})
        for text in ("hello", *[THANKS] * 8):
            await one.ask(Ask(text, "c", user="ann"))
        await asyncio.gather(one.work(), other.work(), one.work(), other.work())
        assert sorted(each.turn for each in await observations_of(one)) == list(range(1, 9))


async def test_feedback_overrides_earlier_and_later_observations(cue):
    await ask_in_order(cue, "hello")
    await cue.turns.feedback("c", 1, thumb="down")
    await ask_in_order(cue, THANKS, THANKS)
    first, _ = await observations_of(cue)
    assert (first.turn, first.sentiment) == (1, 0.0)
    await cue.turns.feedback("c", 2, thumb="down")
    assert [(each.turn, each.sentiment) for each in await observations_of(cue)] == [(1, 0.0), (2, 0.0)]
    assert (await observation_of(cue, 2))["by"] == "feedback"
    [branch] = (await cue.prompts.family(SLUG)).branches
    assert branch.weight == pytest.approx(0.9 * (0.45 + 0.03) + 0.03)


@pytest.mark.slow
async def test_a_trial_uses_the_corrected_score(clock):
    async with cue_on(clock=clock) as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        for n in range(22):
            await ask_in_order(cue, "hello", (THANKS, "And then?")[n % 2], name=f"before {n}")
            clock.advance(4000)
        await cue.prompts.save(SLUG, {"body": "Be quick."})
        for n in range(12):
            await ask_in_order(cue, "hello", WRONG, name=f"after {n}")
            clock.advance(4000)
        await cue.work()
        docket = cue.services.caches.evidence[SLUG, "main"]
        assert docket.new_first
        assert max(each.score for each in docket.new_first) < 0.5
        for n in range(12):
            await cue.turns.feedback(f"after {n}", 1, thumb="up", outcome="success")
        later = cue.services.caches.evidence[SLUG, "main"]
        assert [each.score for each in later.new_first] == [pytest.approx(1.0)] * len(docket.new_first)


async def test_tenants_prompts_learn_separately(clock):
    async with cue_on(clock=clock) as cue:
        for tenant in (cue, cue.of("umb")):
            await tenant.prompts.save(SLUG, {"body": "Be kind."})
        await ask_in_order(cue.of("umb"), "hello", THANKS)
        await cue.settle()
        assert await observations_of(cue) == []
        [only] = await observations_of(cue.of("umb"))
        assert only.outcome == "success"


async def test_forgotten_posts_score_nothing_more(tmp_path, clock):
    async with open_observing(tmp_path, clock) as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        for name in ("gone", "kept"):
            await cue.ask(Ask("hello", name, user="ann"))
            await cue.ask(Ask(THANKS, name, user="ann"))
        await cue.turns.feedback("gone", 1, thumb="up", comment="the tulip garden", idempotency_key="k")
        await cue.conversations.delete("gone")
        await cue.settle()
        assert sorted(each.conversation == "kept" for each in await observations_of(cue)) == [False, True]
        assert all("gone" not in (each.conversation, each.user) for each in await observations_of(cue))
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or b"tulip garden" not in file.read_bytes()


async def test_a_guests_observation_is_forgotten_with_the_guest(clock):
    async with cue_on(clock=clock) as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        await cue.ask(Ask("hello", "c", user="ann"))
        await cue.conversations.participants("c", ["ann", "bob"])
        await cue.ask(Ask(THANKS, "c", user="bob"))
        assert (await observation_of(cue, 1))["userId"] == "bob"
        secret = "The heirloom tulips of grandmother Wilhelmina stand behind the blue garden shed in Vlieland."
        await cue.ask(Ask(secret, "c", user="bob"))
        await cue.feedback("c", 2, thumb="down", comment=f"It does not answer this: {secret}", user="ann")
        await cue.feedback("c", 3, thumb="up", user="ann")
        before = len(await observations_of(cue))
        await cue.memory.forget(user="bob")
        await cue.settle()
        assert len(await observations_of(cue)) == before  # bob's pending observation scored nothing more
        assert [(await observation_of(cue, n))["by"] for n in (1, 2, 3)] == [None, None, "feedback"]


@pytest.mark.slow
async def test_one_extreme_user_has_little_weight(cue, clock):
    for n in range(12):
        await ask_in_order(cue, "hello", THANKS, name=f"c{n}", user=f"u{n}")
    [before] = (await cue.prompts.family(SLUG)).branches
    for user in ("mallory", None):
        await ask_in_order(
            cue, "hello", *["Terrible! This is the worst answer ever."] * 60, name=f"shout {user}", user=user
        )
    [after] = (await cue.prompts.family(SLUG)).branches
    assert after.observations == before.observations + 120
    for name in ("shout mallory", "shout None"):
        counts = [each.counted for n in range(1, 61) for each in await scored_prompts(cue, name, n)]
        assert (len(counts), sum(counts) <= 20) == (60, True)


async def scored_prompts(cue, name, n):
    outcome = await cue.services.store.outcomes.get(Scope(), name, n)
    return outcome.taught if outcome else ()


GOOD, POOR = "PLAIN", "LENGTHY"


@pytest.fixture
def key_file(tmp_path):
    """The key decides which variant each conversation gets, so a fixed key makes runs repeatable."""
    (tmp_path / "key").write_text("2a" * 32)
    return str(tmp_path / "key")


async def simulate_conversations(cue, clock, users, conversations):
    """Simulate conversations. Return how often the good variant answered in the last third."""
    spoke = []
    for n in range(conversations):
        text = users.opening()
        for _ in range(users.rounds()):
            reply = await cue.ask(Ask(text, f"c{n}", user=f"u{n % 20}"))
            clock.advance(45)
            text = users.next_message(reply.text)
        spoke.append(GOOD in reply.text)
        await cue.work()
        clock.advance(8000)
    return sum(spoke[-conversations // 3 :]) / (conversations // 3)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["epsilon_greedy", "thompson"])
async def test_the_better_variant_wins_by_user_messages(clock, key_file, strategy):
    users = SimulatedUsers({GOOD: Taste(0.6, 0.1), POOR: Taste(0.15, 0.5)})
    settings = {"prompts__strategy": strategy, "secrets__key_file": key_file}
    async with cue_on(model=Echo([GOOD, POOR]), clock=clock, **settings) as cue:
        await cue.prompts.save(SLUG, {"body": f"Answer {POOR}."})
        await cue.prompts.fork(SLUG, "plain")
        await cue.prompts.save(SLUG, {"body": f"Answer {GOOD}."}, branch="plain")
        share = await simulate_conversations(cue, clock, users, 60)
        poor, good = (await cue.prompts.family(SLUG)).branches
        assert good.weight > poor.weight + 0.05
        assert share >= 0.7
        assert (await cue.audit.verify()).ok


@pytest.mark.slow
async def test_a_worse_version_is_rolled_back_by_user_messages(clock, key_file):
    users = SimulatedUsers({GOOD: Taste(0.7, 0.05), POOR: Taste(0.05, 0.8)})
    async with cue_on(model=Echo([GOOD, POOR]), clock=clock, secrets__key_file=key_file) as cue:
        await cue.prompts.save(SLUG, {"body": f"Answer {GOOD}."})
        await simulate_conversations(cue, clock, users, 24)
        [status] = [each.rollback for each in await cue.prompts.branches(SLUG)]
        assert (status.decision, status.reason) == ("none", "version 1 is the first of its branch")
        await cue.prompts.save(SLUG, {"body": f"Answer {POOR}."})
        for n in range(120):
            text = users.opening()
            for _ in range(4):
                reply = await cue.ask(Ask(text, f"d{n}", user=f"u{n % 20}"))
                clock.advance(45)
                text = users.next_message(reply.text)
            await cue.work()
            clock.advance(8000)
            if (await cue.prompts.family(SLUG)).branches[0].active == 1:
                break
            [status] = [each.rollback for each in await cue.prompts.branches(SLUG)]
            assert status.decision in ("wait", "rollback")
            assert "conversations" in status.reason
        [branch] = (await cue.prompts.family(SLUG)).branches
        assert (branch.active, branch.rolled_back) == (1, (2,))
        assert 20 <= n < 119
        event = next(each for each in await cue.prompts.history(SLUG) if each.kind == "rollback")
        assert (event.number, event.to, event.by) == (2, 1, "cuebook")
        assert event.evidence["means"]["new"] < event.evidence["means"]["control"] - 0.1
        assert event.evidence["statistics"]["wealth"] >= event.evidence["thresholds"]["wealth"] == 200
        [status] = [each.rollback for each in await cue.prompts.branches(SLUG)]
        assert status.reason == "version 2 was rolled back, version 1 is active"


async def test_an_answer_without_text_scores_nothing(clock):
    async with cue_on(model=ScriptedModel("Well."), clock=clock) as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        await ask_in_order(cue, "hello")
        with pytest.raises(CuebookError):
            await ask_in_order(cue, WRONG)
        await cue.settle()
        assert [each.turn for each in await observations_of(cue)] == [1]
        await cue.turns.feedback("c", 2, thumb="down")
        assert (await observation_of(cue, 2))["taught"] == ()


@pytest.mark.slow
async def test_concurrent_processes_score_each_round_once(tmp_path, clock):
    dice, options = random.Random(7), {"dice": SystemDice()}
    async with open_observing(tmp_path, clock, **options) as one, open_observing(tmp_path, clock, **options) as other:
        await one.prompts.save(SLUG, {"body": "Be kind."})
        await one.prompts.fork(SLUG, "warm")

        async def chat(n):
            for turn in range(1, 5):
                cue = dice.choice([one, other])
                await cue.ask(Ask(dice.choice([THANKS, WRONG, "And then?"]), f"c{n}", user=f"u{n}"))
                if dice.random() < 0.5:
                    await cue.feedback(f"c{n}", dice.randint(1, turn), thumb=dice.choice(["up", "down"]), user=f"u{n}")
                if dice.random() < 0.1:
                    await cue.conversations.delete(f"c{n}")
                    return
                await cue.work()

        await asyncio.gather(*(chat(n) for n in range(8)))
        assert await one.settle() == {}
        observations = await observations_of(one)
        assert len({(each.conversation, each.turn) for each in observations}) == len(observations) > 8
        for branch in (await one.prompts.family(SLUG)).branches:
            weight = 0.5
            for each in (each for each in observations if each.branch == branch.name):
                weight = ema(weight, each.score)
            assert branch.weight == pytest.approx(weight)
