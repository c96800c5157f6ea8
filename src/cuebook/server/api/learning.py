"""Serve `/learning/memory`: compress a text, and return a digest of the newest posts."""

import asyncio
from typing import Any

from litestar import Response, post
from litestar.params import JSONBody

from cuebook.server.api import types as wire
from cuebook.server.api.types import CompressedAnswer, DigestBody
from cuebook.server.authorization import AnyRequest, cue_of, user_of
from cuebook.server.json_body import JsonBody
from cuebook.server.route_parts import UserQuery, json_of

#: Longer texts are compressed in a thread, so that streams do not wait.
LARGE = 20_000


@post(
    "/learning/memory/compress",
    dto=JsonBody[wire.TextBody],
    status_code=200,
    responses=wire.answers(CompressedAnswer),
)
async def compress(request: AnyRequest, data: JSONBody[wire.TextBody]) -> Response[bytes]:
    """Compress a text as a full window does: first line, last line, every fact; unchanged if not smaller."""
    memory = cue_of(request).memory
    large = len(data.text) > LARGE
    compressed = await asyncio.to_thread(memory.compress, data.text) if large else memory.compress(data.text)
    fields: dict[str, Any] = {
        "text": compressed.text,
        "tokensBefore": compressed.tokens_before,
        "tokensAfter": compressed.tokens_after,
    }
    return json_of(fields)


@post(
    "/learning/memory/digest",
    dto=JsonBody[DigestBody],
    status_code=200,
    responses=wire.answers(wire.TextAnswer),
)
async def digest(request: AnyRequest, data: JSONBody[DigestBody], user_id: UserQuery = None) -> Response[bytes]:
    """Return the newest posts of a conversation as a short digest: actions, results, key facts."""
    user = user_of(request, data.user_id, user_id)
    text = await cue_of(request).memory.digest(data.conversation_id, user=user, last=data.last)
    return json_of({"text": text})


ROUTES = [compress, digest]
