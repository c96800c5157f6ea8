"""Tests of what-if replay: a recomputed prompt equals that of a database with the change all along."""

import json
from random import Random

import pytest
from turn_helpers import NAME, ask_and_settle, cue_on, open_with_memory

from cuebook import Ask, Cuebook, Posted
from cuebook.app.setup.project_files import load_config
from cuebook.app.setup.project_templates import init_project
from cuebook.errors import Denied, InvalidInput, NotFound
from cuebook.records.memory import Scope
from cuebook.testing import ScriptedModel

SHORT, LONG = "You are $agent_name.", "You are $agent_name. Be kind, and tell what you know of harbours."

TALK = (
    "I live in Oslo now.",
    "I am allergic to shrimp.",
    "Can you help me sort a list of dates in Python?",
    "That gives me a ValueError again, this is so annoying and it still does not work!!",
    "Where do I live, and what must I not eat?",
    "My project Harbour is written in Rust.",
    "I prefer answers in Dutch.",
)


def sources(blocks):
    return [each.source for each in blocks]


def context_texts(window):
    return [each.text for each in window.blocks if each.kind in ("memory", "mind", "experience")]


@pytest.fixture
def project(tmp_path):
    (tmp_path / "personas").mkdir()
    helper = {"id": "helper", "name": "Ada", "baseSystemPrompt": "You are Ada."}
    (tmp_path / "personas" / "helper.json").write_text(json.dumps(helper))
    return tmp_path


async def ask_with_two_memories(cue, clock):
    await ask_and_settle(cue, clock, "I am allergic to nuts.", "c1")
    await ask_and_settle(cue, clock, "I live in Oslo.", "c2")
    return await ask_and_settle(cue, clock, "What am I allergic to, nuts or milk, and where do I live?", NAME)


