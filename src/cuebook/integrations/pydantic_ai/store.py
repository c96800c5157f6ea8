"""Save Pydantic AI's conversations as documents: one per message, and one per conversation for its head."""

from collections.abc import Sequence
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter

from cuebook.app.cuebook import Cuebook
from cuebook.errors import Conflict, NotFound
from cuebook.integrations.connection import Connection, Where, documents_in
from cuebook.records.document import Document, DocumentChange

#: The places of records by conversation, and of entries.
_RECORDS, _ENTRIES = ("pydantic_ai", "records"), ("pydantic_ai", "entries")
_RECORD: Final = TypeAdapter(ConversationRecord)
#: Entries that are deleted at once.
_AT_ONCE: Final = 1000


class CuebookConversationStore(Connection, ConversationStore):
    """Saves conversations: `store = CuebookConversationStore("my-project")`, then `load` before a run and `save` after.

    `where` is a project (see `Connection`). Conversations of a `user` are apart, and a forget of the user deletes them.
    A deleted conversation's messages are deleted, except those that another conversation has.
    """

    def __init__(self, where: Where = None, *, user: str | None = None) -> None:
        super().__init__(where)
        self._user = user

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        document = await self._await(lambda cue: self._document(cue, _RECORDS, conversation_id))
        return None if document is None else _RECORD.validate_python(document.value)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        documents = await self._await(lambda cue: documents_in(cue, _RECORDS, user=self._user))
        records = [_RECORD.validate_python(each.value) for each in documents]
        found = [each for each in records if scope is None or each.scope == scope]
        return sorted(found, key=lambda each: each.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        await self._await(lambda cue: self._write(cue, record, new_entries, expected_revision))

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        await self._await(lambda cue: self._delete(cue, conversation_id, expected_revision))

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        [entry] = await self._await(lambda cue: self._history(cue, entry_id, limit=1))
        return entry

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        return await self._await(lambda cue: self._history(cue, head_id, limit=limit))

    async def _history(self, cue: Cuebook, head: str | None, *, limit: int | None) -> list[ConversationEntry]:
        entries: list[ConversationEntry] = []
        while head is not None and (limit is None or len(entries) < limit):
            document = await self._document(cue, _ENTRIES, head)
            if document is None:
                raise LookupError(head)
            [message] = ModelMessagesTypeAdapter.validate_python([document.value["message"]])
            entries.append(ConversationEntry(id=head, parent_id=document.value["parent"], message=message))
            head = document.value["parent"]
        return entries[::-1]

    async def _write(
        self, cue: Cuebook, record: ConversationRecord, new: Sequence[ConversationEntry], revision: str | None
    ) -> None:
        """Store a record and its new entries, all or none. Raises ConversationConflict."""
        name = record.conversation_id
        before = await self._expected(cue, name, revision)
        value = _RECORD.dump_python(record, mode="json")
        changes = [
            DocumentChange(space=_RECORDS, key=name, value=value, new=before is None, expected=before),
            *(DocumentChange(space=_ENTRIES, key=each.id, value=_entry(each)) for each in new),
        ]
        last = new[0].parent_id if new else record.head_id
        stored = None if last is None else await self._document(cue, _ENTRIES, last)
        if last is not None and stored is None:
            raise ConversationConflict(name)  # a delete of the conversation that a fork points into deleted it
        if stored is not None and revision is None:
            changed = stored.value | {"forks": stored.value.get("forks", 0) + 1}  # a delete meanwhile is refused
            changes.append(DocumentChange(space=_ENTRIES, key=stored.key, value=changed, expected=stored.value))
        await self._put(cue, name, changes)

    async def _delete(self, cue: Cuebook, name: str, revision: str) -> None:
        """Delete a record, and the entries that no other record needs. Raises ConversationConflict."""
        before = await self._expected(cue, name, revision)
        await self._put(cue, name, [DocumentChange(space=_RECORDS, key=name, expected=before)])
        while not await self._delete_unused(cue):
            continue

    async def _delete_unused(self, cue: Cuebook) -> bool:
        """Delete the entries that no record needs; return whether it succeeded, and no fork has changed them."""
        entries = {each.key: each.value for each in await documents_in(cue, _ENTRIES, user=self._user)}
        needed: set[str] = set()
        for each in await documents_in(cue, _RECORDS, user=self._user):
            for head in (each.value["head_id"], *each.value["branches"]):
                at = head
                while at in entries and at not in needed:
                    needed.add(at)
                    at = entries[at]["parent"]
        unused = [each for each in entries if each not in needed]
        try:
            for at in range(0, len(unused), _AT_ONCE):
                part = unused[at : at + _AT_ONCE]
                changes = [DocumentChange(space=_ENTRIES, key=each, expected=entries[each]) for each in part]
                await cue.documents.put(changes, user=self._user)
        except Conflict:
            return False
        return True

    async def _document(self, cue: Cuebook, space: tuple[str, ...], key: str) -> Document | None:
        try:
            return await cue.documents.get(space, key, user=self._user)
        except NotFound:
            return None

    async def _expected(self, cue: Cuebook, name: str, revision: str | None) -> dict[str, Any] | None:
        """Return the value of a record with a revision, None for no record. Raises ConversationConflict."""
        document = await self._document(cue, _RECORDS, name)
        if (None if document is None else document.value["revision"]) != revision:
            raise ConversationConflict(name)
        return None if document is None else document.value

    async def _put(self, cue: Cuebook, name: str, changes: Sequence[DocumentChange]) -> None:
        try:
            await cue.documents.put(changes, user=self._user)
        except Conflict as error:
            raise ConversationConflict(name) from error


def _entry(entry: ConversationEntry) -> dict[str, Any]:
    [message] = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")
    return {"parent": entry.parent_id, "message": message}
