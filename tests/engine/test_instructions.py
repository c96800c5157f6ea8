"""What a model is told that condenses conversations: a prompt of the book, versioned, audited, rolled back."""

import json
import logging
from contextlib import asynccontextmanager

import pytest
from stage import NAME, cue_on

from cuebook import Cuebook
from cuebook.app.setup.project_templates import init_project
from cuebook.errors import InvalidInput
from cuebook.records.memory import CATEGORIES
from cuebook.testing import FrozenClock, ScriptedModel

KEY = "system/memory_compactor_v2_json"
MEMORY = {**{category: [] for category in CATEGORIES}, "tags": ["oslo"]}
ANSWER = json.dumps({"summary_markdown": "- Lives in Oslo.", "memory_json": MEMORY})


@asynccontextmanager
async def compacting(place, answer=ANSWER, **settings):
    """A book whose model condenses; gives it, the model, and a function that lets it condense once more."""
    model, clock = ScriptedModel(default=answer), FrozenClock()

    async with cue_on(place, model=model, clock=clock, work__model="model", **settings) as cue:

        async def condense():
            said = [{"role": "user", "content": f"I live in Oslo, that is number {n}."} for n in range(24)]
            await cue.append(NAME, said)
            clock.advance(7200)
            await cue.work()
            return json.loads(model.requests[-1].messages[0])["content"]

        yield cue, model, condense


async def test_a_project_tells_its_own_file_and_summary_and_audit_name_its_version(tmp_path):
    init_project(tmp_path)
    model = ScriptedModel(default=ANSWER)
    arguments = {"work.model": "model", "store.synchronous": "OFF"}
    async with Cuebook.open(tmp_path, model=model, arguments=arguments, worker=False) as cue:
        await cue.append(NAME, [{"role": "user", "content": f"Number {n} of what I do in Oslo."} for n in range(24)])
        await cue.work()
        [request] = model.requests
        told = json.loads(request.messages[0])["content"]
        assert told.startswith("You keep the rolling memory of a conversation.")
        assert "together take at most " in told
        assert "$max_summary_tokens" not in told
        summary = await cue.memory.summary(NAME)
        assert (summary.made_by, summary.prompt) == ("scripted", f"prompt:{KEY}@main:1")
        [render] = [each for each in await cue.audit.records() if each.event == "render"]
        assert (render.agent, render.prompt_id, render.conversation) == ("compactor", KEY, NAME)
        assert render.texts["interpolated_text"].text == told
        assert (await cue.audit.replay(render.seq)).verdict == "identical"
        assert (await cue.audit.verify()).ok


async def test_a_book_without_it_tells_the_built_in_which_can_be_replayed_too(tmp_path, caplog):
    async with compacting(tmp_path) as (cue, _, condense):
        told = await condense()
        assert told.startswith("You keep the rolling memory of a conversation.")
        assert (await cue.memory.summary(NAME)).prompt == f"prompt:{KEY}@built-in:0"
        [render] = await cue.audit.records()
        assert render.texts["interpolated_text"].text == told
        assert (await cue.audit.replay(render.seq)).verdict == "identical"
    assert not [each for each in caplog.records if each.name == "cuebook.prompts"], "that is as it should be"


@pytest.mark.parametrize("slug", ["memory_compactor_v2_json", KEY, "default/memory_compactor_v2_json"])
async def test_the_key_is_looked_for_as_it_is_then_under_system_then_under_default(tmp_path, slug):
    async with compacting(tmp_path) as (cue, _, condense):
        names = ["default/memory_compactor_v2_json", KEY]
        for name in [slug] if slug not in names else names[: names.index(slug) + 1]:
            await cue.prompts.save(name, {"body": f"I am {name}, $agent_name, $date."}, params=["agent_name", "date"])
        assert await condense() == f"I am {slug}, Assistant, 2024-01-01."


