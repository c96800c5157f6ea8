"""Call a model from a background job and return its complete answer, limited in time and length."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import msgspec

from cuebook.engine.core.services import Services
from cuebook.errors import BackendError
from cuebook.interfaces import Model, ModelRequest

T = TypeVar("T")


@asynccontextmanager
async def closing(pieces: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T], None]:
    """Close an async iterator when reading ends, to release its connection at once."""
    try:
        yield pieces
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


#: Exceptions of faulty code.
BROKEN: Final = (
    ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError, msgspec.MsgspecError,
)  # fmt: skip
#: Most characters of an answer.
LONGEST = 1_000_000


async def said_by(services: Services, model: Model, request: ModelRequest) -> str:
    """Return a model's complete answer.

    Raises BackendError, also after a timeout, because other jobs wait. A model may be user code: its faults count as
    unavailability.
    """
    text: list[str] = []
    room = LONGEST
    try:
        async with asyncio.timeout(services.settings.work_patience_s), closing(model.stream(request)) as pieces:
            async for piece in pieces:
                text.append(piece.text)
                room -= len(piece.text)
                if room < 0:
                    msg = f"Answer of model {model.name} exceeds {LONGEST:,} characters"
                    raise BackendError(msg, retryable=True)
    except TimeoutError:
        msg = f"Model {model.name} timed out after {services.settings.work_patience_s:g} s"
        raise BackendError(msg, retryable=True) from None
    except BROKEN as error:  # its message may contain conversation text, which must not be logged
        msg = f"Model {model.name} failed with {type(error).__name__}"
        raise BackendError(msg) from error
    return "".join(text)
