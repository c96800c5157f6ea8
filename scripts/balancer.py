"""Run a round-robin HTTP load balancer on this machine: `python scripts/balancer.py URL URL…` prints its own URL.

Answers stream through. A server that refuses a connection or ends is skipped for a second; the request goes to the next
one. A GET is also repeated if the server ends before its answer begins. Other requests may have been executed then:
they get status 502, and clients repeat them with the same Idempotency-Key.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import h11
import uvicorn

#: Seconds for which a server that refused a connection is skipped.
SKIP_S = 1.0
#: Seconds to wait for a connection to a server.
CONNECT_S = 2.0
#: Headers that concern one connection only.
HOP_BY_HOP = {b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}

Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]


class ServerEndedError(Exception):
    """A server ended before its answer began. `sent` tells whether it may have executed the request."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__("the server ended")
        self.sent = sent


class Balancer:
    """An ASGI application that passes each request to the next server that accepts connections."""

    def __init__(self, servers: Sequence[str]) -> None:
        self._servers = list(servers)
        self._next = 0
        self._skip: dict[str, float] = {}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body, more = bytearray(), True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return
            body += event.get("body", b"")
            more = event.get("more_body", False)
        answering = asyncio.create_task(self._answer(scope, bytes(body), send))
        leaving = asyncio.create_task(receive())  # returns when the client disconnects
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        answering.cancel() if not answering.done() else None
        with suppress(asyncio.CancelledError):
            await answering

    async def _answer(self, scope: dict[str, Any], body: bytes, send: Send) -> None:
        for server in self._order():
            try:
                await _forward(server, scope, body, send)
            except ServerEndedError as error:
                self._skip[server] = time.monotonic() + SKIP_S
                if error.sent and scope["method"] not in ("GET", "HEAD"):
                    break
            else:
                return
        problem = {"title": "Bad gateway", "status": 502, "detail": "No server answered. Repeat the request."}
        headers = [(b"content-type", b"application/problem+json"), (b"retry-after", b"1")]
        await send({"type": "http.response.start", "status": 502, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(problem).encode()})

    def _order(self) -> list[str]:
        """Return the servers in the order of their turns, those that refused a connection last."""
        self._next += 1
        start = self._next % len(self._servers)
        now = time.monotonic()
        turns = self._servers[start:] + self._servers[:start]
        return sorted(turns, key=lambda server: self._skip.get(server, 0.0) > now)


async def _forward(server: str, scope: dict[str, Any], body: bytes, send: Send) -> None:
    """Pass a request to a server, and its answer to the client. Raises ServerEndedError before the answer begins."""
    async with _connection(server) as (reader, writer):
        protocol, begun = h11.Connection(h11.CLIENT), False
        try:
            writer.write(protocol.send(_request(server, scope, body)) or b"")
            writer.write((protocol.send(h11.Data(body)) or b"") + (protocol.send(h11.EndOfMessage()) or b""))
            await writer.drain()
            while not isinstance(event := protocol.next_event(), h11.EndOfMessage):
                if event is h11.NEED_DATA:
                    protocol.receive_data(await reader.read(65_536))
                elif isinstance(event, h11.Response):
                    headers = [(name, value) for name, value in event.headers if name not in HOP_BY_HOP]
                    begun = True
                    await send({"type": "http.response.start", "status": event.status_code, "headers": headers})
                elif isinstance(event, h11.Data):
                    await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except (OSError, h11.RemoteProtocolError) as error:
            if not begun:
                raise ServerEndedError(sent=True) from error
            raise  # uvicorn then closes the client's connection within the answer


def _request(server: str, scope: dict[str, Any], body: bytes) -> h11.Request:
    """Return the request to a server. Its Host is the server's, which accepts no other name on this machine."""
    path, query, host = scope["raw_path"], scope["query_string"], urlsplit(server).netloc.encode()
    own = dict(scope["headers"]).get(b"host", b"")
    headers = [(b"host", host), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    for name, value in scope["headers"]:
        if name == b"origin":
            headers.append((name, value.replace(b"//" + own, b"//" + host)))
        elif name not in {*HOP_BY_HOP, b"host", b"content-length"}:
            headers.append((name, value))
    return h11.Request(method=scope["method"], target=path + (b"?" + query if query else b""), headers=headers)


@asynccontextmanager
async def _connection(server: str) -> Any:
    parts = urlsplit(server)
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    except (OSError, TimeoutError) as error:
        raise ServerEndedError(sent=False) from error
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


class _Server(uvicorn.Server):
    """A server that prints its URL when it is ready."""

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        print(f"http://{host}:{port}", flush=True)


def main() -> None:
    """Run the balancer until Ctrl-C or SIGTERM."""
    parser = argparse.ArgumentParser(description="Run a round-robin HTTP load balancer on this machine.")
    parser.add_argument("servers", nargs="+", metavar="URL", help="URLs of the servers")
    parser.add_argument("--port", type=int, default=0, metavar="P", help="port; 0 selects a free one")
    given = parser.parse_args()
    config = uvicorn.Config(
        Balancer(given.servers), host="127.0.0.1", port=given.port, http="h11", lifespan="off", ws="none",
        log_level="error", access_log=False, server_header=False, date_header=False, timeout_graceful_shutdown=2,
    )  # fmt: skip
    _Server(config).run()


if __name__ == "__main__":
    main()
