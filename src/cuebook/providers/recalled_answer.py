"""The fallback when no model is configured: an answer that quotes recalled memories and is labeled as such."""

from collections.abc import AsyncIterator
from datetime import datetime

from cuebook.interfaces import ModelRequest, Piece
from cuebook.records.memory import NO_MODEL, NO_MODEL_LABEL, Hit

#: Memories quoted in an answer.
QUOTED = 5
#: Characters of a quoted memory.
QUOTE = 280


class RecalledModel:
    """A model that answers with recalled memories and their sources."""

    name = NO_MODEL

    def __init__(self, *, upstream: bool = False) -> None:
        """`upstream`: whether an upstream is configured, which answers under /v1 only."""
        self._advice = (
            "Set [model] to get an answer here; the upstream answers under /v1."
            if upstream
            else "Set [model] or --upstream to get an answer."
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[Piece]:
        """Yield the answer line by line."""
        hits = [hit for hit in request.recalled if isinstance(hit, Hit)]
        if not hits:
            yield Piece(text=f"{NO_MODEL_LABEL} No memory matches this query. {self._advice}")
        else:
            yield Piece(text=f"{NO_MODEL_LABEL} Memories that match this query:\n")
        for hit in hits[:QUOTED]:
            day = datetime.fromtimestamp(hit.timestamp, request.zone).date().isoformat()
            text = " ".join(hit.text.split())
            content = text if len(text) <= QUOTE else text[: QUOTE - 1] + "…"
            message = f"{hit.speaker}: " if hit.speaker else ""  # a memory may come from many posts
            sources = f" ({', '.join(hit.sources)})" if hit.sources else ""
            yield Piece(text=f"\n- [{day}] {message}{content}{sources}")
        yield Piece(finish="stop")

    async def aclose(self) -> None:
        """Do nothing: there is nothing to close."""
