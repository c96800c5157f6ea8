"""Gateway benchmark: requests per second and time to the first token through Cuebook and other proxies.

The client and the scripted upstream share one core, and each proxy runs on a core of its own. Conversations consist of
sentences of the demo conversation. Each request resends the whole history, as clients do.

On a busy machine, most of the time to the first token is the wait for a core: run it with `chrt --rr 10`.
"""

import asyncio
import os
import random
import re
import socket
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from bench.measure import AsyncRound, Figure, Run, Sample, compared, interleave_async, quartiles, shown
from bench.relay import Proxy, Server, quiet, serving
from bench.servers import ANSWER_WORDS, spoken
from clients.environments import ROOT, Pins, UnreachableError, installed, node_folder

_SENTENCES = 3  # of a user message
_CONCURRENT = (1, 8, 32)
_QUESTIONS = 8  # of each conversation, when counting requests per second
_WINDOW_S = 2.0
_NEW = 15  # conversations per round
_SHORT, _LONG = 8, 64  # messages in a history
_NEAR = 4  # messages by which a history may differ from these
_START_S = 120.0
_DIRECT, _BARE = "upstream alone", "bare relay"
_LIVE, _SHADOW, _LITELLM, _PORTKEY = "live", "shadow", "LiteLLM", "Portkey"
_FIRST = re.compile(rb'"content":\s*"[^"]')

_MODEL = "gpt-5.2"
_LITELLM_CONFIG = """\
model_list:
  - model_name: gpt-5.2
    litellm_params: {{model: openai/gpt-5.2, api_base: "{base}", api_key: sk-bench}}
"""


def gateway(run: Run) -> Iterator[Figure]:
    """Compare Cuebook, LiteLLM's proxy and Portkey's gateway in front of one scripted upstream."""
    rounds, cores, loads = 3 if run.quick else 8, sorted(os.sched_getaffinity(0)), [os.getloadavg()[0]]
    with ExitStack() as stack:
        stack.enter_context(_on_core(cores[-1]))
        upstream = stack.enter_context(serving("provider"))
        with _on_core(cores[0]):
            servers, absent = _start(run, stack, upstream)
        yield from absent
        sides = {title: Side(server, upstream.address) for title, server in servers.items()}
        for concurrent in _CONCURRENT:
            asyncio.run(interleave_async(rounds, {title: side.counting(concurrent) for title, side in sides.items()}))
            loads.append(os.getloadavg()[0])
            yield from _rates(sides, concurrent)
        asyncio.run(interleave_async(rounds, {title: side.timing() for title, side in sides.items()}))
        loads.append(os.getloadavg()[0])
        yield from _first_token(sides)
    yield Figure("load of the machine", f"{min(loads):.1f}-{max(loads):.1f}")


def _start(run: Run, stack: ExitStack, upstream: Server) -> tuple[dict[str, Proxy], list[Figure]]:
    """Start the proxies. Return them by name, and a figure for each that is not installed."""
    base, absent = f"{upstream.address}/v1", []
    sides: dict[str, Proxy] = {_DIRECT: upstream, _BARE: stack.enter_context(serving("relay", base))}
    for name, kind in ((_LIVE, "cuebook"), (_SHADOW, "shadow")):
        sides[name] = stack.enter_context(serving(kind, str(run.disk / f"{kind}.db"), base))
    for name, program in ((_LITELLM, _litellm), (_PORTKEY, _portkey)):
        try:
            sides[name] = stack.enter_context(program(run, base))
        except (UnreachableError, AssertionError, OSError, RuntimeError) as error:
            absent.append(Figure(name, "skipped", note=f"not installed or not started: {str(error)[:200]}"))
    return sides, absent


def _litellm(run: Run, base: str) -> AbstractContextManager[Proxy]:
    folder, config = installed(Pins(ROOT / "requirements/clients/litellm-proxy.txt")), run.disk / "litellm.yaml"
    config.write_text(_LITELLM_CONFIG.format(base=base))
    command = [folder / "venv/bin/litellm", "--config", config, "--host", "127.0.0.1", "--telemetry", "False"]
    settings = {
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # none of the proxies checks a key
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",  # this and the next: as its documentation recommends for production
        "LITELLM_MODE": "PRODUCTION",
    }
    return _program(command, **settings)


