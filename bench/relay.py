"""Server benchmark: the CPU of a relayed event and of a read of posts, compared with a bare server."""

import asyncio
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from bench.measure import AsyncRound, Figure, Run, compared, interleave_async
from bench.stores import CONVERSATION, copy, store

_STREAMS = 6
_LONG, _SHORT = 124, 4  # events of a stream; the difference gives the cost of an event
_PACE_US = 2_000  # between two events, so each arrives separately, like a model's
_LAST = 30
_READS, _READERS = 30, 4
_WORDS = 23
#: The share of a core below which a server is idle, and the longest wait for that in seconds.
_QUIET, _QUIET_WITHIN_S = 0.05, 60.0
_LOOK_S = 0.5


class Proxy(Protocol):
    """A server of the benchmark."""

    @property
    def address(self) -> str:
        """The URL of the server."""

    def cpu(self) -> float:
        """Return the CPU seconds used so far."""


class Server:
    """A benchmark server in its own process that reports its CPU time."""

    def __init__(self, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "bench.servers", *arguments]
        self._child = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self._line()

    def _line(self) -> str:
        if self._child.stdout is None:
            raise AssertionError
        line = self._child.stdout.readline().strip()
        if not line:
            msg = f"a server of the bench did not start or is gone: {self._command}"
            raise RuntimeError(msg)
        return line

    def cpu(self) -> float:
        """Return the CPU seconds used so far."""
        if self._child.stdin is None:
            raise AssertionError
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        return float(self._line())

    def stop(self) -> None:
        """Stop the server."""
        self._child.terminate()
        self._child.wait(30)


@contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    """Start a server, and end it."""
    server = Server(*arguments)
    try:
        yield server
    finally:
        server.stop()


async def quiet(server: Proxy) -> None:
    """Wait until a server has finished its background jobs."""
    until, used = time.monotonic() + _QUIET_WITHIN_S, -math.inf
    while time.monotonic() < until and (now := server.cpu()) - used > _QUIET * _LOOK_S:
        used = now
        await asyncio.sleep(_LOOK_S)


def relay(run: Run) -> Iterator[Figure]:
    """Compare streams through Cuebook and through a bare relay, from one scripted upstream on this machine."""
    path = str(copy(store(run, 1_000, _WORDS), "relay"))
    rounds = 4 if run.quick else 10
    with ExitStack() as stack:
        upstream = stack.enter_context(serving("upstream"))
        ours = stack.enter_context(serving("cuebook", path, upstream.address + "/v1"))
        bare = stack.enter_context(serving("relay", upstream.address + "/v1"))
        reader = stack.enter_context(serving("reader", path))
        yield from asyncio.run(_relay(rounds, ours, bare))
        sides = asyncio.run(interleave_async(rounds, {"ours": _reads(ours), "bare": _reads(reader)}))
    what = f"HTTP JSON read of the last {_LAST} posts"
    yield compared(what, sides["ours"], "a bare ASGI app, the same store read", sides["bare"], bar=2)


async def _relay(rounds: int, ours: Server, bare: Server) -> list[Figure]:
    names = count()
    sides = await interleave_async(
        rounds,
        {
            "ours": _per_event(ours, names, _PACE_US),
            "bare": _per_event(bare, names, _PACE_US),
            "ours, burst": _per_event(ours, names, 0),
            "bare, burst": _per_event(bare, names, 0),
            "ours, turn": _per_turn(ours, names),
            "bare, turn": _per_turn(bare, names),
        },
    )
    against = "a bare relay"
    return [
        compared("an SSE event, sent one at a time", sides["ours"], against, sides["bare"], bar=2),
        compared("an SSE event, sent in a burst", sides["ours, burst"], against, sides["bare, burst"]),
        compared("a turn without its events", sides["ours, turn"], against, sides["bare, turn"]),
    ]


def _per_event(server: Server, names: Iterator[int], pace_us: int) -> AsyncRound:
    async def one() -> float:
        short = await _streams(server, names, _SHORT, pace_us)
        long = await _streams(server, names, _LONG, pace_us)
        return (long - short) / (_LONG - _SHORT)

    return one


def _per_turn(server: Server, names: Iterator[int]) -> AsyncRound:
    return lambda: _streams(server, names, _SHORT, 0)


async def _streams(server: Server, names: Iterator[int], events: int, pace_us: int) -> float:
    """Read concurrent streams, each a turn of its own conversation. Return the CPU seconds of one."""
    began = server.cpu()
    await asyncio.gather(*(_stream(server.address, next(names), events, pace_us) for _ in range(_STREAMS)))
    return (server.cpu() - began) / _STREAMS


async def _stream(address: str, name: int, events: int, pace_us: int) -> None:
    messages = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": f"Say {events} words of {name}."},
    ]
    body = msgspec.json.encode(
        {"model": "m", "messages": messages, "stream": True, "max_tokens": events, "seed": pace_us}
    )
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: {urlsplit(address).netloc}\r\nContent-Type: application/json\r\n"
        f"X-Conversation-Id: relay-{name}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
    writer.write(head.encode() + body)
    answer = await reader.read(-1)
    writer.close()
    await writer.wait_closed()
    if b"data: [DONE]" not in answer:
        msg = f"a stream did not end: {answer[:300]!r}"
        raise RuntimeError(msg)


def _reads(server: Server) -> AsyncRound:
    async def one() -> float:
        began = server.cpu()
        await asyncio.gather(*(_read(server.address) for _ in range(_READERS)))
        return (server.cpu() - began) / (_READERS * _READS)

    return one


async def _read(address: str) -> None:
    """Read repeatedly over one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
    asked = (
        f"GET /api/conversations/{CONVERSATION}/posts?last={_LAST} HTTP/1.1\r\nHost: {urlsplit(address).netloc}\r\n\r\n"
    )
    for _ in range(_READS):
        writer.write(asked.encode())
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
        if not head.startswith(b"http/1.1 200"):
            msg = f"a read failed: {head[:100]!r} {body[:200]!r}"
            raise RuntimeError(msg)
    writer.close()
    await writer.wait_closed()
