"""What the user says next is the observation of the prompts that spoke: one a round, whoever works."""

import asyncio
import json
import random

import pytest
from audience import Audience, Echo, Taste
from stage import Client, cue_on

from cuebook import Ask, Posted
from cuebook.errors import CuebookError
from cuebook.prompts.learn import ema
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.memory import Scope
from cuebook.testing import ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream, call, completion, result

SLUG = "persona/assistant"
LONG = " ".join(f"word{n}" for n in range(160))
THANKS = "That works now, thank you so much! Wonderful."
WRONG = "No, that's not what I asked. This is terrible and useless."


@pytest.fixture
async def cue(clock):
    async with cue_on(clock=clock, learning__observe="all") as opened:
        await opened.prompts.save(SLUG, {"body": "Be kind."})
        yield opened


def everyone(place, clock, **given):
    return cue_on(place, clock=clock, learning__observe="all", **given)


async def talk(cue, *texts, name="c", user="ann", clock=None, **fields):
    """Say some things one after the other, the work behind done after each."""
    replies = []
    for text in texts:
        replies.append(await cue.ask(Ask(text, name, user=user, **fields)))
        await cue.work()
        if clock:
            clock.advance(60)
    return replies


async def seen(cue, slug=SLUG):
    """Give the observations of a prompt, oldest first."""
    return await cue.desk.prompts.observations(Scope(), slug)


async def word(cue, n, name="c"):
    return (await cue.turns.show(name, n))["observation"]


async def test_what_is_said_next_is_an_observation_of_what_spoke_before(cue, clock):
    first, *_ = await talk(cue, "How do I sort a list?", THANKS, WRONG, clock=clock)
    pleased, displeased = await seen(cue)
    assert (pleased.turn, pleased.conversation, pleased.user) == (1, "c", "ann")
    assert (pleased.outcome, pleased.corrections, pleased.sentiment > 0.8) == ("success", 0, True)
    assert pleased.score == pytest.approx(0.5 * pleased.sentiment + 0.3 + 0.2)
    assert pleased.signals == first.metadata["promptVariant"]["signals"]
    assert pleased.at == (await cue.turns.get("c", 2)).created_at
    assert (displeased.turn, displeased.outcome, displeased.corrections >= 1) == (2, None, True)
    assert displeased.sentiment < 0.3
    told = await word(cue, 1)
    assert (told["by"], told["nextTurn"], told["pending"], told["reasons"]) == ("next", 2, False, ['"That works"'])
    assert told["taught"] == [{"promptId": SLUG, "branch": "main", "version": 1, "counted": True}]
    assert await word(cue, 3) == {"by": None, "reason": "no message follows it yet"}
    [branch] = (await cue.prompts.family(SLUG)).branches
    assert branch.weight == pytest.approx(0.9 * (0.45 + 0.1 * pleased.score) + 0.1 * displeased.score)
    assert (await cue.audit.verify()).ok


async def test_nothing_delays_the_reply_and_settling_finds_what_is_due(cue):
    await cue.ask(Ask("hello", "c"))
    await cue.ask(Ask(THANKS, "c"))
    assert await seen(cue) == []
    assert (await word(cue, 1))["pending"]
    assert await cue.settle() == {}
    assert len(await seen(cue)) == 1
    await cue.settle()
    assert len(await seen(cue)) == 1


async def test_a_message_in_a_language_nobody_reads_says_nothing(cue):
    await talk(
        cue, "How do I sort a list?", "Das ist ja wirklich ganz furchtbar und völlig unbrauchbar.", "你好，这个不行。"
    )
    assert await seen(cue) == []
    assert (await word(cue, 1))["reason"] == "the next message (turn 2) implies no feedback"


async def test_switched_off_nothing_is_observed_but_feedback_teaches(clock):
    async with cue_on(clock=clock, learning__observe="off") as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        await talk(cue, "hello", THANKS)
        assert await seen(cue) == []
        assert (await word(cue, 1))["reason"] == "learning.observe is off"
        await cue.turns.feedback("c", 1, thumb="down")
        assert [each.score for each in await seen(cue)] == [pytest.approx(0.3)]


