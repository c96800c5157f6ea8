"""Tests of prompt log files: contents, redaction and erasure."""

import asyncio
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from turn_helpers import Client, cue_on, user

from cuebook import Ask, CuebookError
from cuebook.interfaces import ModelRequest
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.testing import ScriptedModel
from cuebook.testing.doubles import Script
from cuebook.testing.upstream import ScriptedUpstream
from scripted_answers import completion

CANARY = "Zanzibarquokka"
REFUND = "exp_id: refund\nwhen: The customer asks for a refund.\nwhat: Ask for the order number first.\n"


def on(path: Path, **settings: Any) -> Any:
    return cue_on(path, **({"logs__prompts": "logs/prompts"} | settings))


def add_planner(path: Path) -> None:
    (path / "personas").mkdir()
    document = {"id": "ann", "role": "Planner", "baseSystemPrompt": "You plan."}
    (path / "personas" / "ann.json").write_text(json.dumps(document))


def logs(path: Path) -> dict[str, Any]:
    """Return every log by its folder and name, without the folders' marker files."""
    folder = path / "logs" / "prompts"
    return {
        str(file.relative_to(folder)): json.loads(file.read_text("utf-8"))
        for file in sorted(folder.rglob("*.json"))
        if file.name != "conversation.json"
    }


def files_with(path: Path, words: str = CANARY) -> list[str]:
    needle = words.encode()
    return [str(file) for file in path.rglob("*") if file.is_file() and needle in file.read_bytes()]


def choosing(request: ModelRequest) -> str:
    return '{"refund": true}' if request.purpose == "experience_selection" else "Noted."


async def test_both_prompts_of_a_turn_are_logged_under_the_personas_role(tmp_path: Path) -> None:
    add_planner(tmp_path)
    (tmp_path / "experience").mkdir()
    (tmp_path / "experience" / "handcrafted_exp_a.yaml").write_text(REFUND)
    model = ScriptedModel(default=choosing)
    settings = {"persona__default": "ann", "experience__selection": "model"}
    async with on(tmp_path, model=model, **settings) as cue:
        await cue.ask(Ask("How do I get a refund?", "My Talk/1"))
        await cue.ask(Ask("Thanks", "My Talk/1"))
        assert await cue.settle() == {}
    entries = logs(tmp_path)
    folder = next(iter(entries)).split("/")[0]
    assert folder.startswith("my-talk-1-")
    assert [name.removeprefix(f"{folder}/") for name in entries] == [
        "planner_experience_selection_log_1_2.json", "planner_experience_selection_log_3_4.json",
        "planner_prompt_log_1_2.json", "planner_prompt_log_3_4.json",
    ]  # fmt: skip
    main = entries[f"{folder}/planner_prompt_log_1_2.json"]
    assert main == [json.loads(message) for message in model.requests[1].messages]
    assert "Ask for the order number first." in main[1]["content"]
    selection = entries[f"{folder}/planner_experience_selection_log_1_2.json"]
    assert [message["role"] for message in selection] == ["system", "user"]
    assert "ID: refund" in selection[0]["content"]


async def test_nothing_is_logged_unless_a_folder_is_configured(tmp_path: Path) -> None:
    async with on(tmp_path, logs__prompts="") as cue:
        await cue.ask(Ask("Hello", "c"))
    assert not (tmp_path / "logs" / "prompts").exists()


