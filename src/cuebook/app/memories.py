"""What a book remembers across conversations: a user's memories, a persona's, an organization's, and knowledge."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cuebook.app.items import check_item, correct_item, get_item, tell
from cuebook.app.paging import LIMIT, Cursor, Number, Paged, check_limit, read_cursor, write_cursor
from cuebook.engine.deliver import decay
from cuebook.engine.desk import Desk
from cuebook.engine.drafts import check_text
from cuebook.engine.forget import forget
from cuebook.engine.items import parted
from cuebook.engine.retrieve import answers
from cuebook.engine.sense import sense
from cuebook.errors import Conflict, Denied, InvalidInput, NotFound
from cuebook.memory.corrected import corrections_of
from cuebook.memory.knowledge import FIRST, KNOWLEDGE, REPEAT, USE, raised, same
from cuebook.memory.placed import memory_id
from cuebook.memory.recall import Query, read_query
from cuebook.memory.scopes import SCOPES, persona_place
from cuebook.ports.memories import Asked, PlaceChange
from cuebook.records.erasure import Receipt, Target
from cuebook.records.memory import CATEGORIES, Correction, Dense, Hit, Memory, Place, Scope

#: What a memory may be: an item's categories, and those of knowledge.
KINDS = (*CATEGORIES, *KNOWLEDGE)
#: Whose knowledge is nobody's: the book's own.
BOOK = Place("book", "")
#: Memories full text brings for a search at most,
FOUND = 200
#: and at least, of each place: 64 posts give what 200 give (docs/design/005).
LEAST = 64
#: How often a change is decided anew when another was first.
RETRIES = 20
#: Characters of a key.
MAX_KEY = 200


class MemoriesAt(Cursor, frozen=True, array_like=True, tag="memories"):
    """Behind the memory numbered `after`."""

    after: Number


class Decayed(Struct, frozen=True, kw_only=True):
    """What a decay came to."""

    lost: int
    gone: int


class Memories:
    """The memories of a book across conversations. Whose they are is named: a user sees their own."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    # whose

    async def places(
        self, *, user: str | None = None, persona: str | None = None, organization: str | None = None
    ) -> list[Place] | None:
        """Give the places somebody means: a user's with all their personas', or those named; None = all there are."""
        if user is None and persona is None and organization is None:
            return None
        found: list[Place] = []
        if user and persona:
            found = [persona_place(user, persona)]
        elif user:  # personas that are configured no more among them
            known = await self._desk.store.memories.places(Scope(user=user), user)
            own = Place("user", user)
            spoken = {*known, *(persona_place(user, name) for name in self._desk.personas)} - {own}
            found = [own, *sorted(spoken)]
        elif persona is not None:
            msg = "persona: what a persona knows is of one user; name the user too"
            raise InvalidInput(msg, where="persona")
        return [*found, *([Place("organization", organization)] if organization else [])]

    # reading

    async def search(
        self,
        query: Query,
        *,
        user: str | None = None,
        persona: str | None = None,
        organization: str | None = None,
        scopes: Sequence[str] | None = None,
        as_of: float | None = None,
        limit: int = 10,
    ) -> list[Hit]:
        """Give memories that answer a query, best first: those that hold, or that held at `as_of` (Unix seconds)."""
        dense = await sense(self._desk, query.text)
        return await self.answer(
            query, dense, user=user, persona=persona, organization=organization, scopes=scopes, as_of=as_of, limit=limit
        )

    async def answer(
        self,
        query: Query,
        dense: Dense | None,
        *,
        user: str | None,
        persona: str | None,
        organization: str | None,
        scopes: Sequence[str] | None,
        as_of: float | None,
        limit: int,
    ) -> list[Hit]:
        """Give the same for a query whose vector is known."""
        wanted = SCOPES if scopes is None else scopes
        named = await self.places(user=user, persona=persona, organization=organization) or []
        places = [each for each in named if each.kind in wanted] + ([BOOK] if scopes is None else [])
        asked = Asked(text=query.text, dense=dense, at=as_of, limit=min(FOUND, max(LEAST, 2 * limit)), standing=0)
        matched = await self._desk.store.memories.find(Scope(user=user), places, asked)
        held = tuple(each for each in matched.memories if _holds(each, as_of))
        return answers(replace(matched, memories=held), query, limit=limit, count=self._desk.count)

    async def page(
        self,
        *,
        user: str | None = None,
        persona: str | None = None,
        organization: str | None = None,
        category: str | None = None,
        ended: bool = False,
        as_of: float | None = None,
        limit: int = LIMIT,
        cursor: str | None = None,
    ) -> Paged[Memory]:
        """List memories in the order they came; with `ended` those that no longer hold too.

        With `as_of` (Unix seconds) those that held then.
        """
        check_limit(limit)
        if category is not None and category not in KINDS:
            msg = f"category: no category {category!r}; there are {', '.join(KINDS)}"
            raise InvalidInput(msg, where="category")
        after = read_cursor(cursor, MemoriesAt, no=0).after if cursor is not None else 0
        places = await self.places(user=user, persona=persona, organization=organization)
        found, store, scope = list[Memory](), self._desk.store.memories, Scope(user=user)
        past, batch = (ended, limit + 1) if as_of is None else (True, max(FOUND, limit + 1))
        while len(found) <= limit:
            some = await store.page(scope, places, ended=past, category=category, after=after, limit=batch)
            found += [each for each in some if as_of is None or _holds(each, as_of)]
            if len(some) < batch:
                break
            after = some[-1].no
        more = write_cursor(MemoriesAt(0, found[limit - 1].no)) if len(found) > limit else None
        return Paged(tuple(found[:limit]), more)

    async def knowledge(
        self,
        query: str | None = None,
        *,
        category: str | None = None,
        user: str | None = None,
        limit: int = 20,
        cursor: str | None = None,
    ) -> tuple[list[Memory], str | None]:
        """Give knowledge of a user, or of the book, that holds: what answers a query best first, else in the order it
        came.

        Raises InvalidInput.
        """
        check_limit(limit)
        if category is not None:
            _check_knowledge(category)
        place, store = Place("user", user) if user else BOOK, self._desk.store.memories
        if query:
            asked = Asked(text=query, dense=await sense(self._desk, query), limit=FOUND, standing=0)
            matched = await store.find(Scope(), [place], asked)
            known = {f"memory:{each.id}": each for each in matched.memories if _is_knowledge(each, category)}
            read = read_query(query, now=self._desk.clock.now(), zone=self._desk.zone)
            matched = replace(matched, memories=tuple(known.values()))
            return [known[hit.memory_id] for hit in answers(matched, read, limit=limit, count=self._desk.count)], None
        start = read_cursor(cursor, MemoriesAt, no=0).after if cursor is not None else 0
        shown: list[Memory] = []
        while len(shown) <= limit:
            page = await store.page(Scope(), [place], category=category, after=start, limit=FOUND)
            shown += [each for each in page if _is_knowledge(each, category)]
            if len(page) < FOUND:
                break
            start = page[-1].no
        more = write_cursor(MemoriesAt(0, shown[limit - 1].no)) if len(shown) > limit else None
        return shown[:limit], more

    async def get(self, id: str, *, user: str | None = None, organization: str | None = None) -> Memory:  # noqa: A002
        """Give a memory by its id, or an item of a conversation by `item:CONVERSATION:ID`.

        Raises NotFound, also for another user's.
        """
        if parted(id):
            return await get_item(self._desk, id, user)
        places = await self.places(user=user, organization=organization)
        known = await self._desk.store.memories.get(Scope(user=user), id.removeprefix("memory:"))
        for each in known:
            if places is None or each.place in places or each.place == BOOK:
                return each
        raise _missing(id)

    async def _own(self, id: str, *, user: str | None, organization: str | None) -> Memory:  # noqa: A002
        """Give a memory that who is named may change: what is the book's is everybody's to read only.

        Raises NotFound, Denied.
        """
        found = await self.get(id, user=user, organization=organization)
        await check_item(self._desk, id, user)
        if found.place == BOOK and (user is not None or organization is not None):
            msg = f"memory {id!r} is the book's, and nobody's alone to change; name no user and no organization"
            raise Denied(msg)
        return found

    async def export(self, *, user: str | None = None, organization: str | None = None) -> AsyncGenerator[Memory, None]:
        """Give all memories of a user or an organization, ended ones too, with what they come from."""
        cursor: str | None = None
        while True:
            page = await self.page(user=user, organization=organization, ended=True, limit=200, cursor=cursor)
            for each in page.items:
                yield each
            if page.cursor is None:
                return
            cursor = page.cursor

    # changing

    async def correct(
        self,
        id: str,  # noqa: A002  # the wire's name
        text: str,
        *,
        user: str | None = None,
        organization: str | None = None,
    ) -> Memory:
        """Say what a memory should have said; it was wrong, so nothing of the old text is kept.

        Raises NotFound, and Denied where it is the book's and a user or an organization is named.
        """
        text = self._said(text, "text")
        if parted(id):
            return await correct_item(self._desk, id, text, user=user, also=lambda each: self.correct(each.id, text))
        names = [id]
        for _ in range(RETRIES):
            generation, old = await self._at(names, user=user, organization=organization)
            now = self._desk.clock.now()
            own = old.id if old.category in KNOWLEDGE else memory_id(old.place, old.category, text)
            new = replace(old, id=own, text=text, trust="user", confidence=1.0, written=True, used_at=now)
            changed = [new]
            for other in [] if own == old.id else await self._desk.store.memories.get(Scope(), own, places=[old.place]):
                both = tuple(sorted({*old.sources, *other.sources}))  # one says that already
                new = replace(new, no=other.no, uses=old.uses + other.uses, sources=both, valid_to=None)
                changed = [replace(old, sources=(), written=False), new]
            corrections = corrections_of(old, text)
            if await self._save(old.place, generation, changed, corrections):
                await tell(self._desk, corrections)
                return new
            names = [id, own]  # another correction may have said the same
        raise _busy()

    async def put(
        self, category: str, key: str, value: str, *, user: str | None = None, confidence: float | None = None
    ) -> Memory:
        """Keep knowledge under a category and a key, of a user or of the book. A repeat raises its confidence.

        Another value takes the place of the one before, which stays as history. Raises InvalidInput.
        """
        _check_knowledge(category)
        if not key.strip() or len(key) > MAX_KEY:
            msg = f"key: expected 1 to {MAX_KEY} characters"
            raise InvalidInput(msg, where="key")
        if confidence is not None and not 0.0 <= confidence <= 1.0:
            msg = f"confidence: {confidence!r} is not between 0 and 1"
            raise InvalidInput(msg, where="confidence")
        key, value = self._said(key, "key"), self._said(value, "value")
        place = Place("user", user) if user else BOOK
        for _ in range(RETRIES):
            if (kept := await self._put(place, (category, key, value), confidence)) is not None:
                return kept
        raise _busy()

    async def _put(self, place: Place, said: tuple[str, str, str], confidence: float | None) -> Memory | None:
        category, key, value = said
        own, now = memory_id(place, category, key), self._desk.clock.now()
        store = self._desk.store.memories
        generation, _ = await store.place(Scope(), place, near=())
        held = await store.get(Scope(), own, places=[place])
        before = held[0] if held else None
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
            since = max(now, before.valid_from)  # a clock may be set back, or stand still
            own = memory_id(place, category, f"{key}|{before.text}|{since}|{generation}")
            past = replace(before, no=0, id=own, valid_to=since, ended_by=fresh.id)
            fresh = replace(fresh, no=before.no, supersedes=past.id, created_at=before.created_at, valid_from=since)
            changed = [past, fresh]
        change = PlaceChange(place=place, generation=generation, memories=tuple(changed))
        return fresh if await store.save(Scope(), change, now=now) else None

    async def use(self, id: str, *, user: str | None = None) -> Memory:  # noqa: A002
        """Count a use of a memory: it raises its confidence by 0.05. Raises NotFound."""
        try:
            known = await self.get(id, user=user)
        except NotFound:
            msg = f"no knowledge {id!r}; `cuebook knowledge list` names what there is"
            raise NotFound(msg) from None
        for _ in range(RETRIES):
            generation, old = await self._now(known)
            now = self._desk.clock.now()
            new = replace(old, uses=old.uses + 1, used_at=now, confidence=raised(old.confidence, USE))
            if await self._save(old.place, generation, [new]):
                return new
        raise _busy()

    async def decay(self, *, as_of: float | datetime | None = None) -> Decayed:
        """Let knowledge that lay idle lose confidence, 0.1 for each 30 days, once; below 0.1 it goes."""
        at = as_of.timestamp() if isinstance(as_of, datetime) else as_of
        lost, gone = await decay(self._desk, now=at)
        return Decayed(lost=lost, gone=gone)

    async def remove(self, id: str, *, user: str | None = None, organization: str | None = None) -> Receipt:  # noqa: A002
        """Forget a memory, with its words in windows that said it.

        Raises NotFound, Conflict naming a hold, and Denied where it is the book's and a user or an organization named.
        """
        found = await self._own(id, user=user, organization=organization)
        scope = Scope(user=user) if parted(id) else Scope()
        return await forget(self._desk, scope, Target("memory", (found.id,)))

    async def _at(self, names: Sequence[str], *, user: str | None, organization: str | None) -> tuple[int, Memory]:
        for name in names[:-1]:
            with suppress(NotFound):
                return await self._now(await self._own(name, user=user, organization=organization))
        return await self._now(await self._own(names[-1], user=user, organization=organization))

    async def _now(self, memory: Memory) -> tuple[int, Memory]:
        """Give a place's generation, and its memory as it is from there on. Raises NotFound."""
        store = self._desk.store.memories
        generation, _ = await store.place(Scope(), memory.place, near=())
        again = await store.get(Scope(), memory.id, places=[memory.place])
        if not again:
            raise _missing(memory.id)
        return generation, again[0]

    async def _save(
        self,
        place: Place,
        generation: int,
        memories: Sequence[Memory],
        corrections: tuple[Correction, ...] = (),
    ) -> bool:
        change = PlaceChange(place=place, generation=generation, memories=tuple(memories), corrections=corrections)
        return await self._desk.store.memories.save(Scope(), change, now=self._desk.clock.now())

    def _said(self, text: Any, where: str) -> str:
        """Give a text as it is kept: without secrets. Raises InvalidInput."""
        check_text(text, where)
        if not isinstance(text, str) or not text.strip():
            msg = f"{where}: expected a text"
            raise InvalidInput(msg, where=where)
        return self._desk.writer.clean(" ".join(text.split()) if where == "key" else text.strip())


def _check_knowledge(category: str) -> None:
    if category not in KNOWLEDGE:
        msg = f"category: no category {category!r}; there are {', '.join(KNOWLEDGE)}"
        raise InvalidInput(msg, where="category")


def _holds(memory: Memory, as_of: float | None) -> bool:
    if as_of is None:
        return memory.valid_to is None
    return memory.valid_from <= as_of and (memory.valid_to is None or memory.valid_to > as_of)


def _is_knowledge(memory: Memory, category: str | None) -> bool:
    return memory.category in KNOWLEDGE and category in (None, memory.category)


def _missing(name: str) -> NotFound:
    return NotFound(f"no memory {name!r}; `cuebook memory list` names those there are")


def _busy() -> Conflict:
    return Conflict("these memories change faster than this can be written; try again")
