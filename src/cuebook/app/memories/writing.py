"""Add, correct and delete long-term memories by hand, and knowledge, with optimistic locking: retry after a change.

Knowledge is the key-value memories of a user or the project, whose confidence rises with use and decays when idle.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from msgspec import Meta
from msgspec.structs import replace

from cuebook.app.arguments import OWNER, CallerOf, Cursor, IdempotencyKey, Organization, Owner, PageSize, User
from cuebook.app.memories.reading import (
    FOUND,
    Category,
    MemoryId,
    MemoryReading,
    check_item,
    correct_item,
    ended_items,
    missing,
    tell,
)
from cuebook.app.paging import read_cursor, write_cursor
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.core.conversation_items import named_id, parted
from cuebook.engine.core.drafts import check_text
from cuebook.engine.core.recall import answers, embed_query, memory_store
from cuebook.engine.jobs.delivery import decay, deliver
from cuebook.engine.jobs.erasure import forget
from cuebook.errors import Conflict, Denied, InvalidInput, NotFound
from cuebook.interfaces.store import MemoryQuery, PlaceChange
from cuebook.memory.corrections import corrections_of, kept_name, restoration_of
from cuebook.memory.owner_memories import (
    FIRST,
    REPEAT,
    USE,
    earlier_version,
    is_earlier_version,
    memory_id,
    raised,
    same,
)
from cuebook.memory.query import read_query
from cuebook.memory.scopes import PROJECT
from cuebook.operations import Argument, operation
from cuebook.records.answer import Page
from cuebook.records.erasure import Receipt, Target
from cuebook.records.key import Caller
from cuebook.records.memory import KNOWLEDGE, Correction, Memory, Place, Scope
from cuebook.records.memory_answers import DecayResult, KnowledgeEntry, StoredMemory, knowledge_entry, stored_memory

#: Maximum number of attempts after concurrent changes.
RETRIES = 20
#: Maximum length of a key, in characters: a longer text is its own key by its beginning and a digest.
MAX_KEY = 200
_BEGINNING = 160
#: Default category: a memory of a user is about that user, one without a user is about the subject matter.
OF_A_USER, OF_NOBODY = "user_preference", "domain"

#: Page size of knowledge.
LISTED = 50

KnowledgeId = Annotated[str, Meta(description="ID from `cuebook knowledge list`."), Argument(metavar="ID")]
Text = Annotated[str, Meta(min_length=1, description="Text to remember, as a self-contained sentence.")]


class MemoryWriting(MemoryReading):
    """The write operations of `cue.memory`, and knowledge: key-value memories with confidence."""

    @operation(
        "POST /api/memories",
        role="editor",
        status=201,
        cli="memory add",
        stores=True,
        examples=('cuebook memory add "The printer is on floor 3."', 'cuebook memory add "Prefers tea." --user ann'),
    )
    async def add(
        self,
        text: Text,
        *,
        category: Annotated[
            str | None, Meta(description="Kind of knowledge. Default: user_preference for a user, else domain.")
        ] = None,
        key: Annotated[
            str | None, Meta(description="Subject of the memory. A new text for the same key supersedes the old one.")
        ] = None,
        user: Owner = None,
        idempotency_key: IdempotencyKey = None,
    ) -> StoredMemory:
        """Store a text as a memory of a user, or of the whole project.

        A new text with the same key supersedes the old one. Without a key, adding the same text again raises its
        confidence. Raises InvalidInput, Conflict.
        """
        check_text(text, "text")
        if not text.strip():
            msg = "text: empty. Provide the text to remember."
            raise InvalidInput(msg, where="text")
        kind = category or (OF_A_USER if user else OF_NOBODY)
        return stored_memory(await self._put(kind, key or _own_key(text), text, user=user))

    @operation(
        "PATCH /api/memories/{memory}",
        role="editor",
        cli="memory correct",
        tool="correct",
        stores=True,
        examples=(
            'cuebook memory correct 1f0c9a7be2d44c31 "Lives in Bergen."',
            'cuebook memory correct item:c1:1f0c9a7be2d44c31 "Lives in Bergen." --user ann',
            'cuebook memory correct 1f0c9a7be2d44c31 "Lives in Bergen." --erase',
        ),
    )
    async def update(
        self,
        memory: MemoryId,
        text: Annotated[str, Meta(min_length=1, description="Corrected text.")],
        *,
        erase: Annotated[
            bool,
            Meta(description="Erase the old text and all earlier corrected versions."),
            Argument(flag="erase"),
        ] = False,
        user: User = None,
        organization: Organization = None,
        caller: CallerOf = OWNER,
        idempotency_key: IdempotencyKey = None,
    ) -> StoredMemory:
        """Correct the text of a memory. The old text ends and stays in the history, or is erased with `erase`.

        The ID stays. An item of a conversation keeps only the new text; its source posts keep the old words.

        Raises NotFound, and Denied for a memory of the project if a user or an organization is given.
        """
        _check_owner(caller, "Correcting", user, organization)
        store = memory_store(self._services, "user" if user else "project", user)
        with self._services.tracing.memory("update_memory", store=store, gen_ai__memory__record__id=memory):
            changed = await self._correct(memory, text, erase=erase, user=user, organization=organization)
        return stored_memory(changed)

    async def _correct(
        self,
        memory: str,
        text: str,
        *,
        erase: bool,
        user: str | None = None,
        organization: str | None = None,
        before: str | None = None,
    ) -> Memory:
        """Correct a memory; with `before`, only one with this text. Raises NotFound, Denied, Conflict."""
        text = self._said(text, "text")
        if parted(memory):
            also = partial(self._correct, text=text, erase=erase)
            return await correct_item(self._services, memory, text, user=user, also=lambda each: also(each.id))
        if erase:
            await self._services.store.drop_answers(Scope())  # they may contain the old text
        for _ in range(RETRIES):
            generation, old = await self._now(await self._own(memory, user=user, organization=organization))
            if before not in (None, old.text):
                msg = "changed in the database too. Edit it and push again."
                raise Conflict(msg)
            now = self._services.clock.now()
            name = _own_key(text) if old.name == _own_key(old.text) else old.name  # a text may be its own key
            name = name if old.category in KNOWLEDGE else kept_name(old.name, text)
            new = replace(old, name=name, text=text, trust="user", confidence=1.0, written=True, used_at=now)
            gone, same_text = list[Memory](), memory_id(old.place, old.category, text)
            if old.category not in KNOWLEDGE and same_text != old.id:
                gone = await self._services.store.memories.get(Scope(), same_text, places=[old.place])
            for other in gone:
                if same(other.text, text):  # another memory has this text already
                    both = tuple(sorted({*new.sources, *other.sources}))
                    new = replace(new, uses=new.uses + other.uses, sources=both, valid_to=None)
            changed = [*(replace(each, sources=(), written=False) for each in gone if same(each.text, text)), new]
            corrections = corrections_of(old, text)
            changed = [*changed[:-1], *await self._versioned(old, new, erase=erase)]
            if await self._save(old.place, generation, changed, corrections):
                await tell(self._services, corrections)
                return changed[-1]
        raise busy()

    async def _versioned(self, old: Memory, new: Memory, *, erase: bool) -> list[Memory]:
        """Return the changes of a correction, the corrected memory last: its old version ends, or all are erased."""
        if same(old.text, new.text):
            return [new]
        if not erase:
            past = earlier_version(old, now=new.used_at)
            return [past, replace(new, supersedes=past.id, valid_from=past.valid_to or new.valid_from)]
        gone: list[Memory] = []
        before = old.supersedes
        while before is not None:
            found = await self._services.store.memories.get(Scope(), before, places=[old.place])
            if not found or not is_earlier_version(found[0]):
                break
            gone.append(replace(found[0], sources=(), written=False))
            before = found[0].supersedes
        return [*gone, replace(new, supersedes=before)]

    @operation(
        "POST /api/memories/{memory}/restore",
        role="editor",
        cli="memory restore",
        stores=True,
        examples=("cuebook memory restore item:c1:1f0c9a7be2d44c31",),
    )
    async def restore(
        self,
        memory: MemoryId,
        *,
        user: User = None,
        organization: Organization = None,
        caller: CallerOf = OWNER,
        idempotency_key: IdempotencyKey = None,
    ) -> StoredMemory:
        """Undo that a model ended or merged a memory. A merged memory is split into all its parts again; name it or
        one of them.

        No model ends it again. Raises NotFound, Denied, and Conflict if no model ended the memory.
        """
        _check_owner(caller, "Restoring", user, organization)
        services, scope = self._services, Scope(user=user)
        found = await self._own(memory, user=user, organization=organization)
        ended = await ended_items(services, scope, found)
        if not ended:
            msg = f"Cannot restore memory {memory!r}: no model ended it. Run `cuebook memory list --ended` to find one."
            raise Conflict(msg)
        for conversation, item in ended:
            correction = restoration_of(conversation, item)
            record = receipt(services, named_id(conversation, item.id), "restore", conversation=conversation)
            await services.store.memories.keep_correction(scope, correction, audit=[record])
            await tell(services, [correction])
            await deliver(services, scope, conversation)
        return stored_memory(await self._get(memory, user=user, organization=organization))

    @operation("DELETE /api/memories/{memory}", role="editor", wrap="receipt")
    async def delete(
        self, memory: MemoryId, *, user: User = None, organization: Organization = None, caller: CallerOf = OWNER
    ) -> Receipt:
        """Forget a memory, also in recorded windows. It is not derived from earlier posts again.

        Raises NotFound, Conflict naming a hold, and, if a user or an organization is given, Denied for the project's.
        """
        _check_owner(caller, "Forgetting", user, organization)
        found = await self._own(memory, user=user, organization=organization)
        scope = Scope(user=user) if parted(memory) else Scope()
        return await forget(self._services, scope, Target("memory", (found.id,)))

    async def _put(
        self, category: str, key: str, value: str, *, user: str | None, confidence: float | None = None
    ) -> Memory:
        """Store knowledge under a category and a key. Raises InvalidInput, Conflict."""
        check_knowledge(category)
        if not key.strip() or len(key) > MAX_KEY:
            msg = f"key: expected 1 to {MAX_KEY} characters"
            raise InvalidInput(msg, where="key")
        key, value = self._said(key, "key"), self._said(value, "value")
        place = Place("user", user) if user else PROJECT
        store = memory_store(self._services, place.kind, place.id)
        with self._services.tracing.memory("upsert_memory", store=store) as span:
            for _ in range(RETRIES):
                if (memory := await self._try_put(place, (category, key, value), confidence)) is not None:
                    span.set(gen_ai__memory__record__id=memory.id)
                    return memory
            raise busy()

    async def _try_put(self, place: Place, values: tuple[str, str, str], confidence: float | None) -> Memory | None:
        category, key, value = values
        own, now = memory_id(place, category, key), self._services.clock.now()
        store = self._services.store.memories
        is_text = key == _own_key(value)  # a memory by its text; a correction keeps its id and changes its text
        generation, alike = await store.place(Scope(), place, near=[value] if is_text else ())
        memories = await store.get(Scope(), own, places=[place])
        twins = (each for each in alike if each.valid_to is None and each.written and same(each.text, value))
        before = next(twins, None) or (memories[0] if memories else None)
        sure = FIRST if confidence is None else confidence
        fresh = Memory(
            id=own, kind=place.kind, owner=place.id, category=category, name=key, text=value, confidence=sure,
            used_at=now, valid_from=now, written=True, uses=1,
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
        return fresh if await self._save(place, generation, changed) else None

    async def _own(self, memory: str, *, user: str | None, organization: str | None) -> Memory:
        """Return a memory if the user or organization may change it: the project's memories are read-only for them.

        Raises NotFound, Denied.
        """
        found = await self._get(memory, user=user, organization=organization)
        await check_item(self._services, memory, user)
        if found.place == PROJECT and (user is not None or organization is not None):
            msg = f"Cannot change memory {memory!r}: it belongs to the project. Omit user and organization."
            raise Denied(msg)
        return found

    async def _now(self, memory: Memory) -> tuple[int, Memory]:
        """Return the generation of a memory's owner, and the memory as of then. Raises NotFound."""
        store = self._services.store.memories
        generation, _ = await store.place(Scope(), memory.place, near=())
        memories = await store.get(Scope(), memory.id, places=[memory.place])
        if not memories:
            raise missing(memory.id)
        return generation, memories[0]

    async def _save(
        self,
        place: Place,
        generation: int,
        memories: Sequence[Memory],
        corrections: tuple[Correction, ...] = (),
    ) -> bool:
        change = PlaceChange(place=place, generation=generation, memories=tuple(memories), corrections=corrections)
        return await self._services.store.memories.save(Scope(), change, now=self._services.clock.now())

    def _said(self, text: Any, where: str) -> str:
        """Return a text as stored, with secrets removed. Raises InvalidInput."""
        check_text(text, where)
        if not isinstance(text, str) or not text.strip():
            msg = f"{where}: expected a string"
            raise InvalidInput(msg, where=where)
        return self._services.writer.clean(" ".join(text.split()) if where == "key" else text.strip())

    # ---- knowledge

    @operation(
        "GET /learning/knowledge",
        role="viewer",
        cli="knowledge list",
        examples=("cuebook knowledge list", "cuebook knowledge list --search rate --category domain"),
        none="no knowledge yet. Run `cuebook knowledge put CATEGORY KEY VALUE` to store some.",
    )
    async def list_knowledge(
        self,
        *,
        query: Annotated[
            str | None,
            Meta(description="Show memories that match these words or their meaning."),
            Argument(wire="q", flag="search", metavar="WORDS"),
        ] = None,
        category: Category = None,
        user: User = None,
        limit: PageSize = LISTED,
        cursor: Cursor = None,
    ) -> Page[KnowledgeEntry]:
        """List the keyed memories of the project or of a user, oldest first, or search them, best match first."""
        if category is not None:
            check_knowledge(category)
        place, store = Place("user", user) if user else PROJECT, self._services.store.memories
        if query:
            memory_query = MemoryQuery(
                text=query, dense=await embed_query(self._services, query), limit=FOUND, standing=0
            )
            matched = await store.find(Scope(), [place], memory_query)
            known = {each.id: each for each in matched.memories if _is_knowledge(each, category)}
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
        category: Annotated[str, Meta(description=f"One of {', '.join(KNOWLEDGE)}.")],
        key: Annotated[str, Meta(min_length=1, description="Key of the memory.")],
        value: Annotated[str, Meta(min_length=1, description="Value of the memory.")],
        *,
        user: Owner = None,
        confidence: Annotated[float | None, Meta(ge=0, le=1, description="Confidence in the memory.")] = None,
        idempotency_key: IdempotencyKey = None,
    ) -> KnowledgeEntry:
        """Store a memory under a key. The same value again raises its confidence; a new value supersedes the old one.

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
        """Record a use of a memory. It raises the confidence by 0.05. Raises NotFound."""
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
            Argument(time=True),
        ] = None,
    ) -> DecayResult:
        """Lower the confidence of unused memories. 30 days without use subtract 0.1; below 0.1 they are deleted."""
        at = as_of.timestamp() if isinstance(as_of, datetime) else as_of
        lost, gone = await decay(self._services, now=at)
        return DecayResult(lost=lost, gone=gone)


def busy() -> Conflict:
    """Return the error for too many concurrent changes."""
    return Conflict("Cannot save: these memories were changed concurrently. Try again.")


def check_knowledge(category: str) -> None:
    """Check a category of knowledge. Raises InvalidInput."""
    if category not in KNOWLEDGE:
        msg = f"category: unknown category {category!r}. Available: {', '.join(KNOWLEDGE)}."
        raise InvalidInput(msg, where="category")


def _check_owner(caller: Caller, doing: str, user: str | None, organization: str | None) -> None:
    """Check that the caller may change an organization's memory, or anyone's without a user. Raises Denied."""
    if organization:
        caller.need("admin", f"{doing} an organization's memory")
    elif user is None:
        caller.need("owner", f"{doing} other users' memories")


def _own_key(text: str) -> str:
    content = " ".join(text.split())
    if len(content) <= MAX_KEY:
        return content
    return f"{content[:_BEGINNING]}… {hashlib.blake2b(content.encode(), digest_size=8).hexdigest()}"


def _is_knowledge(memory: Memory, category: str | None) -> bool:
    return memory.category in KNOWLEDGE and category in (None, memory.category)
