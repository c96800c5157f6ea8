"""Program of the PostgreSQL benchmark: a process that runs turns whenever its input has a line.

`python -m bench.turn_process URL` prints a line when it is ready. For each line with a number of turns it runs them, in
several conversations at once, and prints the wall seconds and its own CPU seconds.
"""

import asyncio
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager

from bench.random_text import TextGenerator
from cuebook import Ask, Cuebook
from cuebook.config import Config, ConfigSections, StoreConfig
from cuebook.testing import ScriptedModel

#: Conversations that have a turn at the same time.
AT_ONCE = 4
_REPLY = "That was said before; the garden is next, and then the kitchen."


def project(url: str, folder: str) -> AbstractAsyncContextManager[Cuebook]:
    """Return a project with default settings on a database, with a model that answers at once."""
    config = Config(settings=ConfigSections(store=StoreConfig(url=url)), folder=folder)
    return Cuebook.open(config, model=ScriptedModel(default=_REPLY), worker=False)


def questions() -> Iterator[str]:
    """Yield different questions."""
    talk = TextGenerator(7)
    while True:
        yield f"What do you know about {' and '.join(talk.rare(3))}? My name is Ann and I live in Berlin."


async def main() -> None:
    """Run turns until the input ends."""
    with tempfile.TemporaryDirectory() as folder:
        async with project(sys.argv[1], folder) as cue:
            print("ready", flush=True)
            while line := await asyncio.to_thread(sys.stdin.readline):
                began, used = time.perf_counter(), time.process_time()
                await asyncio.gather(*(_turns(cue, int(line) // AT_ONCE) for _ in range(AT_ONCE)))
                print(time.perf_counter() - began, time.process_time() - used, flush=True)


async def _turns(cue: Cuebook, count: int) -> None:
    conversation, texts = secrets.token_hex(8), questions()
    for _ in range(count):
        await cue.ask(Ask(next(texts), conversation))


if __name__ == "__main__":
    asyncio.run(main())
