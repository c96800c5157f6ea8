"""Tests of the compaction instruction: a managed prompt that is versioned, audited and rolled back."""

import json
import logging
from contextlib import asynccontextmanager

import pytest
from turn_helpers import NAME, cue_on

from cuebook import Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.errors import InvalidInput
from cuebook.records.memory import CATEGORIES, Scope
from cuebook.testing import FrozenClock, ScriptedModel

KEY = "system/memory_compactor_v2_json"
MEMORY = {**{category: [] for category in CATEGORIES}, "tags": ["oslo"]}
ANSWER = json.dumps({"summary_markdown": "- Lives in Oslo.", "memory_json": MEMORY})


@asynccontextmanager
async def compacting(folder, answer=ANSWER, **settings):
    """Open a database whose model compacts. Yield it, the model and a function that compacts once more."""
    model, clock = ScriptedModel(default=answer), FrozenClock()

    async with cue_on(folder, model=model, clock=clock, work__model="model", **settings) as cue:

        async def compact():
            messages = [{"role": "user", "content": f"I live in Oslo, that is number {n}."} for n in range(24)]
            await cue.append(NAME, messages)
            clock.advance(7200)
            await cue.work()
            return json.loads(model.requests[-1].messages[0])["content"]

        yield cue, model, compact


async def test_a_projects_own_instruction_is_used_and_its_version_recorded(tmp_path):
    init_project(tmp_path)
    model = ScriptedModel(default=ANSWER)
    arguments = {"work.model": "model", "store.synchronous": "OFF"}
    async with Cuebook.open(tmp_path, model=model, arguments=arguments, worker=False) as cue:
        await cue.append(NAME, [{"role": "user", "content": f"Number {n} of what I do in Oslo."} for n in range(24)])
        await cue.work()
        [request] = model.requests
        instruction = json.loads(request.messages[0])["content"]
        assert instruction.startswith("You keep the rolling memory of a conversation.")
        assert "together take at most " in instruction
        assert "$max_summary_tokens" not in instruction
        summary = await cue.services.store.summary(Scope(), NAME)
        assert (summary.made_by, summary.prompt) == ("scripted", f"prompt:{KEY}@main:1")
        [render] = [each for each in await cue.audit.list() if each.event == "render"]
        assert (render.agent, render.prompt_id, render.conversation_id) == ("compactor", KEY, NAME)
        assert render.interpolated_text == instruction
        assert (await cue.audit.replay(render.seq)).verdict == "identical"
        assert (await cue.audit.verify()).ok


async def test_without_one_the_built_in_instruction_is_used_and_replayable(tmp_path, caplog):
    async with compacting(tmp_path) as (cue, _, compact):
        instruction = await compact()
        assert instruction.startswith("You keep the rolling memory of a conversation.")
        assert (await cue.conversations.summary(NAME)).prompt == f"prompt:{KEY}@built-in:0"
        render, answer = await cue.audit.list()
        assert (answer.event, answer.input_context) == ("answer", {"outcome": "accepted", "dropped": []})
        assert render.interpolated_text == instruction
        assert (await cue.audit.replay(render.seq)).verdict == "identical"
    assert not [each for each in caplog.records if each.name == "cuebook.prompts"], "no warning is expected"


@pytest.mark.parametrize("slug", ["memory_compactor_v2_json", KEY, "default/memory_compactor_v2_json"])
async def test_the_instruction_key_falls_back_to_system_and_default(tmp_path, slug):
    async with compacting(tmp_path) as (cue, _, compact):
        names = ["default/memory_compactor_v2_json", KEY]
        for name in [slug] if slug not in names else names[: names.index(slug) + 1]:
            await cue.prompts.save(name, {"body": f"I am {name}, $agent_name, $date."}, params=["agent_name", "date"])
        assert await compact() == f"I am {slug}, Assistant, 2024-01-01."


async def test_a_new_version_is_used_next_and_rollback_reverts_it(tmp_path):
    async with compacting(tmp_path) as (cue, _, compact):
        await cue.prompts.save(KEY, {"body": "One."})
        assert await compact() == "One."
        await cue.prompts.save(KEY, {"body": "Two, $new_turns_count turns."}, params=["new_turns_count"])
        assert await compact() == "Two, 24 turns."
        await cue.prompts.roll_back(KEY, reason="worse")
        assert await compact() == "One."
        summaries = [await cue.conversations.summary(NAME, version=n) for n in (1, 2, 3)]
        assert [each.prompt for each in summaries] == [f"prompt:{KEY}@main:{n}" for n in (1, 2, 1)]


