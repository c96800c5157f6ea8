"""Answer Anthropic Messages requests: forward to an Anthropic upstream, or translate to an OpenAI chat completion."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Final

from cuebook.config import Config
from cuebook.engine.core.services import Services
from cuebook.engine.proxy.messages_wire import PATH, MessagesAsChat, MessagesWire, NotReadError, count_messages
from cuebook.engine.proxy.relay import relay
from cuebook.engine.proxy.request import RelayCall
from cuebook.engine.proxy.wire import Head
from cuebook.errors import InvalidInput
from cuebook.interfaces import RelayRequest, Upstream
from cuebook.providers.llama import LlamaModel
from cuebook.providers.openai import OpenAIModel
from cuebook.wire.anthropic_requests import SETTINGS, TOOLS

#: Prefix of model names that only Anthropic knows.
_CLAUDE: Final = "claude"


def upstream_model(services: Services, config: Config, name: str) -> str | None:
    """Return the upstream's model for a request whose model names a persona, else None. Raises InvalidInput."""
    persona = services.settings.personas.get(name)
    if persona is None:
        return None
    model = persona.model or config.settings.model.name
    if not model:
        msg = f"model: persona {persona.id!r} has no upstream model. Set model.name, or the persona's `model`."
        raise InvalidInput(msg, where="model")
    return model


class Messages:
    """The Anthropic Messages API of a project."""

    def __init__(self, services: Services, config: Config, upstream: Upstream | None) -> None:
        self._services, self._config, self._upstream = services, config, upstream

    @property
    def translates(self) -> bool:
        """Return whether requests are translated: for the project's own model, or by `upstream.messages`."""
        return self._upstream is None or self._config.settings.upstream.messages == "chat"

    def count(self, call: RelayCall) -> dict[str, int]:
        """Return an estimate of a request's tokens in the form of `/v1/messages/count_tokens`. Raises InvalidInput."""
        return {"input_tokens": count_messages(self._services, call)}

    async def answer(
        self, call: RelayCall, passes: Callable[[RelayRequest], AsyncIterator[Head | bytes]]
    ) -> AsyncGenerator[Head | bytes, None]:
        """Answer a request. Yield the response head, then the body's bytes.

        An unparsable request is forwarded with `passes`, unstored, to an Anthropic upstream. Raises InvalidInput.
        """
        try:
            async with aclosing(await self._answer(call)) as pieces:
                async for piece in pieces:
                    yield piece
        except NotReadError:
            if self.translates:
                raise
            passed = RelayRequest(method="POST", path=PATH, headers=call.headers, body=call.body, query=call.query)
            async for piece in passes(passed):
                yield piece

    async def _answer(self, call: RelayCall) -> AsyncGenerator[Head | bytes, None]:
        services, settings = self._services, self._config.settings
        if not self.translates:
            wire = MessagesWire(services, self._upstream, call)
            model = upstream_model(services, self._config, wire.model)
            return relay(wire, model=model)
        upstream = self._upstream
        if upstream is None and isinstance(services.model, OpenAIModel | LlamaModel):  # servers that support tools
            upstream = services.model
        lacks = SETTINGS if upstream is None else frozenset[str]()
        if isinstance(upstream, LlamaModel) and b'"tool' in call.body and not await upstream.takes_tools():
            lacks = TOOLS
        translated = MessagesAsChat(services, upstream, call, lacks=lacks)
        model = upstream_model(services, self._config, translated.model) if upstream is not None else None
        if model is None and upstream is not None and (self._upstream is None or translated.model.startswith(_CLAUDE)):
            model = settings.model.name or None
        return relay(translated, model=model)