def _portkey(_: Run, __: str) -> AbstractContextManager[Proxy]:
    folder = installed(Pins(ROOT / "requirements/clients/portkey-gateway.txt"))
    script = folder / "node_modules/@portkey-ai/gateway/build/start-server.js"
    return _program([node_folder() / "node", script, "--headless"], NODE_ENV="production")


@contextmanager
def _program(command: Sequence[object], **settings: str) -> Iterator[Proxy]:
    """Run another proxy and yield it when it accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    # both programs take the form with an equals sign
    words = [str(each) for each in (*command, f"--port={port}")]
    with subprocess.Popen(words, env={**os.environ, **settings}, stdout=subprocess.DEVNULL) as child:
        try:
            _wait_until(child, port)
            yield Program(f"http://127.0.0.1:{port}", child.pid)
        finally:
            child.terminate()


def _wait_until(child: subprocess.Popen[bytes], port: int) -> None:
    """Wait until a process accepts connections."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until and child.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    msg = f"a proxy did not start: {child.args!r}"
    raise RuntimeError(msg)


@dataclass(frozen=True)
class Program:
    """Another proxy in its own process."""

    address: str
    pid: int

    def cpu(self) -> float:
        """Return the CPU seconds used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    """Keep this thread, and the processes that it starts, on one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# ---- rounds ----------------------------------------------------------------------------------------------------------


