"""Tests of the system prompt: the persona's chain, the profile's add-ons and the selected variant."""

import json

import pytest
from msgspec.structs import replace
from turn_helpers import NAME, Client, cue_on

from cuebook import Ask, Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.errors import InvalidInput
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.answer import to_wire
from cuebook.records.memory import Scope
from cuebook.testing import ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import call, completion, result

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
def project(tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "personas").mkdir()
    (tmp_path / "personas" / "helper.json").write_text(json.dumps(HELPER))
    return tmp_path


async def fill(cue):
    """Write the prompts that the persona and the presets name."""
    for slug in ("short", "code", "plan"):
        await cue.prompts.save(f"_meta/{slug}", {"body": f"Add-on {slug}."})
    await cue.prompts.save("default/agent_init", {"body": "Begin with $user_name."}, params=["user_name"])
    await cue.prompts.save("persona/kind", {"body": "Be kind."})
    await cue.prompts.save("system/fallback", {"body": "Say that you cannot."})


async def prepare(project):
    (project / "cuebook.db.key").write_text("07" * 32)  # it decides which variants are selected
    async with cue_on(project) as cue:
        await fill(cue)
    (project / "config" / "metaprompt-presets.json").write_text(json.dumps(PRESETS))


def front(window):
    return [(block.kind, block.source, block.text) for block in window.blocks if block.role == "system"]


async def ask_profile(cue, text, **fields):
    reply = await cue.ask(Ask(text, NAME, persona="helper", **fields))
    return reply.metadata.get("promptProfile"), reply.window


async def test_the_chain_and_the_add_ons_are_ordered_and_recorded(project):
    await prepare(project)
    async with cue_on(project) as cue:
        profile, window = await ask_profile(cue, "hello", user="ann")
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
        assert json.loads(window.raw_messages[0])["content"].startswith("You are Ada.\n\nBegin with ann.\n\nBe kind.")
        assert (await cue.turns.replay(NAME, 1)).verdict == "identical"


async def test_a_profile_is_reviewed_in_time_and_survives_a_restart(project):
    await prepare(project)
    profiles = []
    for texts in (("hello", "a plan please"), ("and now?", "a plan please", "more")):
        async with cue_on(project, dice=SystemDice()) as cue:
            profiles += [(await ask_profile(cue, text))[0] for text in texts]
    assert [each["reason"] for each in profiles] == ["default", "cached", "cached", "rule:plans", "cached"]
    assert [each["presetId"] for each in profiles] == ["short", "short", "short", "plan", "plan"]
    assert [each["wasReviewed"] for each in profiles] == [True, False, False, True, False]


async def test_a_mode_selects_its_preset_and_add_ons_combine(project):
    await prepare(project)
    async with cue_on(project) as cue:
        profile, window = await ask_profile(cue, "hello", mode="coding")
        assert profile["reason"] == "defaultByModeExact:coding"
        assert [text for kind, _, text in front(window) if kind == "addon"] == ["Add-on code.", "Add-on short."]


async def test_the_next_turn_uses_an_edit_and_a_rollback_reverts_it(project):
    await prepare(project)
    async with cue_on(project) as cue:
        await ask_profile(cue, "one")
        await cue.prompts.save("_meta/short", {"body": "Shorter."})
        _, window = await ask_profile(cue, "two")
        assert front(window)[-1] == ("addon", "prompt:_meta/short@main:2", "Shorter.")
        await cue.prompts.roll_back("_meta/short", reason="too short")
        _, window = await ask_profile(cue, "three")
        assert front(window)[-1] == ("addon", "prompt:_meta/short@main:1", "Add-on short.")
        for turn in (1, 2, 3):
            assert (await cue.turns.replay(NAME, turn)).verdict == "identical", "each as it was sent"


async def test_a_failing_link_uses_the_fallback_and_reports_why(project):
    await prepare(project)
    async with cue_on(project) as cue:
        await cue.prompts.save("persona/kind", {"body": "Be kind to $nobody_knows."}, params=["nobody_knows"])
        _, window = await ask_profile(cue, "hello")
        assert ("section", "prompt:system/fallback@main:1", "Say that you cannot.") in front(window)
        [dropped] = [each for each in window.dropped if each.kind == "persona"]
        assert dropped.source == "prompt:persona/kind"
        assert "nobody_knows" in dropped.reason


