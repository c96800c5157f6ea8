"""Shadow mode: relay requests unchanged, and store each afterwards with the window that Cuebook would have sent.

Nothing here may delay or change the traffic. The queue of calls to store is bounded. A call that does not fit, is
unreadable, or meets a failing store is only lost to the ledger, and the next stored turn reports the loss.
"""

import asyncio
import logging
import time
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import suppress
from http import HTTPStatus

import msgspec
from msgspec import Struct, field

from cuebook.engine.core.context_limits import learn_limits
from cuebook.engine.core.scheduling import closing
from cuebook.engine.core.services import LruCache, Services
from cuebook.engine.jobs.erasure import forgotten_since
from cuebook.engine.proxy.messages_wire import PATH as MESSAGES_PATH
from cuebook.engine.proxy.messages_wire import MessagesWire
from cuebook.engine.proxy.relay import relay_answer
from cuebook.engine.proxy.request import RelayCall
from cuebook.engine.proxy.responses_wire import COMPACT_PATH, MOST_ANSWERS, ResponsesWire
from cuebook.engine.proxy.responses_wire import PATH as RESPONSES_PATH
from cuebook.engine.proxy.shadow_ledger import CallAccounting, cut_short
from cuebook.engine.proxy.wire import ChatWire, Head, Wire, send_upstream
from cuebook.engine.turn.history import name_conversation
from cuebook.engine.turn.step import OpenStep
from cuebook.engine.turn.turn import open_step
from cuebook.errors import CuebookError, InvalidInput, UpstreamError
from cuebook.interfaces import RelayRequest, Upstream
from cuebook.interfaces.store import Lease
from cuebook.records.turn import SHADOW
from cuebook.wire.too_long import read_too_long

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


