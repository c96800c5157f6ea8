"""Tests of SIGKILL during a reflection: the next process completes it exactly once."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from project import Project

from cuebook import Cuebook

USER_PROCESS = Path(__file__).with_name("frustrated_user.py")
PERSONA = {"id": "p", "baseSystemPrompt": "You are P.", "sentimentTracking": {"enabled": True, "presets": ["all"]}}
FAILPOINTS = ["close.stored:kill@2", "reflect.read:kill", "reflect.made:kill", "commit.after:kill@7"]


class Later:
    """A clock ahead of every lease of the killed process."""

    def now(self) -> float:
        return time.time() + 120


@pytest.mark.parametrize("failpoint", FAILPOINTS)
async def test_a_reflection_is_made_once_after_a_kill(
    project: Project, failpoint: str, record_fault: Callable[..., None]
) -> None:
    (project.folder / "personas").mkdir()
    (project.folder / "personas" / "p.json").write_text(json.dumps(PERSONA))
    turns = await asyncio.to_thread(project.run_until_killed, USER_PROCESS, failpoint)
    assert turns[:1] == ["1"]
    config = project.config(persona_default="p")
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
        record_fault("kill -9 in a reflection", {"acknowledged": len(turns)})
        assert (await cue.audit.verify()).ok
