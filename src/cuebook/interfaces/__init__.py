"""Ports of the engine: Protocols of models, upstreams, embedders and sinks, and the structs of the store. No code."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, tzinfo
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from cuebook.records.conversation import Part
from cuebook.records.memory import Item, Summary
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

    def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Stream an answer."""

    async def aclose(self) -> None:
        """Release connections."""


@runtime_checkable
class SingleModel(Protocol):
    """A model that answers each request itself, whatever `ModelRequest.model` names."""

    single: Literal[True]


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

    @property
    def headers(self) -> Mapping[str, str]:
        """Return the answer's headers, names in lower case."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives."""

    async def aclose(self) -> None:
        """Stop reading and cancel the upstream's call."""


class Upstream(Protocol):
    """Receiver of relayed requests."""

    @property
    def base_url(self) -> str:
        """Return the upstream's address, with `/v1`."""

    async def send(self, request: RelayRequest) -> RelayAnswer:
        """Send a request and wait for the head of the answer. Raises UpstreamError if there is none."""

    async def aclose(self) -> None:
        """Release connections."""


class Analyzer(Protocol):
    """Detects sentiment in texts. Pure and fast, because it is called in the turn, before the reply."""

    @property
    def name(self) -> str:
        """Return the method's name for a persona's `sentimentTracking.method`."""

    def read(self, text: str) -> Sentiment:
        """Return a text's sentiment; for unsupported text, polarity `unknown` with score and intensity 0."""


class Embedder(Protocol):
    """Embeds texts. Vectors of embedders with different names are never compared."""

    @property
    def name(self) -> str:
        """Return the name of the model and its weights, which identifies its vector space."""

    @property
    def dimension(self) -> int:
        """Return the dimension of the vectors, 0 before the first answer."""

    @property
    def languages(self) -> frozenset[str]:
        """Return supported languages (ISO 639-1); empty = any. Texts in other languages are not embedded."""

    @property
    def akin(self) -> float:
        """Return the cosine threshold, in (0, 1), from which a text and a question share a subject."""

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return a vector of length 1 for each text, in order: float32, little endian, `4 * dimension` bytes.

        Raises BackendError. If that is not retryable, one of these texts is permanently rejected.
        """

    async def aclose(self) -> None:
        """Release connections and memory."""


#: AgentOS's names.
COLLECTION = "agentos-rolling-memory"
CATEGORY = "conversation_memory"


class FinishedSummary(Struct, frozen=True, kw_only=True):
    """A finished summary, and the conversation's items at delivery."""

    tenant: str
    conversation: str
    no: int  # the conversation's number in its store, because an id may be reused
    user: str | None
    persona: str | None
    summary: Summary
    items: tuple[Item, ...]

    @property
    def id(self) -> str:
        """Return an id that is equal for repeated deliveries."""
        return f"{self.conversation}:{self.no}:{self.summary.version}"

    def rows(self) -> list[dict[str, Any]]:
        """Return AgentOS's knowledge rows: one `rolling_memory`, and a `rolling_memory_item` for each item."""
        shared = {
            "collection": COLLECTION,
            "category": CATEGORY,
            "conversationId": self.conversation,
            "userId": self.user,
            "personaId": self.persona,
            "version": self.summary.version,
        }
        items = [
            {
                **shared,
                "type": "rolling_memory_item",
                "id": f"{self.conversation}:{self.no}:{item.id}",
                "itemCategory": item.category,
                "text": item.text,
                "confidence": item.confidence,
                "sources": list(item.sources),
            }
            for item in self.items
        ]
        whole = {
            **shared,
            "type": "rolling_memory",
            "id": self.id,
            "text": self.summary.markdown,
            "memoryJson": self.summary.memory_json,
            "uptoSeq": self.summary.upto_seq,
        }
        return [whole, *items]


class Sink(Protocol):
    """Receives finished summaries. After a crash one is delivered again with the same `id` (at least once)."""

    @property
    def name(self) -> str: ...
    async def keep(self, passed: FinishedSummary) -> None: ...


class Clock(Protocol):
    """Clock. A replay returns the times of its posts."""

    def now(self) -> float:
        """Return the current Unix time in seconds."""


class Dice(Protocol):
    """Generator of unique ids."""

    def new_id(self, prefix: str) -> str:
        """Return a new id that starts with `prefix` and a hyphen."""
