"""Search, list, load and export long-term memories by owner, as they are now or were at a time; count and analyze."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any

from msgspec import Meta, Struct
from msgspec.structs import replace

from cuebook.app.arguments import (
    OWNER,
    AsOf,
    CallerOf,
    Conversation,
    Cursor,
    Ended,
    OnlyConversation,
    Organization,
    PageSize,
    Persona,
    User,
)
from cuebook.app.namespace import Namespace
from cuebook.app.paging import LIMIT, read_cursor, write_cursor
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.context_limits import limits_of, recorded_limits, target_of
from cuebook.engine.core.conversation_items import as_memory, item_of, parted
from cuebook.engine.core.recall import answers
from cuebook.engine.core.services import Services
from cuebook.engine.jobs.optimizer import analyze
from cuebook.engine.turn.scene import correct_summary
from cuebook.errors import Denied, InvalidInput, NotFound
from cuebook.interfaces.store import MemoryQuery
from cuebook.memory.corrections import corrected, correction_of, is_part, says
from cuebook.memory.judgement import ActionType
from cuebook.memory.owner_memories import same
from cuebook.memory.query import Query
from cuebook.memory.scopes import PROJECT, SCOPES, owner_of, persona_place
from cuebook.operations import Argument, operation
from cuebook.records.answer import Page
from cuebook.records.audit import EXPORT
from cuebook.records.conversation import is_guest
from cuebook.records.key import Caller
from cuebook.records.memory import KINDS, Correction, Dense, Hit, Item, Memory, Place, Scope
from cuebook.records.memory_answers import StoredMemory, stored_memory
from cuebook.records.tuning import MemoryStats
from cuebook.window.budget import allot, untuned

# ---- a conversation's items -----------------------------------------------------------------------------------------


async def check_item(services: Services, name: str, user: str | None) -> None:
    """Check that the caller may change an item: only the conversation's first user may. Raises Denied, NotFound."""
    conversation, _ = parted(name) or ("", "")
    if conversation and is_guest(await services.store.conversation(Scope(user=user), conversation), user):
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
    scope, store = Scope(user=user), services.store.memories
    correction = correction_of(conversation, item.sources, item.text, text)
    for each in await store.said_in(scope, conversation, item.sources):
        if user in (None, owner_of(each.place)) and says(each.text, correction):
            with suppress(NotFound):  # it was deleted meanwhile
                await also(each)
    await store.keep_correction(scope, correction)
    await tell(services, [correction])
    now = corrected([item], [replace(correction, no=1)])[0]
    return as_memory(conversation, now, await store.corrections(scope, conversation))


async def ended_items(services: Services, scope: Scope, memory: Memory) -> list[tuple[str, Item]]:
    """Return the ended items that state a memory or were merged into it, with their conversations."""
    results: list[tuple[str, Item]] = []
    for conversation in sorted({each.conversation for each in memory.sources if each.conversation}):
        with suppress(NotFound):
            items = await services.store.items(scope, conversation, ended=True)
            merged = {each.id: each for each in items if each.valid_to is None and same(each.text, memory.text)}
            ended = [each for each in items if each.valid_to is not None]
            results += [(conversation, each) for each in ended if same(each.text, memory.text) or is_part(each, merged)]
    return results


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


#: Maximum number of full-text candidates of a search,
FOUND = 200
#: and minimum per owner: 64 posts find as much as 200 (docs/design/005).
LEAST = 64
#: Most memories of a history.
MOST_HISTORY = 100

MemoryId = Annotated[str, Meta(description="Memory ID from a list or a search.")]
Category = Annotated[str | None, Meta(description="Only this category."), Argument(metavar="NAME")]


class Suggestion(Struct, frozen=True, kw_only=True, rename="camel"):
    """A suggested action for a post, and the reason."""

    type: ActionType
    post_id: str
    reason: str


class Judgement(Struct, frozen=True, kw_only=True, rename="camel"):
    """The analysis of a conversation's posts: how many there are, how many matter, how many are duplicates."""

    total_entries: int
    relevant_entries: int
    redundant_entries: int
    suggested_actions: tuple[Suggestion, ...]
    token_usage: int  # tokens in prompts of the posts after the summary


class BudgetNumbers(Struct, frozen=True, kw_only=True, rename="camel"):
    """The settings that a budget is computed from (C, "Configuration"), as they apply to the conversation."""

    max_context_tokens: int
    system_prompt_tokens: int
    response_reserve_tokens: int
    max_short_term_tokens: int
    full_message_window: int
    compression_trigger_ratio: float


class Budget(Struct, frozen=True, kw_only=True, rename="camel"):
    """The tokens that posts may use of a prompt, and those a conversation's use; `usage_percent` can exceed 100.

    `model` and `source` name the model and what its context window is known from, "" if the settings apply.
    """

    budget: int
    used: int
    remaining: int
    usage_percent: float
    should_compress: bool
    model: str
    source: str
    config: BudgetNumbers


