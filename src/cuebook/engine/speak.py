"""How the book's own model answers in an open step: each piece is kept before it is given on."""

from collections.abc import AsyncGenerator

from cuebook.engine.closing import closing
from cuebook.engine.desk import Desk
from cuebook.engine.opening import Opened
from cuebook.engine.step import BrokenOffError, Step
from cuebook.ports.model import ModelRequest
from cuebook.records.messages_chat import plain_chat


async def speak(desk: Desk, opened: Opened, step: Step) -> AsyncGenerator[str, None]:
    """Let the model answer, piece by piece; behind the last one the answer is durable. Raises what the model does."""
    lease, quotes = opened.lease, opened.planned.quotes
    request = ModelRequest(
        messages=plain_chat(opened.planned.messages),
        conversation=lease.conversation,
        recalled=tuple(quotes),
        zone=opened.zone,
    )
    usage, finish = None, ""
    async with closing(desk.model.stream(request)) as pieces:
        async for piece in pieces:
            usage, finish = piece.usage or usage, piece.finish or finish
            if piece.text:
                step.hear(piece.text)
                yield piece.text
    if not finish:
        msg = f"the answer of {desk.model.name} broke off; what had come is kept"
        raise BrokenOffError(msg, retryable=True)
    if finish != "stop" and "answer" in step.metadata:
        step.metadata["answer"]["finishReasons"] = [finish]
    await step.finish(usage=usage)