async def test_each_step_of_a_relayed_round_is_logged(tmp_path: Path) -> None:
    upstream = ScriptedUpstream()
    async with on(tmp_path, upstream=upstream) as cue:
        client = Client(cue, upstream)
        call = {"id": "t1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
        upstream.say(completion("", calls=[call]))
        client.history.append(user("Find it"))
        client.history.append(json.loads(await client.send())["choices"][0]["message"])
        client.history.append({"role": "tool", "tool_call_id": "t1", "content": "found"})
        upstream.say(completion("Done."))
        await client.send()
    assert [name.split("/")[1] for name in logs(tmp_path)] == [
        "assistant_prompt_log_1_2.json", "assistant_prompt_log_1_4.json",
    ]  # fmt: skip


async def test_secrets_are_redacted_and_files_are_private(tmp_path: Path) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
    model = ScriptedModel(default="Noted.")
    async with on(tmp_path, model=model) as cue:
        await cue.ask(Ask(f"My key is {secret}", "c"))
    assert secret.encode() in model.requests[0].messages[-1], "the live request contains it"
    assert not files_with(tmp_path / "logs", secret)
    for file in [*(tmp_path / "logs" / "prompts").rglob("*")]:
        assert not stat.S_IMODE(file.stat().st_mode) & 0o077


@pytest.mark.parametrize("name", ["../../out", "/etc/x", "con", "a" * 300, "..", "é\u202e", "A", "a b\nc"])
async def test_an_id_cannot_change_the_path_of_a_log(tmp_path: Path, name: str) -> None:
    async with on(tmp_path) as cue:
        await cue.ask(Ask("Hello", name))
        await cue.ask(Ask("Hello", name.swapcase() + "x"))
    folders = sorted(each.name for each in (tmp_path / "logs" / "prompts").iterdir())
    assert len(folders) == 2
    assert all(part.isalnum() for folder in folders for part in folder.split("-"))
    assert sorted(name for name in os.listdir(tmp_path) if not name.startswith("cuebook.db")) == ["logs"]  # noqa: PTH208


async def test_a_failed_turn_is_logged_too(tmp_path: Path) -> None:
    async with on(tmp_path, model=ScriptedModel()) as cue:
        with pytest.raises(CuebookError):
            await cue.ask(Ask("Hello", "c"))
    assert [name.split("/")[1] for name in logs(tmp_path)] == ["assistant_prompt_log_1_unanswered_1_1.json"]


async def test_an_unwritable_folder_does_not_affect_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "logs").write_text("a file")
    with caplog.at_level(logging.WARNING, "cuebook.logs"):
        async with on(tmp_path) as cue:
            for _ in range(3):
                assert (await cue.ask(Ask("Hello", "c"))).text == "Noted."
            assert await cue.settle() == {}
    assert [record.name for record in caplog.records].count("cuebook.logs") == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")  # noqa: PTH110
async def test_a_full_disk_does_not_affect_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with on(tmp_path) as cue:
        await cue.ask(Ask("Hello", "c"))
        await cue.settle()
        folder = next((tmp_path / "logs" / "prompts").iterdir())
        (folder / f".assistant_prompt_log_3_4.json.{os.getpid()}").symlink_to("/dev/full")
        with caplog.at_level(logging.WARNING, "cuebook.logs"):
            assert (await cue.ask(Ask("Again", "c"))).text == "Noted."
            assert await cue.settle() == {}
    assert "No space left" in caplog.text


# ---- forgetting -----------------------------------------------------------------------------------------------------


async def test_forgetting_a_conversation_deletes_only_its_logs(tmp_path: Path) -> None:
    async with on(tmp_path) as cue:
        await cue.ask(Ask(f"My house is in {CANARY}", "c"))
        await cue.ask(Ask("Hello", "d"))
        await cue.settle()
        assert files_with(tmp_path / "logs")
        receipt = await cue.memory.forget(conversation="c")
        assert receipt.state == "done"
        assert not files_with(tmp_path)
        assert [name.split("-")[0] for name in logs(tmp_path)] == ["d"]


