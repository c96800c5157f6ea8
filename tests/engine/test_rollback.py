"""Tests of automatic rollback: a worse version is reverted on recorded evidence, at most once a day."""

import asyncio
import json
import random

import pytest
from turn_helpers import cue_on

from cuebook import Ask
from cuebook.errors import InvalidInput
from cuebook.records.prompt import Version
from cuebook.testing import FrozenClock

SLUG = "persona/kind"
DAY = 86_400.0
PERSONA = {"id": "helper", "name": "Ada", "baseSystemPrompt": "You are Ada.", "prompts": {"persona": SLUG}}


class Users:
    """Simulate conversations of two rounds, each followed by an hour's pause."""

    def __init__(self, cue, clock, *, seed=7):
        self.cue, self.clock, self.dice = cue, clock, random.Random(seed)
        self.count = 0

    async def converse(self, number, mean, *, propensity=1.0, slug=SLUG):
        """Hold one conversation with a version. Return whether an observation triggered a rollback."""
        self.count += 1
        level, rolled_back = self.dice.gauss(mean, 0.07), False
        for _ in range(2):
            sentiment = min(max(self.dice.gauss(level, 0.1), 0.0), 1.0)
            result = await self.cue.prompts.observe(
                slug, sentiment=sentiment, version=number, propensity=propensity, conversation=f"talk {self.count}"
            )
            rolled_back |= result.rolled_back
            self.clock.advance(30)
        self.clock.advance(3600)
        return rolled_back

    async def before(self, number, *, conversations=60, mean=0.8):
        for _ in range(conversations):
            await self.converse(number, mean)

    async def trial(self, new, control, *, worse, conversations=200, mean=0.8):
        """Select a version at random for each conversation. Return the number of conversations until the rollback."""
        for n in range(1, conversations + 1):
            is_new = self.dice.random() < 0.5
            number = new if is_new else control
            if await self.converse(number, mean - worse * is_new, propensity=0.5):
                return n
            await self.cue.work()
            if await active(self.cue) != new:
                return n
        return 0


async def active(cue, slug=SLUG):
    return (await cue.prompts.family(slug)).branch("main").active


async def write(cue, *texts, slug=SLUG):
    for text in texts:
        await cue.prompts.save(slug, {"body": text})


async def edit_elsewhere(cue, times):
    """Write versions of another branch, so that this branch's events are far back in the log."""
    await cue.prompts.fork(SLUG, "busy")
    texts = (Version(slug=SLUG, branch="busy", sections={"body": f"text {n}"}) for n in range(times))
    await cue.prompts.store(list(texts))


async def rollbacks(cue, slug=SLUG):
    return [each for each in reversed(tuple(await cue.prompts.history(slug))) if each.kind == "rollback"]


@pytest.fixture
def clock():
    return FrozenClock()


def open_database(folder, clock, mode="guarded", **more):
    return cue_on(folder, clock=clock, prompts__rollback=mode, **more)


@pytest.mark.slow
async def test_guarded_mode_reverts_a_version_worse_than_its_control(tmp_path, clock):
    async with open_database(tmp_path, clock) as cue:
        users = Users(cue, clock)
        await write(cue, "one")
        await users.before(1)
        await write(cue, "two")
        await edit_elsewhere(cue, 1_100)
        after = await users.trial(2, 1, worse=0.45)
        assert 20 <= after <= 150
        branch = (await cue.prompts.family(SLUG)).branch("main")
        assert (branch.active, branch.head, branch.rolled_back) == (1, 2, (2,))
        [event] = await rollbacks(cue)
        assert (event.number, event.to, event.by) == (2, 1, "cuebook")
        assert event.evidence["method"] == "betting"
        assert event.evidence["statistics"]["wealth"] >= event.evidence["thresholds"]["wealth"]
        assert sum(event.evidence["n"].values()) > 0
        assert event.evidence["means"]["new"] < event.evidence["means"]["control"]
        [record] = [each for each in await cue.audit.tail(50) if each.event == "rollback"]
        assert (record.agent, record.prompt_id, record.selection["number"]) == ("cuebook", SLUG, 2)
        assert record.input_context["evidence"]["statistics"] == pytest.approx(event.evidence["statistics"])
        assert (await cue.prompts.render(SLUG)).text == "one"


