"""Prompt cache benchmark: simulated costs of a sixty-turn conversation under each provider's cache rules."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from bench.measure import Figure, Run
from bench.random_text import TextGenerator
from bench.stores import BEGINNING
from cuebook import Cuebook
from cuebook.config import BudgetConfig, Config, ConfigSections, MemoryConfig, StoreConfig, UpstreamConfig
from cuebook.engine.proxy.request import RelayCall
from cuebook.engine.proxy.wire import Head
from cuebook.engine.turn.compare import chunks_of
from cuebook.interfaces import RelayAnswer, RelayRequest
from cuebook.records.answer import added
from cuebook.testing import FrozenClock, LoadedDice
from cuebook.window.cache import CacheChunk, CacheSimulator, CacheUse
from cuebook.window.models import RULES, CacheRule
from cuebook.window.tokens import counter

TURNS = 60
_RULES = ("openai-prefix", "openai-breakpoints", "anthropic", "gemini")
_WIDE, _NARROW = 200_000, 48_000  # context sizes: the second needs a summary
_CASES = (("budget", _WIDE), ("budget", _NARROW), ("standard", _WIDE), ("off", _WIDE), ("off", _NARROW))
_JUDGED = ("budget", "standard")  # the profile of OpenAI clients, and of all other clients
_READ, _COST = 0.85, 0.25  # QUALITY, "The provider's cache"
_FRONT_TOKENS = (3_500, 2_500)  # system text, tools
_POST_TOKENS = (150, 600)
_MINUTE, _STEP = 60.0, 4.0  # seconds between turns, and between the steps of one

count = counter("estimate")


class Agent(Struct, frozen=True):
    """The messages of sixty turns: those of user and tools, and the model's answers."""

    system: str
    tools: bytes
    turns: tuple[tuple[tuple[dict[str, Any], ...], ...], ...]  # turn -> step -> messages, the model's last


def cache(run: Run) -> Iterator[Figure]:
    """Yield read shares and costs by profile and rule. The targets apply to the profiles `budget` and `standard`."""
    talk = agent(TextGenerator(11))
    seen: dict[str, list[int]] = {}
    for profile, context in _CASES[::2][:2] if run.quick else _CASES:
        requests, compactions = asyncio.run(windows(talk, profile, context))
        sizes = [sum(chunk.tokens for chunk in chunks) for _, chunks in requests]
        what = f"{profile}, context {context:,}"
        same = next((other for other, its in seen.items() if its == sizes), "")
        seen[what] = sizes
        yield Figure(
            f"{what}: {len(requests)} requests, {compactions} summaries",
            f"{sum(sizes):,}",
            f"input tokens, {sizes[0]:,} to {max(sizes):,} a request",
            note=f"the same windows as {same}" if same else "",
        )
        for name in () if same else _RULES:
            totals = simulate(RULES[name], requests)
            yield from _judged(name, totals) if profile in _JUDGED else _totals_figure(name, totals)
            if RULES[name].implicit == "message" and not run.quick:  # Anthropic sets its own markers only on request
                yield from _totals_figure(
                    f"{name} and the provider's own marks", simulate(RULES[name], requests, explicit=False)
                )


def simulate(
    rule: CacheRule, requests: Iterable[tuple[float, Sequence[CacheChunk]]], *, explicit: bool = True
) -> CacheUse:
    """Return the totals of a fresh cache over requests, each with the second it was sent."""
    simulator, totals = CacheSimulator(rule), CacheUse()
    for now, chunks in requests:
        totals = added(totals, simulator.request(chunks, now, explicit=explicit))
    return totals


def _judged(name: str, totals: CacheUse) -> Iterator[Figure]:
    share = f"{totals.read_share:.1%}"
    yield Figure(
        f"   {name}: read from cache", share, "of the input", ratio=totals.read_share, bar=_READ, least=True, unit=""
    )
    yield from _totals_figure(f"{name}: cost", totals, bar=_COST)


def _totals_figure(name: str, totals: CacheUse, *, bar: float | None = None) -> Iterator[Figure]:
    yield Figure(
        f"   {name}",
        f"{totals.cost:,.0f}",
        f"without a cache {totals.input_tokens:,}",
        ratio=totals.cost / totals.input_tokens,
        bar=bar,
        note=f"{totals.read_share:.1%} read, {totals.write_tokens:,} written, {totals.uncached_tokens:,} uncached",
    )


# ---- the conversation -----------------------------------------------------------------------------------------------


def agent(talk: TextGenerator) -> Agent:
    """Generate an agent's conversation. Every third turn uses tools, one to three times."""
    tools: list[dict[str, Any]] = []
    while count(msgspec.json.encode(tools).decode()) < _FRONT_TOKENS[1]:
        tools.append(_tool(talk, len(tools)))
    return Agent(
        system=_sized(talk, _FRONT_TOKENS[0]),
        tools=msgspec.json.encode(tools),
        turns=tuple(tuple(_steps(talk, number)) for number in range(TURNS)),
    )