class RelayedCall(Struct, kw_only=True):
    """A relayed call with a copy of its answer, which can be read like the upstream's. Mutable."""

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

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the answer. Raises UpstreamError at the point of failure."""
        yield _unpacked(b"".join(self.pieces), self.headers)
        if self.broken:
            raise UpstreamError(self.broken)

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


class Shadow:
    """Relays requests, and stores model calls in order, after their answers."""

    def __init__(self, upstream: Upstream, *, most: int = MOST, most_bytes: int = MOST_BYTES) -> None:
        self._upstream = upstream
        self._ledger = CallAccounting(upstream)
        self._answers: LruCache[str, Lease] = LruCache(MOST_ANSWERS)
        self._most, self._most_bytes = most, most_bytes
        self._queue: asyncio.Queue[RelayedCall] = asyncio.Queue()
        self._stored_bytes = 0  # of calls in progress or queued
        self._passing = 0  # calls being recorded
        self._lost: Counter[str] = Counter()  # since the last stored turn
        self._quiet = asyncio.Event()  # no call in progress
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
        self._lost[SLOW] += self._queue.qsize()
        if lost := self.lost:
            log.warning("Shadow mode: %d calls were not stored: %s", sum(lost.values()), lost)

    @property
    def waiting(self) -> int:
        """Return the number of queued calls."""
        return self._queue.qsize()

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
                await self._queue.join()

    async def pass_on(
        self, services: Services, request: RelayRequest, call: RelayCall | None
    ) -> AsyncGenerator[Head | bytes, None]:
        """Yield an upstream's answer byte for byte. `call` is the record to store, None for nothing.

        Raises UpstreamError.
        """
        began, first, broken = time.perf_counter(), True, "the caller went away"
        record = None if call is None else self._begin(services, request, call)
        answered, sent = services.foreground.begin(), time.perf_counter()
        try:
            answer = await send_upstream(services, self._upstream, request)
            try:
                if record is not None:
                    record.status, record.headers, record.added_s = answer.status, answer.headers, sent - began
                yield Head(status=answer.status, headers=answer.headers)
                async with closing(answer.chunks()) as chunks:
                    async for chunk in chunks:
                        came = time.perf_counter()
                        yield chunk
                        self._add(record, chunk, time.perf_counter() - came if first else 0.0)
                        if first:
                            first = False
                            answered.close()
                broken = ""
            finally:
                await answer.aclose()
        except UpstreamError as error:
            broken = str(error)
            raise
        finally:
            answered.close()
            if record is not None:
                self._end(record, broken)

    # ---- Queue ---------------------------------------------------------------------------------------------------

    def _begin(self, services: Services, request: RelayRequest, call: RelayCall) -> RelayedCall | None:
        """Start to record a call, or return None if the queue is full."""
        size = len(call.body) + ENTRY_BYTES
        if self._queue.qsize() >= self._most or self._stored_bytes + size > self._most_bytes:
            self._lose(OVERLOAD)
            return None
        self._stored_bytes += size
        self._passing += 1
        self._quiet.clear()
        return RelayedCall(services=services, call=call, path=request.path, at=services.clock.now(), size=size)

    def _add(self, record: RelayedCall | None, chunk: bytes, added_s: float) -> None:
        if record is None:
            return
        record.added_s += added_s
        if record.size and self._stored_bytes + len(chunk) <= self._most_bytes:
            record.pieces.append(chunk)
            record.size += len(chunk)
            self._stored_bytes += len(chunk)
        else:
            self._release(record)

    def _release(self, record: RelayedCall) -> None:
        self._stored_bytes -= record.size
        record.size = 0
        record.pieces.clear()

    def _end(self, record: RelayedCall, broken: str) -> None:
        """Queue a call whose answer has ended. `broken` is the reason why it is incomplete."""
        record.broken = broken
        self._passing -= 1
        if not self._passing:
            self._quiet.set()
        if not record.size or self._queue.qsize() >= self._most:
            self._release(record)
            self._lose(OVERLOAD)
        else:
            self._queue.put_nowait(record)

    def _lose(self, reason: str) -> None:
        self._lost[reason] += 1

    # ---- Storage -------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            record = await self._queue.get()
            if self._queue.qsize() < HURRIES_AT:
                await record.services.foreground.wait_until_free(MAX_WAIT_S)
            lost = Counter(self._lost)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await self._keep(record, lost=self.lost)
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
                self._release(record)
                self._queue.task_done()

    async def _keep(self, record: RelayedCall, *, lost: Mapping[str, int]) -> None:
        """Store a relayed call with its window. Raises CuebookError."""
        services = record.services
        await services.catch_up()
        call = msgspec.structs.replace(record.call, body=_unpacked(record.call.body, record.call.headers))
        wire = self._wire(record, call)
        request = await wire.load()
        request = msgspec.structs.replace(request, key=None, shadow=True, asks_model=False)
        request = await name_conversation(services, request)
        scope, name = request.scope, request.ask.conversation
        async with services.queue.hold(scope.tenant, name):

            async def check() -> None:
                if await forgotten_since(services, scope, record.at, user=scope.user, conversation=name):
                    msg = "its conversation was erased before it was stored"
                    raise _ConversationErased(msg)

            step = await open_step(services, request, before_attempt=check)
            if step is None:
                return
            async with step:
                step.metadata = await self._ledger.metadata(
                    wire,
                    step,
                    now=record.at,
                    marks=wire.sends_marks(wire.model),
                    status=record.status if record.pieces or not record.broken else 0,
                    added_ms=round(record.added_s * 1000, 3),
                    lost=dict(lost),
                    truncated_seqs=await _truncated(services, step),
                )
                if not record.status:
                    await step.finish(state="failed", error=record.broken)
                    return
                _learn_limits(record, step, step.metadata[SHADOW][str(step.lease.step)].get("clientTokens", 0))
                reader = wire.reader()
                with suppress(UpstreamError):  # the client received it
                    async with closing(relay_answer(record, step, reader)) as pieces:
                        async for _ in pieces:
                            pass
                if isinstance(wire, ResponsesWire):
                    wire.remember(reader.answer, step.lease)

    def _wire(self, record: RelayedCall, call: RelayCall) -> Wire:
        if record.path in (RESPONSES_PATH, COMPACT_PATH):
            compacts = record.path == COMPACT_PATH
            return ResponsesWire(record.services, self._upstream, call, compacts=compacts, answers=self._answers)
        kind = MessagesWire if record.path == MESSAGES_PATH else ChatWire
        return kind(record.services, self._upstream, call)

    def _unkept(self, reason: str, error: Exception) -> None:
        self._lose(reason)
        log.warning("Shadow mode: a call was not stored (%s): %s", reason, type(error).__name__)


def _learn_limits(record: RelayedCall, step: OpenStep, tokens: int) -> None:
    """Remember the limit that an error for a prompt of `tokens` teaches, as live mode does."""
    if record.status < HTTPStatus.BAD_REQUEST:
        return
    error = read_too_long(record.status, _unpacked(b"".join(record.pieces), record.headers))
    if error is not None:
        learn_limits(record.services, step.request.target, step.lease.conversation, error, tokens)


async def _truncated(services: Services, step: OpenStep) -> tuple[int, ...]:
    """Return the posts stored before a turn that its new messages replace with truncated copies."""
    position, last = step.position, step.decision.start.expected_last_seq
    new = [step.request.history[number] for number in position.new[: len(position.drafts)]]
    if not position.parent or not new or position.is_side_branch or position.parent == last:
        return ()
    span = (position.parent + 1, min(position.parent + len(new), last))
    before = await services.store.posts_in(step.request.scope, position.ask.conversation, [span])
    return cut_short(before, [(each.role, each.content.message) for each in new])


def _unpacked(body: bytes, headers: Mapping[str, str]) -> bytes:
    return unpacked(body, headers.get("content-encoding", ""), most=MOST_BYTES)