@pytest.mark.slow
async def test_guarded_mode_keeps_a_version_that_matches_its_control(tmp_path, clock):
    async with open_database(tmp_path, clock) as cue:
        users = Users(cue, clock)
        await write(cue, "one")
        await users.before(1, conversations=25)
        await write(cue, "two")
        assert await users.trial(2, 1, worse=0.0, conversations=120) == 0
        assert await users.trial(2, 1, worse=0.0, conversations=80, mean=0.4) == 0, (
            "both fall on the provider's bad day"
        )
        assert (await active(cue), await rollbacks(cue)) == (2, [])


@pytest.mark.slow
async def test_sigma_mode_reverts_only_a_version_worse_than_its_past(tmp_path, clock):
    async with open_database(tmp_path, clock, "sigma") as cue:
        users = Users(cue, clock)
        await write(cue, "one")
        await users.before(1)
        await write(cue, "two")
        await users.before(2)
        assert (await active(cue), await rollbacks(cue)) == (2, []), "as good as before"
        await write(cue, "three")
        results = [await users.converse(3, 0.4) for _ in range(40)]
        assert [n for n, each in enumerate(results) if each] == [30], (
            "at the observation after the thirtieth conversation"
        )
        [event] = await rollbacks(cue)
        assert (event.number, event.to, event.evidence["method"]) == (3, 2, "sigma")
        assert event.evidence["statistics"]["drop"] >= event.evidence["thresholds"]["drop"]


@pytest.mark.slow
async def test_sigma_mode_spares_prompts_that_fell_together_or_lack_data(tmp_path, clock):
    async with open_database(tmp_path, clock, "sigma") as cue:
        users = Users(cue, clock)
        await write(cue, "one")
        await write(cue, "other", slug="other")
        await write(cue, "still one", slug="still")
        for _ in range(50):
            await users.converse(1, 0.8)
            await users.converse(1, 0.8, slug="other")
            await cue.prompts.observe("still", sentiment=0.5, conversation=f"still {users.count}")
        clock.advance(3600)
        await write(cue, "two")
        await write(cue, "still two", slug="still")
        for _ in range(40):
            await users.converse(2, 0.4)
            await users.converse(1, 0.4, slug="other")
            await cue.prompts.observe("still", sentiment=0.1, conversation=f"still {users.count}")
        clock.advance(3600)
        await cue.work()
        assert (await active(cue), await active(cue, "still")) == (2, 2)


@pytest.mark.slow
async def test_a_rollback_happens_at_most_once_a_day(tmp_path, clock):
    async with open_database(tmp_path, clock) as cue:
        users = Users(cue, clock)
        await write(cue, "one")
        await users.before(1, conversations=25)
        await write(cue, "two")
        assert await users.trial(2, 1, worse=0.8, mean=0.9)
        rolled_back_at = (await rollbacks(cue))[0].at
        await write(cue, "three")
        n = 0
        while clock.now() < rolled_back_at + DAY - 3700:  # worse again on the same day
            n += 1
            is_new = n % 2 == 0
            await users.converse(3 if is_new else 1, 0.1 if is_new else 0.9, propensity=0.5)
            clock.advance(-3000)  # a conversation every ten minutes
            await cue.work()
        clock.advance(3600)
        assert n > 60
        assert await active(cue) == 3, "once a day"
        clock.set(rolled_back_at + DAY + 3600)
        await cue.work()
        assert await active(cue) == 1, "detected again the day after, by the clock alone"
        clock.advance(2 * DAY)
        for _ in range(40):
            await users.converse(1, 0.1)
        await cue.work()
        assert [(each.number, each.to) for each in await rollbacks(cue)] == [(2, 1), (3, 1)], (
            "the restored version stays"
        )


