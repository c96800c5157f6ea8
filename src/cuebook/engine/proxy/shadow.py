"""Shadow mode: relay requests unchanged, and store each afterwards with the window that Cuebook would have sent.

Nothing here may delay or change the traffic. The queue of calls to store is bounded. A call that does not fit, is
unreadable, or meets a failing store is only lost to the ledger, and the next stored turn reports the loss.
"""

import asyncio
import logging
import time
import zlib
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus

import msgspec
from msgspec import Struct, field

from cuebook.engine.core.model_call import closing
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.erasure import forgotten_since
from cuebook.engine.proxy.answer_relay import relay_answer
from cuebook.engine.proxy.chat_completions import meaning, unsaid
from cuebook.engine.proxy.local_answer import Head
from cuebook.engine.proxy.messages_wire import PATH as MESSAGES_PATH
from cuebook.engine.proxy.messages_wire import MessagesWire
from cuebook.engine.proxy.request import HistoryPlace, RelayCall, Request, place_of
from cuebook.engine.proxy.responses_wire import PATH as RESPONSES_PATH
from cuebook.engine.proxy.responses_wire import AnswerIds, ResponsesWire
from cuebook.engine.proxy.shadow_ledger import CallAccounting, cut_short
from cuebook.engine.proxy.wire import ChatWire, Wire
from cuebook.engine.turn.opening import Intent, open_step
from cuebook.engine.turn.step import OpenStep
from cuebook.errors import CuebookError, InvalidInput, UpstreamError
from cuebook.interfaces.model import RelayRequest, Upstream
from cuebook.records.memory import Scope
from cuebook.records.turn import SHADOW

# ---- Compressed bodies ----------------------------------------------------------------------------------------------


#: zlib option to detect the header: gzip, zlib or none.
_ANY, _BARE = zlib.MAX_WBITS | 32, -zlib.MAX_WBITS


def unpacked(body: bytes, encoding: str, *, most: int) -> bytes:
    """Decompress a body by its Content-Encoding. A truncated body is decompressed as far as possible.

    Raises InvalidInput for an unsupported encoding, and for more than `most` bytes.
    """
    for each in reversed([name.strip().lower() for name in encoding.split(",") if name.strip()]):
        if each == "identity":
            continue
        if each not in ("gzip", "x-gzip", "deflate"):
            msg = f"Content-Encoding: Unsupported value {each!r}. Use gzip or deflate."
            raise InvalidInput(msg, where="Content-Encoding")
        body = _inflated(body, each, most)
    return body


def _inflated(body: bytes, name: str, most: int) -> bytes:
    for bits in (_ANY, _BARE) if name == "deflate" else (_ANY,):
        reader = zlib.decompressobj(bits)
        try:
            plain = reader.decompress(body, most)
        except zlib.error:
            continue
        if reader.unconsumed_tail:
            msg = f"Body too large: more than {most} bytes after decompression"
            raise InvalidInput(msg, where="body")
        return plain
    msg = f"Invalid body: not {name}, although Content-Encoding names it"
    raise InvalidInput(msg, where="Content-Encoding")


log = logging.getLogger("cuebook.shadow")

#: Most queued calls, and bytes of their bodies.
MOST, MOST_BYTES = 256, 64 * 1024 * 1024
#: Approximate overhead of a call in bytes.
ENTRY_BYTES = 1024
#: Seconds to store one call, and seconds that shutdown waits for all.
PATIENCE_S, DRAIN_S = 60.0, 10.0
#: Seconds that a queued call yields to calls waiting for their first byte, and queue length at which it stops yielding.
MAX_WAIT_S, HURRIES_AT = 0.25, 32
#: Seconds that `settle` waits for calls in progress: a client gets the last byte before the end is seen here.
PASSING_S = 2.0
#: Reasons for lost calls.
OVERLOAD, UNREAD, FAILED, SLOW, FORGOTTEN = "overload", "unreadable", "failed", "slow", "forgotten"


class _ConversationErased(CuebookError):
    """A queued call's conversation was erased before it was stored."""


class ShadowAnswer(Struct, kw_only=True):
    """A relayed call with a copy of its answer. Mutable."""

    services: Services
    call: RelayCall
    path: str  # below the upstream's base URL
    at: float  # arrival in Unix seconds
    status: int = 0  # 0: the upstream did not answer
    headers: Mapping[str, str] = {}
    pieces: list[bytes] = field(default_factory=list)
    size: int = 0
    broken: str = ""  # reason why the answer is incomplete
    added_s: float = 0.0  # overhead before sending the request, and before relaying the answer's first byte


