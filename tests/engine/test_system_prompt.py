"""What stands in front of a turn: the persona's chain, the profile's add-ons, the variant of this conversation."""

import json

import pytest
from stage import NAME, Client, cue_on

from cuebook import Ask, Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.errors import InvalidInput
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.memory import Scope
from cuebook.testing import ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream, call, completion, result

PRESETS = {
    "routing": {"reviewEveryNTurns": 3, "defaultPresetId": "short", "defaultPresetByMode": {"coding": "code"}},
    "presets": [
        {"id": "short", "addonPromptKeys": ["_meta/short"]},
        {"id": "code", "addonPromptKeys": ["_meta/code", "_meta/short"]},
        {"id": "plan", "addonPromptKeys": ["_meta/plan"]},
    ],
    "rules": [{"id": "plans", "priority": 5, "anyKeywords": ["plan"], "presetId": "plan"}],
}
HELPER = {
    "id": "helper",
    "name": "Ada",
    "baseSystemPrompt": "You are Ada.",
    "prompts": {"init": "agent_init", "persona": "persona/kind", "fallback": "system/fallback"},
}


@pytest.fixture
def place(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "personas").mkdir()
    (tmp_path / "personas" / "helper.json").write_text(json.dumps(HELPER))
    return tmp_path


async def fill(cue):
    """Write the prompts that persona and presets name."""
    for slug in ("short", "code", "plan"):
        await cue.prompts.save(f"_meta/{slug}", {"body": f"Add-on {slug}."})
    await cue.prompts.save("default/agent_init", {"body": "Begin with $user_name."}, params=["user_name"])
    await cue.prompts.save("persona/kind", {"body": "Be kind."})
    await cue.prompts.save("system/fallback", {"body": "Say that you cannot."})


async def prepare(place):
    (place / "cuebook.db.key").write_text("07" * 32)  # it decides which variants speak
    async with cue_on(place) as cue:
        await fill(cue)
    (place / "config" / "metaprompt-presets.json").write_text(json.dumps(PRESETS))


def front(window):
    return [(block.kind, block.source, block.text) for block in window.blocks if block.role == "system"]


async def asked(cue, text, **fields):
    reply = await cue.ask(Ask(text, NAME, persona="helper", **fields))
    return reply.metadata.get("promptProfile"), reply.window


async def test_the_chain_and_the_add_ons_stand_in_order_and_are_named(place):
    await prepare(place)
    async with cue_on(place) as cue:
        profile, window = await asked(cue, "hello", user="ann")
        assert front(window) == [
            ("persona", "persona:helper@1.0.0", "You are Ada."),
            ("section", "prompt:default/agent_init@main:1", "Begin with ann."),
            ("persona", "prompt:persona/kind@main:1", "Be kind."),
            ("addon", "prompt:_meta/short@main:1", "Add-on short."),
        ]
        assert profile == {
            "presetId": "short", "addonPromptKeys": ["_meta/short"], "wasReviewed": True, "reason": "default",
            "reviewedAt": 1,
        }  # fmt: skip
        assert json.loads(window.messages[0])["content"].startswith("You are Ada.\n\nBegin with ann.\n\nBe kind.")
        assert (await cue.turns.replay(NAME, 1)).verdict == "identical"


async def test_a_profile_is_kept_and_reviewed_in_time_and_survives_a_restart(place):
    await prepare(place)
    told = []
    for texts in (("hello", "a plan please"), ("and now?", "a plan please", "more")):
        async with cue_on(place, dice=SystemDice()) as cue:
            told += [(await asked(cue, text))[0] for text in texts]
    assert [each["reason"] for each in told] == ["default", "cached", "cached", "rule:plans", "cached"]
    assert [each["presetId"] for each in told] == ["short", "short", "short", "plan", "plan"]
    assert [each["wasReviewed"] for each in told] == [True, False, False, True, False]


async def test_a_mode_chooses_its_preset_and_several_add_ons_combine(place):
    await prepare(place)
    async with cue_on(place) as cue:
        profile, window = await asked(cue, "hello", mode="coding")
        assert profile["reason"] == "defaultByModeExact:coding"
        assert [text for kind, _, text in front(window) if kind == "addon"] == ["Add-on code.", "Add-on short."]


async def test_an_edit_is_in_the_next_turn_and_a_rollback_takes_it_out_again(place):
    await prepare(place)
    async with cue_on(place) as cue:
        await asked(cue, "one")
        await cue.prompts.save("_meta/short", {"body": "Shorter."})
        _, window = await asked(cue, "two")
        assert front(window)[-1] == ("addon", "prompt:_meta/short@main:2", "Shorter.")
        await cue.prompts.roll_back("_meta/short", reason="too short")
        _, window = await asked(cue, "three")
        assert front(window)[-1] == ("addon", "prompt:_meta/short@main:1", "Add-on short.")
        for turn in (1, 2, 3):
            assert (await cue.turns.replay(NAME, turn)).verdict == "identical", "each as it was sent"