class MemoryReading(Namespace):
    """The read operations of `cue.memory`. A user sees only their own memories."""

    @operation(
        "POST /learning/memory/analyze",
        role="viewer",
        cli="memory analyze",
        examples=("cuebook memory analyze c1", "cuebook memory analyze c1 --json"),
    )
    async def analyze(self, conversation: Conversation, *, user: User = None) -> Judgement:
        """Find relevant and redundant posts. Suggests actions and changes nothing.

        Texts under 50 characters are not compared for redundancy. Raises NotFound.
        """
        analysis = await analyze(self._services, Scope(user=user), conversation)
        actions = tuple(
            Suggestion(type=each.type, post_id=analysis.ledger.ids[each.number], reason=each.reason)
            for each in analysis.judged.actions
        )
        return Judgement(
            total_entries=analysis.judged.total,
            relevant_entries=analysis.judged.relevant,
            redundant_entries=analysis.judged.redundant,
            suggested_actions=actions,
            token_usage=analysis.judged.used,
        )

    @operation(
        "GET /learning/memory/stats",
        role="viewer",
        cli="memory stats",
        examples=("cuebook memory stats", "cuebook memory stats c1"),
    )
    async def stats(
        self, conversation: OnlyConversation = None, *, user: User = None, caller: CallerOf = OWNER
    ) -> MemoryStats:
        """Count posts, items and memories by tier, of a conversation or of all. Raises NotFound."""
        own = None if caller.may("owner") else caller.organizations
        return await self._services.store.tuning.tally(Scope(user=user), conversation, organizations=own)

    @operation(
        "GET /learning/memory/budget",
        role="viewer",
        cli="memory budget",
        examples=("cuebook memory budget", "cuebook memory budget c1 --json"),
    )
    async def budget(self, conversation: OnlyConversation = None, *, user: User = None) -> Budget:
        """Show the token budget for posts and its use, of the model of the newest turn. Raises NotFound."""
        services, scope = self._services, Scope(user=user)
        tuning, used, known = untuned(services.settings.limits), 0, limits_of(services, target_of(services), "")
        listed = False
        if conversation is not None:
            analysis = await analyze(services, scope, conversation)
            tuning, used = analysis.tuning if services.config.optimizer.enabled else tuning, analysis.judged.used
            for turn in await services.store.turns(scope, conversation, last=1):
                known = recorded_limits(services, turn.metadata.get("window", {}).get("context", {}))
                listed = any(step.manifest.listed for step in turn.steps)
        limits = known.limits
        room = allot(limits, front=0, listed=listed).posts
        return Budget(
            budget=room,
            used=used,
            remaining=max(0, room - used),
            usage_percent=round(100 * used / max(1, room), 2),
            should_compress=used > room * tuning.compression_trigger,
            model=known.model,
            source=known.source,
            config=BudgetNumbers(
                max_context_tokens=limits.context,
                system_prompt_tokens=limits.system,
                response_reserve_tokens=limits.reply,
                max_short_term_tokens=limits.max_short_term,
                full_message_window=tuning.full_message_window,
                compression_trigger_ratio=tuning.compression_trigger,
            ),
        )

    async def places(
        self, *, user: str | None = None, persona: str | None = None, organization: str | None = None
    ) -> Sequence[Place] | None:
        """Return the owners to search: a user with all their personas, or the given ones; None = all."""
        if user is None and persona is None and organization is None:
            return None
        found: Any = []
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

    async def _matching(
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
        relevant: bool,
    ) -> Sequence[Hit]:
        """Return memories that match a query whose vector is already computed, best first; if `relevant`, none that
        match it by chance.
        """
        wanted = SCOPES if scopes is None else scopes
        named = await self.places(user=user, persona=persona, organization=organization) or []
        places = [each for each in named if each.kind in wanted] + ([PROJECT] if scopes is None else [])
        memory_query = MemoryQuery(
            text=query.text, dense=dense, at=as_of, limit=min(FOUND, max(LEAST, 2 * limit)), standing=0
        )
        matched = await self._services.store.memories.find(Scope(user=user), places, memory_query)
        memories = tuple(each for each in matched.memories if _holds(each, as_of))
        matched, count = replace(matched, memories=memories), self._services.count
        return answers(matched, query, limit=limit, count=count, relevant=relevant)

    @operation("GET /api/memories", role="viewer")
    async def list(
        self,
        *,
        user: User = None,
        persona: Persona = None,
        organization: Organization = None,
        category: Category = None,
        ended: Ended = False,
        as_of: AsOf = None,
        limit: PageSize = LIMIT,
        cursor: Cursor = None,
        caller: CallerOf = OWNER,
    ) -> Page[StoredMemory]:
        """List memories across conversations, oldest first."""
        if category is not None and category not in KINDS:
            msg = f"category: unknown category {category!r}. Available: {', '.join(KINDS)}."
            raise InvalidInput(msg, where="category")
        after = int(read_cursor(cursor, "memories")[0]) if cursor is not None else 0
        places = await self.places(user=user, persona=persona, organization=organization)
        store, scope = self._services.store.memories, Scope(user=user)
        memories: Any = []
        past, batch = (ended, limit + 1) if as_of is None else (True, max(FOUND, limit + 1))
        while len(memories) <= limit:
            some = await store.page(scope, places, ended=past, category=category, after=after, limit=batch)
            memories += [each for each in some if as_of is None or _holds(each, as_of)]
            if len(some) < batch:
                break
            after = some[-1].no
        more = write_cursor("memories", memories[limit - 1].no) if len(memories) > limit else None
        items = tuple(stored_memory(each) for each in memories[:limit] if may_know(caller, each))
        return Page(items=items, next=more)

    @operation("GET /api/memories/{memory}", role="viewer")
    async def get(
        self, memory: MemoryId, *, user: User = None, organization: Organization = None, caller: CallerOf = OWNER
    ) -> StoredMemory:
        """Return a memory with its source posts, or an item of a conversation by `item:CONVERSATION:ID`.

        Raises NotFound, also for another user's memory.
        """
        found = await self._get(memory, user=user, organization=organization)
        if not may_know(caller, found):
            raise missing(memory)
        return stored_memory(found)

    @operation(
        "GET /api/memories/{memory}/history",
        role="viewer",
        cli="memory history",
        examples=("cuebook memory history 1f0c9a7be2d44c31",),
    )
    async def history(
        self, memory: MemoryId, *, user: User = None, organization: Organization = None, caller: CallerOf = OWNER
    ) -> Page[StoredMemory]:
        """Return all versions of a memory, newest first. Raises NotFound."""
        found = await self._get(memory, user=user, organization=organization)
        if not may_know(caller, found):
            raise missing(memory)
        after = await self._linked(found, "ended_by", user, organization)
        newest = after[-1] if after else found
        chain = [newest, *await self._linked(newest, "supersedes", user, organization)]
        if found.id not in {each.id for each in chain}:
            chain = [*reversed(after), found, *await self._linked(found, "supersedes", user, organization)]
        return Page(items=tuple(map(stored_memory, chain)))

    async def _linked(self, memory: Memory, link: str, user: str | None, organization: str | None) -> Sequence[Memory]:
        """Return the memories that a link leads to one after the other."""
        linked = [memory][:0]
        seen = {memory.id}
        while (name := getattr(memory, link)) and name not in seen and len(seen) < MOST_HISTORY:
            seen.add(name)
            try:
                memory = await self._get(name, user=user, organization=organization)
            except NotFound:
                break
            linked.append(memory)
        return linked

    async def _get(self, memory: str, *, user: str | None = None, organization: str | None = None) -> Memory:
        """Return a memory as it is stored. Raises NotFound."""
        scope, store = Scope(user=user), self._services.store.memories
        if parted(memory):
            conversation, item = await _item(self._services, memory, user)
            return as_memory(conversation, item, await store.corrections(scope, conversation))
        places = await self.places(user=user, organization=organization)
        for each in await store.get(scope, memory.removeprefix("memory:")):
            if places is None or each.place in places or each.place == PROJECT:
                return each
        raise missing(memory)

    async def export(
        self, *, user: str | None = None, organization: str | None = None, caller: Caller = OWNER
    ) -> AsyncGenerator[StoredMemory, None]:
        """Yield all memories of a user or an organization with their sources, including ended ones.

        The audit log records it.
        """
        context = {"user": user, "organization": organization}
        record = receipt(self._services, "memories", EXPORT, agent=caller.user or "", context=context)
        await self._services.audit.append(Scope(), [record])
        cursor: str | None = None
        while True:
            page = await self.list(
                user=user, organization=organization, ended=True, limit=200, cursor=cursor, caller=caller
            )
            for each in page.items:
                yield each
            if page.next is None:
                return
            cursor = page.next


def may_know(caller: Caller, memory: Memory) -> bool:
    """Return whether a caller may read a memory; an organization's only with its own keys."""
    return memory.place.kind != "organization" or caller.belongs_to(memory.place.id)


def _holds(memory: Memory, as_of: float | None) -> bool:
    if as_of is None:
        return memory.valid_to is None
    return memory.valid_from <= as_of and (memory.valid_to is None or memory.valid_to > as_of)


def missing(name: str) -> NotFound:
    """Return the error for an unknown memory."""
    return NotFound(f"Unknown memory {name!r}. List memories with `cuebook memory list`.")
