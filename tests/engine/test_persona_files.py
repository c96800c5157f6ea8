"""A book takes over what changed in its personas and presets files when the next turn begins."""

import asyncio
import json
import logging
import os

import pytest
from stage import Client, config, cue_on, user

from cuebook import Ask, Cuebook
from cuebook.app.file_watch import FileWatch
from cuebook.errors import InvalidInput, NotFound
from cuebook.records.mind import Sentiment
from cuebook.signals.profiles import tracking_of
from cuebook.testing import FrozenClock, ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream, completion

PRESETS = {"sentimentTracking": {"defaultProfileByMode": {"tutor": "tutor"}}}


@pytest.fixture
def place(tmp_path):
    write(tmp_path, "ada.json", {"id": "ada", "baseSystemPrompt": "You are Ada."})
    write(tmp_path, "bob.yaml", "id: bob\nversion: 1.10\nbaseSystemPrompt: |\n  You are Bob.\n")
    return tmp_path


def write(place, name, text):
    (place / "personas").mkdir(exist_ok=True)
    (place / "personas" / name).write_text(text if isinstance(text, str) else json.dumps(text), "utf-8")


def write_presets(place, document):
    (place / "config").mkdir(exist_ok=True)
    (place / "config/metaprompt-presets.json").write_text(json.dumps(document), "utf-8")


async def said(cue, persona, conversation="c"):
    """Give what a persona's prompt begins with."""
    window = await cue.assemble(Ask("Hi", conversation, persona=persona))
    return "\n".join(block.text for block in window.blocks if block.role == "system").strip()


async def test_json_and_yaml_are_read_alike(place):
    async with cue_on(place) as cue:
        assert cue.personas == ["ada", "assistant", "bob"]
        assert (await said(cue, "ada"), await said(cue, "bob")) == ("You are Ada.", "You are Bob.")
        assert cue.desk.personas["bob"].version == "1.10"  # no number of YAML's


async def test_the_next_turn_has_what_a_file_says_by_then(place):
    async with cue_on(place) as cue:
        before = (await cue.ask(Ask("Hi", "c", persona="ada"))).window
        write(place, "ada.json", {"id": "ada", "baseSystemPrompt": "You are Eva."})
        after = (await cue.ask(Ask("Hi again", "c", persona="ada"))).window
        assert [window.blocks[0].text for window in (before, after)] == ["You are Ada.", "You are Eva."]


class Counted(FileWatch):
    looks = 0

    async def _scan(self, before):
        self.looks += 1
        return await super()._scan(before)


async def test_turns_that_begin_together_share_a_look_and_none_misses_an_edit(place):
    async def known():
        return set()

    async with cue_on(place) as cue:
        watch = Counted(cue.config, lambda: [cue.desk], known)
        first = asyncio.create_task(watch.look())
        await asyncio.sleep(0)
        assert watch.looks == 1  # under way: it may have read the file already
        write(place, "ada.json", {"id": "ada", "baseSystemPrompt": "You are Eva."})
        given_up, *others = [asyncio.create_task(watch.look()) for _ in range(20)]
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(first, *others)
        assert cue.desk.personas["ada"].base_system_prompt == "You are Eva."
        assert watch.looks == 2
        await watch.look()
        assert watch.looks == 3


async def test_an_edit_of_the_same_size_right_after_another_is_seen(place):
    async with cue_on(place) as cue:
        for name in ("Eva", "Eve", "Ida", "Ivy"):
            write(place, "ada.json", {"id": "ada", "baseSystemPrompt": f"You are {name}."})
            assert await said(cue, "ada") == f"You are {name}."


async def test_an_old_file_put_in_place_is_seen(place):
    aside = place / "other.json"
    aside.write_text(json.dumps({"id": "ada", "baseSystemPrompt": "You are Old."}))
    os.utime(aside, (1_000_000_000, 1_000_000_000))
    async with cue_on(place) as cue:
        aside.replace(place / "personas/ada.json")
        assert await said(cue, "ada") == "You are Old."


async def test_a_new_file_is_a_new_persona_and_a_deleted_one_is_none(place):
    async with cue_on(place) as cue:
        write(place, "eve.yml", "id: eve\nbaseSystemPrompt: You are Eve.\n")
        assert await said(cue, "eve") == "You are Eve."
        (place / "personas/bob.yaml").unlink()
        with pytest.raises(NotFound, match=r"Unknown persona 'bob'. Available: ada, assistant, eve"):
            await cue.ask(Ask("Hi", "c", persona="bob"))
        (place / "personas/eve.yml").rename(place / "personas/eva.yml")
        assert await said(cue, "eve") == "You are Eve."


async def test_a_broken_edit_keeps_what_was_good_and_says_so_once(place, caplog):
    caplog.set_level(logging.INFO, "cuebook.files")
    async with cue_on(place) as cue:
        for broken in ('{"id": "ada", "baseSys', '{"id": "ada", "sentimentTracking": {"historyWindow": 0}}'):
            caplog.clear()
            write(place, "ada.json", broken)
            for _ in range(3):
                assert await said(cue, "ada") == "You are Ada."
            [told] = caplog.messages
            assert told.startswith("personas/ada.json: ")
            assert told.endswith(". Keeping the previous content.")
        caplog.clear()
        write(place, "ada.json", {"id": "ada", "baseSystemPrompt": "You are well."})
        assert await said(cue, "ada") == "You are well."
        assert "personas/ada.json: valid again." in caplog.messages