async def test_what_a_link_cannot_say_the_fallback_says_and_the_reason_is_told(place):
    await prepare(place)
    async with cue_on(place) as cue:
        await cue.prompts.save("persona/kind", {"body": "Be kind to $nobody_knows."}, params=["nobody_knows"])
        _, window = await asked(cue, "hello")
        assert ("section", "prompt:system/fallback@main:1", "Say that you cannot.") in front(window)
        [gone] = [each for each in window.dropped if each.kind == "persona"]
        assert gone.source == "prompt:persona/kind"
        assert "nobody_knows" in gone.reason


async def test_a_persona_in_the_book_stands_for_its_file(place):
    async with cue_on(place) as cue:
        await fill(cue)
        await cue.prompts.save("persona/helper", {"body": "I am $agent_name of $date."}, params=["agent_name", "date"])
        _, window = await asked(cue, "hello")
        kind, source, text = front(window)[0]
        assert (kind, source) == ("persona", "prompt:persona/helper@main:1")
        assert text.startswith("I am Ada of 20")


async def test_where_the_books_persona_cannot_be_said_its_file_says_it(place):
    async with cue_on(place) as cue:
        await fill(cue)
        await cue.prompts.save("default/persona/helper", {"body": "I am $nobody_knows."}, params=["nobody_knows"])
        _, window = await asked(cue, "hello")
        assert front(window)[0] == ("persona", "persona:helper@1.0.0", "You are Ada.")
        [gone] = [each for each in window.dropped if each.kind == "persona"]
        assert gone.source == "prompt:default/persona/helper"


async def test_a_link_that_names_the_personas_own_text_says_it_once_in_its_place(place):
    chain = {"init": "agent_init", "persona": "persona/helper"}
    (place / "personas" / "helper.json").write_text(json.dumps({**HELPER, "prompts": chain}))
    async with cue_on(place) as cue:
        await fill(cue)
        _, window = await asked(cue, "hello", user="ann")
        assert [text for _, _, text in front(window)] == ["You are Ada.", "Begin with ann."], "the book has none yet"
        await cue.prompts.save("default/persona/helper", {"body": "I am Ada."})
        _, window = await asked(cue, "hello", user="ann")
        assert front(window) == [
            ("section", "prompt:default/agent_init@main:1", "Begin with ann."),
            ("persona", "prompt:default/persona/helper@main:1", "I am Ada."),
        ]


async def test_a_persona_whose_name_is_no_id_has_its_file(place):
    (place / "personas" / "helper.json").write_text(json.dumps({"id": "Ada Ü", "baseSystemPrompt": "You are Ada."}))
    async with cue_on(place) as cue:
        reply = await cue.ask(Ask("hello", NAME, persona="Ada Ü"))
        assert front(reply.window) == [("persona", "persona:Ada Ü@1.0.0", "You are Ada.")]


async def test_a_new_projects_turns_are_told_prompts_of_its_book(tmp_path):
    init_project(tmp_path)
    async with Cuebook.open(tmp_path, model=ScriptedModel(default="Noted."), worker=False) as cue:
        reply = await cue.ask(Ask("hello", NAME))
        assert [source for _, source, _ in front(reply.window)] == [
            "prompt:default/agent_init@main:1",
            "prompt:default/persona/helper@main:1",
            "prompt:default/agent_summary@main:1",
            "prompt:_meta/concise@main:1",
        ]
        assert not reply.window.dropped
        assert (await cue.turns.replay(NAME, 1)).verdict == "identical"


async def test_a_conversation_keeps_its_variant_and_assembling_twice_gives_the_same(place):
    await prepare(place)
    async with cue_on(place) as cue:
        await cue.prompts.fork("persona/kind", "warm")
        await cue.prompts.save("persona/kind", {"body": "Be warm."}, branch="warm")
        texts = set()
        for n in range(40):
            ask = Ask("hello", f"c{n}", persona="helper")
            first, second = await cue.assemble(ask), await cue.assemble(ask)
            assert first.messages == second.messages
            if n > 10 and json.dumps(front(first)) in texts:
                continue
            replies = [await cue.ask(ask) for _ in range(2)]
            said = {json.dumps(front(reply.window)) for reply in replies}
            assert len(said) == 1, "sticky"
            texts |= said
            variant = replies[0].metadata["promptVariants"]["persona/kind"]
            assert 0 < variant["propensity"] <= 1
            assert replies[0].metadata["promptVariant"] == {
                "id": "persona/kind", "version": variant["version"], "branch": variant["branch"],
                "propensity": variant["propensity"], "signals": {"task_casual": 1.0},
            }  # fmt: skip
        assert len(texts) == 2, "both are tried"


