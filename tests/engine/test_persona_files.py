"""Tests of reloading persona and preset files: changes apply when the next turn begins."""

import asyncio
import json
import logging
import os

import pytest
from turn_helpers import Client, config, cue_on, user

from cuebook import Ask, Cuebook
from cuebook.app.file_watch import FileWatch
from cuebook.errors import InvalidInput, NotFound
from cuebook.records.mind import Sentiment
from cuebook.signals.profiles import tracking_of
from cuebook.testing import FrozenClock, ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import completion

PRESETS = {"sentimentTracking": {"defaultProfileByMode": {"tutor": "tutor"}}}


@pytest.fixture
def project(tmp_path):
    write(tmp_path, "ada.json", {"id": "ada", "baseSystemPrompt": "You are Ada."})
    write(tmp_path, "bob.yaml", "id: bob\nversion: 1.10\nbaseSystemPrompt: |\n  You are Bob.\n")
    return tmp_path


def write(project, name, text):
    (project / "personas").mkdir(exist_ok=True)
    (project / "personas" / name).write_text(text if isinstance(text, str) else json.dumps(text), "utf-8")


def write_presets(project, document):
    (project / "config").mkdir(exist_ok=True)
    (project / "config/metaprompt-presets.json").write_text(json.dumps(document), "utf-8")


async def prompt_start(cue, persona, conversation="c"):
    """Return the beginning of a persona's prompt."""
    window = await cue.assemble(Ask("Hi", conversation, persona=persona))
    return "\n".join(block.text for block in window.blocks if block.role == "system").strip()


async def test_json_and_yaml_are_read_alike(project):
    async with cue_on(project) as cue:
        assert cue.personas == ["ada", "assistant", "bob"]
        assert (await prompt_start(cue, "ada"), await prompt_start(cue, "bob")) == ("You are Ada.", "You are Bob.")
        assert cue.services.settings.personas["bob"].version == "1.10"  # YAML 1.1 would read a number


async def test_the_next_turn_uses_the_changed_file(project):
    async with cue_on(project) as cue:
        before = (await cue.ask(Ask("Hi", "c", persona="ada"))).window
        write(project, "ada.json", {"id": "ada", "baseSystemPrompt": "You are Eva."})
        after = (await cue.ask(Ask("Hi again", "c", persona="ada"))).window
        assert [window.blocks[0].text for window in (before, after)] == ["You are Ada.", "You are Eva."]


class CountingWatch(FileWatch):
    looks = 0

    async def _scan(self, before):
        self.looks += 1
        return await super()._scan(before)


async def test_concurrent_turns_share_a_scan_and_miss_no_edit(project):
    async def known_ids():
        return set()

    async with cue_on(project) as cue:
        watch = CountingWatch(cue.config, lambda: [cue.services], known_ids)
        first = asyncio.create_task(watch.look())
        await asyncio.sleep(0)
        assert watch.looks == 1  # a running scan may have read the file already
        write(project, "ada.json", {"id": "ada", "baseSystemPrompt": "You are Eva."})
        cancelled, *others = [asyncio.create_task(watch.look()) for _ in range(20)]
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(first, *others)
        assert cue.services.settings.personas["ada"].base_system_prompt == "You are Eva."
        assert watch.looks == 2
        await watch.look()
        assert watch.looks == 3


async def test_a_quick_second_edit_of_the_same_size_is_detected(project):
    async with cue_on(project) as cue:
        for name in ("Eva", "Eve", "Ida", "Ivy"):
            write(project, "ada.json", {"id": "ada", "baseSystemPrompt": f"You are {name}."})
            assert await prompt_start(cue, "ada") == f"You are {name}."


async def test_an_older_file_moved_into_place_is_detected(project):
    aside = project / "other.json"
    aside.write_text(json.dumps({"id": "ada", "baseSystemPrompt": "You are Old."}))
    os.utime(aside, (1_000_000_000, 1_000_000_000))
    async with cue_on(project) as cue:
        aside.replace(project / "personas/ada.json")
        assert await prompt_start(cue, "ada") == "You are Old."


