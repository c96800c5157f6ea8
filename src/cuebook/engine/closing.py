"""How what a model says is read: however reading ends, its connection is free at once."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def closing(pieces: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T], None]:
    """Close what gives pieces however reading it ends, so that its connection is free at once."""
    try:
        yield pieces
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()