async def test_a_stored_persona_overrides_its_file(project):
    async with cue_on(project) as cue:
        await fill(cue)
        await cue.prompts.save("persona/helper", {"body": "I am $agent_name of $date."}, params=["agent_name", "date"])
        _, window = await ask_profile(cue, "hello")
        kind, source, text = front(window)[0]
        assert (kind, source) == ("persona", "prompt:persona/helper@main:1")
        assert text.startswith("I am Ada of 20")


async def test_a_stored_persona_that_fails_to_render_uses_its_file(project):
    async with cue_on(project) as cue:
        await fill(cue)
        await cue.prompts.save("default/persona/helper", {"body": "I am $nobody_knows."}, params=["nobody_knows"])
        _, window = await ask_profile(cue, "hello")
        assert front(window)[0] == ("persona", "persona:helper@1.0.0", "You are Ada.")
        [dropped] = [each for each in window.dropped if each.kind == "persona"]
        assert dropped.source == "prompt:default/persona/helper"


async def test_a_link_to_the_personas_own_text_renders_it_once(project):
    chain = {"init": "agent_init", "persona": "persona/helper"}
    (project / "personas" / "helper.json").write_text(json.dumps({**HELPER, "prompts": chain}))
    async with cue_on(project) as cue:
        await fill(cue)
        _, window = await ask_profile(cue, "hello", user="ann")
        assert [text for _, _, text in front(window)] == ["You are Ada.", "Begin with ann."], (
            "the database has none yet"
        )
        await cue.prompts.save("default/persona/helper", {"body": "I am Ada."})
        _, window = await ask_profile(cue, "hello", user="ann")
        assert front(window) == [
            ("section", "prompt:default/agent_init@main:1", "Begin with ann."),
            ("persona", "prompt:default/persona/helper@main:1", "I am Ada."),
        ]


async def test_a_persona_whose_name_is_no_valid_id_uses_its_file(project):
    (project / "personas" / "helper.json").write_text(json.dumps({"id": "Ada Ü", "baseSystemPrompt": "You are Ada."}))
    async with cue_on(project) as cue:
        reply = await cue.ask(Ask("hello", NAME, persona="Ada Ü"))
        assert front(reply.window) == [("persona", "persona:Ada Ü@1.0.0", "You are Ada.")]


async def test_a_new_projects_turns_use_its_prompts(tmp_path):
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


async def test_a_conversation_keeps_its_variant(project):
    await prepare(project)
    async with cue_on(project) as cue:
        await cue.prompts.fork("persona/kind", "warm")
        await cue.prompts.save("persona/kind", {"body": "Be warm."}, branch="warm")
        texts = set()
        for n in range(40):
            ask = Ask("hello", f"c{n}", persona="helper")
            first, second = await cue.assemble(ask), await cue.assemble(ask)
            assert first.raw_messages == second.raw_messages
            if n > 10 and json.dumps(front(first)) in texts:
                continue
            replies = [await cue.ask(ask) for _ in range(2)]
            prompts = {json.dumps(front(reply.window)) for reply in replies}
            assert len(prompts) == 1, "the selection is sticky"
            texts |= prompts
            variant = replies[0].metadata["promptVariants"]["persona/kind"]
            assert 0 < variant["propensity"] <= 1
            assert replies[0].metadata["promptVariant"] == {
                "id": "persona/kind", "version": variant["version"], "branch": variant["branch"],
                "propensity": variant["propensity"],
                "signals": {"user_pleased": 0.5, "sentiment_high": 0.5, "user_frustrated": 0.5, "task_casual": 1.0},
            }  # fmt: skip
        assert len(texts) == 2, "both variants are tried"