async def test_why_nothing_is_observed_is_told_as_it_is(tmp_path, clock):
    async with cue_on(tmp_path, clock=clock, learning__observe="off") as cue:
        await talk(cue, "hello", THANKS)
    async with cue_on(tmp_path, clock=clock) as cue:
        assert (await word(cue, 1))["reason"] == "this turn used no managed prompt"
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        await talk(cue, "hello", name="kept")
        await cue.append("kept", [Posted(sender="ann", message=THANKS)], user="ann")
        assert (await word(cue, 1, "kept"))["reason"] == "the next message did not go through Cuebook"
    async with cue_on(tmp_path, clock=clock, learning__observe="off") as cue:
        await talk(cue, "hello", THANKS, name="unheard")
    async with cue_on(tmp_path, clock=clock) as cue:
        assert (await word(cue, 1, "unheard"))["reason"].startswith("turn 2 was not analyzed")


async def test_a_message_said_otherwise_observes_no_second_time(clock):
    upstream = ScriptedUpstream()
    async with cue_on(clock=clock, upstream=upstream, model__name="m", learning__observe="all") as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        client = Client(cue, upstream, who="ann")
        await client.say("How do I sort a list?", model="assistant")
        before = list(client.history)
        await client.say(THANKS, model="assistant")
        for text in (THANKS, WRONG):  # the answer made anew, and the message said otherwise
            client.history = [*before]
            await client.say(text, model="assistant")
        await cue.settle()
        assert len(await cue.turns.last("c")) == 4
        assert [(each.turn, each.outcome) for each in await seen(cue)] == [(1, "success")]


async def test_an_answer_made_anew_is_judged_by_what_follows_it(clock):
    upstream = ScriptedUpstream()
    async with cue_on(clock=clock, upstream=upstream, model__name="m", learning__observe="all") as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        client = Client(cue, upstream, who="ann")
        await client.say("How do I sort a list?", model="assistant")
        client.history = client.history[:1]
        upstream.say(completion("Use sorted."))
        client.history.append(json.loads(await client.send(model="assistant"))["choices"][0]["message"])
        await client.say(WRONG, model="assistant")
        await cue.settle()
        assert [each.turn for each in await seen(cue)] == [2]


async def test_a_round_with_tools_is_observed_once_and_by_its_results(clock):
    upstream = ScriptedUpstream()
    async with cue_on(clock=clock, upstream=upstream, model__name="m", learning__observe="all") as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        client = Client(cue, upstream, who="ann")
        client.history.append({"role": "user", "content": "Look for apples."})
        upstream.say(completion(calls=[call("1")]))
        client.history.append(json.loads(await client.send(model="assistant"))["choices"][0]["message"])
        client.history.append(result("1", "Error: the shelf cannot be reached"))
        upstream.say(completion("I could not look."))
        client.history.append(json.loads(await client.send(model="assistant"))["choices"][0]["message"])
        await client.say("And what about pears?", model="assistant")
        await cue.settle()
        [only] = await seen(cue)
        assert (only.turn, only.outcome) == (1, "failure")


@pytest.mark.parametrize("observe", ["auto", "all"])
async def test_prompts_that_had_others_beside_them_learn_or_all_that_spoke(clock, tmp_path, observe):
    (tmp_path / "config").mkdir()
    presets = {"presets": [{"id": "p", "addonPromptKeys": ["_meta/short"]}], "routing": {"defaultPresetId": "p"}}
    async with cue_on(tmp_path, clock=clock) as cue:
        for slug in (SLUG, "_meta/short"):
            await cue.prompts.save(slug, {"body": "Be kind."})
    (tmp_path / "config" / "metaprompt-presets.json").write_text(json.dumps(presets))
    async with cue_on(tmp_path, clock=clock, learning__observe=observe) as cue:
        await cue.prompts.fork("_meta/short", "terse")
        await talk(cue, "hello", THANKS)
        assert [each.turn for each in await seen(cue)] == ([1] if observe == "all" else [])
        [only] = await seen(cue, "_meta/short")
        assert (only.turn, only.propensity) == (1, pytest.approx(0.9) if only.branch == "main" else pytest.approx(0.1))
        await cue.turns.feedback("c", 1, thumb="up")
        assert [each.score for each in await seen(cue)] == [pytest.approx(0.8)]  # who says so by hand teaches all
        assert [each.score for each in await seen(cue, "_meta/short")] == [pytest.approx(0.8)]


