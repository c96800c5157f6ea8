"""Recall for a turn: embed the query, and select cross-conversation memories (L6)."""

import asyncio
import logging
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, tzinfo

from msgspec import Struct
from msgspec.structs import replace

from cuebook.engine.core.services import Services
from cuebook.engine.core.tracing import Span
from cuebook.errors import BackendError
from cuebook.interfaces import Embedder
from cuebook.interfaces.store import MemoryMatches, Scene
from cuebook.languages import reads
from cuebook.memory.owner_memories import priority
from cuebook.memory.query import Query, long_sentences, read_query
from cuebook.memory.recall import rank
from cuebook.memory.relevance import (
    HARMFUL,
    as_written,
    asks_about_user,
    chance_as_close,
    evidence,
    is_close,
    speaks_of_self,
    standing_reason,
)
from cuebook.memory.tokenizer import day_of, memory_key, normal, said_of
from cuebook.records.answer import Time
from cuebook.records.memory import KNOWLEDGE, Dense, Hit, Memory, Place, RecallCandidate, SearchResult
from cuebook.records.turn import RECALLED, Ask
from cuebook.window.tokens import Counter

log = logging.getLogger("cuebook.embedder")

#: Most characters of a query to embed.
QUERY = 2_000
#: Texts embedded in one call.
AT_ONCE = 64
_BYTES = 4  # of a float32
#: The parts of a post's score that a memory does not have: its neighbors, and its session, which is itself.
_OF_POSTS = re.compile(r" \(by chance\)|, with neighboring posts [0-9.]+|; session [0-9.]+(?:,|$)")
#: Breadth of a kind of place.
_BREADTH = {"conversation": 0, "persona": 1, "user": 2, "project": 3, "organization": 4}


class SelectedMemories(Struct, frozen=True, kw_only=True):
    """The selected memories, standing ones first."""

    hits: tuple[Hit, ...] = ()
    answers: tuple[Hit, ...] = ()  # those that a search for the query finds, best first
    durable: tuple[str, ...] = ()
    unread: int = 0  # standing ones that were not loaded, because there are too many
    reason: str = ""
    reviewed_at: int = 0


def recall_span(services: Services, ask: Ask) -> AbstractContextManager[Span]:
    """Trace the search for what a request recalls; not if it recalls nothing."""
    if not (services.config.memory.recall and ask.text):
        return nullcontext(Span())
    kind, owner = ("user", ask.user) if ask.user else ("project", "")
    store = memory_store(services, kind, owner)
    return services.tracing.memory(
        "search_memory", store=store, gen_ai__memory__query__text=services.writer.clean(ask.text)
    )


def memory_store(services: Services, kind: str, owner: str | None) -> str:
    """Return the name of an owner's memories in traces. It is a keyed digest, so that traces name no users."""
    return f"{kind}:{services.settings.request_digest(f'{kind}{owner}'.encode()).hex()[:16]}" if owner else kind


def recall_query(services: Services, scene: Scene, ask: Ask, *, quotes: bool) -> Query | None:
    """Return the words and dates of a request to recall by, or None if nothing is recalled.

    `quotes`: recall posts even if the memory policy does not.
    """
    known = scene.known
    recalls = quotes or known is None or known.policy.recalls or known.places
    if not (services.config.memory.recall and ask.text and recalls):
        return None
    zone = services.settings.zone_of(ask.time_zone, scene.conversation)
    return read_query(ask.text, speakers=scene.speakers, now=services.clock.now(), zone=zone)