@pytest.mark.parametrize("mode", ["off", "sigma", "guarded"])
async def test_an_observation_is_about_the_variant_that_spoke_in_its_conversation(place, mode):
    await prepare(place)
    async with cue_on(place, prompts__rollback=mode) as cue:
        slug = "persona/kind"
        await cue.prompts.fork(slug, "warm")
        await cue.prompts.save(slug, {"body": "Be warm."}, branch="warm")
        spoke = set()
        for n in range(40):
            told = (await cue.ask(Ask("hello", f"c{n}", persona="helper"))).metadata["promptVariants"][slug]
            await cue.prompts.observe(slug, sentiment=1.0, conversation=f"c{n}")
            spoke.add((f"c{n}", told["branch"], told["version"]))
        await cue.prompts.observe(slug, sentiment=1.0, conversation="c0", branch="main")
        await cue.prompts.observe(slug, sentiment=1.0, conversation="nobody's")
        seen = await cue.desk.prompts.observations(Scope(), slug)
        assert {(each.conversation, each.branch, each.number) for each in seen[:40]} == spoke
        assert {each.branch for each in seen[:40]} == {"main", "warm"}
        assert [each.branch for each in seen[40:]] == ["main", "main"], "as named; nobody knows"


async def test_a_prompt_changed_in_an_open_round_waits_for_the_next(place):
    await prepare(place)
    upstream = ScriptedUpstream()
    async with cue_on(place, upstream=upstream, persona__default="helper") as cue:
        client = Client(cue, upstream)
        client.history = [{"role": "user", "content": "look"}]
        upstream.say(completion("", calls=[call("c1", "look", {})]))
        client.history.append(json.loads(await client.send())["choices"][0]["message"])
        await cue.prompts.save("persona/kind", {"body": "Be quick."})
        client.history.append(result("c1", "seen"))
        upstream.say(completion("done"))
        client.history.append(json.loads(await client.send())["choices"][0]["message"])
        assert "Be kind." in upstream.messages()[0]["content"]
        await client.say("next")
        assert "Be quick." in upstream.messages()[0]["content"]


async def test_a_persona_that_waits_to_be_asked_for_leaves_a_programs_own_system_text_alone(tmp_path):
    init_project(tmp_path)
    upstream = ScriptedUpstream(default=completion("Aye."))
    own = {"role": "system", "content": "You are a pirate."}
    chosen = {"persona__default": "helper", "persona__speaks": "asked", "model__name": "m"}
    presets = {"memory__presets": "config/metaprompt-presets.json"}
    async with cue_on(tmp_path, upstream=upstream, **chosen, **presets) as cue:
        client = Client(cue, upstream)
        client.history = [own]
        await client.say("An error again, the build is broken, debug it.")
        assert upstream.messages() == client.history[:2]
        shown = await cue.turns.show(NAME, 1)
        assert shown["metadata"]["personaSilent"] is True
        # It says nothing of itself with what is new: what was silent stays silent.
        await client.send([{"role": "user", "content": "And now?"}], server_history=True)
        assert "Helper" not in json.dumps(upstream.messages())
        # Asked for by its id it speaks before the program's text, and goes on to.
        other = Client(cue, upstream, conversation="asked")
        other.history = [own]
        await other.say("Hello.", model="helper")
        assert "You are Helper" in upstream.messages()[0]["content"]
        assert upstream.messages()[0]["content"].endswith("You are a pirate.")
        await other.say("Still there?")
        assert "You are Helper" in upstream.messages()[0]["content"]
        # A program without a text of its own gets both.
        plain = Client(cue, upstream, conversation="plain")
        await plain.say("Hello.")
        assert "You are Helper" in upstream.messages()[0]["content"]


async def test_an_add_on_nobody_wrote_is_a_fault_of_the_file(place):
    (place / "config" / "metaprompt-presets.json").write_text(json.dumps(PRESETS))
    with pytest.raises(InvalidInput, match=r"presets\[0\]\.addonPromptKeys\[0\]"):
        async with cue_on(place, model=ScriptedModel(default="x")):
            pass


async def test_signals_of_the_caller_choose_the_variant_that_fits(place):
    await prepare(place)
    async with cue_on(place) as cue:
        cue.desk.epsilon = 0.0
        await cue.prompts.fork("persona/kind", "code")
        weights = {"context_weights": {"task_coding": 1.0}}
        await cue.prompts.save("persona/kind", {"body": "Write code."}, branch="code", metadata=weights)
        for name, signals, said in (("c1", {"task_coding": 1.0}, "Write code."), ("c2", None, "Be kind.")):
            reply = await cue.ask(Ask("hello", name, persona="helper", signals=signals))
            assert said in json.loads(reply.window.messages[0])["content"]
            assert reply.metadata["promptVariants"]["persona/kind"]["contextFit"] == (1.0 if signals else 0.0)
        with pytest.raises(InvalidInput, match="task_coding"):
            await cue.ask(Ask("hello", "c3", persona="helper", signals={"task_coding": 7.0}))
