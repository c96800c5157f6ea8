"""Vectors for what was said: a chore behind the reply, level-triggered, in batches, no model inside a transaction."""

import asyncio
import logging
import time

from cuebook.engine.desk import Chore, Desk
from cuebook.engine.drafts import unlearned
from cuebook.errors import BackendError
from cuebook.memory.language import speaks
from cuebook.memory.passages import passages_of
from cuebook.ports.embedder import Embedder
from cuebook.ports.vectors import Embedded, Unembedded
from cuebook.records.conversation import PathPost
from cuebook.records.memory import Scope

log = logging.getLogger("cuebook.embedder")

#: Posts read and embedded at once.
POSTS = 32
#: Texts given to the embedder at once.
TEXTS = 64
#: Conversations found at once.
FOUND = 100
#: How long one run goes on before the other work behind has its turn, in seconds.
RUN_S = 2.0
#: Changes older than this many seconds before the last look that found nothing are not looked for again.
OVERLAP_S = 600.0
#: Seconds an embedder that failed is left alone.
PAUSE_S = 30.0


def embedding_chores(desk: Desk) -> list[Chore]:
    """Give the chore that embeds what is said; none where nothing embeds."""
    if desk.embedder is None:
        return []
    embedding = Embedding(desk.embedder)
    return [Chore(name="embedding", run=lambda: embedding.keep_up(desk), due=lambda: embedding.due(desk))]


class Embedding:
    """Keeps the vectors of a book's posts up with them."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._since = 0.0
        self._paused_until = 0.0
        self._lock = asyncio.Lock()

    async def keep_up(self, desk: Desk) -> None:
        """Embed what has no vectors yet, for a while; what is left is found again. Raises BackendError."""
        async with self._lock:
            if time.monotonic() < self._paused_until:
                return
            try:
                if await self._some(desk):
                    desk.stirred()
            except BackendError:
                self._paused_until = time.monotonic() + PAUSE_S
                raise

    async def due(self, desk: Desk) -> int:
        """Count the posts behind the last ones with vectors, of FOUND conversations at most."""
        found = await desk.store.vectors.due(self._embedder.name, since=self._since, limit=FOUND)
        return sum(each.last_seq - each.upto for each in found)

    async def _some(self, desk: Desk) -> bool:
        """Work for RUN_S; answers with whether something is left."""
        until, now = time.monotonic() + RUN_S, desk.clock.now()
        self._since = min(self._since, max(0.0, now - OVERLAP_S))  # a clock may be set back
        while found := await desk.store.vectors.due(self._embedder.name, since=self._since, limit=FOUND):
            for each in found:
                await self._next(desk, each)
                if time.monotonic() >= until:
                    return True
        self._since = max(0.0, now - OVERLAP_S)
        return False

    async def _next(self, desk: Desk, due: Unembedded) -> None:
        """Embed the next posts of a conversation; where another worker was first, what was made is thrown away."""
        scope, upto = Scope(due.tenant), min(due.upto + POSTS, due.last_seq)
        posts = await desk.store.posts_in(scope, due.conversation, [(due.upto + 1, upto)])
        parts = [(post.seq, part, text) for post in posts for part, text in enumerate(self._texts(post))]
        rows: list[tuple[int, int, bytes]] = []
        for first in range(0, len(parts), TEXTS):
            batch = parts[first : first + TEXTS]
            vectors = await self._embedder.embed([text for _, _, text in batch])
            rows += [(seq, part, vector) for (seq, part, _), vector in zip(batch, vectors, strict=True)]
        embedded = Embedded(
            conversation=due.conversation,
            no=due.no,
            model=self._embedder.name,
            after=due.upto,
            upto=upto,
            rows=tuple(rows),
            now=desk.clock.now(),
            epoch=due.epoch,
        )
        if not await desk.store.vectors.keep(scope, embedded):
            log.debug("another was first to embed posts of %s", due.conversation)

    def _texts(self, post: PathPost) -> list[str]:
        """Give what of a post is embedded: nothing of what memory passes over, or of a language nobody here knows."""
        text = post.message or ""
        if unlearned(post.role, text) or not speaks(self._embedder.languages, text):
            return []
        return passages_of(post.sender, text)
