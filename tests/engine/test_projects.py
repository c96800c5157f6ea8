"""Tests of project prompts: they override prompts of the same id, by setting, call or conversation."""

import json
import shutil

import pytest
from turn_helpers import NAME, Client, config
from turn_helpers import cue_on as open_cue

from cuebook import Ask, BlockingCuebook, Cuebook
from cuebook.app.cuebook import RelayCall
from cuebook.app.setup.project_templates import init_project
from cuebook.errors import InvalidInput, NotFound
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.memory import CATEGORIES
from cuebook.testing import FrozenClock, ScriptedModel
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import completion

PRESETS = {"routing": {"defaultPresetId": "short"}, "presets": [{"id": "short", "addonPromptKeys": ["_meta/short"]}]}
HELPER = {
    "id": "helper", "name": "Ada", "baseSystemPrompt": "You are Ada.",
    "prompts": {"init": "agent_init", "persona": "persona/kind", "summary": "gone", "fallback": "system/fallback"},
}  # fmt: skip
PLAIN = ["You are Ada.", "Begin.", "Be kind.", "Say less.", "Short."]
OWN = ["I am Ada of Acme.", "Begin at Acme.", "Be kind.\n\nNever name prices.", "Ask Acme.", "Shorter."]


def cue_on(folder, **settings):
    return open_cue(folder, dice=SystemDice(), **settings)


@pytest.fixture(scope="module")
def filled_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("filled")
    (folder / "personas").mkdir()
    (folder / "personas" / "helper.json").write_text(json.dumps(HELPER))
    with BlockingCuebook.open(config(folder)) as cue:
        texts = {
            "default/agent_init": "Begin.", "persona/kind": "Be kind.", "system/fallback": "Say less.",
            "_meta/short": "Short.",
            "projects/acme/persona/helper": "I am Ada of Acme.", "projects/acme/agent_init": "Begin at Acme.",
            "projects/acme/system/fallback": "Ask Acme.", "projects/acme/_meta/short": "Shorter.",
        }  # fmt: skip
        for slug, text in texts.items():
            cue.prompts.save(slug, {"body": text})
        more = {"body": "Never name prices."}
        cue.prompts.save("projects/acme/persona/kind", more, inherits="persona/kind")
    (folder / "config").mkdir()
    (folder / "config" / "metaprompt-presets.json").write_text(json.dumps(PRESETS))
    return folder


@pytest.fixture
def folder(filled_folder, tmp_path):
    return shutil.copytree(filled_folder, tmp_path, dirs_exist_ok=True)


def front(window):
    return [block.text for block in window.blocks if block.role == "system"]


def sources(window):
    return [block.source for block in window.blocks if block.role == "system"]


async def system_texts(cue, conversation=NAME, **fields):
    return front((await cue.ask(Ask("hello", conversation, persona="helper", **fields))).window)


async def test_a_conversation_keeps_the_project_of_its_first_call(folder):
    async with cue_on(folder) as cue:
        assert await system_texts(cue) == PLAIN
        first = await cue.ask(Ask("hello", NAME, persona="helper", project="acme"))
        assert front(first.window) == OWN
        assert first.metadata["promptProject"] == "acme"
        assert sources(first.window)[2] == "prompt:projects/acme/persona/kind@main:1"
        assert await system_texts(cue) == OWN, "the conversation keeps its project"
        assert await system_texts(cue, "other") == PLAIN
        assert (await cue.turns.replay(NAME, 2)).verdict == "identical"
    async with cue_on(folder) as cue:
        assert front(await cue.assemble(Ask("and now?", NAME, persona="helper"))) == OWN, "also on disk"
        assert await system_texts(cue, project="") == PLAIN
        assert await system_texts(cue) == PLAIN, "this is kept too"


async def test_the_setting_applies_if_call_and_conversation_name_no_project(folder):
    async with cue_on(folder, prompts__project="acme") as cue:
        assert await system_texts(cue) == OWN
        assert await system_texts(cue, "plain", project="") == PLAIN
        assert await system_texts(cue, "plain") == PLAIN
        assert await system_texts(cue, "empty", project="nobodys") == PLAIN
        assert (await cue.prompts.render("persona/kind")).slug == "projects/acme/persona/kind"
        assert (await cue.prompts.render("persona/kind", project="")).text == "Be kind."
    async with cue_on(folder) as cue:
        assert await system_texts(cue) == PLAIN, "conversations do not store the setting"


async def test_prompts_are_resolved_within_the_named_project(folder):
    async with cue_on(folder) as cue:
        assert (await cue.prompts.render("persona/kind", project="acme")).text == "Be kind.\n\nNever name prices."
        assert (await cue.prompts.render("default/agent_init", project="acme")).text == "Begin at Acme."
        assert (await cue.prompts.get("persona/kind", project="acme")).slug == "projects/acme/persona/kind"
        assert (await cue.prompts.get("persona/kind", project="other")).slug == "persona/kind"
        assert (await cue.prompts.family("agent_init")).slug == "default/agent_init"
        with pytest.raises(NotFound):
            await cue.prompts.resolve("agent_end", project="acme")