async def test_an_edit_is_for_all_where_nothing_is_tried_out(clock):
    async with cue_on(clock=clock) as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        for n in range(25):
            await talk(cue, "hello", THANKS, name=f"before {n}")
            clock.advance(4000)
        await cue.prompts.save(SLUG, {"body": "Be quick."})
        for n in range(8):
            [reply] = await talk(cue, "hello", name=f"after {n}")
            assert reply.metadata["promptVariant"]["version"] == 2
        assert (await word(cue, 1, "before 0"))["taught"] == []


@pytest.mark.parametrize("strategy", ["epsilon_greedy", "thompson"])
async def test_a_variant_is_chosen_by_what_is_heard_and_learns_under_the_signals_it_was_chosen_by(
    clock, key_file, strategy
):
    async with cue_on(clock=clock, prompts__strategy=strategy, secrets__key_file=key_file) as cue:
        cue.desk.epsilon = 0.0
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        await cue.prompts.fork(SLUG, "code")
        weights = {"context_weights": {"task_coding": 1.0}}
        await cue.prompts.save(SLUG, {"body": "Write code."}, branch="code", metadata=weights)
        coding = "Refactor this Python function so that the unit tests pass: def add(a, b): return a - b"
        branches = []
        for n in range(12):
            replies = await talk(cue, coding, THANKS, "Tell me a joke.", name=f"c{n}", user=f"u{n}", clock=clock)
            variants = [each.metadata["promptVariants"][SLUG] for each in replies]
            assert len({each["branch"] for each in variants}) == 1
            assert all(each["signals"] == variants[0]["signals"] for each in variants)
            assert variants[0]["signals"]["task_coding"] == 1.0
            branches.append(variants[0]["branch"])
        assert branches.count("code") >= 8
        for each in await seen(cue):
            assert each.signals["task_coding"] == 1.0
            assert 0.0 < each.propensity <= 1.0


async def test_the_optimizer_takes_nothing_more_while_a_user_is_not_served_well(clock):
    small = {"budget__context": 2_400, "budget__reply": 500, "budget__system": 100, "budget__memory": 0}
    triggers = {}
    for served, text in (("well", THANKS), ("badly", WRONG)):
        async with cue_on(clock=clock, model=ScriptedModel(default=LONG), **small) as cue:
            await cue.prompts.save(SLUG, {"body": "Be kind."})
            await talk(cue, "Tell me something.", *[text] * 6, clock=clock)
            snapshot = await cue.optimizer.run("c", user="ann")
            triggers[served] = (snapshot.compression_trigger_ratio, snapshot.served)
    assert triggers["well"][0] < triggers["badly"][0]
    assert triggers["well"][1] > 0.7
    assert triggers["badly"][1] < 0.5


async def test_two_processes_teach_each_round_once(tmp_path, clock):
    async with everyone(tmp_path, clock) as one, everyone(tmp_path, clock) as other:
        await one.prompts.save(SLUG, {"body": "Be kind."})
        for text in ("hello", *[THANKS] * 8):
            await one.ask(Ask(text, "c", user="ann"))
        await asyncio.gather(one.work(), other.work(), one.work(), other.work())
        assert sorted(each.turn for each in await seen(one)) == list(range(1, 9))


async def test_feedback_stands_before_and_after_what_is_said_next(cue):
    await talk(cue, "hello")
    await cue.turns.feedback("c", 1, thumb="down")
    await talk(cue, THANKS, THANKS)
    first, _ = await seen(cue)
    assert (first.turn, first.sentiment) == (1, 0.0)
    await cue.turns.feedback("c", 2, thumb="down")
    assert [(each.turn, each.sentiment) for each in await seen(cue)] == [(1, 0.0), (2, 0.0)]
    assert (await word(cue, 2))["by"] == "feedback"
    [branch] = (await cue.prompts.family(SLUG)).branches
    assert branch.weight == pytest.approx(0.9 * (0.45 + 0.03) + 0.03)