@pytest.mark.parametrize(
    ("body", "params", "why"),
    [
        ("For $nobody_knows.", ["nobody_knows"], "Missing parameter: 'nobody_knows'"),
        (" \n ", [], "renders to an empty text"),
        ("$date" * 20_001, ["date"], "has more than 200000 characters"),
    ],
)
async def test_an_invalid_instruction_falls_back_to_the_built_in(tmp_path, caplog, body, params, why):
    async with compacting(tmp_path) as (cue, _, compact):
        await cue.prompts.save(KEY, {"body": body}, params=params)
        assert (await compact()).startswith("You keep the rolling memory")
        assert (await cue.conversations.summary(NAME)).prompt == f"prompt:{KEY}@built-in:0"
    [record] = [each for each in caplog.records if each.name == "cuebook.prompts"]
    assert record.levelno == logging.WARNING
    assert why in record.getMessage()
    assert f"the built-in prompt {KEY}" in record.getMessage()


async def test_an_instruction_of_a_failed_call_is_audited_too(tmp_path, caplog):
    caplog.set_level(logging.CRITICAL, "cuebook.jobs")
    async with compacting(tmp_path, "no JSON") as (cue, _, compact):
        await compact()
        assert await cue.conversations.summary(NAME) is None
        render, answer = await cue.audit.list()
        assert (render.event, render.agent) == ("render", "compactor")
        reason = "the answer contains no JSON object"
        assert (answer.event, answer.input_context) == ("answer", {"outcome": "refused", "reason": reason})


async def test_conversation_text_is_never_a_variable_of_an_instruction(tmp_path):
    async with compacting(tmp_path) as (cue, model, compact):
        assert "Oslo" not in await compact()
        assert "Oslo" in json.loads(model.requests[-1].messages[1])["content"]
        render, _ = await cue.audit.list()
        assert render.input_context.keys() == {"max_summary_tokens"}


def presets(folder, key):
    (folder / "config").mkdir(exist_ok=True)
    document = {"memoryCompaction": {"profiles": {"standard": {"promptKey": key}}}}
    (folder / "config" / "metaprompt-presets.json").write_text(json.dumps(document))


async def test_a_profile_selects_its_own_instruction(tmp_path):
    async with cue_on(tmp_path) as cue:
        await cue.prompts.save("system/short_memory", {"body": "Be short."})
    presets(tmp_path, "short_memory")
    async with compacting(tmp_path) as (_, _, compact):
        assert await compact() == "Be short."


@pytest.mark.parametrize(("key", "why"), [("nowhere", "unknown prompt 'nowhere'"), ("../up", "it contains '..'")])
async def test_an_invalid_prompt_key_in_a_file_is_reported(tmp_path, key, why):
    presets(tmp_path, key)
    with pytest.raises(InvalidInput, match=r"memoryCompaction\.profiles\.standard\.promptKey: .*") as refused:
        async with cue_on(tmp_path):
            pass
    assert why in str(refused.value)


async def test_an_invalid_prompt_key_in_the_environment_is_refused_by_name(tmp_path, monkeypatch):
    (tmp_path / "cuebook.toml").write_text("")
    monkeypatch.setenv("MEMORY_COMPACTION_PROMPT_KEY", "nowhere")
    with pytest.raises(InvalidInput, match="environment MEMORY_COMPACTION_PROMPT_KEY: unknown prompt 'nowhere'"):
        async with Cuebook.open(tmp_path):
            pass


@pytest.mark.parametrize(("single", "name"), [(False, "remote"), (True, "scripted")])
async def test_a_summary_names_the_model_that_wrote_it(tmp_path, single, name):
    (tmp_path / "config").mkdir()
    presets = {"memoryCompaction": {"profiles": {"standard": {"modelId": "remote"}}}}
    (tmp_path / "config" / "metaprompt-presets.json").write_text(json.dumps(presets))
    async with compacting(tmp_path) as (cue, model, compact):
        if single:  # it answers itself, whatever a profile names
            model.single = True
        await compact()
        assert (await cue.conversations.summary(NAME)).made_by == name
        assert [each.model for each in await cue.services.store.tuning.work(Scope(), NAME)] == [name]
