"""Time to the first token with 32 streams at once: straight to the upstream, and through Cuebook in shadow and live."""

import asyncio
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from urllib.parse import urlsplit

import msgspec

from bench.measure import AsyncRound, Figure, Run, Sample, interleave_async
from bench.relay import Server, serving
from bench.stores import copy, store

_STREAMS = 32  # at once: each begins so long behind the one before that as many are under way
_EVENTS, _PACE_US = 50, 20_000
_IN_ALL = 3 * _STREAMS
_WORDS = 23
_ROUNDS_OF_TALK = 10  # that each client sends again
_SAID = "What do you know of the harbour, its ships and what they carried last year? " * 4
_FIRST = b'"content":" word'


def shadow(run: Run) -> Iterator[Figure]:
    """Thirty-two streams at once from a scripted upstream, memory on; the p95 of each round, and the rounds' median."""
    shadowed, live = (str(copy(store(run, 1_000, _WORDS), name)) for name in ("shadow", "live"))
    with ExitStack() as stack:
        upstream = stack.enter_context(serving("upstream"))
        base = upstream.address + "/v1"
        sides = {
            "none": upstream,
            "bare": stack.enter_context(serving("relay", base)),
            "shadow": stack.enter_context(serving("shadow", shadowed, base)),
            "live": stack.enter_context(serving("cuebook", live, base)),
        }
        names = count()
        rounds: Mapping[str, AsyncRound] = {name: _round(server, names) for name, server in sides.items()}
        found = asyncio.run(interleave_async(3 if run.quick else 8, rounds))
    yield _added("time to first token added in shadow, p95", found["shadow"], found["none"], "the upstream alone")
    yield _added("the same, against a bare relay", found["shadow"], found["bare"], "a bare relay", bar=None)
    yield _added("the same, live", found["live"], found["none"], "the upstream alone")


def _added(what: str, ours: Sample, other: Sample, name: str, *, bar: float | None = 30) -> Figure:
    return Figure(
        what=what,
        ours=f"{ours.median * 1e3:.1f} ms",
        against=f"{name} {other.median * 1e3:.1f} ms",
        ratio=(ours.median - other.median) * 1e3,
        unit=" ms",
        bar=bar,
        note=f"{_STREAMS} streams at once",
    )


def _round(server: Server, names: Iterator[int]) -> AsyncRound:
    async def one() -> float:
        apart = _EVENTS * _PACE_US / 1e6 / _STREAMS
        streams = (_first(server.address, next(names), after=apart * number) for number in range(_IN_ALL))
        took = sorted(await asyncio.gather(*streams))
        await asyncio.sleep(1.0)  # what is done behind the answers is not the next round's
        return took[math.ceil(0.95 * _IN_ALL) - 1]

    return one


async def _first(address: str, name: int, *, after: float) -> float:
    """Begin `after` seconds and read one stream to its end; seconds until its first word."""
    await asyncio.sleep(after)
    said = [
        {"role": role, "content": f"{name}.{n}: {_SAID}"}
        for n in range(_ROUNDS_OF_TALK)
        for role in ("user", "assistant")
    ]
    messages = [{"role": "system", "content": "You help."}, *said, {"role": "user", "content": f"And {name}?"}]
    asked = {"model": "m", "messages": messages, "stream": True, "max_tokens": _EVENTS, "seed": _PACE_US}
    body = msgspec.json.encode(asked)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {urlsplit(address).netloc}\r\nContent-Type: application/json\r\n"
        f"X-Conversation-Id: first-{name}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
    began = time.perf_counter()
    writer.write(head.encode() + body)
    got, first = b"", 0.0
    while piece := await reader.read(65536):
        got += piece
        if not first and _FIRST in got:
            first = time.perf_counter() - began
    writer.close()
    await writer.wait_closed()
    if b"data: [DONE]" not in got:
        msg = f"a stream did not end: {got[:300]!r}"
        raise RuntimeError(msg)
    return first
