"""What a turn's prompt would have been: held against books in which it was so all along."""

import json

import pytest
from stage import NAME, cue_on, on, told

from cuebook import Ask, Cuebook
from cuebook.app.setup.project_files import load_config
from cuebook.app.setup.project_templates import init_project
from cuebook.errors import Denied, InvalidInput, NotFound
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


def beside(window):
    return [each.text for each in window.blocks if each.kind in ("memory", "mind", "experience")]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "personas").mkdir()
    helper = {"id": "helper", "name": "Ada", "baseSystemPrompt": "You are Ada."}
    (tmp_path / "personas" / "helper.json").write_text(json.dumps(helper))
    return tmp_path


async def told_twice(cue, clock):
    await told(cue, clock, "I am allergic to nuts.", "c1")
    await told(cue, clock, "I live in Oslo.", "c2")
    return await told(cue, clock, "What am I allergic to, nuts or milk, and where do I live?", NAME)


async def test_a_window_with_memories_is_decided_again_byte_for_byte(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        reply = await told_twice(cue, clock)
        assert len([each for each in reply.window.blocks if each.source.startswith("memory:")]) == 2
        later = await told(cue, clock, "And what shall I cook there?", NAME)
        for n, window in ((1, reply.window), (2, later.window)):
            found = (await cue.turns.replay(NAME, n, as_of=n)).counterfactual
            assert found.reproduced
            assert found.before.messages == window.messages
            assert found.after.messages == window.messages, "memory held then what it held"
            assert (found.left_out, found.let_in, found.changed) == ((), (), ())


@pytest.mark.parametrize("budget", [None, 900])
async def test_each_window_of_long_talks_is_decided_again(tmp_path, clock, budget):
    """With memories, states of mind and experiences beside the query, and what of them has no room."""
    init_project(tmp_path)
    arguments = {"memory.user": True, "store.synchronous": "OFF"}
    model = ScriptedModel(default="Noted, I will keep that in mind.")
    settings = load_config(tmp_path, environment={}, arguments=arguments)
    seen = set()
    async with Cuebook.open(settings, model=model, clock=clock, worker=False) as cue:
        for number in range(24):
            text = TALK[number * 5 % len(TALK)] + " The sea is calm today." * (number % 9)
            await told(cue, clock, text, f"c{number % 3}", persona="engineer", token_budget=budget)
        for number in range(24):
            name, n = f"c{number % 3}", number // 3 + 1
            found = (await cue.turns.replay(name, n, with_prompt=["agent_init"])).counterfactual
            assert found.reproduced, (name, n)
            assert found.after.messages == found.before.messages
            seen |= {each.kind for each in found.before.blocks}
            seen |= {f"no room for {each.kind}" for each in found.before.dropped}
    assert seen >= {"memory", "mind", "no room for memory" if budget else "experience"}


async def test_as_of_an_earlier_turn_the_summary_of_then_stands(tmp_path, clock):
    async with cue_on(tmp_path, clock=clock, memory__profile="standard") as cue:
        for number in range(60):
            await told(
                cue, clock, f"Ferry {number} goes to Texel at {number % 24}:15. " + "The sea is calm. " * 40, NAME
            )
        turns = await cue.turns.last(NAME, last=60)
        versions = [each.steps[0].manifest.summary_version for each in turns]
        assert versions[-1] >= 2
        early = versions.index(1) + 1
        found = (await cue.turns.replay(NAME, 60, as_of=early, user="ann")).counterfactual
        assert [each.source for each in found.let_in if each.kind == "summary"] == ["summary:1"]
        assert [each.source for each in found.left_out if each.kind == "summary"] == [f"summary:{versions[-1]}"]
        assert len([each for each in found.let_in if each.kind == "post"]) > 0, "they stood under the newer one"
        now = (await cue.turns.replay(NAME, early, as_of="2100-01-01")).counterfactual
        [shown] = [each.source for each in now.after.blocks if each.kind == "summary"]
        summary = await cue.memory.summary(NAME, version=int(shown.removeprefix("summary:")))
        assert summary.upto_seq < turns[early - 1].query_seq, "newer ones tell what came behind its query"
        none = (await cue.turns.replay(NAME, 60, as_of="1990-01-01")).counterfactual
        assert not [each for each in none.after.blocks if each.kind == "summary"]


async def test_without_a_memory_all_else_stays(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        reply = await told_twice(cue, clock)
        [gone] = [each.source for each in reply.window.blocks if "allergic" in each.text and each.kind == "memory"]
        replay = await cue.turns.replay(NAME, 1, without=[gone])
        found = replay.counterfactual
        assert replay.verdict == "identical"
        assert sources(found.left_out) == [gone]
        assert (found.let_in, found.changed) == ((), ())
        assert [text for text in beside(reply.window) if "allergic" not in text] == beside(found.after)
        assert found.after.tokens < found.before.tokens == reply.window.tokens
        again = (await cue.turns.replay(NAME, 1, without=[gone.removeprefix("memory:")])).counterfactual
        assert again.after == found.after
        with pytest.raises(InvalidInput, match=r"did not use memory:0123456789abcdef. Its recalled sources: memory:"):
            await cue.turns.replay(NAME, 1, without=["0123456789abcdef"])
        assert (await cue.conversations.get(NAME)).turns == 1, "nothing was stored"


async def test_memory_as_of_another_time(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        await told(cue, clock, "My rent is 900 euros.", "c1")
        await told(cue, clock, "How high is my rent?", NAME)
        await told(cue, clock, "My rent is 950 euros now.", "c3")
        now = (await cue.turns.replay(NAME, 1, as_of="2100-01-01")).counterfactual
        assert any("950" in each.text for each in now.let_in)
        assert [text[-9:] for text in beside(now.after)] == ["uros now.", "00 euros."], "the newer one first"
        then = (await cue.turns.replay(NAME, 1, as_of="1990-01-01T00:00:00Z")).counterfactual
        assert [each.text for each in then.left_out] == beside(then.before)
        assert beside(then.after) == []
        with pytest.raises(InvalidInput, match="invalid time 'yesterday'"):
            await cue.turns.replay(NAME, 1, as_of="yesterday")
        with pytest.raises(NotFound):
            await cue.turns.replay(NAME, 1, as_of=9)


async def test_another_version_of_a_prompt(place):
    async with cue_on(place) as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT}, params=["agent_name"])
        for at in range(3):
            await cue.ask(Ask(f"Ferry {at} goes to Texel.", NAME, persona="helper"))
        await cue.prompts.save("persona/helper", {"body": LONG})
        later = await cue.ask(Ask("Ferry 9 goes to Texel.", "other", persona="helper"))
        found = (await cue.turns.replay(NAME, 2, with_prompt=["persona/helper"])).counterfactual
        assert found.reproduced
        assert sources(found.left_out) == ["prompt:persona/helper@main:1"]
        assert sources(found.let_in) == ["prompt:persona/helper@main:2"]
        assert found.after.messages[0] == later.window.messages[0]
        assert found.after.messages[1:] == found.before.messages[1:]
        back = (await cue.turns.replay("other", 1, with_prompt=["prompt:persona/helper@main:1"])).counterfactual
        assert back.after.messages[0] == found.before.messages[0]
        await cue.prompts.save("persona/other", {"body": "x"})
        with pytest.raises(InvalidInput, match=r"Turn 2 did not use prompt .*Its prompts: prompt:persona/helper@"):
            await cue.turns.replay(NAME, 2, with_prompt=["persona/other"])
        with pytest.raises(NotFound):
            await cue.turns.replay(NAME, 2, with_prompt=["persona/helper:7"])


async def test_a_prompt_that_leaves_no_room_is_said_to_be_refused(place):
    async with cue_on(place) as cue:
        await cue.prompts.save("persona/helper", {"body": SHORT}, params=["agent_name"])
        for at in range(12):
            text = f"Ferry {at} goes to Texel. " + "The sea is calm, and the crew in a good mood. " * 6
            await cue.ask(Ask(text, NAME, persona="helper", token_budget=700))
        await cue.prompts.save("persona/helper", {"body": "Be kind. " * 120})
        found = (await cue.turns.replay(NAME, 12, with_prompt=["persona/helper"])).counterfactual
        assert found.posts[1] > found.posts[0]
        await cue.prompts.save("persona/helper", {"body": "Be kind. " * 2000})
        found = (await cue.turns.replay(NAME, 12, with_prompt=["persona/helper"])).counterfactual
        assert found.after is None
        assert "Window too small" in found.refused


async def test_a_model_answers_what_would_have_been_asked_and_the_audit_says_so(tmp_path, clock):
    model = ScriptedModel(default="Noted.")
    async with on(tmp_path, clock, model=model) as cue:
        reply = await told_twice(cue, clock)
        [gone] = [each.source for each in reply.window.blocks if "allergic" in each.text and each.kind == "memory"]
        before = len(model.requests)
        assert (await cue.turns.replay(NAME, 1, without=[gone])).counterfactual.answer is None
        assert len(model.requests) == before
        found = (await cue.turns.replay(NAME, 1, without=[gone], ask=True)).counterfactual
        assert found.answer == "Noted."
        assert model.requests[-1].messages == found.after.messages
        assert model.requests[-1].purpose == "counterfactual"
        [record] = await cue.audit.tail(1)
        assert (record.event, record.prompt_id) == ("counterfactual", "turn/1")
        told_by = await cue.audit.get(record.seq)
        assert told_by.conversation == NAME
        assert (await cue.conversations.get(NAME)).turns == 1


async def test_it_is_not_for_who_was_let_in(tmp_path, clock):
    async with on(tmp_path, clock) as cue:
        await told_twice(cue, clock)
        await cue.conversations.participants(NAME, ["bob"], user="ann")
        assert (await cue.turns.replay(NAME, 1, user="bob")).verdict == "withheld"
        with pytest.raises(Denied):
            await cue.turns.replay(NAME, 1, as_of=1, user="bob")
        with pytest.raises(NotFound):
            await cue.turns.replay(NAME, 1, as_of=1, user="eve")