def select_memories(services: Services, scene: Scene, query: Query | None, *, turn: int) -> SelectedMemories:
    """Select standing memories, again after some turns and a compaction, and those that are relevant to the query."""
    every, hits, count = services.config.memory.review_every, services.config.memory.recall_hits, services.count
    memory_context = scene.known
    if memory_context is None or not memory_context.places:
        return SelectedMemories()
    previous = _kept(scene, turn=turn, every=every)
    holding = [each for each in memory_context.memories if each.valid_to is None]
    memories = {each.id: each for each in without_repeats(holding, said=previous[0] if previous else ())}
    if previous is None or not memories.keys() >= set(previous[0]):  # one was corrected, ended or erased
        chosen, reviewed = _standing(memories.values()), turn
        reason = "review" if scene.told.get(RECALLED) else "first"
    else:
        chosen, reviewed, reason = previous[0], previous[1], "kept"
    durable = [
        _hit(
            memories[each],
            score=priority(memories[each]),
            why=f"standing: {standing_reason(said_of(memories[each]))}",
            count=count,
        )
        for each in chosen
    ]
    relevant = _relevant(list(memories.values()), memory_context, query, limit=hits, count=count) if query else []
    return SelectedMemories(
        hits=(*durable, *(hit for hit in relevant if hit.memory_id not in chosen)),
        answers=tuple(relevant),
        durable=tuple(chosen),
        unread=memory_context.unread,
        reason=reason,
        reviewed_at=reviewed,
    )


def _standing(memories: Collection[Memory]) -> list[str]:
    """Return the ids of the standing memories: health, then rules, then others, each by priority. The window has those
    that fit.
    """
    reasons = {
        each.id: reason for each in memories if each.ended_by is None and (reason := standing_reason(said_of(each)))
    }
    order = {reason: number for number, reason in enumerate(HARMFUL)}
    current = [each for each in memories if each.id in reasons]
    ordered = sorted(current, key=lambda each: (order.get(reasons[each.id], len(order)), -priority(each), -each.no))
    return [each.id for each in ordered]


def answers(matched: MemoryMatches, query: Query, *, limit: int, count: Counter, relevant: bool = True) -> list[Hit]:
    """Return the memories that match a query as hits, best first; if `relevant`, none that match it by chance, unless
    all do, as when each contains the word that is searched.
    """
    memories = without_repeats(matched.memories)
    found = _relevant(memories, matched, query, limit=limit, count=count, every=not relevant)
    return found[:limit] or _by_query(memories, matched, query, limit, count)


def _relevant(
    memories: Sequence[Memory],
    matched: MemoryMatches,
    query: Query,
    *,
    limit: int,
    count: Counter,
    every: bool = False,
) -> list[Hit]:
    """Return the best `limit` memories that match a query better than by chance, or in meaning, with the reason. A
    question about the user in general also gets the memories of highest priority.

    An earlier quote is returned with the newest of its topic. With `every`, weaker ones are returned beside these.
    """
    hits = _by_query(memories, matched, query, limit, count)
    by_words = bool(hits) or speaks_of_self(query.text)  # words like "my" are evidence enough for a search
    if not hits and (by_words or matched.cosines):
        hits = _by_query(memories, matched, query, limit, count, judged=False)
    numbers, texts = {each.id: each.no for each in memories}, {each.no: said_of(each) for each in memories}
    keys = matched.keys if query.zone == UTC else {}
    by_no = {each.no: keys.get(each.no) or memory_key(each, zone=query.zone) for each in memories}
    chances = {
        no: chance_as_close(each, matched.mean_cosine, matched.cosine_deviation) for no, each in matched.cosines.items()
    }
    found = evidence(query, by_no, matched.frequencies, matched.held, chances)
    reasons = dict[str, str]()
    for hit in hits:
        no = numbers[hit.memory_id]
        cosine = matched.cosines.get(no, 0.0)
        if is_close(cosine, chances.get(no, 1.0), matched.held, akin=matched.akin):
            by = f"threshold {matched.akin:.2f}" if cosine >= matched.akin else f"chance {chances[no]:.2g}"
            reasons[hit.memory_id] = f"relevant: close in meaning, {cosine:.2f} ({by})"
        elif by_words and no in found:
            shared = ", ".join(as_written(texts[no], found[no].words))
            reasons[hit.memory_id] = f"relevant: shares {shared} (chance {found[no].chance:.2g})"
    if asks_about_user(query.text):
        hits = [*hits, *_foremost(memories, {each.memory_id for each in hits}, count)]
        reasons = dict.fromkeys((each.memory_id for each in hits), "relevant: the question is about the user") | reasons
    by_id = {(each.place, each.id): each for each in memories}
    newest = {_newest(each, by_id).id: each.id for each in memories if each.id in reasons}
    reasons = {id_: f"relevant: newer than {of}" for id_, of in newest.items()} | reasons
    reasons = dict.fromkeys((each.memory_id for each in hits if every and (reasons or by_words)), "") | reasons
    return [
        replace(hit, why="; ".join(filter(None, (reasons[hit.memory_id], hit.why))))
        for hit in hits
        if hit.memory_id in reasons
    ]


