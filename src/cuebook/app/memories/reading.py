"""Search, list, load and export long-term memories by owner, as they are now or were at a time."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress

from msgspec.structs import replace

from cuebook.app.paging import LIMIT, Cursor, Number, Paged, check_limit, read_cursor, write_cursor
from cuebook.engine.core.conversation_items import as_memory, is_guest, item_of, parted
from cuebook.engine.core.query_vector import sense
from cuebook.engine.core.recall import answers
from cuebook.engine.core.services import Services
from cuebook.engine.turn.summary_correction import correct_summary
from cuebook.errors import Denied, InvalidInput, NotFound
from cuebook.interfaces.memories import MemoryQuery
from cuebook.memory.corrections import corrected, correction_of, says
from cuebook.memory.knowledge import KNOWLEDGE
from cuebook.memory.recall import Query
from cuebook.memory.scopes import SCOPES, owner_of, persona_place
from cuebook.records.memory import CATEGORIES, Correction, Dense, Hit, Item, Memory, Place, Scope

# ---- a conversation's items -----------------------------------------------------------------------------------------


async def get_item(services: Services, name: str, user: str | None) -> Memory:
    """Return an item of a conversation. Raises NotFound, also for another user's conversation."""
    conversation, item = await _item(services, name, user)
    return as_memory(conversation, item, await services.store.memories.corrections.of(Scope(user=user), conversation))


async def check_item(services: Services, name: str, user: str | None) -> None:
    """Check that the caller may change an item: only the conversation's first user may. Raises Denied, NotFound."""
    conversation, _ = parted(name) or ("", "")
    if conversation and await is_guest(services, Scope(user=user), conversation):
        msg = f"Cannot change memory {name!r}: only the first user of its conversation may."
        raise Denied(msg)


async def correct_item(
    services: Services, name: str, text: str, *, user: str | None, also: Callable[[Memory], Awaitable[object]]
) -> Memory:
    """Correct an item in its conversation, and with `also` the user's memories derived from it.

    Raises NotFound, and Denied for a guest.
    """
    conversation, item = await _item(services, name, user)
    await check_item(services, name, user)
    scope, store = Scope(user=user), services.store.memories.corrections
    correction = correction_of(conversation, item.sources, item.text, text)
    for each in await store.said_in(scope, conversation, item.sources):
        if user in (None, owner_of(each.place)) and says(each.text, correction):
            with suppress(NotFound):  # it was deleted meanwhile
                await also(each)
    await store.keep(scope, correction)
    await tell(services, [correction])
    now = corrected([item], [replace(correction, no=1)])[0]
    return as_memory(conversation, now, await store.of(scope, conversation))


async def tell(services: Services, corrections: Sequence[Correction]) -> None:
    """Apply corrections to the conversations they came from; a background job finishes what fails here."""
    services.failpoint("correct.kept")
    for each in corrections:
        await correct_summary(services, Scope(), each.conversation)


async def _item(services: Services, name: str, user: str | None) -> tuple[str, Item]:
    results = await item_of(services, Scope(user=user), name)
    if results is None:
        msg = f"Unknown memory {name!r}. List a conversation's with `cuebook memory list CONVERSATION`."
        raise NotFound(msg)
    return results


#: All categories: those of items, and those of knowledge.
KINDS = (*CATEGORIES, *KNOWLEDGE)
#: Owner of the project's shared knowledge.
PROJECT = Place("book", "")
#: Maximum number of full-text candidates of a search,
FOUND = 200
#: and minimum per owner: 64 posts find as much as 200 (docs/design/005).
LEAST = 64


class MemoriesAt(Cursor, frozen=True, array_like=True, tag="memories"):
    """After the memory numbered `after`."""

    after: Number