async def test_two_processes_roll_back_once(tmp_path, clock):
    async with open_database(tmp_path, clock, "off") as cue:
        users = Users(cue, clock)
        await write(cue, "one")
        await users.before(1, conversations=25)
        await write(cue, "two")
        for n in range(60):
            await users.converse(1 + n % 2, 0.1 if n % 2 else 0.9, propensity=0.5)
        await cue.work()
        assert await active(cue) == 2, "rollback is off"
    async with open_database(tmp_path, clock) as one, open_database(tmp_path, clock) as two:
        await asyncio.gather(*(cue.work() for cue in (one, two) * 3))
        assert await active(one) == await active(two) == 1
        assert len(await rollbacks(one)) == 1
        records = await two.audit.list(limit=1000)
        assert len([each for each in records if each.event == "rollback"]) == 1


# ---- without a control ----------------------------------------------------------------------------------------------


class Program:
    """A program that renders versions itself and reports outcomes, without turns in between."""

    def __init__(self, cue, clock, *, named=True):
        self.cue, self.clock, self.named, self.dice, self.count = cue, clock, named, random.Random(3), 0

    async def show(self, times, mean, *, slug=SLUG, branch="main"):
        """Report outcomes. Return their number until the rollback, 0 for none."""
        for n in range(1, times + 1):
            self.count += 1
            self.clock.advance(0.05)
            result = await self.cue.prompts.observe(
                slug,
                branch=branch,
                sentiment=min(max(self.dice.gauss(mean, 0.1), 0.0), 1.0),
                outcome="success" if self.dice.random() < mean else "failure",
                conversation=f"shown {self.count}" if self.named else "",
            )
            if result.rolled_back:
                return n
        return 0