@pytest.mark.parametrize(
    "mode", [*(pytest.param(each, marks=pytest.mark.slow) for each in ("off", "sigma")), "guarded"]
)
async def test_an_observation_scores_the_variant_of_its_conversation(project, mode):
    await prepare(project)
    async with cue_on(project, prompts__rollback=mode) as cue:
        slug = "persona/kind"
        await cue.prompts.fork(slug, "warm")
        await cue.prompts.save(slug, {"body": "Be warm."}, branch="warm")
        spoke = set()
        for n in range(40):
            selection = (await cue.ask(Ask("hello", f"c{n}", persona="helper"))).metadata["promptVariants"][slug]
            await cue.prompts.observe(slug, sentiment=1.0, conversation=f"c{n}")
            spoke.add((f"c{n}", selection["branch"], selection["version"]))
        await cue.prompts.observe(slug, sentiment=1.0, conversation="c0", branch="main")
        await cue.prompts.observe(slug, sentiment=1.0, conversation="nobody's")
        observations = await cue.services.prompts.observations(Scope(), slug)
        assert {(each.conversation, each.branch, each.number) for each in observations[:40]} == spoke
        assert {each.branch for each in observations[:40]} == {"main", "warm"}
        assert [each.branch for each in observations[40:]] == ["main", "main"], "as named; nothing is verified"


async def test_a_prompt_changed_in_an_open_round_applies_to_the_next(project):
    await prepare(project)
    upstream = ScriptedUpstream()
    async with cue_on(project, upstream=upstream, persona__default="helper", persona__speaks="always") as cue:
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


async def test_a_persona_on_request_leaves_a_clients_system_text_alone(tmp_path):
    init_project(tmp_path)
    upstream = ScriptedUpstream(default=completion("Aye."))
    client_text = {"role": "system", "content": "You are a pirate."}
    chosen = {"persona__default": "helper", "persona__speaks": "asked", "model__name": "m"}
    presets = {"memory__presets": "config/metaprompt-presets.json"}
    async with cue_on(tmp_path, upstream=upstream, **chosen, **presets) as cue:
        client = Client(cue, upstream)
        client.history = [client_text]
        await client.say("An error again, the build is broken, debug it.")
        assert upstream.messages() == client.history[:2]
        record = to_wire(await cue.turns.show(NAME, 1))
        assert record["metadata"]["personaSilent"] is True
        # New text does not activate it: the persona stays silent.
        await client.send([{"role": "user", "content": "And now?"}], server_history=True)
        assert "Helper" not in json.dumps(upstream.messages())
        # Requested by its id, it precedes the client's text from then on.
        other = Client(cue, upstream, conversation="asked")
        other.history = [client_text]
        await other.say("Hello.", model="helper")
        assert "You are Helper" in upstream.messages()[0]["content"]
        assert upstream.messages()[0]["content"].endswith("You are a pirate.")
        await other.say("Still there?")
        assert "You are Helper" in upstream.messages()[0]["content"]
        # A client without system text gets no persona either.
        plain = Client(cue, upstream, conversation="plain")
        await plain.say("Hello.")
        assert upstream.messages() == [{"role": "user", "content": "Hello."}]


async def test_an_add_on_without_a_prompt_is_a_file_error(project):
    (project / "config" / "metaprompt-presets.json").write_text(json.dumps(PRESETS))
    with pytest.raises(InvalidInput, match=r"presets\[0\]\.addonPromptKeys\[0\]"):
        async with cue_on(project, model=ScriptedModel(default="x")):
            pass


async def test_the_callers_signals_select_the_matching_variant(project):
    await prepare(project)
    async with cue_on(project) as cue:
        cue.services.settings = replace(cue.services.settings, epsilon=0.0)
        await cue.prompts.fork("persona/kind", "code")
        weights = {"context_weights": {"task_coding": 1.0}}
        await cue.prompts.save("persona/kind", {"body": "Write code."}, branch="code", metadata=weights)
        for name, signals, expected in (("c1", {"task_coding": 1.0}, "Write code."), ("c2", None, "Be kind.")):
            reply = await cue.ask(Ask("hello", name, persona="helper", signals=signals))
            assert expected in json.loads(reply.window.raw_messages[0])["content"]
            assert reply.metadata["promptVariants"]["persona/kind"]["contextFit"] == (1.0 if signals else 0.0)
        with pytest.raises(InvalidInput, match="task_coding"):
            await cue.ask(Ask("hello", "c3", persona="helper", signals={"task_coding": 7.0}))
