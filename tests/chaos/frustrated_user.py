"""Run a user who gets angry with a reflecting persona, until a failpoint kills the process."""

import asyncio
import sys

from cuebook import Ask, Cuebook
from cuebook.config import build

MESSAGES = (
    "Please list the files of the report folder by their date.",
    "This is terrible, it still does not work and I am really angry!!",
    "And what now?",
)


async def run(folder: str, url: str) -> None:
    arguments = {"store.url": url, "persona.default": "p", "work.lease_s": 1.0}
    config = build(arguments=arguments, folder=folder)
    async with Cuebook.open(config, worker=False) as cue:
        for text in MESSAGES:
            reply = await cue.ask(Ask(text, "c"))
            sys.stdout.write(f"{reply.turn}\n")
            sys.stdout.flush()
            await cue.settle()


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