async def test_the_default_persona_stays_when_its_file_goes(place, caplog):
    async with cue_on(place, persona__default="ada") as cue:
        (place / "personas/ada.json").unlink()
        for _ in range(2):
            assert await said(cue, None) == "You are Ada."
        assert caplog.messages == [
            "personas/ada.json: no longer defines the default persona 'ada'. Keeping the previous one."
        ]
        write(place, "new.json", {"id": "ada", "baseSystemPrompt": "You are anew."})
        assert await said(cue, None) == "You are anew."


async def test_a_folder_that_goes_takes_nobody_with_it(place, caplog):
    async with cue_on(place) as cue:
        (place / "personas").rename(place / "elsewhere")
        for _ in range(2):
            assert await said(cue, "bob") == "You are Bob."
        [told] = caplog.messages
        assert "cannot be read (No such file or directory). Keeping the current personas" in told
        caplog.set_level(logging.INFO, "cuebook.files")
        (place / "elsewhere").rename(place / "personas")
        assert await said(cue, "bob") == "You are Bob."
        assert caplog.messages[-1].endswith("personas: valid again.")


async def test_a_file_that_takes_an_id_does_not_get_it(place, caplog):
    async with cue_on(place) as cue:
        write(place, "aaa.json", {"id": "ada", "baseSystemPrompt": "You are a thief."})
        assert await said(cue, "ada") == "You are Ada."
        assert caplog.messages == [
            (
                "personas/aaa.json: id: 'ada' is already used by personas/ada.json; each persona needs its own. "
                "Ignoring the file."
            )
        ]
    with pytest.raises(InvalidInput, match=r"personas/ada.json: id: 'ada' is already used by personas/aaa.json"):
        async with cue_on(place):
            pass


async def test_what_two_tenants_see_changes_for_both(place):
    async with cue_on(place) as cue:
        other = cue.of("other")
        assert await said(other, "ada") == "You are Ada."
        write(place, "ada.json", {"id": "ada", "baseSystemPrompt": "You are Eva."})
        assert await said(other, "ada") == "You are Eva."
        assert await said(cue, "ada") == "You are Eva."
        write(place, "ada.json", {"id": "ada", "baseSystemPrompt": "You are Ida."})
        assert await said(cue, "ada") == "You are Ida."
        assert await said(other, "ada") == "You are Ida."


async def test_the_wire_speaks_as_a_persona_says_by_then(place):
    upstream = ScriptedUpstream(completion("Hello."))
    async with cue_on(place, upstream=upstream, upstream__url="http://127.0.0.1:9/v1", model__name="m") as cue:
        client = Client(cue, upstream)
        write(place, "new.json", {"id": "new", "model": "small", "baseSystemPrompt": "You are new."})
        await client.send([user("Hi")], model="new")
        sent = json.loads(upstream.requests[-1].body)
        assert (sent["model"], sent["messages"][0]["content"]) == ("small", "You are new.")


async def test_presets_change_while_the_book_is_open(place, caplog):
    write_presets(place, {})
    async with cue_on(place) as cue:
        ada = cue.desk.personas["ada"]
        assert not tracking_of(ada, "tutor", cue.desk.profiles).enabled
        write_presets(place, PRESETS)
        await said(cue, "ada")
        assert tracking_of(ada, "tutor", cue.desk.profiles).consecutive_turns == 1
        write_presets(place, PRESETS | {"presets": [{"id": "x", "addonPromptKeys": ["_meta/none"]}]})
        await said(cue, "ada")
        await said(cue, "ada")
        [told] = caplog.messages
        assert told.startswith("config/metaprompt-presets.json: presets[0].addonPromptKeys[0]: ")
        assert tracking_of(ada, "tutor", cue.desk.profiles).enabled
        await cue.prompts.save("_meta/none", {"body": "Be brief."})
        write_presets(place, PRESETS | {"presets": [{"id": "x", "addonPromptKeys": ["_meta/none"]}],
                                        "routing": {"defaultPresetId": "x"}})  # fmt: skip
        assert await said(cue, "ada") == "You are Ada.\nBe brief."


async def test_a_persona_may_name_a_profile_that_comes_with_it(place):
    async with cue_on(place) as cue:
        write_presets(place, {"sentimentTracking": {"profiles": {"gentle": {"cooldownTurns": 7}}}})
        write(place, "ada.json", {"id": "ada", "baseSystemPrompt": "You are Eva.", "sentimentTracking": "gentle"})
        assert await said(cue, "ada") == "You are Eva."
        assert tracking_of(cue.desk.personas["ada"], None, cue.desk.profiles).cooldown_turns == 7