async def test_new_and_deleted_files_add_and_remove_personas(project):
    async with cue_on(project) as cue:
        write(project, "eve.yml", "id: eve\nbaseSystemPrompt: You are Eve.\n")
        assert await prompt_start(cue, "eve") == "You are Eve."
        (project / "personas/bob.yaml").unlink()
        with pytest.raises(NotFound, match=r"Unknown persona 'bob'. Available: ada, assistant, eve"):
            await cue.ask(Ask("Hi", "c", persona="bob"))
        (project / "personas/eve.yml").rename(project / "personas/eva.yml")
        assert await prompt_start(cue, "eve") == "You are Eve."


async def test_an_invalid_edit_keeps_the_last_version_and_warns_once(project, caplog):
    caplog.set_level(logging.INFO, "cuebook.files")
    async with cue_on(project) as cue:
        for broken in ('{"id": "ada", "baseSys', '{"id": "ada", "sentimentTracking": {"historyWindow": 0}}'):
            caplog.clear()
            write(project, "ada.json", broken)
            for _ in range(3):
                assert await prompt_start(cue, "ada") == "You are Ada."
            [warning] = caplog.messages
            assert warning.startswith("personas/ada.json: ")
            assert warning.endswith(". Keeping the previous content.")
        caplog.clear()
        write(project, "ada.json", {"id": "ada", "baseSystemPrompt": "You are well."})
        assert await prompt_start(cue, "ada") == "You are well."
        assert "personas/ada.json: valid again." in caplog.messages


async def test_the_default_persona_stays_when_its_file_is_deleted(project, caplog):
    async with cue_on(project, persona__default="ada") as cue:
        (project / "personas/ada.json").unlink()
        for _ in range(2):
            assert await prompt_start(cue, None) == "You are Ada."
        assert caplog.messages == [
            "personas/ada.json: no longer defines the default persona 'ada'. Keeping the previous one."
        ]
        write(project, "new.json", {"id": "ada", "baseSystemPrompt": "You are anew."})
        assert await prompt_start(cue, None) == "You are anew."


async def test_a_deleted_folder_keeps_its_personas(project, caplog):
    async with cue_on(project) as cue:
        (project / "personas").rename(project / "elsewhere")
        for _ in range(2):
            assert await prompt_start(cue, "bob") == "You are Bob."
        [warning] = caplog.messages
        assert "cannot be read (No such file or directory). Keeping the current personas" in warning
        caplog.set_level(logging.INFO, "cuebook.files")
        (project / "elsewhere").rename(project / "personas")
        assert await prompt_start(cue, "bob") == "You are Bob."
        assert caplog.messages[-1].endswith("personas: valid again.")


async def test_a_file_cannot_take_over_an_existing_id(project, caplog):
    async with cue_on(project) as cue:
        write(project, "aaa.json", {"id": "ada", "baseSystemPrompt": "You are a thief."})
        assert await prompt_start(cue, "ada") == "You are Ada."
        assert caplog.messages == [
            (
                "personas/aaa.json: id: 'ada' is already used by personas/ada.json; each persona needs its own. "
                "Ignoring the file."
            )
        ]
    with pytest.raises(InvalidInput, match=r"personas/ada.json: id: 'ada' is already used by personas/aaa.json"):
        async with cue_on(project):
            pass


async def test_a_changed_file_applies_to_all_tenants(project):
    async with cue_on(project) as cue:
        other = cue.of("other")
        assert await prompt_start(other, "ada") == "You are Ada."
        write(project, "ada.json", {"id": "ada", "baseSystemPrompt": "You are Eva."})
        assert await prompt_start(other, "ada") == "You are Eva."
        assert await prompt_start(cue, "ada") == "You are Eva."
        write(project, "ada.json", {"id": "ada", "baseSystemPrompt": "You are Ida."})
        assert await prompt_start(cue, "ada") == "You are Ida."
        assert await prompt_start(other, "ada") == "You are Ida."


async def test_the_relay_uses_the_changed_persona(project):
    upstream = ScriptedUpstream(completion("Hello."))
    async with cue_on(project, upstream=upstream, upstream__url="http://127.0.0.1:9/v1", model__name="m") as cue:
        client = Client(cue, upstream)
        write(project, "new.json", {"id": "new", "model": "small", "baseSystemPrompt": "You are new."})
        await client.send([user("Hi")], model="new")
        sent = json.loads(upstream.requests[-1].body)
        assert (sent["model"], sent["messages"][0]["content"]) == ("small", "You are new.")


