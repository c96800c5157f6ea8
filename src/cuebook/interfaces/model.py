"""Protocols of a model that answers a window, an upstream for relayed requests, and a text analyzer."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, tzinfo
from typing import Any, Protocol

from msgspec import Struct

from cuebook.records.conversation import Part
from cuebook.records.mind import Sentiment
from cuebook.records.turn import Usage


class Piece(Struct, frozen=True, kw_only=True):
    """Part of a streamed answer. `calls` are only in the last piece, complete."""

    text: str = ""
    calls: tuple[Part, ...] = ()
    usage: Usage | None = None
    finish: str = ""
    wire: bytes | None = None  # the whole assistant message, if the provider returned one


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One model call: rendered messages in order, each a JSON object of OpenAI's chat wire."""

    messages: tuple[bytes, ...]
    purpose: str = "reply"  # "reply" or the kind of background job
    schema: dict[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None  # None = the provider's own
    model: str = ""  # the provider's model; "" = the configured one
    conversation: str = ""
    recalled: tuple[Any, ...] = ()  # content of the volatile block, for answers without a model
    zone: tzinfo = UTC  # time zone of the dates in such an answer


class Model(Protocol):
    """Streams answers. Raises UpstreamError. A stream that ends without `finish` is an incomplete answer."""

    @property
    def name(self) -> str:
        """Return the model's name for turn records and `/readyz`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Stream an answer."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


class RelayRequest(Struct, frozen=True, kw_only=True):
    """A request for the upstream, with its body's bytes."""

    method: str
    path: str  # below the upstream's base URL, "/chat/completions"
    headers: Mapping[str, str]
    body: bytes
    query: str = ""
    verbatim: bool = False  # change only hop-by-hop headers, and do not decompress the answer


class RelayAnswer(Protocol):
    """The upstream's answer: status and headers first, then the body's bytes as they arrive."""

    @property
    def status(self) -> int:
        """Return the HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the answer's headers, names in lower case."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""
        ...

    async def aclose(self) -> None:
        """Stop reading and cancel the upstream's call."""
        ...


class Upstream(Protocol):
    """Receiver of relayed requests."""

    @property
    def base_url(self) -> str:
        """Return the upstream's address, with `/v1`."""
        ...

    async def send(self, request: RelayRequest) -> RelayAnswer:
        """Send a request and wait for the head of the answer. Raises UpstreamError if there is none."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


class Analyzer(Protocol):
    """Detects sentiment in texts. Pure and fast, because it is called in the turn, before the reply."""

    @property
    def name(self) -> str:
        """Return the method's name for a persona's `sentimentTracking.method`."""
        ...

    def read(self, text: str) -> Sentiment:
        """Return a text's sentiment; for unsupported text, polarity `unknown` with score and intensity 0."""
        ...