def _steps(talk: TextGenerator, number: int) -> Iterator[tuple[dict[str, Any], ...]]:
    asked: list[dict[str, Any]] = [{"role": "user", "content": _user_text(talk)}]
    for call in range(talk.number(1, 3) if number % 3 == 2 else 0):
        name = f"call_{number}_{call}"
        function = {"name": "tool_0", "arguments": msgspec.json.encode({"query": talk.post(8)}).decode()}
        calls = [{"id": name, "type": "function", "function": function}]
        yield (*asked, {"role": "assistant", "content": None, "tool_calls": calls})
        asked = [{"role": "tool", "tool_call_id": name, "content": _printed(talk)}]
    yield (*asked, {"role": "assistant", "content": _user_text(talk)})


def _tool(talk: TextGenerator, number: int) -> dict[str, Any]:
    fields = {word: {"type": "string", "description": talk.post(12)} for word in dict.fromkeys(talk.rare(4))}
    parameters = {"type": "object", "properties": {"query": {"type": "string"}, **fields}, "required": ["query"]}
    function = {"name": f"tool_{number}", "description": talk.post(30), "parameters": parameters}
    return {"type": "function", "function": function}


def _user_text(talk: TextGenerator) -> str:
    return _sized(talk, talk.number(*_POST_TOKENS))


def _printed(talk: TextGenerator) -> str:
    most, text = talk.number(*_POST_TOKENS), talk.log(3)
    while count(text) < most:
        text += "\n" + talk.log(2)
    return text


def _sized(talk: TextGenerator, tokens: int) -> str:
    text = talk.post(20)
    while count(text) < tokens:
        text += ("\n\n" if talk.number(1, 5) == 1 else " ") + talk.post(12)
    return text


# ---- the client and its upstream ------------------------------------------------------------------------------------


class _Answer:
    """A reply that is not streamed."""

    status = 200
    headers: Mapping[str, str] = {"content-type": "application/json"}

    def __init__(self, message: dict[str, Any]) -> None:
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        self._body = msgspec.json.encode({"choices": [{"index": 0, "message": message, "finish_reason": finish}]})

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._body

    async def aclose(self) -> None:
        pass


class _Upstream:
    """An upstream that answers with the conversation's next message."""

    base_url = "http://127.0.0.1/v1"

    def __init__(self) -> None:
        self.next: dict[str, Any] = {}

    async def send(self, request: RelayRequest) -> RelayAnswer:
        _ = request
        return _Answer(self.next)

    async def aclose(self) -> None:
        pass


async def windows(talk: Agent, profile: str, context: int) -> tuple[list[tuple[float, list[CacheChunk]]], int]:
    """Relay the conversation of a client that resends its history. Return each window as chunks with its time."""
    clock, upstream = FrozenClock(BEGINNING), _Upstream()
    settings = ConfigSections(
        store=StoreConfig(url=":memory:"),
        memory=MemoryConfig(profile=profile),
        upstream=UpstreamConfig(cache_rule="off"),
        budget=BudgetConfig(context=context),
    )
    history: list[dict[str, Any]] = [{"role": "system", "content": talk.system}]
    found: list[tuple[float, list[CacheChunk]]] = []
    opened = Cuebook.open(Config(settings=settings), clock=clock, dice=LoadedDice(), upstream=upstream, worker=False)
    async with opened as cue:
        for steps in talk.turns:
            for number, step in enumerate(steps, 1):
                *said, upstream.next = step
                history.extend(said)
                turn = await _ask(cue, history, talk.tools)
                replay = await cue.turns.replay("agent", turn, step=number)
                if replay.window is None or replay.verdict != "identical":
                    msg = f"turn {turn} cannot be shown as it was sent: {replay.verdict} {replay.reason}"
                    raise RuntimeError(msg)
                found.append((clock.now(), chunks_of(replay.window, tools=talk.tools.decode())))
                history.append(upstream.next)
                clock.advance(_STEP)
            clock.advance(_MINUTE)
            while await cue.work():
                pass
        summary = await cue.conversations.summary("agent")
    return found, summary.version if summary else 0


async def _ask(cue: Cuebook, history: list[dict[str, Any]], tools: bytes) -> int:
    body = {"model": "m", "messages": history, "tools": msgspec.Raw(tools)}
    call = RelayCall(body=msgspec.json.encode(body), headers={}, conversation="agent", user="ann")
    turn = 0
    async for piece in cue.relay(call):
        if isinstance(piece, Head):
            turn = piece.turn
    return turn