async def test_a_new_version_is_told_next_and_a_rollback_takes_it_back(tmp_path):
    async with compacting(tmp_path) as (cue, _, condense):
        await cue.prompts.save(KEY, {"body": "One."})
        assert await condense() == "One."
        await cue.prompts.save(KEY, {"body": "Two, $new_turns_count turns."}, params=["new_turns_count"])
        assert await condense() == "Two, 24 turns."
        await cue.prompts.roll_back(KEY, reason="worse")
        assert await condense() == "One."
        summaries = [await cue.memory.summary(NAME, version=n) for n in (1, 2, 3)]
        assert [each.prompt for each in summaries] == [f"prompt:{KEY}@main:{n}" for n in (1, 2, 1)]


@pytest.mark.parametrize(
    ("body", "params", "why"),
    [
        ("For $nobody_knows.", ["nobody_knows"], "Missing parameter: 'nobody_knows'"),
        (" \n ", [], "renders to an empty text"),
        ("$date" * 20_001, ["date"], "has more than 200000 characters"),
    ],
)
async def test_what_cannot_be_said_gives_way_to_the_built_in_and_is_told(tmp_path, caplog, body, params, why):
    async with compacting(tmp_path) as (cue, _, condense):
        await cue.prompts.save(KEY, {"body": body}, params=params)
        assert (await condense()).startswith("You keep the rolling memory")
        assert (await cue.memory.summary(NAME)).prompt == f"prompt:{KEY}@built-in:0"
    [record] = [each for each in caplog.records if each.name == "cuebook.prompts"]
    assert record.levelno == logging.WARNING
    assert why in record.getMessage()
    assert f"the built-in prompt {KEY}" in record.getMessage()


async def test_what_was_told_for_nothing_stands_in_the_audit_too(tmp_path, caplog):
    caplog.set_level(logging.CRITICAL, "cuebook.compact")
    async with compacting(tmp_path, "no JSON") as (cue, _, condense):
        await condense()
        assert await cue.memory.summary(NAME) is None
        assert [(each.event, each.agent) for each in await cue.audit.records()] == [("render", "compactor")]


async def test_no_word_of_a_conversation_is_a_value_of_an_instruction(tmp_path):
    async with compacting(tmp_path) as (cue, model, condense):
        assert "Oslo" not in await condense()
        assert "Oslo" in json.loads(model.requests[-1].messages[1])["content"]
        [render] = await cue.audit.records()
        assert json.loads(render.texts["input_context"].text).keys() == {"max_summary_tokens"}


def presets(place, key):
    (place / "config").mkdir(exist_ok=True)
    document = {"memoryCompaction": {"profiles": {"standard": {"promptKey": key}}}}
    (place / "config" / "metaprompt-presets.json").write_text(json.dumps(document))


async def test_a_profile_names_its_own_instruction(tmp_path):
    async with cue_on(tmp_path) as cue:
        await cue.prompts.save("system/short_memory", {"body": "Be short."})
    presets(tmp_path, "short_memory")
    async with compacting(tmp_path) as (_, _, condense):
        assert await condense() == "Be short."


@pytest.mark.parametrize(("key", "why"), [("nowhere", "unknown prompt 'nowhere'"), ("../up", "it contains '..'")])
async def test_a_key_that_names_no_prompt_is_a_fault_of_the_file(tmp_path, key, why):
    presets(tmp_path, key)
    with pytest.raises(InvalidInput, match=r"memoryCompaction\.profiles\.standard\.promptKey: .*") as refused:
        async with cue_on(tmp_path):
            pass
    assert why in str(refused.value)


async def test_a_key_of_the_environment_that_names_no_prompt_is_refused_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "cuebook.toml").write_text("")
    monkeypatch.setenv("MEMORY_COMPACTION_PROMPT_KEY", "nowhere")
    with pytest.raises(InvalidInput, match="environment MEMORY_COMPACTION_PROMPT_KEY: unknown prompt 'nowhere'"):
        async with Cuebook.open(tmp_path):
            pass