async def test_presets_change_while_the_database_is_open(project, caplog):
    write_presets(project, {})
    async with cue_on(project) as cue:
        ada = cue.services.settings.personas["ada"]
        assert not tracking_of(ada, "tutor", cue.services.settings.profiles).enabled
        write_presets(project, PRESETS)
        await prompt_start(cue, "ada")
        assert tracking_of(ada, "tutor", cue.services.settings.profiles).consecutive_turns == 1
        write_presets(project, PRESETS | {"presets": [{"id": "x", "addonPromptKeys": ["_meta/none"]}]})
        await prompt_start(cue, "ada")
        await prompt_start(cue, "ada")
        [warning] = caplog.messages
        assert warning.startswith("config/metaprompt-presets.json: presets[0].addonPromptKeys[0]: ")
        assert tracking_of(ada, "tutor", cue.services.settings.profiles).enabled
        await cue.prompts.save("_meta/none", {"body": "Be brief."})
        write_presets(project, PRESETS | {"presets": [{"id": "x", "addonPromptKeys": ["_meta/none"]}],
                                        "routing": {"defaultPresetId": "x"}})  # fmt: skip
        assert await prompt_start(cue, "ada") == "You are Ada.\nBe brief."


async def test_a_persona_may_name_a_profile_added_with_it(project):
    async with cue_on(project) as cue:
        write_presets(project, {"sentimentTracking": {"profiles": {"gentle": {"cooldownTurns": 7}}}})
        write(project, "ada.json", {"id": "ada", "baseSystemPrompt": "You are Eva.", "sentimentTracking": "gentle"})
        assert await prompt_start(cue, "ada") == "You are Eva."
        assert (
            tracking_of(cue.services.settings.personas["ada"], None, cue.services.settings.profiles).cooldown_turns == 7
        )


async def test_a_cancelled_scan_loses_no_change(project):
    async with cue_on(project) as cue:
        for name in ("Eva", "Eve", "Ida"):
            write(project, "ada.json", {"id": "ada", "baseSystemPrompt": f"You are {name}."})
            write_presets(project, {"sentimentTracking": {"profiles": {name: {}}}})
            for pauses in range(4):
                cancelled = asyncio.create_task(cue.services.catch_up())
                for _ in range(pauses):
                    await asyncio.sleep(0)
                cancelled.cancel()
            assert await prompt_start(cue, "ada") == f"You are {name}."
            assert name in cue.services.settings.profiles.profiles


async def test_a_taken_id_leaves_a_file_with_its_previous_id(project, caplog):
    async with cue_on(project) as cue:
        write(project, "bob.yaml", "id: ada\nbaseSystemPrompt: You are nobody.\n")
        assert (await prompt_start(cue, "ada"), await prompt_start(cue, "bob")) == ("You are Ada.", "You are Bob.")
        [warning] = caplog.messages
        assert "'ada' is already used by personas/ada.json; each persona needs its own. Keeping" in warning


async def test_a_presets_file_is_retried_when_its_references_may_exist(project):
    clock = FrozenClock()
    async with cue_on(project, clock=clock) as cue:
        write_presets(project, {"presets": [{"id": "x", "addonPromptKeys": ["_meta/late"]}],
                              "routing": {"defaultPresetId": "x"}})  # fmt: skip
        assert await prompt_start(cue, "ada") == "You are Ada."
        await cue.prompts.save("_meta/late", {"body": "Be brief."})
        clock.advance(3)
        assert await prompt_start(cue, "ada") == "You are Ada.\nBe brief."


class Shouting:
    """Classify texts in capitals as negative."""

    name = "shouting"

    def read(self, text):
        return Sentiment(score=-0.9 if text.isupper() else 0.0, polarity="negative" if text.isupper() else "neutral")