def test_the_blocking_client_resolves_project_prompts_too(folder):
    with BlockingCuebook.open(config(folder)) as cue:
        assert cue.prompts.get("persona/kind", project="acme").slug == "projects/acme/persona/kind"
        assert cue.prompts.resolve("persona/kind", project="acme").lineage[0] == "prompt:persona/kind@main:1"
        assert cue.prompts.render("persona/kind", project="acme").text.endswith("prices.")
        assert cue.prompts.family("_meta/short", project="acme").slug == "projects/acme/_meta/short"


@pytest.mark.parametrize("name", ["..", "a/b", "Acme", "con", "a b", 7])
async def test_a_project_name_is_a_single_id_segment(folder, name):
    async with cue_on(folder) as cue:
        for refused in (
            lambda: cue.ask(Ask("hello", NAME, project=name)),
            lambda: cue.prompts.render("persona/kind", project=name),
        ):
            with pytest.raises(InvalidInput, match="project: "):
                await refused()
    if isinstance(name, str):
        with pytest.raises(InvalidInput, match=r"prompts\.project: "):
            async with cue_on(folder, prompts__project=name):
                pass


async def test_a_header_names_the_project_of_a_chat_completion(folder):
    upstream = ScriptedUpstream()
    async with cue_on(folder, upstream=upstream, persona__default="helper", persona__speaks="always") as cue:
        client = Client(cue, upstream)
        await client.say("hello")
        assert "Be kind.\n\nSay less." in upstream.messages()[0]["content"]
        upstream.say(completion("Noted."))
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
        call = RelayCall(body=body, headers={}, conversation="of-acme", project="acme")
        assert [piece async for piece in cue.relay(call)]
        assert "Never name prices." in upstream.messages()[0]["content"]
        with pytest.raises(InvalidInput, match="X-Cuebook-Project"):
            [piece async for piece in cue.relay(RelayCall(body=body, headers={}, project="../x"))]


async def test_the_compactor_uses_the_projects_instruction(tmp_path):
    memory = {**{category: [] for category in CATEGORIES}, "tags": []}
    model = ScriptedModel(default=json.dumps({"summary_markdown": "- Oslo.", "memory_json": memory}))
    key = "system/memory_compactor_v2_json"
    async with cue_on(tmp_path, model=model, clock=FrozenClock(), work__model="model") as cue:
        await cue.prompts.save(key, {"body": "One."})
        await cue.prompts.save(f"projects/acme/{key}", {"body": "And Acme's."}, inherits=key)
        for name, project in (("a", "acme"), ("b", None)):
            await cue.ask(Ask("hello", name, project=project))
            messages = [{"role": "user", "content": f"I live in Oslo, that is number {n}."} for n in range(24)]
            await cue.append(name, messages)
            await cue.work()
            instruction = json.loads(model.requests[-1].messages[0])["content"]
            assert instruction == ("One.\n\nAnd Acme's." if project else "One.")
        assert (await cue.conversations.summary("a")).prompt == f"prompt:projects/acme/{key}@main:1"


async def test_an_add_on_of_the_configured_project_is_found(folder):
    presets = {"routing": {"defaultPresetId": "p"}, "presets": [{"id": "p", "addonPromptKeys": ["_meta/own"]}]}
    async with cue_on(folder) as cue:
        await cue.prompts.save("projects/acme/_meta/own", {"body": "Only ours."})
    (folder / "config" / "metaprompt-presets.json").write_text(json.dumps(presets))
    async with cue_on(folder, prompts__project="acme") as cue:
        assert (await system_texts(cue))[-1] == "Only ours."
    with pytest.raises(InvalidInput, match="_meta/own"):
        async with cue_on(folder):
            pass


async def test_prompt_files_of_a_project_are_imported(tmp_path):
    init_project(tmp_path)
    project_folder = tmp_path / "prompts" / "projects" / "acme"
    for name, text in {
        "persona/helper.md": "---\ninherits: default/persona/helper\n---\nNever name prices.\n",
        "_meta/concise.md": "Short, as Acme is.\n",
    }.items():
        (project_folder / name).parent.mkdir(parents=True, exist_ok=True)
        (project_folder / name).write_text(text)
    settings = {"prompts.project": "acme", "store.synchronous": "OFF"}
    async with Cuebook.open(tmp_path, arguments=settings, model=ScriptedModel(default="Noted."), worker=False) as cue:
        window = await cue.assemble(Ask("hello", NAME))
        assert "prompt:projects/acme/persona/helper@main:1" in sources(window)
        assert any(text.endswith("\n\nNever name prices.") for text in front(window))
        assert front(window)[-1] == "Short, as Acme is."
