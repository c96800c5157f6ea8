"""The methods of mem0's `Memory` and `AsyncMemory`.

A memory is one of Cuebook's, of its user. What only mem0 has, its metadata and its history, is a document of the user.
"""

from collections.abc import Sequence
from datetime import date
from typing import Final

from msgspec import UNSET, UnsetType

from cuebook.app.cuebook import Cuebook
from cuebook.errors import NotFound
from cuebook.integrations.connection import Connection, both
from cuebook.integrations.mem0.details import (
    details_of,
    erase,
    event_of,
    existing_memory,
    item_of,
    matching,
    now,
    put_details,
    stored_memories,
)
from cuebook.integrations.mem0.filters import (
    ENTITIES,
    Item,
    check_number,
    day_of,
    entities_of,
    messages_of,
    owner_of,
    query_of,
    text_of,
)

#: The most results of a search of Cuebook.
_MOST: Final = 200


class Memory(Connection):
    """mem0's `Memory`: `Memory("my-project").add("I prefer the aisle.", user_id="ann")`. See `Connection`."""

    async def _add(
        self,
        cue: Cuebook,
        messages: str | Item | Sequence[Item],
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Item | None = None,
        expiration_date: date | str | None = None,
        infer: bool = True,
    ) -> Item:
        """Store a memory per message; with `infer`, only of the user's messages, and no text twice."""
        entities = entities_of({"user_id": user_id, "agent_id": agent_id, "run_id": run_id})
        owner, results = owner_of(entities), []
        extra = {name: value for name, value in (metadata or {}).items() if name not in ENTITIES} | entities
        if expiration_date is not None:
            extra["expiration_date"] = day_of(expiration_date)
        known = {each.text for each in await stored_memories(cue, owner)} if infer else set()
        for message in messages_of(messages):
            role, text = message["role"], text_of(message["content"])
            if role == "system" or not text.strip() or (infer and (role != "user" or text in known)):
                continue
            memory = await cue.memory.add(text, user=owner)
            actor = message.get("name")
            fields = extra | {"role": role} | ({"actor_id": actor} if actor else {})
            time = now()
            value = {"fields": fields, "created_at": time, "updated_at": time}
            await put_details(cue, memory, value | {"history": [event_of(memory.id, value, None, memory.text)]})
            results.append({"id": memory.id, "memory": memory.text, "event": "ADD", "actor_id": actor, "role": role})
            known.add(text)
        return {"results": results}

    async def _get(self, cue: Cuebook, memory_id: str) -> Item | None:
        """Return a memory, None for an unknown one."""
        try:
            memory = await cue.memory.get(memory_id)
        except NotFound:
            return None
        return {"score": None} | item_of(memory, await details_of(cue, memory))

    async def _all(
        self, cue: Cuebook, *, filters: Item | None = None, top_k: int = 20, show_expired: bool = False
    ) -> Item:
        """Return the memories that fit filters, the oldest first."""
        check_number("top_k", top_k)
        found = await matching(cue, filters, show_expired=show_expired)
        return {"results": [item_of(*each) for each in found[:top_k]]}

    async def _search(
        self,
        cue: Cuebook,
        query: str,
        *,
        filters: Item | None = None,
        top_k: int = 20,
        threshold: float = 0.1,
        rerank: bool = False,  # noqa: ARG002  # results are always ranked by all of Cuebook's signals
        show_expired: bool = False,
    ) -> Item:
        """Return the memories that match a query, best first, each with its score in [0, 1]."""
        check_number("top_k", top_k)
        check_number("threshold", threshold, most=1)
        query = query_of(query)
        fitting = {each[0].id: each for each in await matching(cue, filters, show_expired=show_expired)}
        owner = owner_of(entities_of(filters or {}))
        hits = await cue.memory.search(query, user=owner, scopes=["user"], limit=_MOST, min_share=0)
        found = [(each.score, fitting[each.memory_id]) for each in hits if each.memory_id in fitting]
        results = [item_of(*each) | {"score": score} for score, each in found if score >= threshold]
        return {"results": results[:top_k]}

    async def _update(
        self,
        cue: Cuebook,
        memory_id: str,
        text: str | None = None,
        metadata: Item | None = None,
        expiration_date: date | str | UnsetType | None = UNSET,
    ) -> Item:
        """Change the text, the metadata or the expiration of a memory."""
        if text is None and metadata is None and expiration_date is UNSET:
            msg = "At least one of text, metadata, or expiration_date must be provided."
            raise ValueError(msg)
        memory = await existing_memory(cue, memory_id)
        value = await details_of(cue, memory)
        before, time = memory.text, now()
        if text is not None and text != before:
            memory = await cue.memory.update(memory_id, text)
        fields = value["fields"] | {name: each for name, each in (metadata or {}).items() if name not in ENTITIES}
        if expiration_date is not UNSET:
            fields["expiration_date"] = None if expiration_date is None else day_of(expiration_date)
        value |= {"fields": fields, "updated_at": time}
        value["history"] = [*value["history"], event_of(memory.id, value, before, memory.text)]
        await put_details(cue, memory, value)
        return {"message": "Memory updated successfully!"}

    async def _delete(self, cue: Cuebook, memory_id: str) -> Item:
        """Erase a memory and its history."""
        await erase(cue, [await existing_memory(cue, memory_id)])
        return {"message": "Memory deleted successfully!"}

    async def _delete_all(
        self, cue: Cuebook, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> Item:
        """Erase the memories of a user, an agent or a run."""
        filters = entities_of({"user_id": user_id, "agent_id": agent_id, "run_id": run_id})
        await erase(cue, [memory for memory, _ in await matching(cue, filters, show_expired=True)])
        return {"message": "Memories deleted successfully!"}

    async def _history(self, cue: Cuebook, memory_id: str) -> list[Item]:
        """Return the changes of a memory, the oldest first. An erased memory has none."""
        try:
            return list((await details_of(cue, await cue.memory.get(memory_id)))["history"])
        except NotFound:
            return []

    add, aadd = both(_add)
    get, aget = both(_get)
    get_all, aget_all = both(_all)
    search, asearch = both(_search)
    update, aupdate = both(_update)
    delete, adelete = both(_delete)
    delete_all, adelete_all = both(_delete_all)
    history, ahistory = both(_history)


class AsyncMemory(Memory):
    """mem0's `AsyncMemory`: the same methods with `await`."""

    add, get, get_all, search = Memory.aadd, Memory.aget, Memory.aget_all, Memory.asearch  # type: ignore[assignment]
    update, delete = Memory.aupdate, Memory.adelete  # type: ignore[assignment]
    delete_all, history = Memory.adelete_all, Memory.ahistory  # type: ignore[assignment]
