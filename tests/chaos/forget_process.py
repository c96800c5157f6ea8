"""Run a forget and print the receipt's state and id; a failpoint in the environment kills or stops the process."""

import asyncio
import sys

from cuebook import Cuebook
from cuebook.config import build


async def forget(folder: str, url: str, what: dict[str, str]) -> None:
    async with Cuebook.open(build(arguments={"store.url": url}, folder=folder), worker=False) as cue:
        receipt = await cue.memory.forget(**what)
        sys.stdout.write(f"{receipt.state} {receipt.id}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(forget(*sys.argv[1:3], {sys.argv[3]: sys.argv[4]}))
