"""Tests of idempotency keys of prompt requests: a repeat changes nothing and returns the first answer."""

import asyncio
from pathlib import Path

import pytest
from turn_helpers import cue_on

from cuebook.errors import Conflict, InvalidInput, KeyReused


async def test_an_observation_under_one_key_counts_once(tmp_path: Path) -> None:
    async with cue_on(tmp_path) as cue:
        await cue.prompts.save("a", {"body": "x"})
        first = await cue.prompts.observe("a", sentiment=1.0, idempotency_key="k")
        assert await cue.prompts.observe("a", sentiment=1.0, idempotency_key="k") == first
        with pytest.raises(KeyReused, match="different request"):
            await cue.prompts.observe("a", sentiment=0.0, idempotency_key="k")
    async with cue_on(tmp_path) as cue:
        assert await cue.prompts.observe("a", sentiment=1.0, idempotency_key="k") == first
        assert (await cue.prompts.family("a")).branches[0].observations == 1
        other = await cue.prompts.observe("a", sentiment=1.0, idempotency_key="k", user="bob")
        assert other != first, "each user's keys are separate"


async def test_concurrent_requests_under_one_key_run_once(tmp_path: Path) -> None:
    async with cue_on(tmp_path) as cue:
        await cue.prompts.save("a", {"body": "x"})
        many = [cue.prompts.observe("a", sentiment=1.0, idempotency_key="k") for _ in range(20)]
        answers = await asyncio.gather(*many)
        assert len({each.edge_weight for each in answers}) == 1
        assert (await cue.prompts.family("a")).branches[0].observations == 1
        writes = [cue.prompts.save("a", {"body": "y"}, base=1, idempotency_key="w") for _ in range(20)]
        assert {each.number for each in await asyncio.gather(*writes)} == {2}
        backs = [cue.prompts.roll_back("a", reason="worse", idempotency_key="b") for _ in range(20)]
        assert {each.number for each in await asyncio.gather(*backs)} == {1}
        assert [each.kind for each in await cue.prompts.history("a")] == ["rollback", "write", "write"]


async def test_every_writing_request_repeats_its_answer(tmp_path: Path) -> None:
    async with cue_on(tmp_path) as cue:
        prompts = cue.prompts
        first = await prompts.save("a", {"body": "one $x"}, params=["x"], idempotency_key="1", by="ann")
        assert await prompts.save("a", {"body": "one $x"}, params=["x"], idempotency_key="1", by="ann") == first
        fork = await prompts.fork("a", "try", idempotency_key="2")
        await prompts.save("a", {"body": "two $x"}, branch="try")
        assert await prompts.fork("a", "try", idempotency_key="2") == fork
        merged = await prompts.merge("a", "try", idempotency_key="3")
        assert (await prompts.show("a")).sections == {"body": "two $x"}
        assert await prompts.merge("a", "try", idempotency_key="3") == merged
        label = await prompts.label("a", "production", idempotency_key="4")
        assert await prompts.label("a", "production", idempotency_key="4") == label
        back = await prompts.roll_back("a", reason="worse", idempotency_key="5")
        assert await prompts.roll_back("a", reason="worse", idempotency_key="5") == back
        clear = await prompts.clear("a", 2, idempotency_key="6")
        assert await prompts.clear("a", 2, idempotency_key="6") == clear
        kinds = [each.kind for each in await prompts.history("a")]
        assert kinds == ["clear", "rollback", "label", "write", "write", "branch", "write"]
        rendered = await prompts.render("a", {"x": "s"}, log=True, by="ann", idempotency_key="7")
        await prompts.save("a", {"body": "three $x"})
        assert await prompts.render("a", {"x": "s"}, log=True, by="ann", idempotency_key="7") == rendered
        assert rendered.text == "one s"
        renders = [each for each in await cue.audit.list() if each.event == "render"]
        assert [each.seq for each in renders] == [rendered.audit_seq]
        assert renders[0].agent == "ann"


async def test_a_failed_request_may_be_retried_under_its_key(tmp_path: Path) -> None:
    async with cue_on(tmp_path) as cue:
        await cue.prompts.save("a", {"body": "x"})
        with pytest.raises(Conflict, match="has changed"):
            await cue.prompts.save("a", {"body": "y"}, base=4, idempotency_key="k")
        assert (await cue.prompts.save("a", {"body": "z"}, base=1, idempotency_key="k")).number == 2
        with pytest.raises(InvalidInput, match="255"):
            await cue.prompts.save("a", {"body": "y"}, idempotency_key="k" * 256)
