"""Proxy of provider clients: answer each request by a turn, in the format of the client."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec.structs import replace

from cuebook.engine.proxy.speaker import WireSpeaker
from cuebook.engine.proxy.wire import Head, Wire
from cuebook.engine.turn.turn import answer


def relay(wire: Wire, *, model: str | None) -> AsyncGenerator[Head | bytes, None]:
    """Answer a request: first the head, then the body's bytes. The last bytes follow once the turn is durable.

    `model` replaces a model that names a persona. A repeated Idempotency-Key returns the stored answer. Without an
    upstream, the answer is a chat completion. Raises InvalidInput, KeyReused, Conflict.
    """
    return wire.write(_relay(wire, model=model))


async def _relay(wire: Wire, *, model: str | None) -> AsyncGenerator[Head | bytes, None]:
    request = await wire.load()
    if model is not None:
        request = replace(request, target=wire.target(model))
    async with aclosing(answer(wire.services, request, WireSpeaker(wire=wire, model=model))) as pieces:
        async for piece in pieces:
            yield piece
