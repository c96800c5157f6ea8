"""Tests of SIGKILL while a turn scores its prompt: the score is stored once or still due, never twice."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from feedback_process import SLUG

from cuebook import Cuebook
from cuebook.config import build
from cuebook.records.answer import to_wire
from cuebook.records.memory import Scope
from cuebook.testing import ScriptedModel

FEEDBACK_PROCESS = Path(__file__).with_name("feedback_process.py")


def run_until_killed(folder: Path, failpoint: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, str(FEEDBACK_PROCESS), str(folder)],
        env={**os.environ, "CUEBOOK_FAILPOINT": failpoint},
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("failpoint", "scores"),
    [("open.stored:kill@2", 0), ("outcome.folded:kill", 1), ("outcome.folded:kill@2", 1)],
)
async def test_a_killed_score_is_stored_once_after_the_restart(tmp_path: Path, failpoint: str, scores: int) -> None:
    done = await asyncio.to_thread(run_until_killed, tmp_path, failpoint)
    assert done.returncode == -9, done.stderr
    config = build(arguments={"store.url": "cuebook.db"}, folder=str(tmp_path))
    async with Cuebook.open(config, model=ScriptedModel(default="Noted."), worker=False) as cue:
        assert await cue.settle() == {}
        observations = await cue.services.prompts.observations(Scope(), SLUG)
        assert [each.turn for each in observations] == [1] * scores
        [branch] = (await cue.prompts.family(SLUG)).branches
        assert branch.observations == scores
        if scores:
            by = to_wire(await cue.turns.show("c", 1))["observation"]["by"]
            assert by == ("feedback" if failpoint.endswith("@2") else "next")
            assert branch.weight == pytest.approx(0.45 + 0.1 * observations[0].score)
        assert (await cue.audit.verify()).ok
