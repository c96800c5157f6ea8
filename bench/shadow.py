"""Shadow benchmark: time to first token of 32 streams, direct and through Cuebook in shadow and live mode.

A conversation arrives twice: first with an unknown history, which is parsed and stored, then with its continuation.
"""

import asyncio
import math
import os
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from urllib.parse import urlsplit

import msgspec

from bench.measure import AsyncRound, Figure, Run, Sample, compared, interleave_async, quartiles
from bench.relay import Server, quiet, serving
from bench.stores import copy, store
from cuebook.providers.minilm.embedder import MiniLM

_STREAMS = 32  # concurrent: start times are spread so that this many streams overlap
_EVENTS, _PACE_US = 50, 20_000
_IN_ALL = 2 * _STREAMS
_WORDS = 23
_ROUNDS_OF_TALK = 10  # that each client resends
_SAID = "What do you know of the harbour, its ships and what they carried last year? " * 4
_FIRST = b'"content":" word'
_NONE, _BARE = "the upstream alone", "a bare relay"
#: The ways in which a conversation arrives.
_SEEN = ("first seen", "going on")


class Side(msgspec.Struct):
    """The results of one server by kind of conversation: p95 in seconds, and CPU seconds of a call."""

    server: Server
    first: dict[str, list[float]] = msgspec.field(default_factory=lambda: {each: [] for each in _SEEN})
    cpu: dict[str, list[float]] = msgspec.field(default_factory=lambda: {each: [] for each in _SEEN})

    def sample(self, seen: str) -> Sample:
        """Return the p95 of each round except the warm-up."""
        return Sample(tuple(self.first[seen][1:]))

    def spent(self, seen: str) -> Sample:
        """Return the CPU of a call including its background jobs, without the warm-up."""
        return Sample(tuple(self.cpu[seen][1:]))


def shadow(run: Run) -> Iterator[Figure]:
    """Measure 32 concurrent streams of a scripted upstream with memory on: the median of the rounds' p95."""
    rounds, path = 1 if run.quick else 8, store(run, 1_000, _WORDS)
    with ExitStack() as stack:
        upstream = stack.enter_context(serving("upstream"))
        base = upstream.address + "/v1"
        bare = stack.enter_context(serving("relay", base))
        shadowed = stack.enter_context(serving("shadow", str(copy(path, "shadow")), base))
        live = stack.enter_context(serving("cuebook", str(copy(path, "live")), base))
        servers = {_NONE: upstream, _BARE: bare, "shadow": shadowed, "live": live}
        yield from _figures(rounds, servers)
        if not MiniLM.missing():  # separate, because it embeds in the background after each round
            embedding = stack.enter_context(serving("embedding", str(run.fast / "embedding.db"), base))
            yield from _figures(1 if run.quick else 2, {_NONE: upstream, _BARE: bare, "live, embeddings": embedding})


def _figures(rounds: int, servers: Mapping[str, Server]) -> Iterator[Figure]:
    names, loads = count(time.time_ns()), [os.getloadavg()[0]]
    sides = {name: Side(server) for name, server in servers.items()}
    does: dict[str, AsyncRound] = {name: _round(side, names, loads) for name, side in sides.items()}
    asyncio.run(interleave_async(rounds, does))
    load = f"load {min(loads):.1f} to {max(loads):.1f}"
    none, bare = sides[_NONE], sides[_BARE]
    for seen in _SEEN:
        for name, side in list(sides.items())[1:]:
            yield _added(f"{seen}: {name} adds, p95", side, none, seen, bar=None if side is bare else 30, note=load)
        for name, side in list(sides.items())[2:]:
            note = "background jobs included"
            yield compared(f"{seen}: CPU of a call, {name}", side.spent(seen), _BARE, bare.spent(seen), note=note)


def _added(what: str, ours: Side, other: Side, seen: str, *, bar: float | None, note: str) -> Figure:
    one, two = ours.sample(seen), other.sample(seen)
    added = [(mine - theirs) * 1e3 for mine, theirs in zip(one.values, two.values, strict=True)]
    return Figure(
        what=what,
        ours=f"{one.median * 1e3:.1f} ms",
        against=f"{_NONE} {two.median * 1e3:.1f} ms",
        ratio=statistics.median(added),
        spread=quartiles(added),
        unit=" ms",
        bar=bar,
        note=note,
    )


def _round(side: Side, names: Iterator[int], loads: list[float]) -> AsyncRound:
    async def one() -> float:
        own = [next(names) for _ in range(_IN_ALL)]
        for seen in _SEEN:
            began = side.server.cpu()
            apart = _EVENTS * _PACE_US / 1e6 / _STREAMS
            streams = (_first(side.server.address, name, seen, after=apart * number) for number, name in enumerate(own))
            took = sorted(await asyncio.gather(*streams))
            loads.append(os.getloadavg()[0])
            await quiet(side.server)  # background jobs must not count for the next round
            side.first[seen].append(took[math.ceil(0.95 * _IN_ALL) - 1])
            side.cpu[seen].append((side.server.cpu() - began) / _IN_ALL)
        return side.first[_SEEN[-1]][-1]

    return one


def _body(name: int, seen: str) -> bytes:
    said = [
        {"role": role, "content": f"{name}.{n}: {_SAID}"}
        for n in range(_ROUNDS_OF_TALK)
        for role in ("user", "assistant")
    ]
    messages = [{"role": "system", "content": "You help."}, *said, {"role": "user", "content": f"And {name}?"}]
    if seen != _SEEN[0]:
        answer = "".join(f" word{number % 97}" for number in range(_EVENTS))  # the answer of the scripted upstream
        messages.append({"role": "assistant", "content": answer})
        messages.append({"role": "user", "content": f"And which of the ships of {name} came back?"})
    return msgspec.json.encode(
        {"model": "m", "messages": messages, "stream": True, "max_tokens": _EVENTS, "seed": _PACE_US}
    )


async def _first(address: str, name: int, seen: str, *, after: float) -> float:
    """Start after `after` seconds and read one stream to its end. Return the seconds until its first token."""
    await asyncio.sleep(after)
    body = _body(name, seen)
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
