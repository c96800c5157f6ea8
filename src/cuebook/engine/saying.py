"""What a model says in whole that works behind the replies."""

import asyncio

from cuebook.engine.closing import closing
from cuebook.engine.desk import Desk
from cuebook.errors import BackendError
from cuebook.ports.model import Model, ModelRequest

#: Characters of an answer after which a model is not listened to any more.
LONGEST = 1_000_000


async def said_by(desk: Desk, model: Model, request: ModelRequest) -> str:
    """Give all a model says. Raises BackendError for one that comes to no end: all the others would wait behind it."""
    text: list[str] = []
    room = LONGEST
    try:
        async with asyncio.timeout(desk.work_patience_s), closing(model.stream(request)) as pieces:
            async for piece in pieces:
                text.append(piece.text)
                room -= len(piece.text)
                if room < 0:
                    msg = f"{model.name} said more than {LONGEST:,} characters"
                    raise BackendError(msg, retryable=True)
    except TimeoutError:
        msg = f"{model.name} did not come to an end within {desk.work_patience_s:g} s"
        raise BackendError(msg, retryable=True) from None
    return "".join(text)