class Side:
    """One proxy and its results: a value per round."""

    def __init__(self, server: Proxy, upstream: str) -> None:
        self.server = server
        self._dice = random.Random(str(time.time_ns()))  # noqa: S311  # conversations differ from those of earlier rounds
        self._address = urlsplit(server.address)
        self._upstream = upstream
        self.values: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> float:
        """Add a result of the current round."""
        self.values.setdefault(name, []).append(value)
        return value

    def sample(self, name: str) -> Sample:
        """Return the results of all rounds except the warm-up."""
        return Sample(tuple(self.values[name][1:]))

    @asynccontextmanager
    async def talk(self) -> AsyncIterator["Talk"]:
        """Yield a new conversation on a connection of its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._address.port)
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self._address.netloc}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer sk-bench\r\nX-Portkey-Provider: openai\r\n"
            f"X-Portkey-Custom-Host: {self._upstream}/v1\r\nContent-Length: %d\r\n\r\n"
        )
        yield Talk(reader, writer, head.encode(), self._dice)
        writer.close()

    def counting(self, concurrent: int) -> AsyncRound:
        """Return a round that counts requests without streaming in a window of time."""

        async def client(until: float) -> int:
            count = 0
            while time.perf_counter() < until:
                async with self.talk() as talk:
                    while len(talk.messages) < 2 * _QUESTIONS and time.perf_counter() < until:
                        await talk.ask(stream=False)
                        count += 1
            return count

        async def one() -> float:
            used, began = self.server.cpu(), time.perf_counter()
            count = sum(await asyncio.gather(*(client(began + _WINDOW_S) for _ in range(concurrent))))
            took = time.perf_counter() - began
            await quiet(self.server)
            self.add(f"CPU {concurrent}", (self.server.cpu() - used) / count)
            return self.add(f"rate {concurrent}", count / took)

        return one

    def timing(self) -> AsyncRound:
        """Return a round that times the first token of new conversations and of one that grows."""

        async def one() -> float:
            new = []
            for _ in range(_NEW):
                async with self.talk() as talk:
                    new.append(await talk.ask(stream=True))
            await quiet(self.server)
            growing: dict[int, float] = {}
            async with self.talk() as talk:
                while (history := len(talk.messages) - 1) <= _LONG + _NEAR:
                    growing[history] = await talk.ask(stream=True)
            await quiet(self.server)
            for length in (_SHORT, _LONG):
                near = [took for history, took in growing.items() if abs(history - length) <= _NEAR]
                self.add(f"{length} messages", statistics.median(near))
            self.add("growing", statistics.median(list(growing.values())[1:]))
            return self.add("new", statistics.median(new))

        return one


class Talk:
    """A conversation whose history is resent with each request."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes, dice: random.Random
    ) -> None:
        self._reader, self._writer, self._head, self._dice = reader, writer, head, dice
        self.messages = [{"role": "system", "content": "You are the assistant of a landscape architect."}]

    async def ask(self, *, stream: bool) -> float:
        """Ask the next question. Return the seconds to the first token of the answer."""
        question = " ".join(self._dice.sample(_sentences(), _SENTENCES))
        self.messages.append({"role": "user", "content": question})
        body = msgspec.json.encode({"model": _MODEL, "messages": self.messages, "stream": stream})
        began, got, first = time.perf_counter(), b"", 0.0
        self._writer.write(self._head % len(body) + body)
        async for piece in self._pieces():
            got += piece
            if not first and _FIRST.search(got):
                first = time.perf_counter() - began
        answer = _streamed(got) if stream else msgspec.json.decode(got)["choices"][0]["message"]["content"]
        if len(answer.split()) != ANSWER_WORDS:
            msg = f"a proxy answered otherwise: {got[:1_000]!r}"
            raise RuntimeError(msg)
        self.messages.append({"role": "assistant", "content": answer})
        return first

    async def _pieces(self) -> AsyncIterator[bytes]:
        """Yield the body of an answer, piece by piece."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        _, counted, length = head.partition(b"content-length:")
        if counted:
            yield await self._reader.readexactly(int(length.partition(b"\r\n")[0]))
            return
        while size := int(await self._reader.readline(), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()


def _streamed(body: bytes) -> str:
    events = [msgspec.json.decode(line[6:]) for line in body.splitlines() if line.startswith(b"data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])


@cache
def _sentences() -> list[str]:
    return [each for post in spoken(by_user=True) for each in re.split(r"(?<=[.?!])\s+", post)]


# ---- figures ---------------------------------------------------------------------------------------------------------


def _rates(sides: Mapping[str, Side], concurrent: int) -> Iterator[Figure]:
    """Yield the requests per second of each side, relative to LiteLLM's."""
    name = f"rate {concurrent}"
    for title, side in sides.items():
        own, cpu = side.sample(name), shown(side.sample(f"CPU {concurrent}").median)
        note = f"CPU {cpu} a request, background jobs included"
        figure = Figure(f"{title}: requests/s, {concurrent} concurrent", f"{own.median:.0f}", note=note)
        if _LITELLM in sides and title != _LITELLM:
            other = sides[_LITELLM].sample(name)
            figure = replace(
                figure,
                against=f"{_LITELLM} {other.median:.0f}",
                ratio=own.median / other.median,
                spread=quartiles(one / two for one, two in zip(own.values, other.values, strict=True)),
                bar=2 if title == _LIVE else None,
                least=True,
            )
        yield figure


def _first_token(sides: Mapping[str, Side]) -> Iterator[Figure]:
    """Yield what each proxy adds to the time to the first token, and how that time grows with the history."""
    proxies = {title: side for title, side in sides.items() if title != _DIRECT}
    for name in ("new", "growing"):
        other = sides[_DIRECT].sample(name)
        for title, side in proxies.items():
            own = side.sample(name)
            added = [(one - two) * 1e3 for one, two in zip(own.values, other.values, strict=True)]
            yield Figure(
                f"{title}: added p50 to the first token, {name}",
                shown(own.median),
                against=f"{_DIRECT} {shown(other.median)}",
                ratio=statistics.median(added),
                spread=quartiles(added),
                unit=" ms",
                bar={_LIVE: 15, _SHADOW: 5}.get(title),
            )
    for title, side in sides.items():
        long, short = side.sample(f"{_LONG} messages"), side.sample(f"{_SHORT} messages")
        bar = 1.3 if title == _LIVE else None
        yield compared(f"{title}: first token, history of {_LONG}", long, f"of {_SHORT}", short, bar=bar)
