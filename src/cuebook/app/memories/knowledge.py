"""Knowledge: key-value memories of a user or the project, whose confidence rises with use and decays when idle."""

from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.memories.reading import FOUND, PROJECT, MemoriesAt
from cuebook.app.memories.writing import RETRIES, MemoryWriting, busy
from cuebook.app.paging import check_limit, read_cursor, write_cursor
from cuebook.engine.core.query_vector import sense
from cuebook.engine.core.recall import answers
from cuebook.engine.jobs.delivery import decay
from cuebook.errors import InvalidInput, NotFound
from cuebook.interfaces.memories import MemoryQuery, PlaceChange
from cuebook.memory.knowledge import FIRST, KNOWLEDGE, REPEAT, USE, raised, same
from cuebook.memory.owner_memories import memory_id
from cuebook.memory.recall import read_query
from cuebook.records.memory import Memory, Place, Scope

#: Maximum length of a key, in characters.
MAX_KEY = 200


class DecayResult(Struct, frozen=True, kw_only=True):
    """The result of a decay: how many entries lost confidence, and how many were deleted."""

    lost: int
    gone: int


class KnowledgeApi(MemoryWriting):
    """The knowledge part of `cue.memories`."""

    async def knowledge(
        self,
        query: str | None = None,
        *,
        category: str | None = None,
        user: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> tuple[list[Memory], str | None]:
        """Return a page of valid knowledge of a user or the project, and the next cursor.

        The best matches come first with `query`, else the oldest. Raises InvalidInput.
        """
        check_limit(limit)
        if category is not None:
            _check_knowledge(category)
        place, store = Place("user", user) if user else PROJECT, self._services.store.memories
        if query:
            memory_query = MemoryQuery(text=query, dense=await sense(self._services, query), limit=FOUND, standing=0)
            matched = await store.find(Scope(), [place], memory_query)
            known = {f"memory:{each.id}": each for each in matched.memories if _is_knowledge(each, category)}
            read = read_query(query, now=self._services.clock.now(), zone=self._services.settings.zone)
            matched = replace(matched, memories=tuple(known.values()))
            return [
                known[hit.memory_id] for hit in answers(matched, read, limit=limit, count=self._services.count)
            ], None
        start = read_cursor(cursor, MemoriesAt, no=0).after if cursor is not None else 0
        memories: list[Memory] = []
        while len(memories) <= limit:
            page = await store.page(Scope(), [place], category=category, after=start, limit=FOUND)
            memories += [each for each in page if _is_knowledge(each, category)]
            if len(page) < FOUND:
                break
            start = page[-1].no
        more = write_cursor(MemoriesAt(0, memories[limit - 1].no)) if len(memories) > limit else None
        return memories[:limit], more

    async def put(
        self, category: str, key: str, value: str, *, user: str | None = None, confidence: float | None = None
    ) -> Memory:
        """Store knowledge under a category and a key, for a user or the project. A repeated value gains confidence.

        A new value replaces the previous one, which stays as history. Raises InvalidInput.
        """
        _check_knowledge(category)
        if not key.strip() or len(key) > MAX_KEY:
            msg = f"key: expected 1 to {MAX_KEY} characters"
            raise InvalidInput(msg, where="key")
        if confidence is not None and not 0.0 <= confidence <= 1.0:
            msg = f"confidence: {confidence!r}. Must be between 0 and 1."
            raise InvalidInput(msg, where="confidence")
        key, value = self._said(key, "key"), self._said(value, "value")
        place = Place("user", user) if user else PROJECT
        for _ in range(RETRIES):
            if (memory := await self._put(place, (category, key, value), confidence)) is not None:
                return memory
        raise busy()

    async def _put(self, place: Place, values: tuple[str, str, str], confidence: float | None) -> Memory | None:
        category, key, value = values
        own, now = memory_id(place, category, key), self._services.clock.now()
        store = self._services.store.memories
        generation, _ = await store.place(Scope(), place, near=())
        memories = await store.get(Scope(), own, places=[place])
        before = memories[0] if memories else None
        sure = FIRST if confidence is None else confidence
        fresh = Memory(
            id=own, place=place, category=category, name=key, text=value, confidence=sure, used_at=now,
            valid_from=now, written=True, uses=1,
        )  # fmt: skip
        if before is None:
            changed = [fresh]
        elif same(before.text, value):
            sure = raised(before.confidence, REPEAT) if confidence is None else max(before.confidence, confidence)
            fresh = replace(before, confidence=sure, uses=before.uses + 1, used_at=now, valid_to=None)
            changed = [fresh]
        else:
            since = max(now, before.valid_from)  # the clock may be set back, or stand still
            own = memory_id(place, category, f"{key}|{before.text}|{since}|{generation}")
            past = replace(before, no=0, id=own, valid_to=since, ended_by=fresh.id)
            fresh = replace(fresh, no=before.no, supersedes=past.id, created_at=before.created_at, valid_from=since)
            changed = [past, fresh]
        change = PlaceChange(place=place, generation=generation, memories=tuple(changed))
        return fresh if await store.save(Scope(), change, now=now) else None

    async def use(self, id: str, *, user: str | None = None) -> Memory:  # noqa: A002
        """Count a use of a knowledge entry, which raises its confidence by 0.05. Raises NotFound."""
        try:
            memory = await self.get(id, user=user)
        except NotFound:
            msg = f"Unknown knowledge {id!r}. List the entries with `cuebook knowledge list`."
            raise NotFound(msg) from None
        for _ in range(RETRIES):
            generation, old = await self._now(memory)
            now = self._services.clock.now()
            new = replace(old, uses=old.uses + 1, used_at=now, confidence=raised(old.confidence, USE))
            if await self._save(old.place, generation, [new]):
                return new
        raise busy()

    async def decay(self, *, as_of: float | datetime | None = None) -> DecayResult:
        """Lower the confidence of unused knowledge by 0.1 per 30 idle days, once. Delete entries below 0.1."""
        at = as_of.timestamp() if isinstance(as_of, datetime) else as_of
        lost, gone = await decay(self._services, now=at)
        return DecayResult(lost=lost, gone=gone)


def _check_knowledge(category: str) -> None:
    if category not in KNOWLEDGE:
        msg = f"category: unknown category {category!r}. Available: {', '.join(KNOWLEDGE)}."
        raise InvalidInput(msg, where="category")


def _is_knowledge(memory: Memory, category: str | None) -> bool:
    return memory.category in KNOWLEDGE and category in (None, memory.category)
