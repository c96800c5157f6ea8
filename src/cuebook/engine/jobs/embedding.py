"""Background job that embeds posts and memories as vectors. It never calls a model inside a transaction."""

import logging
import math
import time
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from msgspec import Struct

from cuebook.engine.core.recall import embed, space_of
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.job import DueQuery, DueWork, Job
from cuebook.errors import BackendError
from cuebook.interfaces import Embedder
from cuebook.languages import reads
from cuebook.memory.recall import unlearned
from cuebook.memory.tokenizer import segments_of
from cuebook.records.conversation import PathPost
from cuebook.records.memory import Scope
from cuebook.signals.tasks import examples
from cuebook.storage.vectors import EmbeddingBacklog, NewVectors, UnembeddedPlace

# ---- Passages -------------------------------------------------------------------------------------------------------


#: Most passages of a post; a longer post is sampled evenly. The cost of embedding grows with their number.
PASSAGES: Final = 32


def passages_of(speaker: str, text: str) -> list[tuple[int, str]]:
    """Return the numbered passages to embed for a post or memory. A text without a letter or digit ("???") has none.

    A passage is two segments (`segments_of`). `speaker` is the author of a post or the name of a memory: it adds 13
    points of R@10 (notes).
    """
    if not any(map(str.isalnum, text)):
        return []
    head, spans = f"{speaker}: " if speaker else "", segments_of(text)
    numbers = list(range(-(-len(spans) // 2)))
    if len(numbers) > PASSAGES:
        step = (len(numbers) - 1) / (PASSAGES - 1)
        numbers = [round(step * at) for at in range(PASSAGES)]
    ends = ((number, spans[2 * number][0], spans[min(2 * number + 1, len(spans) - 1)][1]) for number in numbers)
    return [(number, head + text[first:last].strip()) for number, first, last in ends if text[first:last].strip()]


log = logging.getLogger("cuebook.embedder")
K = TypeVar("K")

#: Posts or memories loaded and embedded in one batch.
POSTS = 32
#: Seconds that each batch waits for turns in the foreground.
MAX_WAIT_S = 0.05
#: Changes this many seconds older than the last empty scan are not scanned again.
OVERLAP_S = 600.0
#: Seconds without calls after an embedder failed.
PAUSE_S = 30.0
#: A text that any working embedder accepts.
PROBE = "."


async def load(services: Services) -> None:
    """Load the embedder before the first query. A failure is stored in the caches. Never raises BackendError."""
    if services.embedder is None:
        return
    try:
        await embed(services.embedder, [PROBE])
    except BackendError as error:
        services.caches.failures["embedder"] = services.writer.clean(str(error))
        log.warning("The embedder is unavailable; search uses full text only: %s", services.caches.failures["embedder"])


class EmbeddingProgress(Struct):
    """State of the embedding job in this process: older changes need no scan; a failed embedder gets a pause."""

    since: float = 0.0
    paused_until: float = 0.0


#: A call of the embedder that shows its dimension and whether it works, the next posts of a conversation, or the next
#: texts of some places.
Passages = None | EmbeddingBacklog | tuple[UnembeddedPlace, ...]


async def _due(services: Services, query: DueQuery) -> list[DueWork[Passages]]:
    """Return texts without vectors. In a pause, or before the dimension is known, only try the embedder."""
    embedder, now = services.embedder, services.clock.now()
    if embedder is None:
        return []
    progress, vectors, space = (
        services.caches.progress_of(EmbeddingProgress),
        services.store.vectors,
        space_of(embedder),
    )
    latest = max(0.0, now - OVERLAP_S)
    progress.since = min(progress.since, latest)  # a clock may be set back
    places = await vectors.places_due(space, since=progress.since, limit=query.limit)
    dues = await vectors.due(space, since=progress.since, limit=query.limit)
    if not places and not dues:
        progress.since = latest
    work = [  # memories first: they are few and used in every conversation
        DueWork[Passages]("", "memories", tuple(some), sum(each.said - each.upto for each in some))
        for some in _together(places)
    ]
    work += [
        DueWork[Passages](each.tenant, f"conversation {each.conversation}", each, each.last_seq - each.upto)
        for each in dues
    ]
    if work and (not embedder.dimension or time.monotonic() < progress.paused_until):
        return [DueWork("", f"embedder {embedder.name}", None, sum(each.count for each in work))]
    return work


async def _run(services: Services, _: Scope, passages: Passages) -> bool:
    """Embed texts. After an error, embed none for PAUSE_S. Raises BackendError."""
    embedder, progress = services.embedder, services.caches.progress_of(EmbeddingProgress)
    if embedder is None or time.monotonic() < progress.paused_until:
        return False
    try:
        if passages is None:
            await embedder.embed([PROBE])
            return True
        if isinstance(passages, EmbeddingBacklog):
            return await _embed_posts(services, embedder, passages)
        return await _embed_memories(services, embedder, passages)
    except BackendError:
        progress.paused_until = time.monotonic() + PAUSE_S
        raise


EMBEDDING = Job(name="embedding", due=_due, run=_run)


async def _embed_posts(services: Services, embedder: Embedder, due: EmbeddingBacklog) -> bool:
    """Embed the next posts of a conversation. Discard the result if another worker was first."""
    scope, upto = Scope(due.tenant), min(due.upto + POSTS, due.last_seq)
    posts = await services.store.posts_in(scope, due.conversation, [(due.upto + 1, upto)])
    passages = ((post.seq, _passages_of_post(embedder, post)) for post in posts)
    rows, refused = await _rows(services, embedder, passages)
    space, now = space_of(embedder), services.clock.now()
    embedded = NewVectors(model=space, after=due.upto, upto=upto, rows=tuple(rows), now=now)
    if not await services.store.vectors.keep(scope, due, embedded):
        return False
    for seq, why in refused:
        _log_rejection(services, embedder, f"text of post {seq} in conversation {due.conversation}", why)
    return True


async def _embed_memories(services: Services, embedder: Embedder, dues: Sequence[UnembeddedPlace]) -> bool:
    """Embed the next memory texts of some places. Discard the result if another worker was first."""
    vectors, is_first = services.store.vectors, False
    read = [await vectors.memory_texts(Scope(due.tenant), due.place, after=due.upto, limit=POSTS) for due in dues]
    passages = (
        ((at, number), _passages_of_memory(embedder, name, text))
        for at, texts in enumerate(read)
        for number, name, text in texts
    )
    rows, refused = await _rows(services, embedder, passages)
    for at, (due, texts) in enumerate(zip(dues, read, strict=True)):
        last = texts[-1][0] if texts else 0
        embedded = NewVectors(
            model=space_of(embedder),
            after=due.upto,
            upto=last if len(texts) == POSTS else max(due.said, last),
            rows=tuple((number, part, vector) for (of, number), part, vector in rows if of == at),
            now=services.clock.now(),
        )
        if await vectors.keep_of_place(Scope(due.tenant), due.place, embedded):
            is_first = True
            for (of, _), why in refused:
                if of == at:
                    _log_rejection(services, embedder, "text of a memory", why)
    return is_first


async def _rows(
    services: Services, embedder: Embedder, texts: Iterable[tuple[K, Sequence[tuple[int, str]]]]
) -> tuple[list[tuple[K, int, bytes]], list[tuple[K, BackendError]]]:
    """Embed the parts of texts. Return rows of name, part number and vector, and the names that the embedder
    rejects permanently, with the error. Raises BackendError.
    """
    parts = [(name, part, text) for name, each in texts for part, text in each]
    rows: list[tuple[K, int, bytes]] = []
    refused: list[tuple[K, BackendError]] = []
    size = services.settings.embed_at_once
    waiting = [parts[first : first + size] for first in range(0, len(parts), size)]
    while waiting:
        batch = waiting.pop(0)
        await services.foreground.wait_until_free(MAX_WAIT_S)
        try:
            vectors = await embed(embedder, [text for _, _, text in batch])
        except BackendError as error:
            if error.retryable:
                raise
            await embed(embedder, [PROBE])  # if this fails too, the texts are not the cause
            if len(batch) == 1:
                refused.append((batch[0][0], error))
            else:
                half = len(batch) // 2
                waiting[:0] = [batch[:half], batch[half:]]
            continue
        services.caches.failures.pop("embedder", None)
        rows += [(name, part, vector) for (name, part, _), vector in zip(batch, vectors, strict=True)]
    return rows, refused


def _log_rejection(services: Services, embedder: Embedder, what: str, why: BackendError) -> None:
    """Log that a text without a vector is only searched by its words."""
    reason = services.writer.clean(str(why))
    log.warning("Embedder %s rejected %s; search finds it by full text only: %s", embedder.name, what, reason)


def _passages_of_post(embedder: Embedder, post: PathPost) -> list[tuple[int, str]]:
    """Return the passages to embed: none for excluded roles or for a language that the embedder does not support."""
    text = post.message or ""
    if unlearned(post.role, text) or not reads(embedder.languages, text):
        return []
    return passages_of(post.sender, text)


def _passages_of_memory(embedder: Embedder, name: str, text: str) -> list[tuple[int, str]]:
    """Return the passages to embed: the text, with the memory's name if the text does not contain it."""
    if not reads(embedder.languages, text):
        return []
    return passages_of(name if name not in text else "", text)


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


# ---- Example messages of the task classifier ------------------------------------------------------------------------


async def _examples_due(services: Services, _: DueQuery) -> list[DueWork[None]]:
    is_due = services.embedder is not None and services.caches.task_means.wanted
    return [DueWork("", "the task classifier", None)] if is_due else []


async def _embed_examples(services: Services, _: Scope, __: None) -> bool:
    """Embed the examples. After a failure, the task classifier uses rules, and the next message asks again."""
    embedder, means = services.embedder, dict[str, tuple[float, ...]]()
    services.caches.task_means.wanted = False
    if embedder is None:
        return False
    for task, messages in examples().items():
        vectors = await embed(embedder, messages)
        summed = [sum(column) for column in zip(*(array("f", each) for each in vectors), strict=True)]
        length = math.hypot(*summed) or 1.0
        means[task] = tuple(number / length for number in summed)
    services.caches.task_means.means, services.caches.task_means.space = means, space_of(embedder)
    return True


TASK_EXAMPLES = Job(name="kinds", due=_examples_due, run=_embed_examples, is_local=True)