class Shadow:
    """Relays requests, and stores model calls in order, after their answers."""

    def __init__(self, upstream: Upstream, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._upstream = upstream
        self._ledger = CallAccounting(upstream)
        self._answers = AnswerIds()
        self._most, self._most_bytes = most, most_bytes
        self._waiting: deque[ShadowAnswer] = deque()
        self._held = 0  # bytes of calls in progress or queued
        self._passing = 0  # calls being recorded
        self._lost: Counter[str] = Counter()  # since the last stored turn
        self._come = asyncio.Event()
        self._idle, self._quiet = asyncio.Event(), asyncio.Event()  # queue empty; no call in progress
        self._idle.set()
        self._quiet.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to store calls."""
        self._task = asyncio.create_task(self._work())

    async def aclose(self) -> None:
        """Store queued calls for a limited time, then stop."""
        if self._task is None:
            return
        await self.settle(DRAIN_S)
        self._task.cancel()
        await asyncio.wait((self._task,))
        self._task = None
        self._lost[SLOW] += len(self._waiting)
        if lost := self.lost:
            log.warning("Shadow mode: %d calls were not stored: %s", sum(lost.values()), lost)

    @property
    def waiting(self) -> int:
        """Return the number of queued calls."""
        return len(self._waiting)

    @property
    def lost(self) -> dict[str, int]:
        """Return the number of calls lost since the last stored one, by reason."""
        return {reason: count for reason, count in self._lost.items() if count}

    async def settle(self, timeout_s: float) -> None:
        """Wait until the queue is empty or the timeout ends. Calls in progress may end within PASSING_S."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(timeout_s, PASSING_S)):
                await self._quiet.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()

    async def pass_on(
        self, services: Services, request: RelayRequest, call: RelayCall | None
    ) -> AsyncGenerator[Head | bytes, None]:
        """Yield an upstream's answer byte for byte. `call` is the record to store, None for nothing.

        Raises UpstreamError.
        """
        began, whole = time.perf_counter(), False
        overheard = None
        if call is not None:
            overheard = self._listen(
                ShadowAnswer(services=services, call=call, path=request.path, at=services.clock.now())
            )
        try:
            async with closing(self._pass(services, request, overheard, began)) as pieces:
                async for piece in pieces:
                    yield piece
        except UpstreamError as error:
            if overheard is not None:
                overheard.broken = str(error)
            raise
        else:
            whole = True
        finally:
            if overheard is not None and not whole and not overheard.broken:
                overheard.broken = "the caller went away"
            self._over(overheard)

    async def _pass(
        self, services: Services, request: RelayRequest, overheard: ShadowAnswer | None, began: float
    ) -> AsyncGenerator[Head | bytes, None]:
        sent, first = time.perf_counter(), True
        answered = services.foreground.begin()
        try:
            answer = await self._upstream.send(request)
            try:
                if overheard is not None:
                    overheard.status, overheard.headers, overheard.added_s = answer.status, answer.headers, sent - began
                yield Head(status=answer.status, headers=answer.headers)
                async with closing(answer.chunks()) as chunks:
                    async for chunk in chunks:
                        came = time.perf_counter()
                        yield chunk
                        if overheard is not None:
                            overheard.added_s += time.perf_counter() - came if first else 0.0
                            self._hear(overheard, chunk)
                        if first:
                            first = False
                            answered()
            finally:
                await answer.aclose()
        finally:
            answered()

    # ---- Queue ---------------------------------------------------------------------------------------------------

    def _listen(self, overheard: ShadowAnswer) -> ShadowAnswer | None:
        """Start to record a call, or return None if the queue is full."""
        size = len(overheard.call.body) + ENTRY_BYTES
        if len(self._waiting) >= self._most or self._held + size > self._most_bytes:
            self._lose(OVERLOAD)
            return None
        overheard.size = size
        self._held += size
        self._passing += 1
        self._quiet.clear()
        return overheard

    def _hear(self, overheard: ShadowAnswer, chunk: bytes) -> None:
        if overheard.size and self._held + len(chunk) <= self._most_bytes:
            overheard.pieces.append(chunk)
            overheard.size += len(chunk)
            self._held += len(chunk)
        else:
            self._release(overheard)

    def _release(self, overheard: ShadowAnswer) -> None:
        self._held -= overheard.size
        overheard.size = 0
        overheard.pieces.clear()

    def _over(self, overheard: ShadowAnswer | None) -> None:
        """Queue a call whose answer has ended."""
        if overheard is None:
            return
        self._passing -= 1
        if not self._passing:
            self._quiet.set()
        if not overheard.size or len(self._waiting) >= self._most:
            self._release(overheard)
            self._lose(OVERLOAD)
            return
        self._waiting.append(overheard)
        self._idle.clear()
        self._come.set()

    def _lose(self, reason: str) -> None:
        self._lost[reason] += 1

    # ---- Storage -------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            if not self._waiting:
                self._idle.set()
                self._come.clear()
                await self._come.wait()
            if len(self._waiting) < HURRIES_AT:
                await self._waiting[0].services.foreground.wait_until_free(MAX_WAIT_S)
            overheard = self._waiting.popleft()
            lost = Counter(self._lost)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._keep(overheard, lost=self.lost)
                self._lost -= lost
            except InvalidInput as error:
                self._unkept(UNREAD, error)
            except _ConversationErased as error:
                self._unkept(FORGOTTEN, error)
            except TimeoutError as error:
                self._unkept(SLOW, error)
            except Exception as error:  # noqa: BLE001  # whatever it is, the next call is kept
                self._unkept(FAILED, error)
            finally:
                self._release(overheard)

    async def _keep(self, overheard: ShadowAnswer, *, lost: Mapping[str, int]) -> None:
        """Store a relayed call with its window. Raises CuebookError."""
        services = overheard.services
        await services.catch_up()
        call = msgspec.structs.replace(overheard.call, body=_unpacked(overheard.call.body, overheard.call.headers))
        wire = self._wire(overheard, call)
        request = await wire.load()
        call = wire.call
        scope = Scope(user=call.user or request.user)
        place = await place_of(services, scope, request, call)
        name = request.conversation or place.conversation
        request = msgspec.structs.replace(request, conversation=name)
        async with services.queue.hold(scope.tenant, name):
            place = await place_of(services, scope, request, call)
            truncated = await _truncated(services, scope, request, place)
            meant = _unless_forgotten(overheard, scope, name, meaning(services, scope, request, call, name))
            opened = await open_step(services, scope, unsaid(meant), waits=False)
            if opened is None:
                return
            async with OpenStep(services, opened.lease, zone=opened.zone, timed=False) as step:
                marks = wire.sends_marks(request.model)
                refused = overheard.status if overheard.status >= HTTPStatus.BAD_REQUEST else 0
                reckoned = partial(
                    self._ledger.entry, services, request, place, opened, now=overheard.at, marks=marks, refused=refused
                )
                entry = await asyncio.to_thread(reckoned)
                added = round(overheard.added_s * 1000, 3)
                entry = msgspec.structs.replace(entry, added_ms=added, lost=dict(lost), truncated_seqs=truncated)
                values = {**opened.metadata[SHADOW], str(opened.lease.step): msgspec.to_builtins(entry)}
                step.metadata = {SHADOW: values}
                if not overheard.status:
                    await step.finish(state="failed", error=overheard.broken)
                    return
                reader = wire.reader()
                with suppress(UpstreamError):  # the client received it
                    async with closing(relay_answer(_RecordedStream(overheard), step, reader)) as pieces:
                        async for _ in pieces:
                            pass
                if isinstance(wire, ResponsesWire):
                    wire.remember(reader.answer, opened.lease)

    def _wire(self, overheard: ShadowAnswer, call: RelayCall) -> Wire:
        if overheard.path == RESPONSES_PATH:
            return ResponsesWire(overheard.services, self._upstream, call, self._answers)
        kind = MessagesWire if overheard.path == MESSAGES_PATH else ChatWire
        return kind(overheard.services, self._upstream, call)

    def _unkept(self, reason: str, error: Exception) -> None:
        self._lose(reason)
        log.warning("Shadow mode: a call was not stored (%s): %s", reason, type(error).__name__)


def _unless_forgotten(
    overheard: ShadowAnswer, scope: Scope, conversation: str, intend: Callable[[], Awaitable[Intent]]
) -> Callable[[], Awaitable[Intent]]:
    """Rebuild an intent on each attempt, unless its call's data was erased since it arrived."""

    async def intended() -> Intent:
        intent = await intend()
        if await forgotten_since(overheard.services, scope, overheard.at, user=scope.user, conversation=conversation):
            msg = "its conversation was erased before it was stored"
            raise _ConversationErased(msg)
        return intent

    return intended


async def _truncated(services: Services, scope: Scope, request: Request, place: HistoryPlace) -> tuple[int, ...]:
    """Return the stored posts that new messages replace with truncated copies."""
    new = request.history[place.first_new :]
    if not place.parent or not new or place.side:
        return ()
    before = await services.store.posts_in(scope, place.conversation, [(place.parent + 1, place.parent + len(new))])
    return cut_short(before, [(each.role, each.content.message) for each in new])


def _unpacked(body: bytes, headers: Mapping[str, str]) -> bytes:
    return unpacked(body, headers.get("content-encoding", ""), most=MOST_BYTES)


class _RecordedStream:
    """A recorded answer, as a stream to parse."""

    def __init__(self, heard: ShadowAnswer) -> None:
        self._heard = heard
        self.status = heard.status
        self.headers = heard.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the recorded chunks. Raises UpstreamError at the point of failure."""
        yield _unpacked(b"".join(self._heard.pieces), self.headers)
        if self._heard.broken:
            raise UpstreamError(self._heard.broken)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""