async def test_a_persona_and_a_profile_may_name_a_custom_method(project):
    write_presets(project, {"sentimentTracking": {"profiles": {"loud": {"method": "shouting"}}}})
    write(project, "ada.json", {"id": "ada", "sentimentTracking": {"enabled": True, "method": "shouting"}})
    with pytest.raises(
        InvalidInput, match=r"profiles.loud.method: unknown method 'shouting'. Available: lexicon_based, llm,"
    ):
        async with cue_on(project):
            pass
    handle = Cuebook.open(config(project), analyzers=[Shouting()], model=ScriptedModel(default="Hm."), worker=False)
    async with handle as cue:
        write(project, "bob.yaml", "id: bob\nsentimentTracking: loud\nbaseSystemPrompt: You are loud.\n")
        assert await prompt_start(cue, "bob") == "You are loud."
        assert (
            tracking_of(cue.services.settings.personas["bob"], None, cue.services.settings.profiles).method
            == "shouting"
        )


ODD = [
    ("a.yaml", "id: a\nid: b\n", "personas/a.yaml: line 2: 'id' is a duplicate of line 1; keep one"),
    ("a.json", '{"id": "a", "id": "b"}', "personas/a.json: id: duplicate key"),
    ("a.yaml", "id: a\nx: &x [1]\ny: *x\n", "personas/a.yaml: line 2: anchors and aliases are not supported"),
    ("a.yaml", "id: a\n\tname: b\n", "personas/a.yaml: line 2: tab in the indentation. Indent with spaces."),
    ("a.yaml", "id: a\nsentimentTracking:\n  enabled: no\n", "enabled: expected true or false, got 'no'"),
    ("a.yaml", "- id: a\n", "personas/a.yaml: line 1: expected `key: value` lines"),
    ("a.yaml", "", "personas/a.yaml: id: missing. Expected a name"),
    ("a.yaml", f"id: a\nname: {'x' * 70_000}\n", "the file has 70013 characters; at most 65536 are read"),
    ("a.json", "[]", "personas/a.json: expected an object, got a list"),
    ("a.json", '{"id": "a", "x": NaN}', "personas/a.json"),
    ("a.json", b'{"id": "a",\n"name": "\xff"}', "a.json: line 2: not UTF-8 (byte 0xff). Save the file as UTF-8."),
    ("a.json", b" " * (1 << 20) + b"{}", "personas/a.json: exceeds 1,048,576 bytes. Move a long text to"),
    ("a.json", '{"id": "a", "prompts": {"init": "Up/Case"}}', "prompts.init: 'Up/Case' is not a valid id: write 'U'"),
    ("a.json", '{"id": "a", "sentimentTracking": "tuter"}', "sentimentTracking: unknown profile 'tuter'. Did you"),
    ("a.json", None, "personas/a.json: not a regular file. Remove it, or choose another file."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "reason"), ODD)
async def test_an_invalid_file_is_reported_with_its_path(tmp_path, name, text, reason):
    (tmp_path / "personas").mkdir()
    file = tmp_path / "personas" / name
    if text is None:
        file.mkdir()
    else:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidInput) as error:
        async with cue_on(tmp_path):
            pass
    assert reason in str(error.value)


async def test_yaml_values_have_the_types_of_their_fields(tmp_path):
    text = (
        "\ufeffid: 2024-01-31\nname: no\nversion: 1.0\nrole: off\nsentimentTracking:\n  enabled: true\n"
        "  frustrationThreshold: -.50\n  historyWindow: 5\n  method: lexicon_based\nmetaPrompts:\n"
        "  - id: 007\n    temperature: 1\n    trigger: {type: turn_interval, intervalTurns: 3}\n"
        "    promptTemplate: >\n      How is\n      {{current_mood}}?\n"
    )
    write(tmp_path, "a.yaml", text)
    async with cue_on(tmp_path) as cue:
        persona = cue.services.settings.personas["2024-01-31"]
        assert (persona.name, persona.version, persona.role) == ("no", "1.0", "off")
        assert (persona.tracking.frustration_threshold, persona.tracking.history_window) == (-0.5, 5)
        [metaprompt] = persona.metaprompts
        assert (metaprompt.id, metaprompt.temperature, metaprompt.trigger.interval_turns) == ("007", 1.0, 3)
        assert metaprompt.template.strip() == "How is {{current_mood}}?"


async def test_editor_and_other_foreign_files_are_not_personas(project):
    for name in (".ada.json", "ada.json~", "#ada.json#", "notes.txt", "ada.json.bak"):
        write(project, name, "no persona")
    async with cue_on(project) as cue:
        assert cue.personas == ["ada", "assistant", "bob"]