class MemoryReading:
    """The read operations of `cue.memories`. A user sees only their own."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def places(
        self, *, user: str | None = None, persona: str | None = None, organization: str | None = None
    ) -> list[Place] | None:
        """Return the owners to search: a user with all their personas, or the given ones; None = all."""
        if user is None and persona is None and organization is None:
            return None
        found: list[Place] = []
        if user and persona:
            found = [persona_place(user, persona)]
        elif user:  # including personas that are no longer configured
            known = await self._services.store.memories.places(Scope(user=user), user)
            place = Place("user", user)
            spoken = {*known, *(persona_place(user, name) for name in self._services.settings.personas)} - {place}
            found = [place, *sorted(spoken)]
        elif persona is not None:
            msg = "persona: a persona's memories belong to a user. Pass user too."
            raise InvalidInput(msg, where="persona")
        return [*found, *([Place("organization", organization)] if organization else [])]

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
        """Return memories that match a query, best first: those valid now, or at `as_of` (Unix seconds)."""
        dense = await sense(self._services, query.text)
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
        """Return memories that match a query whose vector is already computed, best first."""
        wanted = SCOPES if scopes is None else scopes
        named = await self.places(user=user, persona=persona, organization=organization) or []
        places = [each for each in named if each.kind in wanted] + ([PROJECT] if scopes is None else [])
        memory_query = MemoryQuery(
            text=query.text, dense=dense, at=as_of, limit=min(FOUND, max(LEAST, 2 * limit)), standing=0
        )
        matched = await self._services.store.memories.find(Scope(user=user), places, memory_query)
        memories = tuple(each for each in matched.memories if _holds(each, as_of))
        return answers(replace(matched, memories=memories), query, limit=limit, count=self._services.count)

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
        """Return a page of memories, oldest first; with `ended`, also those that are no longer valid.

        With `as_of` (Unix seconds), those valid at that time.
        """
        check_limit(limit)
        if category is not None and category not in KINDS:
            msg = f"category: unknown category {category!r}. Available: {', '.join(KINDS)}."
            raise InvalidInput(msg, where="category")
        after = read_cursor(cursor, MemoriesAt, no=0).after if cursor is not None else 0
        places = await self.places(user=user, persona=persona, organization=organization)
        memories, store, scope = list[Memory](), self._services.store.memories, Scope(user=user)
        past, batch = (ended, limit + 1) if as_of is None else (True, max(FOUND, limit + 1))
        while len(memories) <= limit:
            some = await store.page(scope, places, ended=past, category=category, after=after, limit=batch)
            memories += [each for each in some if as_of is None or _holds(each, as_of)]
            if len(some) < batch:
                break
            after = some[-1].no
        more = write_cursor(MemoriesAt(0, memories[limit - 1].no)) if len(memories) > limit else None
        return Paged(tuple(memories[:limit]), more)

    async def get(self, id: str, *, user: str | None = None, organization: str | None = None) -> Memory:  # noqa: A002
        """Return a memory by its id, or an item of a conversation by `item:CONVERSATION:ID`.

        Raises NotFound, also for another user's memory.
        """
        if parted(id):
            return await get_item(self._services, id, user)
        places = await self.places(user=user, organization=organization)
        memories = await self._services.store.memories.get(Scope(user=user), id.removeprefix("memory:"))
        for each in memories:
            if places is None or each.place in places or each.place == PROJECT:
                return each
        raise missing(id)

    async def export(self, *, user: str | None = None, organization: str | None = None) -> AsyncGenerator[Memory, None]:
        """Yield all memories of a user or an organization with their sources, including ended ones."""
        cursor: str | None = None
        while True:
            page = await self.page(user=user, organization=organization, ended=True, limit=200, cursor=cursor)
            for each in page.items:
                yield each
            if page.cursor is None:
                return
            cursor = page.cursor


def _holds(memory: Memory, as_of: float | None) -> bool:
    if as_of is None:
        return memory.valid_to is None
    return memory.valid_from <= as_of and (memory.valid_to is None or memory.valid_to > as_of)


def missing(name: str) -> NotFound:
    """Return the error for an unknown memory."""
    return NotFound(f"Unknown memory {name!r}. List memories with `cuebook memory list`.")
