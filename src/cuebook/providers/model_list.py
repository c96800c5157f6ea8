"""Ask an upstream once, in the background, for its list of models and their context windows."""

import asyncio
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

import msgspec

from cuebook.errors import UpstreamError
from cuebook.interfaces import RelayRequest, Upstream

#: Fields of a model with its context window: OpenRouter and Together, vLLM and SGLang, Mistral, Groq.
FIELDS: Final = ("context_length", "max_model_len", "max_context_length", "context_window")
#: Request headers that authorize a request for the list.
_KEYS = frozenset({"authorization", "x-api-key", "api-key", "anthropic-version"})
#: Seconds for an answer, seconds after a failure until the next request, and most bytes of a list.
PATIENCE_S, PAUSE_S, MOST_BYTES = 30.0, 600.0, 32 * 1024 * 1024


class ModelList:
    """The list of an upstream's models. A failure is silent: the other sources of a context window remain."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._task: asyncio.Task[bool] | None = None
        self._at = 0.0

    def ask(self, headers: Mapping[str, str], contexts: MutableMapping[tuple[str, str], int]) -> None:
        """Start to ask with a client's key, unless the list is known. Add the context windows to `contexts`.

        They are keyed by the upstream's base URL and the model. Does not wait.
        """
        if self._task is not None and (
            not self._task.done() or self._task.result() or time.monotonic() - self._at < PAUSE_S
        ):
            return
        keys = {name: value for name, value in headers.items() if name.lower() in _KEYS} | {"user-agent": "cuebook"}
        self._at = time.monotonic()
        self._task = asyncio.create_task(self._load(keys, contexts))

    async def _load(self, headers: Mapping[str, str], contexts: MutableMapping[tuple[str, str], int]) -> bool:
        """Return whether the upstream has answered."""
        with suppress(UpstreamError, TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                body = await self._body(headers)
            contexts.update({(self._upstream.base_url, id_): size for id_, size in read_contexts(body).items()})
            return bool(body)
        return False

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        """Return the list, b"" for an error."""
        answer = await self._upstream.send(RelayRequest(method="GET", path="/models", headers=headers, body=b""))
        body = bytearray()
        try:
            async for chunk in answer.chunks():
                body += chunk
                if answer.status != HTTPStatus.OK or len(body) > MOST_BYTES:
                    return b""
        finally:
            await answer.aclose()
        return bytes(body)

    async def aclose(self) -> None:
        """Stop asking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None


def read_contexts(body: bytes) -> dict[str, int]:
    """Return the context windows in a list of models, by model id."""
    try:
        data = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return {}
    models: Any = data.get("data") if isinstance(data, dict) else data
    contexts: dict[str, int] = {}
    for model in models if isinstance(models, list) else ():
        if isinstance(model, dict) and isinstance(model.get("id"), str):
            sizes = (model.get(name) for name in FIELDS)
            size = next((size for size in sizes if isinstance(size, int) and size > 0), None)
            if size is not None:
                contexts[model["id"]] = size
    return contexts
