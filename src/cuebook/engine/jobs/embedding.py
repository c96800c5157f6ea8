"""Background job that embeds posts and memories as vectors. It never calls a model inside a transaction."""

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from cuebook.engine.core.drafts import unlearned
from cuebook.engine.core.query_vector import check_size, space_of
from cuebook.engine.core.services import Job, Services
from cuebook.errors import BackendError
from cuebook.interfaces.embedder import Embedder
from cuebook.interfaces.vectors import EmbeddedPlace, EmbeddingBacklog, MemoryText, PostVectors, UnembeddedPlace
from cuebook.languages import reads
from cuebook.memory.tokenizer import spans_of
from cuebook.records.conversation import PathPost
from cuebook.records.memory import Scope

# ---- Passages -------------------------------------------------------------------------------------------------------


#: Characters of a passage: about 120 words, the length that the model was trained on.
PASSAGE: Final = 700
#: A post up to this length stays one passage.
WHOLE: Final = 900
#: Most passages of a post; a longer post is sampled evenly. The cost of embedding grows with their number.
PASSAGES: Final = 8


def passages_of(speaker: str, text: str) -> list[str]:
    """Return the passages to embed for a post or a memory, none for an empty one. `speaker` is its author or its name.

    The speaker adds 13 points of R@10 (notes).
    """
    bare, head = text.strip(), f"{speaker}: " if speaker else ""
    if not bare:
        return []
    if len(bare) <= WHOLE:
        return [head + bare]
    cuts: list[tuple[int, int]] = []
    for first, last in spans_of(bare):
        if cuts and last - cuts[-1][0] <= PASSAGE:
            cuts[-1] = (cuts[-1][0], last)
        else:
            cuts.append((first, last))
    if len(cuts) > PASSAGES:
        step = (len(cuts) - 1) / (PASSAGES - 1)
        cuts = [cuts[round(step * at)] for at in range(PASSAGES)]
    return [head + bare[first:last].strip() for first, last in cuts]


log = logging.getLogger("cuebook.embedder")
K = TypeVar("K")

#: Posts or memories loaded and embedded in one batch.
POSTS = 32
#: Conversations or places loaded in one batch.
FOUND = 100
#: Seconds that one run takes before other background jobs get their turn.
RUN_S = 2.0
#: Seconds that each batch waits for turns in the foreground.
MAX_WAIT_S = 0.05
#: Changes this many seconds older than the last empty scan are not scanned again.
OVERLAP_S = 600.0
#: Seconds without calls after an embedder failed.
PAUSE_S = 30.0
#: A text that any working embedder accepts.
PROBE = "."


def embedding_jobs(services: Services) -> list[Job]:
    """Return the embedding job, or none without an embedder."""
    if services.embedder is None:
        return []
    embedding = Embedding(services.embedder)
    return [Job(name="embedding", run=lambda: embedding.keep_up(services), due=lambda: embedding.due(services))]


async def load(services: Services) -> None:
    """Load the embedder before the first query. A failure is stored in the caches. Never raises BackendError."""
    if services.embedder is None:
        return
    try:
        check_size(services.embedder, await services.embedder.embed([PROBE]))
    except BackendError as error:
        services.caches.embedder_failure.why = services.writer.clean(str(error))
        log.warning("The embedder is unavailable; search uses full text only: %s", services.caches.embedder_failure.why)


