"""Run a demo's background jobs in a worker process of its own: by the replay's clock, whenever the replay says so.

Standard input has a line for each run: the time, and the conversation to settle or null. The answer is an empty line.
"""

import asyncio
import json
import sys
from pathlib import Path

from cuebook.app.cuebook import Cuebook
from cuebook.app.demo.run import Stage, demo_config
from cuebook.app.replay import advance_to


async def work(folder: Path, database: str) -> None:
    """Run the jobs of a demo's database until standard input ends."""
    stage = Stage()
    config = demo_config(folder, database)
    async with Cuebook.open(config, clock=stage.clock, dice=stage.dice, upstream=stage.upstream, worker=False) as cue:
        while line := await asyncio.to_thread(sys.stdin.readline):
            now, conversation = json.loads(line)
            advance_to(stage.clock, now)
            await (cue.settle(conversation=conversation) if conversation else cue.work())
            print(flush=True)  # noqa: T201  # the answer


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2]))
