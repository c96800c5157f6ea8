"""What speaks: a model that answers a window, and an upstream that a request is relayed to as it came."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, tzinfo
from typing import Any, Protocol

from msgspec import Struct

from cuebook.records.conversation import Part
from cuebook.records.mind import Sentiment
from cuebook.records.turn import Usage


class Piece(Struct, frozen=True, kw_only=True):
    """Part of an answer as it comes. `calls` stand in the last piece only, complete."""

    text: str = ""
    calls: tuple[Part, ...] = ()
    usage: Usage | None = None
    finish: str = ""
    wire: bytes | None = None  # the whole assistant message, where the provider gave one


class ModelRequest(Struct, frozen=True, kw_only=True):
    """One model call: rendered messages in order, each one JSON object of the OpenAI chat wire."""

    messages: tuple[bytes, ...]
    purpose: str = "reply"  # "reply" or the kind of work behind
    schema: dict[str, Any] | None = None
    max_tokens: int | None = None
    temperature: float | None = None  # None = the provider's own
    model: str = ""  # which of the provider's models answers; "" = the one that was set
    conversation: str = ""
    recalled: tuple[Any, ...] = ()  # what stands in the volatile block, for answers made without a model
    zone: tzinfo = UTC  # whose days such an answer tells


class Model(Protocol):
    """Streams an answer. Raises UpstreamError; a stream that ends without `finish` is half an answer."""

    @property
    def name(self) -> str:
        """Return what answers, for turn records and `/readyz`."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Answer piece by piece."""
        ...

    async def aclose(self) -> None:
        """Give back connections."""
        ...


class RelayRequest(Struct, frozen=True, kw_only=True):
    """A request for the upstream, its body's bytes ready."""

    method: str
    path: str  # below the upstream's base URL, "/chat/completions"
    headers: Mapping[str, str]
    body: bytes
    query: str = ""
    verbatim: bool = False  # nothing is changed but what holds for one hop, and the answer is wanted as it is packed


class RelayAnswer(Protocol):
    """What the upstream answers: status and headers first, then the body's bytes as they come."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The answer's headers, names in lower case."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the body as it comes."""
        ...

    async def aclose(self) -> None:
        """Stop reading; the upstream's call is cancelled."""
        ...


class Upstream(Protocol):
    """Where requests go unchanged."""

    @property
    def base_url(self) -> str:
        """The upstream's address, with `/v1`."""
        ...

    async def send(self, request: RelayRequest) -> RelayAnswer:
        """Send and wait for the head of the answer. Raises UpstreamError when there is none."""
        ...

    async def aclose(self) -> None:
        """Give back connections."""
        ...


class Analyzer(Protocol):
    """Reads texts. Pure and quick: it is asked within the turn, before the reply, so it waits for nothing."""

    @property
    def name(self) -> str:
        """Name the method, as a persona's `sentimentTracking.method` does."""
        ...

    def read(self, text: str) -> Sentiment:
        """Return how a text sounds; of one it cannot read, polarity `unknown` with score and intensity 0."""
        ...
