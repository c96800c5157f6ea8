"""Tests of tenants other than the default one: background jobs and erasure."""

import json
import random
from pathlib import Path

import pytest
from turn_helpers import cue_on

from cuebook import Ask, NotFound, Posted
from cuebook.engine.core.audit_records import receipt
from cuebook.providers.clock_and_ids import SystemDice
from cuebook.records.memory import Scope
from cuebook.records.prompt import Observation
from cuebook.testing import FrozenClock, ScriptedModel
from storage.audit import audit

CANARY = "Zanzibarquokka"
ANN = f"ann-{CANARY}"
SLUG = "persona/kind"
DAY = 86_400.0


def occurrences(folder: Path, words: str = CANARY) -> dict[str, int]:
    needle = words.lower().encode()
    files = (file for file in folder.rglob("*") if file.is_file())
    counts = {str(file.relative_to(folder)): file.read_bytes().lower().count(needle) for file in files}
    return {name: count for name, count in counts.items() if count}


async def test_background_jobs_roll_back_worse_versions_in_every_tenant(tmp_path):
    clock, dice = FrozenClock(), random.Random(7)
    async with cue_on(tmp_path, clock=clock, prompts__rollback="sigma") as cue:
        mine = cue.of("umb")
        await mine.prompts.save(SLUG, {"body": "one"})
        for number, score, conversations in ((1, 0.8, 60), (2, 0.2, 60)):
            if number == 2:
                await mine.prompts.save(SLUG, {"body": "two"})
            [version] = await mine.services.prompts.versions(Scope(), SLUG, numbers=[number])
            for n in range(conversations):
                for moment in (dice.gauss(0, 0.05), dice.gauss(0, 0.05)):  # as another process: no job runs at once
                    observation = Observation(
                        slug=SLUG, branch="main", number=number, score=score + moment, sentiment=score,
                        conversation=f"{number} {n}", at=clock.now(),
                    )  # fmt: skip
                    record = receipt(mine.services, version, "observe", conversation=observation.conversation)
                    await mine.services.prompts.observe(Scope(), observation, audit=record)
                    clock.advance(30)
                clock.advance(3600)
        assert (await mine.prompts.family(SLUG)).branch("main").active == 2
        assert await cue.settle() == {}
        branch = (await mine.prompts.family(SLUG)).branch("main")
        assert (branch.active, branch.rolled_back) == (1, (2,))
        assert (await mine.prompts.history(SLUG))[0].kind == "rollback"
        assert (await mine.audit.verify()).ok
        with pytest.raises(NotFound):
            await cue.prompts.family(SLUG)


async def test_a_forget_erases_one_tenants_data_only(tmp_path):
    clock = FrozenClock()
    (tmp_path / "personas").mkdir()
    helper = {"id": "helper", "name": "Ada", "prompts": {"persona": SLUG}}
    (tmp_path / "personas" / "helper.json").write_text(json.dumps(helper))
    model = ScriptedModel(default=f"{CANARY} is fine.")
    settings = {"memory__user": True, "memory__persona": True}
    async with cue_on(tmp_path, clock=clock, model=model, dice=SystemDice(), **settings) as cue:
        mine, theirs = cue.of("umb"), cue.of("acme")
        for each in (mine, theirs, cue):
            await each.prompts.save(SLUG, {"body": "Be kind to $user_name."}, params=["user_name"])
        await theirs.append("c1", [Posted(sender=ANN, message="I live in Bergen.")], user=ANN)
        await cue.append("c1", [Posted(sender="bob", message="I live in Lima.")], user="bob")
        for n in range(30):
            await mine.append("c1", [Posted(sender=ANN, message=f"{n}: I keep boats in {CANARY}.")], user=ANN)
        await mine.ask(Ask(f"I live in {CANARY}.", "c1", user=ANN, persona="helper"))
        await mine.prompts.observe(SLUG, sentiment=1.0, user=ANN, conversation="c1")
        await mine.memory.put_knowledge("user_preference", "home", CANARY, user=ANN)
        await cue.settle()
        await mine.append("c3", [Posted(sender="bob", message="Fine.")], user="bob")
        await mine.conversations.participants("c3", [ANN], by="owner")
        await mine.ask(Ask("Where do I live?", "c2", user=ANN, persona="helper"))
        assert {each.split("-")[0] for each in occurrences(tmp_path)} == {"cuebook.db"}
        await theirs.memory.forget(user=ANN)
        with pytest.raises(NotFound):
            await theirs.conversations.get("c1")
        assert (await mine.memory.list(user=ANN)).items, "another tenant's forget of the same name deleted nothing"
        receipt = await mine.memory.forget(user=ANN)
        assert (receipt.state, receipt.counts["conversations"]) == ("done", 2)
        assert receipt.counts["auditTexts"] > 0
        assert occurrences(tmp_path) == {}
        assert mine.memory.verify_receipt(receipt, name=ANN).ok
        assert await mine.memory.receipt(receipt.id) == receipt
        with pytest.raises(NotFound):
            await cue.memory.receipt(receipt.id)
        verdict = await mine.audit.verify()
        assert (verdict.ok, verdict.erased > 0) == (True, True)
        assert (await cue.audit.verify()).ok
        assert [each.message for each in await cue.conversations.posts("c1")] == ["I live in Lima."]
        assert (await mine.conversations.get("c3")).participants == ("bob",)
        assert await cue.settle() == {}
    assert occurrences(tmp_path) == {}
    assert audit(str(tmp_path / "cuebook.db"), integrity=True) == []


async def test_pending_erasures_and_retention_run_for_every_tenant(tmp_path):
    clock = FrozenClock()
    async with cue_on(tmp_path, clock=clock, dice=SystemDice(), retention__conversations_days=30) as cue:
        mine = cue.of("umb")
        for each in (cue, mine):
            await each.append("c1", [Posted(sender="ann", message=f"I like {CANARY}.")], user="ann")
        clock.advance(31 * DAY)
        assert await cue.settle() == {}
        assert (await cue.conversations.list()).items == ()
        assert (await mine.conversations.list()).items == ()
        [done] = await mine.memory.receipts()
        assert (done.state, done.reason) == ("done", "retention")
        assert occurrences(tmp_path) == {}