async def test_a_window_with_memories_is_recomputed_byte_for_byte(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        reply = await ask_with_two_memories(cue, clock)
        assert len([each for each in reply.window.blocks if each.source.startswith("memory:")]) == 2
        later = await ask_and_settle(cue, clock, "And what shall I cook there?", NAME)
        for n, window in ((1, reply.window), (2, later.window)):
            comparison = (await cue.turns.replay(NAME, n, as_of=n)).counterfactual
            assert comparison.reproduced
            assert comparison.before.raw_messages == window.raw_messages
            assert comparison.after.raw_messages == window.raw_messages, "the memory has its state of that time"
            assert (comparison.left_out, comparison.let_in, comparison.changed) == ((), (), ())


async def test_recalled_messages_are_recomputed_though_many_match(tmp_path, clock):
    """More messages match than a turn ranks, and more follow it."""
    random, words = Random(4), ("kayak", "cello", "tulip", "ladder", "red", "wooden", "ok", "nice", "rain")
    said = [" ".join(random.choices(words, k=random.randint(1, 5))) for _ in range(900)]
    posted = [Posted(id=f"p{n}", sender="ann", message=text) for n, text in enumerate(said)]
    async with cue_on(tmp_path, clock=clock, budget__context=9_000, budget__window_posts=5) as cue:
        await cue.append(NAME, posted[:800], user="ann")
        reply = await cue.ask(Ask("Where is the red kayak?", NAME, user="ann"))
        assert any(each.kind == "memory" for each in reply.window.blocks)
        await cue.append(NAME, posted[800:], user="ann")
        assert (await cue.turns.replay(NAME, 1, as_of=1)).counterfactual.reproduced


@pytest.mark.parametrize("budget", [None, 650])
@pytest.mark.slow
async def test_each_window_of_long_conversations_is_recomputed(tmp_path, clock, budget):
    """The windows contain memories, moods and experiences, and drop the ones that do not fit."""
    init_project(tmp_path)
    arguments = {"memory.user": True, "store.synchronous": "OFF"}
    model = ScriptedModel(default="Noted, I will keep that in mind.")
    settings = load_config(tmp_path, environment={}, arguments=arguments)
    kinds = set()
    async with Cuebook.open(settings, model=model, clock=clock, worker=False) as cue:
        for number in range(24):
            text = TALK[number * 5 % len(TALK)] + " The sea is calm today." * (number % 9)
            await ask_and_settle(cue, clock, text, f"c{number % 3}", persona="engineer", token_budget=budget)
        for number in range(24):
            name, n = f"c{number % 3}", number // 3 + 1
            comparison = (await cue.turns.replay(name, n, with_prompt=["agent_init"])).counterfactual
            assert comparison.reproduced, (name, n)
            assert comparison.after.raw_messages == comparison.before.raw_messages
            kinds |= {each.kind for each in comparison.before.blocks}
            kinds |= {f"no room for {each.kind}" for each in comparison.before.dropped}
    assert kinds >= ({"memory", "no room for memory"} if budget else {"memory", "mind", "experience"})


@pytest.mark.slow
async def test_an_earlier_turn_uses_the_summary_of_its_time(tmp_path, clock):
    async with cue_on(tmp_path, clock=clock, memory__profile="standard") as cue:
        for number in range(60):
            await ask_and_settle(
                cue, clock, f"Ferry {number} goes to Texel at {number % 24}:15. " + "The sea is calm. " * 40, NAME
            )
        turns = await cue.services.store.turns(Scope(), NAME, last=60)
        versions = [each.steps[0].manifest.summary_version for each in turns]
        assert versions[-1] >= 2
        early = versions.index(1) + 1
        comparison = (await cue.turns.replay(NAME, 60, as_of=early, user="ann")).counterfactual
        assert [each.source for each in comparison.let_in if each.kind == "summary"] == ["summary:1"]
        assert [each.source for each in comparison.left_out if each.kind == "summary"] == [f"summary:{versions[-1]}"]
        assert len([each for each in comparison.let_in if each.kind == "post"]) > 0, "the newer summary covered them"
        now = (await cue.turns.replay(NAME, early, as_of="2100-01-01")).counterfactual
        [source] = [each.source for each in now.after.blocks if each.kind == "summary"]
        summary = await cue.services.store.summary(Scope(), NAME, version=int(source.removeprefix("summary:")))
        assert summary.upto_seq < turns[early - 1].query_seq, "newer summaries include posts behind its query"
        none = (await cue.turns.replay(NAME, 60, as_of="1990-01-01")).counterfactual
        assert not [each for each in none.after.blocks if each.kind == "summary"]


async def test_removing_a_memory_leaves_everything_else_unchanged(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        reply = await ask_with_two_memories(cue, clock)
        [removed] = [each.source for each in reply.window.blocks if "allergic" in each.text and each.kind == "memory"]
        replay = await cue.turns.replay(NAME, 1, without=[removed])
        comparison = replay.counterfactual
        assert replay.verdict == "identical"
        assert sources(comparison.left_out) == [removed]
        assert (comparison.let_in, comparison.changed) == ((), ())
        assert [text for text in context_texts(reply.window) if "allergic" not in text] == context_texts(
            comparison.after
        )
        assert comparison.after.tokens < comparison.before.tokens == reply.window.tokens
        second = (await cue.turns.replay(NAME, 1, without=[removed.removeprefix("memory:")])).counterfactual
        assert second.after == comparison.after
        with pytest.raises(InvalidInput, match=r"did not use memory:0123456789abcdef. Its recalled sources: memory:"):
            await cue.turns.replay(NAME, 1, without=["0123456789abcdef"])
        assert (await cue.conversations.get(NAME)).turns == 1, "nothing was stored"


async def test_memory_is_recomputed_as_of_another_time(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_and_settle(cue, clock, "My rent is 900 euros.", "c1")
        await ask_and_settle(cue, clock, "How high is my rent?", NAME)
        await ask_and_settle(cue, clock, "My rent is 950 euros now.", "c3")
        now = (await cue.turns.replay(NAME, 1, as_of="2100-01-01")).counterfactual
        assert any("950" in each.text for each in now.let_in)
        assert [text[-9:] for text in context_texts(now.after)] == ["uros now.", "00 euros."], (
            "the newer memory comes first"
        )
        past = (await cue.turns.replay(NAME, 1, as_of="1990-01-01T00:00:00Z")).counterfactual
        assert [each.text for each in past.left_out] == context_texts(past.before)
        assert context_texts(past.after) == []
        with pytest.raises(InvalidInput, match="invalid time 'yesterday'"):
            await cue.turns.replay(NAME, 1, as_of="yesterday")
        with pytest.raises(NotFound):
            await cue.turns.replay(NAME, 1, as_of=9)


async def test_another_prompt_version_is_compared(project):
    async with cue_on(project) as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT}, params=["agent_name"])
        for at in range(3):
            await cue.ask(Ask(f"Ferry {at} goes to Texel.", NAME, persona="helper"))
        await cue.prompts.save("persona/helper", {"body": LONG})
        later = await cue.ask(Ask("Ferry 9 goes to Texel.", "other", persona="helper"))
        comparison = (await cue.turns.replay(NAME, 2, with_prompt=["persona/helper"])).counterfactual
        assert comparison.reproduced
        assert sources(comparison.left_out) == ["prompt:persona/helper@main:1"]
        assert sources(comparison.let_in) == ["prompt:persona/helper@main:2"]
        assert comparison.after.raw_messages[0] == later.window.raw_messages[0]
        assert comparison.after.raw_messages[1:] == comparison.before.raw_messages[1:]
        back = (await cue.turns.replay("other", 1, with_prompt=["prompt:persona/helper@main:1"])).counterfactual
        assert back.after.raw_messages[0] == comparison.before.raw_messages[0]
        await cue.prompts.save("persona/other", {"body": "x"})
        with pytest.raises(InvalidInput, match=r"turn 2 did not use prompt .*Its prompts: prompt:persona/helper@"):
            await cue.turns.replay(NAME, 2, with_prompt=["persona/other"])
        with pytest.raises(NotFound):
            await cue.turns.replay(NAME, 2, with_prompt=["persona/helper:7"])


async def test_a_prompt_that_leaves_no_room_is_reported_as_refused(project):
    async with cue_on(project) as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT}, params=["agent_name"])
        for at in range(12):
            text = f"Ferry {at} goes to Texel. " + "The sea is calm, and the crew in a good mood. " * 6
            await cue.ask(Ask(text, NAME, persona="helper", token_budget=700))
        await cue.prompts.save("persona/helper", {"body": "Be kind. " * 120})
        comparison = (await cue.turns.replay(NAME, 12, with_prompt=["persona/helper"])).counterfactual
        assert comparison.posts[1] > comparison.posts[0]
        await cue.prompts.save("persona/helper", {"body": "Be kind. " * 2000})
        comparison = (await cue.turns.replay(NAME, 12, with_prompt=["persona/helper"])).counterfactual
        assert comparison.after is None
        assert "Window too small" in comparison.refused


