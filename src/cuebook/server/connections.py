"""Limit connections: how many are open, and how slowly a request may arrive (slow clients would take all of them)."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds within which a request's head must arrive, and from which on its body must arrive at a rate.
HEAD_S = 10.0
BODY_S = 10.0
#: Bytes per second.
BODY_RATE = 1_000
#: Share of the connections from which only health checks and owners are answered.
CROWDED = 0.9
_TIMEOUT = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def most_connections(setting: int) -> int:
    """Return how many connections may be open: as set, but no more than half of the files that may be."""
    try:
        import resource
    except ImportError:  # Windows
        return setting
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return setting if files == resource.RLIM_INFINITY else max(1, min(setting, files // 2))


class Connection(H11Protocol):
    """A connection that is closed when its request arrives too slowly, or when others need its place."""

    def __init__(self, *args: Any, most: int, **named: Any) -> None:
        super().__init__(*args, **named)
        self._most = most
        self._began, self._received = 0.0, 0  # of the request's head or body: the time, and the bytes since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection. If few are left, close the one that has waited longest for a request, or else this."""
        self._began = self.loop.time()
        super().connection_made(transport)
        others: Any = self.connections - {self}
        waiting = [each for each in others if each.conn.their_state is h11.IDLE]
        if len(self.connections) > CROWDED * self._most and waiting:
            min(waiting, key=lambda each: each._began).drop()  # noqa: SLF001  # of this class
        elif len(self.connections) > self._most:
            self.drop()

    def data_received(self, data: bytes) -> None:
        """Handle bytes, and note when a head or body begins."""
        if self.timeout_keep_alive_task is not None:
            self._began = self.loop.time()  # the next request's head
        before = self.conn.their_state
        super().data_received(data)
        if self.conn.their_state is not before:
            self._began, self._received = self.loop.time(), 0
        self._received += len(data)

    def drop_if_slow(self, now: float) -> None:
        """Close the connection if its request arrives too slowly: with status 408 unless the answer has begun."""
        state, waited = self.conn.their_state, now - self._began
        if state is h11.SEND_BODY and self.flow.read_paused:
            self._began, self._received = now, 0  # we are the slow side
        elif (state is h11.IDLE and self.timeout_keep_alive_task is None and waited > HEAD_S) or (
            state is h11.SEND_BODY and waited > BODY_S and self._received < BODY_RATE * waited
        ):
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                self.transport.write(_TIMEOUT)
            self.drop()

    def drop(self) -> None:
        """Close the connection."""
        self.connections.discard(self)
        self.transport.close()