def _foremost(memories: Iterable[Memory], known: Collection[str], count: Counter) -> list[Hit]:
    """Return the current memories of the user, else of the project, that are not `known`: standing ones first, then by
    priority. No score is so low that a search omits it.
    """
    others = [each for each in memories if each.ended_by is None and each.id not in known]
    own = [each for each in others if each.place.kind in ("persona", "user")]
    scored = [((1 + priority(each)) / (2 if standing_reason(said_of(each)) else 4), each) for each in own or others]
    ordered = sorted(scored, key=lambda each: (-each[0], -each[1].no))
    return [_hit(memory, score=score, why="", count=count) for score, memory in ordered]


def without_repeats(memories: Iterable[Memory], *, said: Collection[str] = ()) -> list[Memory]:
    """Deduplicate memories with the same text, in order.

    The narrowest place wins: persona, then user, then organization. Memories that were already `said` (ids) win over
    others.
    """
    known = list(memories)
    best: dict[str, Memory] = {}
    for each in sorted(known, key=lambda each: (each.id not in said, _BREADTH.get(each.place.kind, 5), each.no)):
        best.setdefault(normal(said_of(each)), each)
    best_ids = {(each.place, each.id) for each in best.values()}
    return [each for each in known if (each.place, each.id) in best_ids]


def _kept(scene: Scene, *, turn: int, every: int) -> tuple[list[str], int] | None:
    """Return the previous selection and its turn, or None when a new selection is due."""
    match scene.told.get(RECALLED):
        case {"durable": [*durable], "reviewedAt": int(reviewed)}:
            is_due = scene.has_new_summary or turn - reviewed >= every
            return None if is_due else ([str(each) for each in durable], reviewed)
    return None


def _by_query(
    memories: Sequence[Memory], matched: MemoryMatches, query: Query, limit: int, count: Counter, *, judged: bool = True
) -> list[Hit]:
    """Rank memories found by words and meaning, without those around them. If `judged`, none without evidence."""
    wanted = set(matched.found)
    known = {each.no: each for each in memories if each.no in wanted}
    keys = matched.keys if query.zone == UTC else {}
    candidates = [
        RecallCandidate(
            each.no,
            "",
            each.valid_from,
            keys.get(each.no) or memory_key(each, zone=query.zone),
            no=each.no,
            cosine=matched.cosines.get(each.no),
        )
        for each in known.values()
    ]
    corpus = SearchResult(
        posts=matched.held,
        frequencies=matched.frequencies,
        mean_cosine=matched.mean_cosine,
        cosine_deviation=matched.cosine_deviation,
        akin=matched.akin,
    )
    ranked = rank(query, candidates, corpus, limit=limit, judged=judged)
    by_id = {(each.place, each.id): each for each in memories}
    hits: dict[str, Hit] = {}
    for each in ranked:
        memory = known[each.post.seq]
        newest = _newest(memory, by_id)
        for found in (newest, memory):  # newest first: an earlier quote never appears alone
            hits.setdefault(found.id, _hit(found, score=round(each.score, 6), why=_why(each.why), count=count))
    return list(hits.values())[:limit]


def _newest(memory: Memory, by_id: Mapping[tuple[Place, str], Memory]) -> Memory:
    """Return the newest memory that superseded this one by the requested time, or the memory itself."""
    seen = {memory.id}
    while memory.ended_by is not None:
        after = by_id.get((memory.place, memory.ended_by))
        if after is None or after.id in seen:
            break
        seen.add(after.id)
        memory = after
    return memory


def _why(why: str) -> str:
    """Return the reasons of a memory's score."""
    return _OF_POSTS.sub(lambda found: ";" if found[0].endswith(",") else "", why)


