"""Doubles of the ports: a clock that stands, dice that fall as expected, and a model that says what it was told."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from cuebook.errors import UpstreamError
from cuebook.interfaces.model import ModelRequest, Piece
from cuebook.records.conversation import Part
from cuebook.records.turn import Usage

#: A time to begin at: 2024-01-01 00:00:00 UTC.
BEGINNING = 1_704_067_200.0


class FrozenClock:
    """A clock that moves when told to."""

    def __init__(self, now: float = BEGINNING) -> None:
        self.time = now

    def now(self) -> float:
        """Return the time it was set to."""
        return self.time

    def set(self, now: float) -> None:
        """Set the time, back too."""
        self.time = now

    def advance(self, seconds: float) -> float:
        """Let time go by; answers with the time it is then."""
        self.time += seconds
        return self.time


class LoadedDice:
    """Ids in order, counted for each prefix: post-000001, post-000002, turn-000001."""

    def __init__(self) -> None:
        self._given: Counter[str] = Counter()

    def new_id(self, prefix: str) -> str:
        """Return the next id of a prefix."""
        self._given[prefix] += 1
        return f"{prefix}-{self._given[prefix]:06d}"


class Script(Struct, frozen=True, kw_only=True):
    """One answer: its text in pieces of `size` characters, `delay` seconds before each, and how it ends.

    `half` ends without `finish`, as a connection that broke; `error` is raised after the text.
    """

    text: str = ""
    size: int = 16
    delay: float = 0.0
    calls: tuple[Part, ...] = ()
    usage: Usage | None = None
    finish: str = ""  # "" = "tool_calls" with calls, else "stop"
    wire: bytes | None = None
    half: bool = False
    error: Exception | None = None


Reply = str | Script | Exception
Replies = Reply | Callable[[ModelRequest], Reply]


class ScriptedModel:
    """A model that gives its replies in order and keeps what it was asked in `requests`.

    A reply is a text, a `Script`, an error to raise at once, or a function of the request that gives one of these.
    When none is left it says `default`, or fails if there is none.
    """

    def __init__(self, *replies: Replies, default: Replies | None = None, name: str = "scripted") -> None:
        self.requests: list[ModelRequest] = []
        self.cancelled = 0  # answers nobody read to the end
        self.closed = False
        self._replies = list(replies)
        self._default = default
        self._name = name

    @property
    def name(self) -> str:
        """Its name, in turn records."""
        return self._name

    @property
    def left(self) -> int:
        """How many replies it still has."""
        return len(self._replies)

    def say(self, *replies: Replies) -> None:
        """Add replies behind those it has."""
        self._replies.extend(replies)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Answer with the next reply, piece by piece."""
        self.requests.append(request)
        script = self._next(request)
        try:
            for start in range(0, len(script.text), script.size):
                await asyncio.sleep(script.delay)
                yield Piece(text=script.text[start : start + script.size])
            await asyncio.sleep(script.delay)
            if script.error is not None:
                raise script.error
            if not script.half:
                finish = script.finish or ("tool_calls" if script.calls else "stop")
                yield Piece(calls=script.calls, usage=script.usage, finish=finish, wire=script.wire)
        except (GeneratorExit, asyncio.CancelledError):
            self.cancelled += 1
            raise

    async def aclose(self) -> None:
        """Note that it was closed."""
        self.closed = True

    def _next(self, request: ModelRequest) -> Script:
        reply = self._replies.pop(0) if self._replies else self._default
        if reply is None:
            msg = f"the scripted model has no reply left for request {len(self.requests)}"
            raise UpstreamError(msg)
        if callable(reply):
            reply = reply(request)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, Script) else Script(text=reply)