async def test_a_model_answers_the_what_if_prompt_and_is_audited(tmp_path, clock):
    model = ScriptedModel(default="Noted.")
    async with open_with_memory(tmp_path, clock, model=model) as cue:
        reply = await ask_with_two_memories(cue, clock)
        [removed] = [each.source for each in reply.window.blocks if "allergic" in each.text and each.kind == "memory"]
        before = len(model.requests)
        assert (await cue.turns.replay(NAME, 1, without=[removed])).counterfactual.answer is None
        assert len(model.requests) == before
        comparison = (await cue.turns.replay(NAME, 1, without=[removed], ask=True)).counterfactual
        assert comparison.answer == "Noted."
        assert model.requests[-1].messages == comparison.after.raw_messages
        assert model.requests[-1].purpose == "counterfactual"
        [record] = await cue.audit.tail(1)
        assert (record.event, record.prompt_id) == ("counterfactual", "turn/1")
        detail = await cue.audit.get(record.seq)
        assert detail.conversation_id == NAME
        assert (await cue.conversations.get(NAME)).turns == 1


async def test_an_invited_user_may_not_run_what_if(tmp_path, clock):
    async with open_with_memory(tmp_path, clock) as cue:
        await ask_with_two_memories(cue, clock)
        await cue.conversations.participants(NAME, ["bob"], user="ann")
        assert (await cue.turns.replay(NAME, 1, user="bob")).verdict == "withheld"
        with pytest.raises(Denied):
            await cue.turns.replay(NAME, 1, as_of=1, user="bob")
        with pytest.raises(NotFound):
            await cue.turns.replay(NAME, 1, as_of=1, user="eve")
