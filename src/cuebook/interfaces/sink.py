"""Protocol of a sink, which receives finished summaries: AgentOS's `rollingSummaryMemorySink`."""

from typing import Any, Protocol

from msgspec import Struct

from cuebook.records.memory import Item, Summary

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
