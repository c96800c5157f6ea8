"""Import a bundle of prompts; a failpoint in the environment kills the process."""

import asyncio
import sys

from cuebook import Cuebook
from cuebook.config import build


async def unbundle(folder: str, url: str, file: str, trust: str) -> None:
    async with Cuebook.open(build(arguments={"store.url": url}, folder=folder), worker=False) as cue:
        await cue.prompt_sync.unbundle(file, trust=trust)


if __name__ == "__main__":
    asyncio.run(unbundle(*sys.argv[1:5]))
