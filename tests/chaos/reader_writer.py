"""Run a second process that reads and writes while another one forgets; a line on stdin ends each stage."""

import asyncio
import sys

from cuebook import Ask, Cuebook, Posted
from cuebook.config import build
from cuebook.errors import CuebookError
from cuebook.testing import ScriptedModel
from hashing_embedder import HashingEmbedder

ANN, CANARY = sys.argv[3], sys.argv[4]


def say(line: str) -> None:
    """Send a line to the other process."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def read(cue: Cuebook, over: asyncio.Event) -> None:
    """Read all users' data."""
    while not over.is_set():
        for each in (await cue.conversations.list()).items:
            try:
                await cue.conversations.posts(each.id)
                await cue.assemble(Ask("Where is the garden?", each.id, user=each.user))
            except CuebookError:
                continue  # it was forgotten meanwhile
        await cue.memory.search("garden", user=ANN)
        await asyncio.sleep(0.01)


async def write(cue: Cuebook, user: str, text: str, over: asyncio.Event) -> None:
    """Append to a user's conversation and report each stored post."""
    n = 0
    while not over.is_set():
        await cue.append(f"beside-{user}", [Posted(id=f"p{n}", sender=user, message=f"{text} {n}")], user=user)
        if user != ANN:
            say(f"kept p{n}")
        n += 1
        await asyncio.sleep(0.01)


async def main() -> None:
    """Work until stdin gets a line: the first ends ann's posts, the second ends the process."""
    settings = {"store.url": sys.argv[2], "memory.user": True, "work.interval_s": 0.05}
    embedder = HashingEmbedder() if sys.argv[5] == "meaning" else None
    config = build(arguments=settings, folder=sys.argv[1])
    model = ScriptedModel(default="Well.")
    async with Cuebook.open(config, model=model, embedder=embedder, worker=True) as cue:
        stop_ann, stop_all = asyncio.Event(), asyncio.Event()
        ann = asyncio.create_task(write(cue, ANN, f"My garden is in {CANARY}", stop_ann))
        others = [
            asyncio.create_task(read(cue, stop_all)),
            asyncio.create_task(write(cue, "bob", "My boat is new", stop_all)),
        ]
        say("works")
        await asyncio.to_thread(sys.stdin.readline)
        stop_ann.set()
        await ann
        say("left ann")
        await asyncio.to_thread(sys.stdin.readline)
        stop_all.set()
        await asyncio.gather(*others)
    say("over")


if __name__ == "__main__":
    asyncio.run(main())