@pytest.mark.parametrize("named", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_a_gross_fall_reported_by_a_program_is_rolled_back(tmp_path, clock, named):
    async with open_database(tmp_path, clock) as cue:
        program = Program(cue, clock, named=named)
        await write(cue, "one")
        await program.show(40, 0.9)
        await write(cue, "two")
        assert await program.show(80, 0.9) == 0, "as good as before"
        await write(cue, "three")
        assert 20 <= await program.show(60, 0.2) <= 30
        assert await active(cue) == 2
        [event] = await rollbacks(cue)
        assert (event.number, event.to, event.evidence["method"]) == (3, 2, "sigma")


async def test_a_version_that_breaks_later_is_compared_with_its_start(tmp_path, clock):
    async with open_database(tmp_path, clock) as cue:
        program = Program(cue, clock)
        await write(cue, "one", "two")
        assert await program.show(60, 0.9) == 0
        assert await program.show(60, 0.2)
        assert await active(cue) == 1


@pytest.mark.parametrize("others", [0.9, 0.2])
@pytest.mark.slow
async def test_a_variant_is_reverted_only_if_it_falls_alone(tmp_path, clock, others):
    async with open_database(tmp_path, clock) as cue:
        program = Program(cue, clock)
        await write(cue, "one")
        await cue.prompts.fork(SLUG, "warm")
        await cue.prompts.save(SLUG, {"body": "warm"}, branch="warm")
        for _ in range(40):
            await program.show(1, 0.9)
            await program.show(1, 0.9, branch="warm")
        for _ in range(60):
            assert not await program.show(1, others), "it has no earlier version"
            await program.show(1, 0.2, branch="warm")
        branch = (await cue.prompts.family(SLUG)).branch("warm")
        assert (branch.active, branch.rolled_back) == ((1, (2,)) if others > 0.5 else (2, ()))


async def test_unknown_rollback_settings_are_refused():
    with pytest.raises(InvalidInput, match="Available: guarded, off, sigma"):
        async with open_database(None, None, "sometimes"):
            pass


# ---- in turns -------------------------------------------------------------------------------------------------------


def write_persona(folder):
    """Write the persona and the key that decides the random selection."""
    (folder / "personas").mkdir()
    (folder / "personas" / "helper.json").write_text(json.dumps(PERSONA))
    (folder / "cuebook.db.key").write_text("07" * 32)


def prompt_texts(reply):
    return [block.text for block in reply.window.blocks if block.source.startswith(f"prompt:{SLUG}@")]


def sentiment_for(text, n):
    return (0.0 if text == "two" else 0.9) + 0.1 * (n % 2)


async def round_of(cue, conversation, *, user=None):
    reply = await cue.ask(Ask("hello", conversation, persona="helper", user=user))
    return prompt_texts(reply)[0], reply.metadata.get("promptVariants", {}).get(SLUG)


@pytest.mark.slow
async def test_the_control_keeps_its_share_and_its_conversations(tmp_path, clock):
    write_persona(tmp_path)
    async with open_database(tmp_path, clock) as cue:
        users = Users(cue, clock)
        await write(cue, "one")
        await users.before(1, conversations=25)
        await write(cue, "two")
        texts = {}
        for n in range(80):
            text, selection = await round_of(cue, f"c{n}")
            texts[n] = text
            assert selection == {
                "branch": "main", "version": 2 if text == "two" else 1, "propensity": 0.5, "share": 0.5,
                "trial": selection["trial"],
            }  # fmt: skip
            outcome = await cue.prompts.observe(SLUG, sentiment=sentiment_for(text, n), conversation=f"c{n}")
            if n < 10:
                assert await round_of(cue, f"c{n}") == (text, selection), "the selection is sticky"
            clock.advance(3600)
            if outcome.rolled_back:
                break
        assert 0.25 < sum(text == "two" for text in texts.values()) / len(texts) < 0.75
        observations = [
            each for each in await cue.services.prompts.observations(_scope(), SLUG) if each.conversation[0] == "c"
        ]
        assert {(each.number, each.share, each.propensity) for each in observations} == {(1, 0.5, 0.5), (2, 0.5, 0.5)}
        assert await active(cue) == 1, "observed automatically, without named versions"
        assert {(await round_of(cue, f"d{n}"))[0] for n in range(12)} == {"one"}, "not explored"
        await cue.prompts.clear(SLUG, 2, by="ann")
        assert {(await round_of(cue, f"e{n}"))[0] for n in range(12)} == {"one", "two"}, "explored again"
        await cue.work()
        assert (await cue.prompts.family(SLUG)).branch("main").rolled_back == (), "only on new evidence"
        clock.advance(DAY)
        for n in range(80):
            text, _ = await round_of(cue, f"f{n}")
            await cue.prompts.observe(SLUG, sentiment=sentiment_for(text, n), conversation=f"f{n}")
            clock.advance(3600)
        await cue.work()
        branch = (await cue.prompts.family(SLUG)).branch("main")
        assert (branch.active, branch.rolled_back, len(await rollbacks(cue))) == (1, (2,), 2)


@pytest.mark.slow
async def test_one_minute_conversations_are_enough(tmp_path, clock):
    write_persona(tmp_path)
    async with open_database(tmp_path, clock) as cue:
        await write(cue, "one")
        for n in range(25):
            await round_of(cue, f"b{n}")
            await cue.prompts.observe(SLUG, sentiment=0.9, conversation=f"b{n}")
        clock.advance(1)
        await write(cue, "two")
        results = 0
        for n in range(150):
            text, _ = await round_of(cue, f"c{n}")
            if (await cue.prompts.observe(SLUG, sentiment=sentiment_for(text, n), conversation=f"c{n}")).rolled_back:
                results = n
                break
            clock.advance(0.3)
        assert results >= 20
        assert await active(cue) == 1
        assert (await rollbacks(cue))[0].evidence["method"] == "betting"


async def test_without_observation_an_edit_applies_to_everyone(tmp_path, clock):
    write_persona(tmp_path)
    async with open_database(tmp_path, clock) as cue:
        await write(cue, "one", "two")
        assert {await round_of(cue, f"c{n}") == ("two", None) for n in range(12)} == {True}


def _scope():
    from cuebook.records.memory import Scope

    return Scope()
