"""Serve MCP on standard input and output (stdio).

A daemon thread reads the input, so that a signal can close the project while the client is silent.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError
from contextlib import aclosing, nullcontext, suppress
from typing import Any

from cuebook import Config, Cuebook
from cuebook.records.key import Caller
from cuebook.server.mcp.changes import StdioNotifier
from cuebook.server.mcp.schemas import Asker, CallContext
from cuebook.server.mcp.speak import new_server

#: Bytes read at once.
PIECE = 65_536


def serve_pipe(settings: Config, *, user: str | None) -> None:
    """Serve until the input ends or SIGTERM, as the owner or as one user. Raises InvalidInput."""
    with suppress(asyncio.CancelledError):
        asyncio.run(_serve(settings, user))


async def _serve(settings: Config, user: str | None) -> None:
    cue = Cuebook.open(settings)
    asker = Asker(cue=cue, caller=Caller(user=user or None))
    unasked = StdioNotifier(asker)

    async def look_up_asker(_: Any) -> Asker:
        return asker

    server = new_server(CallContext(now=lambda _: asker, later=look_up_asker, seat=nullcontext), unasked)
    from mcp.server.lowlevel import NotificationOptions
    from mcp.server.stdio import stdio_server

    options = server.create_initialization_options(NotificationOptions(prompts_changed=True, resources_changed=True))

    task = asyncio.current_task()
    if task is not None:
        with suppress(NotImplementedError):  # Windows ends the process without a handler
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    value: Any = LineReader(sys.stdin.fileno())
    async with cue, stdio_server(stdin=value) as (reads, writes), aclosing(unasked):
        await server.run(reads, writes, options)


class LineReader:
    """Reads lines of a file descriptor, one at a time on demand."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._taken: asyncio.Queue[str | None] = asyncio.Queue(maxsize=1)
        threading.Thread(target=self._read, name="cuebook-mcp-input", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[str]:
        while (line := await self._taken.get()) is not None:
            yield line

    def _read(self) -> None:
        with suppress(RuntimeError, CancelledError):  # the event loop has ended
            for line in self._lines():
                asyncio.run_coroutine_threadsafe(self._taken.put(line.decode(errors="replace")), self._loop).result()
            asyncio.run_coroutine_threadsafe(self._taken.put(None), self._loop).result()

    def _lines(self) -> Iterator[bytes]:
        rest: list[bytes] = []
        while piece := os.read(self._descriptor, PIECE):
            *whole, last = piece.split(b"\n")
            for line in whole:
                yield b"".join([*rest, line])
                rest = []
            rest.append(last)
        if any(rest):
            yield b"".join(rest)
