"""Run two turns whose second one scores a prompt, until a failpoint kills the process."""

import asyncio
import sys

from cuebook import Ask, Cuebook
from cuebook.config import build
from cuebook.testing import ScriptedModel

SLUG = "persona/assistant"


async def learn(folder: str, url: str) -> None:
    """Ask twice, run the background jobs and send feedback."""
    config = build(arguments={"store.url": url, "work.lease_s": 1.0}, folder=folder)
    async with Cuebook.open(config, model=ScriptedModel(default="Noted."), worker=False) as cue:
        await cue.prompts.save(SLUG, {"body": "Be kind."})
        for text in ("How do I sort a list?", "That works, thank you so much!"):
            await cue.ask(Ask(text, "c", user="ann"))
        await cue.work()
        await cue.turns.feedback("c", 1, thumb="down")


if __name__ == "__main__":
    asyncio.run(learn(*sys.argv[1:]))
