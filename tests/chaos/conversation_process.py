"""Run a conversation and print what is durable, until a failpoint in the environment kills the process."""

import asyncio
import sys
from collections.abc import AsyncIterator

from cuebook import Ask, Cuebook, Posted
from cuebook.config import build
from cuebook.interfaces import ModelRequest, Piece

PIECES = [f"piece {n} " for n in range(40)]


class Slow:
    """A model that answers a piece every hundredth of a second, so that checkpoints fall in between."""

    name = "slow"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        del request
        for text in PIECES:
            await asyncio.sleep(0.01)
            yield Piece(text=text)
        yield Piece(finish="stop")

    async def aclose(self) -> None:
        """Do nothing: the model holds no resource."""


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


async def run(folder: str, url: str, lease_s: float = 1.0) -> None:
    arguments = {"store.url": url, "work.lease_s": lease_s, "work.checkpoint_s": 0.05}
    config = build(arguments=arguments, folder=folder)
    async with Cuebook.open(config, model=Slow(), worker=False) as cue:
        for n in range(30):
            sender = "assistant" if n % 2 else "mara"
            await cue.append("c", [Posted(id=f"p{n}", sender=sender, message=f"The key {n} hangs in room {n}.")])
            say(f"post p{n}")
        async for chunk in cue.stream(Ask("Where does key 7 hang?", "c")):
            if chunk.type == "METADATA_UPDATE":
                say(f"query {chunk.turn}")
            elif chunk.type == "final_response":
                say(f"reply {chunk.turn}")
        await cue.settle()
        say("summary")


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:3], *map(float, sys.argv[3:])))
