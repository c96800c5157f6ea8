"""A network backend for httpcore on asyncio's own transports, which streams upstream answers with less CPU.

An answer arrives in hundreds of small chunks. httpcore's own backend (anyio) pauses reading after each chunk, resumes
before the next, and opens a cancel scope for it. Measured: here a chunk takes about half of the CPU it takes there,
including the event loop's share (docs/design/002).
"""

import asyncio
import math
import select
import ssl
from collections import deque
from collections.abc import Iterable
from typing import Any

#: Buffered bytes from which reading from the socket pauses.
FULL = 256 * 1024
#: Seconds before the next address of a host is tried in parallel (RFC 8305).
NEXT_ADDRESS_S = 0.25


class Network:
    """A connector: httpcore's `AsyncNetworkBackend`."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> "Stream":
        """Connect. Raises httpcore's ConnectTimeout and ConnectError."""
        import httpcore2

        own = (local_address, 0) if local_address else None
        try:
            async with asyncio.timeout(timeout):
                _, stream = await asyncio.get_running_loop().create_connection(
                    Stream, host, port, local_addr=own, happy_eyeballs_delay=NEXT_ADDRESS_S
                )
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(str(error)) from error
        except (OSError, ValueError) as error:  # also for an invalid host name
            raise httpcore2.ConnectError(str(error)) from error
        for option in socket_options or ():
            stream.get_extra_info("socket").setsockopt(*option)
        return stream

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Stream(asyncio.Protocol):
    """A connection: httpcore's `AsyncNetworkStream`. One task reads and one writes at a time."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._ended = False  # end of the input
        self._lost = False  # the connection is closed
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._blocked = False  # set while the write buffer is full
        self._paused = False
        self._until = 0.0  # deadline of the reader, in the loop's time
        self._timer: asyncio.TimerHandle | None = None  # one timer for many reads: most end long before it

    # httpcore's keys

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return the next bytes, empty at the end. Raises httpcore's ReadTimeout and ReadError."""
        import httpcore2

        try:
            if not self._pieces and not self._ended:
                await self._coming(timeout)
        except TimeoutError as error:
            raise httpcore2.ReadTimeout(str(error)) from error
        finally:
            self._reader = None
        if self._pieces:
            return self._taken(max_bytes)
        if self._error is not None:
            raise httpcore2.ReadError(str(self._error)) from self._error
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes. Raises httpcore's WriteTimeout and WriteError."""
        import httpcore2

        if not buffer:
            return
        try:
            if self._lost:
                raise _gone(self._error)
            self._transport.write(buffer)
            if self._blocked:
                self._writer = asyncio.get_running_loop().create_future()
                await _within(self._writer, timeout)
        except TimeoutError as error:
            raise httpcore2.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore2.WriteError(str(error)) from error
        finally:
            self._writer = None

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "Stream":
        """Start TLS. Raises httpcore's ConnectTimeout and ConnectError."""
        import httpcore2

        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                self._transport = await loop.start_tls(
                    self._transport, self, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            await self.aclose()
            raise httpcore2.ConnectTimeout(str(error)) from error
        except (OSError, ValueError) as error:  # includes certificate and host name errors
            await self.aclose()
            raise httpcore2.ConnectError(str(error)) from error
        return self

    async def aclose(self) -> None:
        """Close at once: all output was sent, and further input is not needed."""
        self._transport.abort()
        await asyncio.sleep(0)  # the socket is already closed

    def get_extra_info(self, info: str) -> Any:
        """Return `is_readable`: an idle connection that ended or has input is not reused."""
        if info == "is_readable":
            return bool(self._pieces) or self._ended or _readable(self._transport.get_extra_info("socket"))
        names = {"client_addr": "sockname", "server_addr": "peername"}
        return self._transport.get_extra_info(names.get(info, info))

    async def _coming(self, timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        self._reader = loop.create_future()
        self._until = math.inf if timeout is None else loop.time() + timeout
        if self._timer is None or self._timer.when() > self._until:
            self._look_at(self._until)
        await self._reader

    def _look_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._look) if when < math.inf else None

    def _look(self) -> None:
        self._timer = None
        if self._reader is None or self._reader.done():
            return
        if asyncio.get_running_loop().time() < self._until:
            self._look_at(self._until)
        else:
            self._reader.set_exception(TimeoutError())

    # asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > FULL and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> None:
        self._ended = True
        _wake(self._reader)

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._lost, self._error = True, True, exc
        if self._timer is not None:
            self._timer.cancel()
        _wake(self._reader)
        if self._writer is not None and not self._writer.done():
            self._writer.set_exception(_gone(exc))

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        _wake(self._writer)

    def _taken(self, most: int) -> bytes:
        piece = self._pieces.popleft()
        if len(piece) > most:
            self._pieces.appendleft(piece[most:])
            piece = piece[:most]
        self._size -= len(piece)
        if self._paused and self._size <= FULL:
            self._paused = False
            self._transport.resume_reading()
        return piece


async def _within(waiter: "asyncio.Future[None]", timeout: float | None) -> None:
    """Wait for at most so many seconds. Raises TimeoutError. Costs a third of `asyncio.timeout`."""
    if timeout is None:
        await waiter
        return
    handle = asyncio.get_running_loop().call_later(timeout, _expire, waiter)
    try:
        await waiter
    finally:
        handle.cancel()


def _expire(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


def _wake(waiter: "asyncio.Future[None] | None") -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


def _gone(error: Exception | None) -> OSError:
    return error if isinstance(error, OSError) else ConnectionResetError("The connection is closed.")


def _readable(socket: Any) -> bool:
    """Return whether a socket has input or is closed."""
    if socket is None or socket.fileno() < 0:
        return True
    if not hasattr(select, "poll"):
        return bool(select.select([socket], [], [], 0)[0])
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))