@pytest.mark.parametrize("what", ["user", "conversation", "memory"])
async def test_forgetting_a_user_leaves_no_byte_in_logs(tmp_path: Path, what: str) -> None:
    """A fact from one conversation is in another conversation's prompt."""
    async with on(tmp_path, memory__user=True) as cue:
        await cue.ask(Ask(f"Remember that I live in {CANARY}.", "c", user="ann"))
        await cue.settle()
        reply = await cue.ask(Ask("Where do I live?", "d", user="ann"))
        await cue.settle()
        assert reply.window is not None
        assert CANARY in " ".join(block.text for block in reply.window.blocks), "the prompt contains the memory"
        if what == "memory":
            hits = await cue.memory.search("live", user="ann", limit=10)
            of: dict[str, Any] = {"memories": [hit.memory_id for hit in hits if hit.kind == "item"], "by": "ann"}
        else:
            of = {"user": "ann"} if what == "user" else {"conversation": "c", "by": "ann"}
        receipt = await cue.memory.forget(**of)
        assert receipt.state == "done"
        assert not files_with(tmp_path / "logs")


async def test_an_unauthorized_forget_deletes_no_log(tmp_path: Path) -> None:
    async with on(tmp_path) as cue:
        await cue.ask(Ask("Hello", "c", user="ann"))
        await cue.settle()
        await cue.memory.forget(user="nobody", by="bob")
        await cue.memory.forget(memories=["memory:none"], by="bob")
        await cue.memory.forget(conversation="c", by="bob")
        assert len(logs(tmp_path)) == 1


async def test_logs_are_erased_after_logging_was_switched_off(tmp_path: Path) -> None:
    for folder in ("logs/prompts", "elsewhere", "elsewhere"):
        async with on(tmp_path, logs__prompts=folder, dice=SystemDice()) as cue:
            await cue.ask(Ask(f"My house is in {CANARY}", "c", user="ann"))
    assert len(files_with(tmp_path)) > 2
    async with on(tmp_path, logs__prompts="") as cue:
        assert (await cue.memory.forget(user="ann")).state == "done"
    assert not files_with(tmp_path)
    assert (tmp_path / "cuebook.db.logs").read_text() == "logs/prompts\nelsewhere\n"


async def test_a_recreated_conversation_starts_with_an_empty_folder(tmp_path: Path) -> None:
    async with on(tmp_path) as cue:
        await cue.ask(Ask(f"My house is in {CANARY}", "c"))
        await cue.settle()
        await cue.conversations.delete("c")
        await cue.ask(Ask("Hello", "c"))
    assert not files_with(tmp_path / "logs")
    assert len(logs(tmp_path)) == 1


async def test_a_log_written_during_a_forget_is_deleted(tmp_path: Path) -> None:
    model = ScriptedModel(default=Script(text="slowly answered", size=1, delay=0.05))
    async with on(tmp_path, model=model) as cue:
        asking = asyncio.create_task(cue.ask(Ask(f"My house is in {CANARY}", "c")))
        while not model.requests:  # noqa: ASYNC110  # another's list
            await asyncio.sleep(0.01)
        await cue.conversations.delete("c")
        with pytest.raises(CuebookError):
            await asking
        await cue.settle()
        assert not files_with(tmp_path / "logs")


async def test_foreign_files_in_the_folder_stay(tmp_path: Path) -> None:
    mine = tmp_path / "logs" / "prompts" / "notes"
    mine.mkdir(parents=True)
    (mine / "a.txt").write_text("mine")
    async with on(tmp_path) as cue:
        await cue.ask(Ask("Hello", "c"))
        await cue.settle()
        await cue.conversations.delete("c")
    assert (mine / "a.txt").read_text() == "mine"


async def test_tenants_logs_are_separate_and_erased_separately(tmp_path: Path) -> None:
    async with on(tmp_path) as cue:
        for tenant in ("acme", "other"):
            await cue.of(tenant).ask(Ask(f"My house is in {CANARY}{tenant}", "c", user="ann"))
        await cue.settle()
        assert len({name.split("/")[0] for name in logs(tmp_path)}) == 2
        assert (await cue.of("acme").memory.forget(conversation="c", by="ann")).state == "done"
        assert not files_with(tmp_path, f"{CANARY}acme")
        assert files_with(tmp_path / "logs", f"{CANARY}other")
