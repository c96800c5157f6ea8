"""Tests of SIGKILL during a reflection: the next process completes it exactly once."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cuebook import Cuebook
from cuebook.config import build

USER_PROCESS = Path(__file__).with_name("frustrated_user.py")
PERSONA = {"id": "p", "baseSystemPrompt": "You are P.", "sentimentTracking": {"enabled": True, "presets": ["all"]}}
FAILPOINTS = ["close.stored:kill@2", "reflect.read:kill", "reflect.made:kill", "commit.after:kill@7"]


class Later:
    """A clock ahead of every lease of the killed process."""

    def now(self) -> float:
        return time.time() + 120


def run_until_killed(folder: Path, failpoint: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(USER_PROCESS), str(folder)],
        env={**os.environ, "CUEBOOK_FAILPOINT": failpoint},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("failpoint", FAILPOINTS)
async def test_a_reflection_is_made_once_after_a_kill(tmp_path: Path, failpoint: str) -> None:
    (tmp_path / "personas").mkdir()
    (tmp_path / "personas" / "p.json").write_text(json.dumps(PERSONA))
    turns = await asyncio.to_thread(run_until_killed, tmp_path, failpoint)
    assert turns[:1] == ["1"]
    config = build(arguments={"store.url": "cuebook.db", "persona.default": "p"}, folder=str(tmp_path))
    async with Cuebook.open(config, clock=Later(), worker=False) as cue:
        await cue.work()
        await cue.settle()
        state = await cue.mind.show("c")
        assert (state.mood, state.due) == ("empathetic", 0)
        assert [(reflection.turn, [run.trigger for run in reflection.runs]) for reflection in state.reflections] == [
            (2, ["event:user_frustrated"])
        ]
        events = [record.turn for record in await cue.audit.list() if record.event == "reflect"]
        assert events == [2]
        assert (await cue.audit.verify()).ok
