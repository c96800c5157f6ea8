"""Knowledge: key-value memories of a user or the project, whose confidence rises with use and decays when idle."""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from cuebook.app.arguments import Cursor, IdempotencyKey, Owner, PageSize, User
from cuebook.app.memories.reading import FOUND, PROJECT, Category
from cuebook.app.memories.writing import RETRIES, MemoryWriting, busy, check_knowledge
from cuebook.app.paging import read_cursor, write_cursor
from cuebook.engine.core.query_vector import sense
from cuebook.engine.core.recall import answers
from cuebook.engine.jobs.delivery import decay
from cuebook.errors import NotFound
from cuebook.interfaces.memories import MemoryQuery
from cuebook.memory.owner_memories import USE, raised
from cuebook.memory.recall import read_query
from cuebook.operations import Argument, operation
from cuebook.records.answer import Page
from cuebook.records.memory import KNOWLEDGE, Memory, Place, Scope
from cuebook.records.memory_answers import DecayResult, KnowledgeEntry, knowledge_entry

#: Page size of knowledge.
LISTED = 50

KnowledgeId = Annotated[str, Meta(description="ID from `cuebook knowledge list`."), Argument(metavar="ID")]


class KnowledgeApi(MemoryWriting):
    """The knowledge part of `cue.memory`."""

    @operation(
        "GET /learning/knowledge",
        role="viewer",
        cli="knowledge list",
        examples=("cuebook knowledge list", "cuebook knowledge list --search rate --category domain"),
        none="no facts. Run `cuebook knowledge put CATEGORY KEY VALUE` to store one.",
    )
    async def list_knowledge(
        self,
        *,
        query: Annotated[
            str | None,
            Meta(description="Show facts that match these words or their meaning."),
            Argument(wire="q", flag="search", metavar="WORDS"),
        ] = None,
        category: Category = None,
        user: User = None,
        limit: PageSize = LISTED,
        cursor: Cursor = None,
    ) -> Page[KnowledgeEntry]:
        """List the facts of the project or of a user, oldest first, or search them, best match first."""
        if category is not None:
            check_knowledge(category)
        place, store = Place("user", user) if user else PROJECT, self._services.store.memories
        if query:
            memory_query = MemoryQuery(text=query, dense=await sense(self._services, query), limit=FOUND, standing=0)
            matched = await store.find(Scope(), [place], memory_query)
            known = {f"memory:{each.id}": each for each in matched.memories if _is_knowledge(each, category)}
            read = read_query(query, now=self._services.clock.now(), zone=self._services.settings.zone)
            matched = replace(matched, memories=tuple(known.values()))
            best = answers(matched, read, limit=limit, count=self._services.count)
            return Page(items=tuple(knowledge_entry(known[hit.memory_id]) for hit in best))
        after = int(read_cursor(cursor, "knowledge")[0]) if cursor is not None else 0
        memories: Any = []
        while len(memories) <= limit:
            page = await store.page(Scope(), [place], category=category, after=after, limit=FOUND)
            memories += [each for each in page if _is_knowledge(each, category)]
            if len(page) < FOUND:
                break
            after = page[-1].no
        more = write_cursor("knowledge", memories[limit - 1].no) if len(memories) > limit else None
        return Page(items=tuple(map(knowledge_entry, memories[:limit])), next=more)

    @operation(
        "POST /learning/knowledge",
        role="editor",
        status=201,
        cli="knowledge put",
        stores=True,
        examples=(
            'cuebook knowledge put domain api.rate "100 a minute"',
            "cuebook knowledge put user_preference tone short --user ann",
        ),
    )
    async def put_knowledge(
        self,
        category: Annotated[
            str,
            Meta(description=f"One of {', '.join(KNOWLEDGE)}."),
            Argument(metavar="CATEGORY"),
        ],
        key: Annotated[str, Meta(min_length=1, description="Key of the fact."), Argument(metavar="KEY")],
        value: Annotated[str, Meta(min_length=1, description="Value of the fact."), Argument(metavar="VALUE")],
        *,
        user: Owner = None,
        confidence: Annotated[
            float | None, Meta(ge=0, le=1, description="Confidence in the fact."), Argument(metavar="0..1")
        ] = None,
        idempotency_key: IdempotencyKey = None,
    ) -> KnowledgeEntry:
        """Store a fact. The same value again raises its confidence; a new value supersedes the old one.

        The old value stays as history. Raises InvalidInput.
        """
        return knowledge_entry(await self._put(category, key, value, user=user, confidence=confidence))

    @operation(
        "POST /learning/knowledge/{memory}/use",
        role="editor",
        cli="knowledge use",
        stores=True,
        examples=("cuebook knowledge use 1f0c9a7be2d44c31",),
    )
    async def use_knowledge(
        self, memory: KnowledgeId, *, user: User = None, idempotency_key: IdempotencyKey = None
    ) -> KnowledgeEntry:
        """Record a use of a fact. It raises the confidence by 0.05. Raises NotFound."""
        try:
            found = await self._get(memory, user=user)
        except NotFound:
            msg = f"Unknown knowledge {memory!r}. List the entries with `cuebook knowledge list`."
            raise NotFound(msg) from None
        for _ in range(RETRIES):
            generation, old = await self._now(found)
            now = self._services.clock.now()
            new = replace(old, uses=old.uses + 1, used_at=now, confidence=raised(old.confidence, USE))
            if await self._save(old.place, generation, [new]):
                return knowledge_entry(new)
        raise busy()

    @operation(
        "",
        role="owner",
        cli="knowledge decay",
        examples=("cuebook knowledge decay", "cuebook knowledge decay --as-of 2027-01-31"),
    )
    async def decay_knowledge(
        self,
        *,
        as_of: Annotated[
            float | datetime | None,
            Meta(description="Compute the decay as of this date (UTC). Default: now."),
            Argument(time=True, metavar="DATE"),
        ] = None,
    ) -> DecayResult:
        """Lower the confidence of unused facts. Each 30 days without use subtract 0.1; facts below 0.1 are deleted."""
        at = as_of.timestamp() if isinstance(as_of, datetime) else as_of
        lost, gone = await decay(self._services, now=at)
        return DecayResult(lost=lost, gone=gone)


def _is_knowledge(memory: Memory, category: str | None) -> bool:
    return memory.category in KNOWLEDGE and category in (None, memory.category)
