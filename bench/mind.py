"""What hearing a message costs a turn, and that reflecting behind the reply costs the next one nothing."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import count

from bench.measure import AsyncRound, Figure, Run, compared, interleave_async
from cuebook import Ask, Cuebook
from cuebook.config import build
from cuebook.ports.model import ModelRequest, Piece

#: Seconds a work model takes over a metaprompt: many of them are being asked while turns go on.
_THINKS_S = 0.2
_ANSWER = '{"adjustmentRationale": "calm", "updatedGmiMood": "focused", "strategy": "Go on."}'
_PERSONAS = {
    "plain": {},
    "hearing": {"sentimentTracking": {"enabled": True}},
    "reflecting": {
        "sentimentTracking": {"enabled": True, "presets": ["all"]},
        "metaPrompts": [{"id": "gmi_self_trait_adjustment", "trigger": {"type": "turn_interval", "intervalTurns": 1}}],
    },
}
_SAID = (
    "The build of the staging branch takes 14 minutes now, where does the time go?",
    "This still does not work and I am really angry about it!!",
    "Ah, perfect, that did it. Thank you so much!",
    "Please list the five slowest tests of the suite with their times.",
)


class _Slow:
    """A model that answers turns at once and thinks about everything else."""

    name = "slow"

    async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        if request.purpose != "reply":
            await asyncio.sleep(_THINKS_S)
            yield Piece(text=_ANSWER, finish="stop")
            return
        yield Piece(text="Noted.", finish="stop")

    async def aclose(self) -> None:
        pass


def mind(run: Run) -> Iterator[Figure]:
    """Time turns of a persona that hears, and of one that reflects on each by a slow model, beside a plain one."""
    return iter(asyncio.run(_mind(run)))


async def _mind(run: Run) -> list[Figure]:
    async with AsyncExitStack() as stack:
        sides: dict[str, AsyncRound] = {}
        for name, asks in _PERSONAS.items():
            folder = run.fast / f"mind-{name}"
            (folder / "personas").mkdir(parents=True)
            (folder / "personas" / "p.json").write_text(
                json.dumps({"id": "p", "baseSystemPrompt": "You are P.", **asks})
            )
            settings = {"store.url": str(folder / "book.db"), "persona.default": "p", "work.model": "model"}
            config = build(arguments=settings, folder=str(folder))
            sides[name] = _turns(await stack.enter_async_context(Cuebook.open(config, model=_Slow())))
        found = await interleave_async(run.rounds(200), sides)
    return [
        compared("a turn that hears its message", found["hearing"], "one that does not", found["plain"]),
        compared(
            "a turn, the one before reflected on by a model", found["reflecting"], "one that hears", found["hearing"],
            bar=1.1,
        ),
    ]  # fmt: skip


def _turns(book: Cuebook) -> AsyncRound:
    numbers = count()

    async def turn() -> float:
        number = next(numbers)
        ask = Ask(_SAID[number % len(_SAID)], f"c{number // 8}")
        began = time.perf_counter()
        await book.ask(ask)
        return time.perf_counter() - began

    return turn
