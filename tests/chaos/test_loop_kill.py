"""Tests of SIGKILL while a turn scores its prompt: the score is stored once or still due, never twice."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from feedback_process import SLUG
from project import Project

from cuebook.records.answer import to_wire
from cuebook.records.memory import Scope
from cuebook.testing import ScriptedModel

FEEDBACK_PROCESS = Path(__file__).with_name("feedback_process.py")


@pytest.mark.parametrize(
    ("failpoint", "scores"),
    [("open.stored:kill@2", 0), ("outcome.folded:kill", 1), ("outcome.folded:kill@2", 1)],
)
async def test_a_killed_score_is_stored_once_after_the_restart(
    project: Project, failpoint: str, scores: int, record_fault: Callable[..., None]
) -> None:
    await asyncio.to_thread(project.run_until_killed, FEEDBACK_PROCESS, failpoint)
    async with project.open(model=ScriptedModel(default="Noted.")) as cue:
        assert await cue.settle() == {}
        observations = await cue.services.prompts.observations(Scope(), SLUG)
        assert [each.turn for each in observations] == [1] * scores
        record_fault("kill -9 in a score", {"acknowledged": scores})
        [branch] = (await cue.prompts.family(SLUG)).branches
        assert branch.observations == scores
        if scores:
            by = to_wire(await cue.turns.show("c", 1))["observation"]["by"]
            assert by == ("feedback" if failpoint.endswith("@2") else "next")
            assert branch.weight == pytest.approx(0.45 + 0.1 * observations[0].score)
        assert (await cue.audit.verify()).ok
