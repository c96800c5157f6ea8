"""Answer slowly and compact a conversation while another process forgets it; print when the answer begins."""

import asyncio
import sys
from collections.abc import AsyncIterator

from cuebook import Ask, Cuebook
from cuebook.config import build
from cuebook.errors import CuebookError
from cuebook.interfaces import ModelRequest, Piece


class Slow:
    """A model that repeats the canary every hundredth of a second. Only the forget ends its reply to a question."""

    name = "slow"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        for n in range(6000 if request.purpose == "reply" else 120):
            await asyncio.sleep(0.01)
            yield Piece(text=f"{sys.argv[3]} {n} ")
        yield Piece(finish="stop")

    async def aclose(self) -> None:
        """Do nothing: the model holds no resource."""


async def answer(cue: Cuebook) -> None:
    try:
        async for chunk in cue.stream(Ask("How is the garden?", "c", user=sys.argv[4])):
            if chunk.type == "text_delta":
                sys.stdout.write("speaks\n")
                sys.stdout.flush()
    except CuebookError as error:
        sys.stdout.write(f"{type(error).__name__}\n")


async def main() -> None:
    arguments = {"store.url": sys.argv[2], "work.checkpoint_s": 0.05, "memory.user": True}
    async with Cuebook.open(build(arguments=arguments, folder=sys.argv[1]), model=Slow(), worker=True) as cue:
        await answer(cue)
        await cue.settle()


if __name__ == "__main__":
    asyncio.run(main())