async def test_a_trial_goes_by_the_corrected_word(clock):
    async with cue_on(clock=clock, learning__observe="all") as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        for n in range(22):
            await talk(cue, "hello", (THANKS, "And then?")[n % 2], name=f"before {n}")
            clock.advance(4000)
        await cue.prompts.save(SLUG, {"body": "Be quick."})
        for n in range(12):
            await talk(cue, "hello", WRONG, name=f"after {n}")
            clock.advance(4000)
        await cue.work()
        docket = cue.desk.dockets[SLUG, "main"]
        assert docket.said_first
        assert max(each.mean for each in docket.said_first) < 0.5
        for n in range(12):
            await cue.turns.feedback(f"after {n}", 1, thumb="up", outcome="success")
        again = cue.desk.dockets[SLUG, "main"]
        assert [each.mean for each in again.said_first] == [pytest.approx(1.0)] * len(docket.said_first)


async def test_each_tenants_prompts_learn_from_their_own(clock):
    async with cue_on(clock=clock, learning__observe="all") as cue:
        for own in (cue, cue.of("umb")):
            await own.prompts.save(SLUG, {"body": "Be kind."})
        await talk(cue.of("umb"), "hello", THANKS)
        await cue.settle()
        assert await seen(cue) == []
        [only] = await seen(cue.of("umb"))
        assert only.outcome == "success"


async def test_what_is_forgotten_teaches_nothing_more(tmp_path, clock):
    async with everyone(tmp_path, clock) as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        for name in ("gone", "kept"):
            await cue.ask(Ask("hello", name, user="ann"))
            await cue.ask(Ask(THANKS, name, user="ann"))
        await cue.turns.feedback("gone", 1, thumb="up", comment="the tulip garden", idempotency_key="k")
        await cue.conversations.delete("gone")
        await cue.settle()
        assert sorted(each.conversation == "kept" for each in await seen(cue)) == [False, True]
        assert all("gone" not in (each.conversation, each.user) for each in await seen(cue))
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or b"tulip garden" not in file.read_bytes()


async def test_a_guests_word_goes_with_the_guest(clock):
    async with cue_on(clock=clock, learning__observe="all") as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        await cue.ask(Ask("hello", "c", user="ann"))
        await cue.conversations.participants("c", ["ann", "bob"])
        await cue.ask(Ask(THANKS, "c", user="bob"))
        assert (await word(cue, 1))["userId"] == "bob"
        secret = "The heirloom tulips of grandmother Wilhelmina stand behind the blue garden shed in Vlieland."
        await cue.ask(Ask(secret, "c", user="bob"))
        await cue.feedback("c", 2, thumb="down", comment=f"It does not answer this: {secret}", user="ann")
        await cue.feedback("c", 3, thumb="up", user="ann")
        before = len(await seen(cue))
        await cue.memory.forget(user="bob")
        await cue.settle()
        assert len(await seen(cue)) == before  # bob's due word taught nothing more
        assert [(await word(cue, n))["by"] for n in (1, 2, 3)] == [None, None, "feedback"]


async def test_one_who_shouts_moves_little(cue, clock):
    for n in range(12):
        await talk(cue, "hello", THANKS, name=f"c{n}", user=f"u{n}")
    [before] = (await cue.prompts.family(SLUG)).branches
    for user in ("mallory", None):
        await talk(cue, "hello", *["Terrible! This is the worst answer ever."] * 60, name=f"shout {user}", user=user)
    [after] = (await cue.prompts.family(SLUG)).branches
    assert after.observations == before.observations + 120
    for name in ("shout mallory", "shout None"):
        counts = [each.counted for n in range(1, 61) for each in await taught(cue, name, n)]
        assert (len(counts), sum(counts) <= 20) == (60, True)


