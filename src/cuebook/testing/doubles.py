"""Test doubles of the ports: a frozen clock, predictable ids, and a model with scripted answers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from cuebook.errors import UpstreamError
from cuebook.interfaces import ModelRequest, Piece
from cuebook.records.conversation import Part
from cuebook.records.turn import Usage

#: The default start time: 2024-01-01 00:00:00 UTC.
BEGINNING = 1_704_067_200.0


class FrozenClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, now: float = BEGINNING) -> None:
        self.time = now

    def now(self) -> float:
        """Return the current time of this clock."""
        return self.time

    def set(self, now: float) -> None:
        """Set the time; it may go backwards."""
        self.time = now

    def advance(self, seconds: float) -> float:
        """Move the time forward; return the new time."""
        self.time += seconds
        return self.time


class LoadedDice:
    """Ids in sequence, numbered per prefix: post-000001, post-000002, turn-000001."""

    def __init__(self) -> None:
        self._given: Counter[str] = Counter()

    def new_id(self, prefix: str) -> str:
        """Return the next id of a prefix."""
        self._given[prefix] += 1
        return f"{prefix}-{self._given[prefix]:06d}"


class Script(Struct, frozen=True, kw_only=True):
    """One answer: its text in chunks of `size` characters, `delay` seconds before each, and its end.

    `half` ends without `finish`, like a broken connection; `error` is raised after the text.
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
    """A model that returns its replies in order and records the requests in `requests`.

    A reply is a text, a `Script`, an error to raise at once, or a function of the request that returns one of these.
    When no reply is left, it returns `default`, or fails without one.
    """

    def __init__(self, *replies: Replies, default: Replies | None = None, name: str = "scripted") -> None:
        self.requests: list[ModelRequest] = []
        self.cancelled = 0  # answers that were not read to the end
        self.closed = False
        self._replies = list(replies)
        self._default = default
        self._name = name

    @property
    def name(self) -> str:
        """Return the model's name for turn records."""
        return self._name

    @property
    def left(self) -> int:
        """Return the number of replies left."""
        return len(self._replies)

    def say(self, *replies: Replies) -> None:
        """Append replies."""
        self._replies.extend(replies)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Yield the next reply in chunks."""
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
        """Record that the model was closed."""
        self.closed = True

    def _next(self, request: ModelRequest) -> Script:
        reply = self._replies.pop(0) if self._replies else self._default
        if reply is None:
            msg = f"The scripted model has no reply left for request {len(self.requests)}. Add one with `say`."
            raise UpstreamError(msg)
        if callable(reply):
            reply = reply(request)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, Script) else Script(text=reply)