def memory_line(hit: Hit, zone: tzinfo) -> str:
    """Return a memory's line in the volatile block: the day since which it is known, and the text."""
    return f"- [{day_of(hit.timestamp, zone)}] {' '.join(hit.text.split())}"


def _hit(memory: Memory, *, score: float, why: str, count: Counter) -> Hit:
    text = said_of(memory)
    conversations = {each.conversation for each in memory.sources if memory.place.kind != "organization"}
    after = memory.ended_by or None
    return Hit(
        memory_id=memory.id,
        kind="knowledge" if memory.category in KNOWLEDGE else "item",
        text=text,
        score=round(score, 6),
        scope=memory.place.kind,
        sources=tuple(dict.fromkeys(each.post for each in memory.sources)),
        tokens=count(text),
        timestamp=Time(memory.valid_from),
        why=why,
        conversation=(conversations.pop() or None) if len(conversations) == 1 else None,
        newer=after if memory.valid_to is None else None,
        ended_at=None if memory.valid_to is None else Time(memory.valid_to),
        ended_by=None if memory.valid_to is None else after,
    )


# ---- The vector of a query, with full-text search as the fallback ---------------------------------------------------


async def embed_query(services: Services, text: str) -> Dense | None:
    """Return the vector of a query and those of its sentences.

    Return None without an embedder, for an unsupported language, or after a timeout.
    """
    languages = services.embedder.languages if services.embedder else ()
    sentences = [each for each in long_sentences(text[:QUERY]) if reads(languages, each)]
    denses = await embed_queries(services, [text, *(sentences if len(sentences) > 1 else ())])
    if not denses:
        return None
    whole, *others = denses
    return replace(whole, sentences=tuple(each.vector for each in others))


async def embed_queries(services: Services, texts: Sequence[str]) -> list[Dense] | None:
    """Return the vectors of some texts, or None as in `embed_query` if one of them has none."""
    embedder, queries = services.embedder, [text[:QUERY].strip() for text in texts]
    if embedder is None or not all(query and reads(embedder.languages, query) for query in queries):
        return None
    return await vectors_of(services, embedder, queries, within_s=services.config.embedder.timeout_s)


async def vectors_of(
    services: Services, embedder: Embedder, texts: Sequence[str], *, within_s: float
) -> list[Dense] | None:
    """Return the vectors of texts, or None after a failure or a timeout. Those that arrived in time are cached."""
    cached, known = services.caches.vectors, dict[str, Dense]()
    for text in texts:
        if (dense := cached.get(text)) is not None:
            cached.move_to_end(text)
            known[text] = dense
    missing = [text for text in dict.fromkeys(texts) if text not in known]
    try:
        async with asyncio.timeout(within_s):
            for first in range(0, len(missing), AT_ONCE):
                batch = missing[first : first + AT_ONCE]
                for text, vector in zip(batch, await embed(embedder, batch), strict=True):
                    known[text] = cached[text] = Dense(space_of(embedder), vector, embedder.akin)
    except TimeoutError:
        log.warning("Embedder %s timed out after %g s; only words are compared", embedder.name, within_s)
        return None
    except BackendError as error:
        services.caches.failures["embedder"] = services.writer.clean(str(error))
        log.warning("The embedder failed; only words are compared: %s", services.caches.failures["embedder"])
        return None
    if missing:
        services.caches.failures.pop("embedder", None)
    return [known[text] for text in texts]


async def embed(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """Return the vectors of texts. Raises BackendError, also if they do not have the embedder's dimension."""
    vectors = await embedder.embed(texts)
    sizes = {len(each) // _BYTES for each in vectors}
    if sizes - {embedder.dimension}:
        dimensions = ", ".join(map(str, sorted(sizes)))
        msg = f"Embedder {embedder.name} returned vectors of dimension {dimensions} instead of {embedder.dimension}."
        raise BackendError(msg)
    return vectors


def space_of(embedder: Embedder) -> str:
    """Return the name of an embedder's vector space: its model and dimension. Only these vectors are comparable.

    It is available after the first answer.
    """
    return f"{embedder.name}/{embedder.dimension}"