async def taught(cue, name, n):
    known = await cue.desk.store.outcomes.get(Scope(), name, n)
    return known.taught if known else ()


GOOD, POOR = "PLAIN", "LENGTHY"


@pytest.fixture
def key_file(tmp_path):
    """The key decides who hears which variant, so a fixed one makes every run the same."""
    (tmp_path / "key").write_text("2a" * 32)
    return str(tmp_path / "key")


async def month(cue, clock, crowd, conversations):
    """Let people talk with a book; says in how many of the last third the good variant spoke."""
    spoke = []
    for n in range(conversations):
        text = crowd.begins()
        for _ in range(crowd.rounds()):
            reply = await cue.ask(Ask(text, f"c{n}", user=f"u{n % 20}"))
            clock.advance(45)
            text = crowd.answers(reply.text)
        spoke.append(GOOD in reply.text)
        await cue.work()
        clock.advance(8000)
    return sum(spoke[-conversations // 3 :]) / (conversations // 3)


@pytest.mark.parametrize("strategy", ["epsilon_greedy", "thompson"])
async def test_the_better_of_two_variants_wins_by_what_users_say(clock, key_file, strategy):
    crowd = Audience({GOOD: Taste(0.6, 0.1), POOR: Taste(0.15, 0.5)})
    settings = {"prompts__strategy": strategy, "secrets__key_file": key_file}
    async with cue_on(model=Echo([GOOD, POOR]), clock=clock, **settings) as cue:
        await cue.prompts.save(SLUG, {"body": f"Answer {POOR}."})
        await cue.prompts.fork(SLUG, "plain")
        await cue.prompts.save(SLUG, {"body": f"Answer {GOOD}."}, branch="plain")
        share = await month(cue, clock, crowd, 60)
        poor, good = (await cue.prompts.family(SLUG)).branches
        assert good.weight > poor.weight + 0.05
        assert share >= 0.7
        assert (await cue.audit.verify()).ok


async def test_a_version_that_does_worse_is_taken_back_by_what_users_say(clock, key_file):
    crowd = Audience({GOOD: Taste(0.7, 0.05), POOR: Taste(0.05, 0.8)})
    settings = {"learning__observe": "all", "secrets__key_file": key_file}
    async with cue_on(model=Echo([GOOD, POOR]), clock=clock, **settings) as cue:
        await cue.prompts.save(SLUG, {"body": f"Answer {GOOD}."})
        await month(cue, clock, crowd, 24)
        await cue.prompts.save(SLUG, {"body": f"Answer {POOR}."})
        for n in range(120):
            text = crowd.begins()
            for _ in range(4):
                reply = await cue.ask(Ask(text, f"d{n}", user=f"u{n % 20}"))
                clock.advance(45)
                text = crowd.answers(reply.text)
            await cue.work()
            clock.advance(8000)
            if (await cue.prompts.family(SLUG)).branches[0].active == 1:
                break
        [branch] = (await cue.prompts.family(SLUG)).branches
        assert (branch.active, branch.rolled_back) == (1, (2,))
        assert 20 <= n < 119


async def test_a_model_that_says_nothing_teaches_nothing(clock):
    async with cue_on(model=ScriptedModel("Well."), clock=clock, learning__observe="all") as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        await talk(cue, "hello")
        with pytest.raises(CuebookError):
            await talk(cue, WRONG)
        await cue.settle()
        assert [each.turn for each in await seen(cue)] == [1]
        await cue.turns.feedback("c", 2, thumb="down")
        assert (await word(cue, 2))["taught"] == []


async def test_many_at_once_in_two_processes_teach_each_round_once(tmp_path, clock):
    dice, own = random.Random(7), {"dice": SystemDice()}
    async with everyone(tmp_path, clock, **own) as one, everyone(tmp_path, clock, **own) as other:
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
        found = await seen(one)
        assert len({(each.conversation, each.turn) for each in found}) == len(found) > 8
        for branch in (await one.prompts.family(SLUG)).branches:
            weight = 0.5
            for each in (each for each in found if each.branch == branch.name):
                weight = ema(weight, each.score)
            assert branch.weight == pytest.approx(weight)
