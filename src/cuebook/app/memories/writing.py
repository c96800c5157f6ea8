"""Correct and delete long-term memories by hand, with optimistic locking: retry after a concurrent change."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from cuebook.app.memories.reading import PROJECT, MemoryReading, check_item, correct_item, missing, tell
from cuebook.engine.core.conversation_items import parted
from cuebook.engine.core.drafts import check_text
from cuebook.engine.jobs.erasure import forget
from cuebook.errors import Conflict, Denied, InvalidInput, NotFound
from cuebook.interfaces.memories import PlaceChange
from cuebook.memory.corrections import corrections_of
from cuebook.memory.knowledge import KNOWLEDGE
from cuebook.memory.owner_memories import memory_id
from cuebook.records.erasure import Receipt, Target
from cuebook.records.memory import Correction, Memory, Place, Scope

#: Maximum number of attempts after concurrent changes.
RETRIES = 20


class MemoryWriting(MemoryReading):
    """The write operations of `cue.memories`."""

    async def correct(
        self,
        id: str,  # noqa: A002  # the wire's name
        text: str,
        *,
        user: str | None = None,
        organization: str | None = None,
    ) -> Memory:
        """Replace the text of a wrong memory and return the new memory; the old text is deleted.

        Raises NotFound, and Denied for a memory of the project if a user or an organization is given.
        """
        text = self._said(text, "text")
        if parted(id):
            return await correct_item(
                self._services, id, text, user=user, also=lambda each: self.correct(each.id, text)
            )
        names = [id]
        for _ in range(RETRIES):
            generation, old = await self._at(names, user=user, organization=organization)
            now = self._services.clock.now()
            own = old.id if old.category in KNOWLEDGE else memory_id(old.place, old.category, text)
            new = replace(old, id=own, text=text, trust="user", confidence=1.0, written=True, used_at=now)
            changed = [new]
            for other in (
                [] if own == old.id else await self._services.store.memories.get(Scope(), own, places=[old.place])
            ):
                both = tuple(sorted({*old.sources, *other.sources}))  # another memory has this text already
                new = replace(new, no=other.no, uses=old.uses + other.uses, sources=both, valid_to=None)
                changed = [replace(old, sources=(), written=False), new]
            corrections = corrections_of(old, text)
            if await self._save(old.place, generation, changed, corrections):
                await tell(self._services, corrections)
                return new
            names = [id, own]  # a concurrent correction may have the same text
        raise busy()

    async def remove(self, id: str, *, user: str | None = None, organization: str | None = None) -> Receipt:  # noqa: A002
        """Delete a memory and its words in stored windows, and return the receipt.

        Raises NotFound, Conflict naming a hold, and, if a user or an organization is given, Denied for the project's.
        """
        memory = await self._own(id, user=user, organization=organization)
        scope = Scope(user=user) if parted(id) else Scope()
        return await forget(self._services, scope, Target("memory", (memory.id,)))

    async def _own(self, id: str, *, user: str | None, organization: str | None) -> Memory:  # noqa: A002
        """Return a memory if the user or organization may change it: the project's memories are read-only for them.

        Raises NotFound, Denied.
        """
        memory = await self.get(id, user=user, organization=organization)
        await check_item(self._services, id, user)
        if memory.place == PROJECT and (user is not None or organization is not None):
            msg = f"Cannot change memory {id!r}: it belongs to the project. Omit user and organization."
            raise Denied(msg)
        return memory

    async def _at(self, names: Sequence[str], *, user: str | None, organization: str | None) -> tuple[int, Memory]:
        for name in names[:-1]:
            with suppress(NotFound):
                return await self._now(await self._own(name, user=user, organization=organization))
        return await self._now(await self._own(names[-1], user=user, organization=organization))

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


def busy() -> Conflict:
    """Return the error for too many concurrent changes."""
    return Conflict("Cannot save: these memories were changed concurrently. Try again.")
