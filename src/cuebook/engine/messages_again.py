"""How a request of Anthropic's wire whose Idempotency-Key came before is answered: from what its step has stored."""

from collections.abc import Iterator

import msgspec

from cuebook.engine.again import Told, counted, told_head
from cuebook.engine.answer import Head
from cuebook.engine.desk import Desk
from cuebook.engine.request import Request
from cuebook.records.anthropic_messages import write_blocks
from cuebook.records.messages_told import events_of, told_usage

_encode = msgspec.json.Encoder().encode


def tell_message(desk: Desk, told: Told, request: Request, *, estimate: bool) -> Iterator[Head | bytes]:
    """Give a stored answer of Anthropic's wire once more."""
    about = told.turn.metadata.get("answer", {})
    about = about if about.get("step") == told.step.n else {}
    content = [block for each in told.messages[:1] for block in write_blocks(each, thoughts=True)[1]]
    stops = about.get("finishReasons") or [None]
    calls = any(block["type"] == "tool_use" for block in content)
    usage = counted(desk, told, estimate=estimate)
    message = {
        "id": about.get("id") or f"msg_{told.no}_{told.turn.n}_{told.step.n}",
        "type": "message",
        "role": "assistant",
        "model": about.get("model") or request.model,
        "content": content,
        "stop_reason": stops[0] or ("tool_use" if calls else "end_turn"),
        "stop_sequence": None,
        "usage": told_usage(
            (usage and usage.input) or 0,
            (usage and usage.output) or 0,
            read=(usage and usage.cache_read) or 0,
            written=(usage and usage.cache_write) or 0,
        ),
    }
    yield told_head(told, request)
    if request.stream:
        yield from events_of(message)
    else:
        yield _encode(message)
