"""A process in which a user gets angry with a persona that reflects, until a failpoint in its environment ends it."""

import asyncio
import sys

from cuebook import Ask, Cuebook
from cuebook.config import build

SAID = (
    "Please list the files of the report folder by their date.",
    "This is terrible, it still does not work and I am really angry!!",
    "And what now?",
)


async def talk(folder: str) -> None:
    config = build(arguments={"store.url": "cuebook.db", "persona.default": "p"}, folder=folder)
    async with Cuebook.open(config, worker=False) as cue:
        for text in SAID:
            reply = await cue.ask(Ask(text, "c"))
            sys.stdout.write(f"{reply.turn}\n")
            sys.stdout.flush()
            await cue.settle()


if __name__ == "__main__":
    asyncio.run(talk(sys.argv[1]))
