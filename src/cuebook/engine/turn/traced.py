"""Trace turns: one span per turn, above those of its search, its model calls and its choices."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import wraps
from typing import TypeVar

from msgspec.structs import replace

from cuebook.engine.core.services import Services
from cuebook.engine.core.tracing import ended
from cuebook.engine.turn.request import TurnRequest
from cuebook.engine.turn.step import Speaker

Piece = TypeVar("Piece")
Answering = Callable[[Services, TurnRequest, Speaker[Piece]], AsyncGenerator[Piece, None]]


def traced(answering: Answering[Piece]) -> Answering[Piece]:
    """Return a function that answers requests, each with a span that ends after the last piece."""

    @wraps(answering)
    async def answer(services: Services, request: TurnRequest, speaker: Speaker[Piece]) -> AsyncGenerator[Piece, None]:
        span = services.tracing.start("invoke_agent cuebook", gen_ai__operation__name="invoke_agent")
        span.set(gen_ai__agent__name=request.ask.persona)
        with ended(span):
            async with aclosing(answering(services, replace(request, span=span), speaker)) as pieces:
                async for piece in pieces:
                    yield piece

    return answer
