"""Blocked requests: the longest wait of 20 polling clients while one large request is received and worked off, and the
time of a search and of a prompt while imported posts are worked off.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from statistics import median, quantiles
from urllib.parse import urlsplit

import msgspec

from bench.measure import Figure, Run, Sample, compared, shown
from bench.relay import Server, quiet, serving
from bench.servers import spoken

_CLIENTS = 20
_PAUSE_S = 0.2
_IDLE_S = 5.0
#: Polling goes on after the answer, because the memory of the posts is worked off then.
_AFTER_S = 3.0
#: Longest wait that the target allows (QUALITY): milliseconds, or times the longest of the idle server.
_BAR_MS, _BAR_TIMES = 250.0, 4.0
_POLLED = ("/healthz", "/api/conversations?limit=5", "/api/memories?limit=5")

Post = dict[str, object]


def _unique(size: int) -> str:
    """Return a text of words of which each occurs once."""
    rng, words, length = random.Random(size), [], 0  # noqa: S311  # the same text in each run
    while length < size:
        word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(4, 10)))
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[:size]


def _said(message: str, **more: object) -> Post:
    return {"sendFrom": "user", "message": message} | more


#: The shapes of a request that blocked others, as the posts of one body.
SHAPES: dict[str, Callable[[], list[Post]]] = {
    "2 MB of unique words": lambda: [_said(_unique(2_000_000))],
    "6 posts of 400 KB": lambda: [_said(_unique(400_000 + number)) for number in range(6)],
    '2 MB of "4111 "': lambda: [_said("4111 " * 400_000)],
    "50,001 short messages": lambda: [_said(f"message {number}") for number in range(50_001)],
    "20,000 short messages": lambda: [_said(f"message {number}") for number in range(20_000)],
    "100,000 posts": lambda: [_said("x") for _ in range(100_000)],
    "20,000 attachments": lambda: [_said("x", attachments=[{"type": "text", "content": "note"}] * 20_000)],
    "5,000 attachments": lambda: [_said("x", attachments=[{"type": "text", "content": "note"}] * 5_000)],
    "100 KB of unique words": lambda: [_said(_unique(100_000))],
}


def blocked(run: Run) -> Iterator[Figure]:
    """Compare the longest wait beside each large request with the longest wait of the idle server."""
    for number, (name, posts) in enumerate(SHAPES.items()):
        with serving("cuebook", str(run.disk / f"blocked{number}.db"), "http://127.0.0.1:9/v1") as server:
            idle, waits, answer = asyncio.run(_measure(server, posts()))
        bar = max(_BAR_MS, _BAR_TIMES * max(idle))
        yield Figure(
            name,
            f"{max(waits):,.0f} ms",
            f"worst of the idle server {max(idle):,.0f} ms, median {median(idle):.1f} ms",
            max(waits) / bar,
            bar=1,
            unit="× of the limit",
            note=f"median {median(waits):.1f} ms; {answer}",
        )


#: Imported posts, posts per conversation, and seconds of requests beside the jobs.
_IMPORTED, _EACH, _BUSY_S = 20_000, 1_000, 30.0
_ASKED = (
    ("search", "/api/memories/search", {"query": "the ferry to the island", "userId": "u"}),
    ("assemble", "/api/assemble", {"message": "When does the ferry leave?", "conversationId": "own", "userId": "u"}),
)


def foreground(run: Run) -> Iterator[Figure]:
    """Compare a search and a prompt beside background jobs with the same requests of the idle server."""
    count = _EACH * 4 if run.quick else _IMPORTED
    with serving("cuebook", str(run.disk / "foreground.db"), "http://127.0.0.1:9/v1") as server:
        busy, idle = asyncio.run(_beside_jobs(server, count))
    for name, *_ in _ASKED:
        what = f"{name} while {count:,} imported posts are worked off"
        note = f"95th percentiles {shown(_late(busy[name]))} and {shown(_late(idle[name]))}"
        yield compared(what, Sample(busy[name]), "the idle server", Sample(idle[name]), bar=1.5, note=note)


def _late(seconds: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return quantiles(seconds, n=20)[-1]


async def _beside_jobs(server: Server, count: int) -> tuple[dict[str, tuple[float, ...]], dict[str, tuple[float, ...]]]:
    """Return the seconds of each request beside the jobs, and as many of the idle server.

    Both sides assemble the same prompt: its conversation is summarized before the import. A prompt of an imported
    conversation has more posts until the jobs have summarized them.
    """
    said, rng = [*spoken(by_user=True), *spoken(by_user=False)], random.Random(1)  # noqa: S311  # the same in each run
    host, port = urlsplit(server.address).hostname or "", urlsplit(server.address).port or 0

    async def add(conversation: str) -> None:
        posts = [_said(" ".join(rng.choices(said, k=2)), sendFrom=("u", "assistant")[n % 2]) for n in range(_EACH)]
        await _send(host, port, f"/api/conversations/{conversation}/posts", {"posts": posts, "userId": "u"})

    async def settle() -> None:
        await _send(host, port, "/api/settle", {"timeout": 1_800})
        await quiet(server)

    await add("own")
    await settle()
    for number in range(count // _EACH):
        await add(f"c{number}")
    busy = await _ask(host, port, rounds=10_000)
    await settle()
    idle = await _ask(host, port, rounds=len(busy["search"]))
    rounds = min(len(busy["search"]), len(idle["search"]))
    return {name: each[-rounds:] for name, each in busy.items()}, {name: each[:rounds] for name, each in idle.items()}


async def _ask(host: str, port: int, *, rounds: int) -> dict[str, tuple[float, ...]]:
    seconds: dict[str, list[float]] = {name: [] for name, *_ in _ASKED}
    until = time.perf_counter() + _BUSY_S
    while time.perf_counter() < until and len(seconds["search"]) < rounds:
        for name, path, body in _ASKED:
            began = time.perf_counter()
            await _send(host, port, path, body)
            seconds[name].append(time.perf_counter() - began)
        await asyncio.sleep(0.05)
    return {name: tuple(each) for name, each in seconds.items()}


async def _measure(server: Server, posts: list[Post]) -> tuple[list[float], list[float], str]:
    """Return the waits of the idle server and those beside a request in milliseconds, and the request's answer."""
    host, port = urlsplit(server.address).hostname or "", urlsplit(server.address).port or 0
    await _send(host, port, "/api/conversations/small/posts", {"posts": [_said("hello")]})
    await quiet(server)
    async with _polling(host, port) as waits:
        await asyncio.sleep(_IDLE_S)
        idle = list(waits)
        waits.clear()
        began = time.perf_counter()
        status = await _send(host, port, "/api/conversations/large/posts", {"posts": posts})
        took = time.perf_counter() - began
        await asyncio.sleep(_AFTER_S)
    return idle, waits, f"{status} after {took:.1f} s"


@asynccontextmanager
async def _polling(host: str, port: int) -> AsyncIterator[list[float]]:
    """Poll with all clients at different times, and collect their waits in milliseconds."""
    waits: list[float] = []

    async def poll(number: int) -> None:
        await asyncio.sleep(_PAUSE_S * number / _CLIENTS)
        reader, writer = await asyncio.open_connection(host, port)
        request = f"GET {_POLLED[number % len(_POLLED)]} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n".encode()
        while True:
            began = time.perf_counter()
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]))
            waits.append(1000 * (time.perf_counter() - began))
            await asyncio.sleep(_PAUSE_S)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(poll(number)) for number in range(_CLIENTS)]
        yield waits
        for task in tasks:
            task.cancel()


async def _send(host: str, port: int, path: str, value: object) -> int:
    """Send a POST request and return the status of the answer."""
    body = msgspec.json.encode(value)
    reader, writer = await asyncio.open_connection(host, port)
    head = f"POST {path} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\n"
    writer.write(f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1])