class Embedding:
    """Keeps the vectors of a project's posts and memories up to date."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._since = 0.0
        self._paused_until = 0.0
        self._lock = asyncio.Lock()

    async def keep_up(self, services: Services) -> None:
        """Embed texts without vectors for up to RUN_S; the next run continues. Raises BackendError."""
        async with self._lock:
            if time.monotonic() < self._paused_until:
                return
            try:
                if not self._embedder.dimension:
                    await self._embedder.embed([PROBE])  # its dimension decides which vectors exist
                if await self._some(services):
                    services.notify_jobs()
            except BackendError:
                self._paused_until = time.monotonic() + PAUSE_S
                raise

    async def due(self, services: Services) -> int:
        """Count the posts and memory texts without vectors, of at most FOUND scopes each."""
        vectors, space = services.store.vectors, space_of(self._embedder)
        posts = await vectors.due(space, since=self._since, limit=FOUND)
        places = await vectors.places_due(space, since=self._since, limit=FOUND)
        return sum(each.last_seq - each.upto for each in posts) + sum(each.said - each.upto for each in places)

    async def _some(self, services: Services) -> bool:
        """Work for RUN_S. Return whether something is left."""
        until, now = time.monotonic() + RUN_S, services.clock.now()
        self._since = min(self._since, max(0.0, now - OVERLAP_S))  # a clock may be set back
        vectors, space = services.store.vectors, space_of(self._embedder)
        while unembedded_places := await vectors.places_due(space, since=self._since, limit=FOUND):
            for some in _together(unembedded_places):  # memories first: they are few and used in every conversation
                await self._next_of_places(services, some)
                if time.monotonic() >= until:
                    return True
        while dues := await vectors.due(space, since=self._since, limit=FOUND):
            for each in dues:
                await self._next(services, each)
                if time.monotonic() >= until:
                    return True
        self._since = max(0.0, now - OVERLAP_S)
        return False

    async def _next(self, services: Services, due: EmbeddingBacklog) -> None:
        """Embed the next posts of a conversation. Discard the result if another worker was first."""
        scope, upto = Scope(due.tenant), min(due.upto + POSTS, due.last_seq)
        posts = await services.store.posts_in(scope, due.conversation, [(due.upto + 1, upto)])
        rows, refused = await self._rows(services, ((post.seq, self._texts(post)) for post in posts))
        embedded = PostVectors(
            conversation=due.conversation,
            no=due.no,
            model=space_of(self._embedder),
            after=due.upto,
            upto=upto,
            rows=tuple(rows),
            now=services.clock.now(),
            epoch=due.epoch,
        )
        if not await services.store.vectors.keep(scope, embedded):
            log.debug("Another worker already embedded posts of %s", due.conversation)
            return
        for seq, why in refused:
            self._passed_over(services, f"text of post {seq} in conversation {due.conversation}", why)

    async def _next_of_places(self, services: Services, dues: Sequence[UnembeddedPlace]) -> None:
        """Embed the next memory texts of some places. Discard the result if another worker was first."""
        vectors = services.store.vectors
        read = [await vectors.memory_texts(Scope(due.tenant), due.place, after=due.upto, limit=POSTS) for due in dues]
        rows, refused = await self._rows(
            services,
            (
                ((at, each.number), self._texts_of(each))
                for at, memory_texts in enumerate(read)
                for each in memory_texts
            ),
        )
        for at, (due, memory_texts) in enumerate(zip(dues, read, strict=True)):
            last = memory_texts[-1].number if memory_texts else 0
            embedded = EmbeddedPlace(
                place=due.place,
                model=space_of(self._embedder),
                after=due.upto,
                upto=last if len(memory_texts) == POSTS else max(due.said, last),
                rows=tuple((number, part, vector) for (of, number), part, vector in rows if of == at),
                now=services.clock.now(),
            )
            if not await vectors.keep_of_place(Scope(due.tenant), embedded):
                log.debug("Another worker already embedded memories of a place")
                continue
            for (of, _), why in refused:
                if of == at:
                    self._passed_over(services, "text of a memory", why)

    async def _rows(
        self, services: Services, texts: Iterable[tuple[K, Sequence[str]]]
    ) -> tuple[list[tuple[K, int, bytes]], list[tuple[K, BackendError]]]:
        """Embed the parts of texts. Return rows of name, part number and vector, and the names that the embedder
        rejects permanently, with the error. Raises BackendError.
        """
        parts = [(name, part, text) for name, each in texts for part, text in enumerate(each)]
        rows: list[tuple[K, int, bytes]] = []
        refused: list[tuple[K, BackendError]] = []
        size = services.settings.embed_at_once
        waiting = [parts[first : first + size] for first in range(0, len(parts), size)]
        while waiting:
            batch = waiting.pop(0)
            await services.foreground.wait_until_free(MAX_WAIT_S)
            try:
                vectors = await self._embedder.embed([text for _, _, text in batch])
            except BackendError as error:
                if error.retryable:
                    raise
                await self._embedder.embed([PROBE])  # if this fails too, the texts are not the cause
                if len(batch) == 1:
                    refused.append((batch[0][0], error))
                else:
                    half = len(batch) // 2
                    waiting[:0] = [batch[:half], batch[half:]]
                continue
            check_size(self._embedder, vectors)
            services.caches.embedder_failure.why = ""
            rows += [(name, part, vector) for (name, part, _), vector in zip(batch, vectors, strict=True)]
        return rows, refused

    def _passed_over(self, services: Services, what: str, why: BackendError) -> None:
        """Log that a text without a vector is only searched by its words."""
        reason = services.writer.clean(str(why))
        log.warning("Embedder %s rejected %s; search finds it by full text only: %s", self._embedder.name, what, reason)

    def _texts(self, post: PathPost) -> list[str]:
        """Return a post's passages to embed: none for excluded roles or for a language that the embedder does not
        support.
        """
        text = post.message or ""
        if unlearned(post.role, text) or not reads(self._embedder.languages, text):
            return []
        return passages_of(post.sender, text)

    def _texts_of(self, memory_text: MemoryText) -> list[str]:
        """Return a memory's passages to embed: its text, with its name if the text does not contain the name."""
        if not reads(self._embedder.languages, memory_text.text):
            return []
        return passages_of(memory_text.name if memory_text.name not in memory_text.text else "", memory_text.text)


def _together(places: Sequence[UnembeddedPlace]) -> Iterator[list[UnembeddedPlace]]:
    """Yield batches of places, to combine small places in one call of the embedder."""
    some: list[UnembeddedPlace] = []
    texts = 0
    for each in places:
        if some and texts + each.said - each.upto > POSTS:
            yield some
            some, texts = [], 0
        some.append(each)
        texts += each.said - each.upto
    if some:
        yield some