async def test_a_look_that_is_given_up_loses_no_change(place):
    async with cue_on(place) as cue:
        for name in ("Eva", "Eve", "Ida"):
            write(place, "ada.json", {"id": "ada", "baseSystemPrompt": f"You are {name}."})
            write_presets(place, {"sentimentTracking": {"profiles": {name: {}}}})
            for pauses in range(4):
                given_up = asyncio.create_task(cue.desk.catch_up())
                for _ in range(pauses):
                    await asyncio.sleep(0)
                given_up.cancel()
            assert await said(cue, "ada") == f"You are {name}."
            assert name in cue.desk.profiles.profiles


async def test_an_id_that_is_taken_leaves_a_file_with_the_one_it_had(place, caplog):
    async with cue_on(place) as cue:
        write(place, "bob.yaml", "id: ada\nbaseSystemPrompt: You are nobody.\n")
        assert (await said(cue, "ada"), await said(cue, "bob")) == ("You are Ada.", "You are Bob.")
        [told] = caplog.messages
        assert "'ada' is already used by personas/ada.json; each persona needs its own. Keeping" in told


async def test_a_presets_file_is_tried_again_when_what_it_names_may_be_there(place):
    clock = FrozenClock()
    async with cue_on(place, clock=clock) as cue:
        write_presets(place, {"presets": [{"id": "x", "addonPromptKeys": ["_meta/late"]}],
                              "routing": {"defaultPresetId": "x"}})  # fmt: skip
        assert await said(cue, "ada") == "You are Ada."
        await cue.prompts.save("_meta/late", {"body": "Be brief."})
        clock.advance(3)
        assert await said(cue, "ada") == "You are Ada.\nBe brief."


class Shouting:
    """Reads capitals as bad."""

    name = "shouting"

    def read(self, text):
        return Sentiment(score=-0.9 if text.isupper() else 0.0, polarity="negative" if text.isupper() else "neutral")


async def test_a_persona_and_a_profile_may_name_a_method_the_book_was_given(place):
    write_presets(place, {"sentimentTracking": {"profiles": {"loud": {"method": "shouting"}}}})
    write(place, "ada.json", {"id": "ada", "sentimentTracking": {"enabled": True, "method": "shouting"}})
    with pytest.raises(
        InvalidInput, match=r"profiles.loud.method: unknown method 'shouting'. Available: lexicon_based, llm,"
    ):
        async with cue_on(place):
            pass
    opened = Cuebook.open(config(place), analyzers=[Shouting()], model=ScriptedModel(default="Hm."), worker=False)
    async with opened as cue:
        write(place, "bob.yaml", "id: bob\nsentimentTracking: loud\nbaseSystemPrompt: You are loud.\n")
        assert await said(cue, "bob") == "You are loud."
        assert tracking_of(cue.desk.personas["bob"], None, cue.desk.profiles).method == "shouting"


ODD = [
    ("a.yaml", "id: a\nid: b\n", "personas/a.yaml: line 2: 'id' is a duplicate of line 1; keep one"),
    ("a.json", '{"id": "a", "id": "b"}', "personas/a.json: id: duplicate key"),
    ("a.yaml", "id: a\nx: &x [1]\ny: *x\n", "personas/a.yaml: line 2: anchors and aliases are not read"),
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
    ("a.json", None, "personas/a.json: not a regular file. Remove it, or change its suffix."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "said"), ODD)
async def test_a_file_that_is_none_is_told_with_its_place(tmp_path, name, text, said):
    (tmp_path / "personas").mkdir()
    file = tmp_path / "personas" / name
    if text is None:
        file.mkdir()
    else:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidInput) as error:
        async with cue_on(tmp_path):
            pass
    assert said in str(error.value)


async def test_texts_and_numbers_of_yaml_are_what_their_fields_say(tmp_path):
    text = (
        "\ufeffid: 2024-01-31\nname: no\nversion: 1.0\nrole: off\nsentimentTracking:\n  enabled: true\n"
        "  frustrationThreshold: -.50\n  historyWindow: 5\n  method: lexicon_based\nmetaPrompts:\n"
        "  - id: 007\n    temperature: 1\n    trigger: {type: turn_interval, intervalTurns: 3}\n"
        "    promptTemplate: >\n      How is\n      {{current_mood}}?\n"
    )
    write(tmp_path, "a.yaml", text)
    async with cue_on(tmp_path) as cue:
        persona = cue.desk.personas["2024-01-31"]
        assert (persona.name, persona.version, persona.role) == ("no", "1.0", "off")
        assert (persona.tracking.frustration_threshold, persona.tracking.history_window) == (-0.5, 5)
        [found] = persona.metaprompts
        assert (found.id, found.temperature, found.trigger.interval_turns) == ("007", 1.0, 3)
        assert found.template.strip() == "How is {{current_mood}}?"


async def test_files_of_editors_and_others_are_no_personas(place):
    for name in (".ada.json", "ada.json~", "#ada.json#", "notes.txt", "ada.json.bak"):
        write(place, name, "no persona")
    async with cue_on(place) as cue:
        assert cue.personas == ["ada", "assistant", "bob"]
