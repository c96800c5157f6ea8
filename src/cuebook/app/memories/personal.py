"""Export all data that is stored about a person as one zip archive, for a data subject access request."""

import asyncio
import zipfile
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from cuebook.app.arguments import OWNER
from cuebook.app.namespace import Namespace
from cuebook.engine.core.audit_records import receipt
from cuebook.engine.turn.compare import render_again
from cuebook.errors import InvalidInput, NotFound
from cuebook.records.answer import Time, to_json, to_wire
from cuebook.records.audit import EXPORT, Record, audit_record
from cuebook.records.conversation import Conversation
from cuebook.records.conversation_answers import conversation_entry, ids_of, post_entry
from cuebook.records.key import Caller
from cuebook.records.memory import Memory, Scope
from cuebook.records.memory_answers import stored_memory
from cuebook.storage.database.columns import LARGEST
from cuebook.storage.personal import LEFT_OUT, PersonalConversation

#: What each file of an archive contains. Files without data are omitted.
FILES: Final[Mapping[str, str]] = {
    "memories.jsonl": "memories of the user, with history and sources",
    "observations.jsonl": "scores of prompts by the user's feedback",
    "documents.jsonl": "documents that programs stored for the user",
    "requests.jsonl": "stored answers of requests with an Idempotency-Key",
    "audit.jsonl": "audit records of prompts that name the user",
    "receipts.jsonl": "receipts of earlier deletions",
    "keys.jsonl": "API keys of the user, without their secrets",
    "conversations/N/conversation.json": "the conversation and its settings",
    "conversations/N/messages.jsonl": "messages of all branches; of others' conversations, the user's and the answers",
    "conversations/N/prompts.jsonl": "each prompt as it was sent to the model",
    "conversations/N/logs/NAME": "prompt logs (setting logs.prompts), as they are in their folder",
    "conversations/N/memories.jsonl": "memories derived from the conversation, of every owner",
    "conversations/N/audit.jsonl": "audit records of the conversation",
    "conversations/N/TABLE.jsonl": "rows of other tables: turns, steps, summaries, items, outcomes (feedback), …",
}


class PersonalData(Namespace):
    """The export of everything that is stored about one user."""

    async def export_everything(
        self, *, user: str | None, by: str | None = None, caller: Caller = OWNER
    ) -> AsyncGenerator[bytes, None]:
        """Yield a zip archive with all data that is stored about a user, in pieces. The audit log records it.

        It has all that forgetting the user would erase, and lists its files in `manifest.json`. Raises InvalidInput,
        and Denied for a key that may not act for this user.
        """
        if not user:
            msg = "userId: missing. Name the user whose data to export."
            raise InvalidInput(msg, where="userId")
        caller.acts_as(user)
        if caller.user is None:
            caller.need("owner", "Exporting other users' data")
        record = receipt(self._services, "personal-data", EXPORT, agent=by or user, context={"user": user})
        await self._services.audit.append(Scope(), [record])
        archive = _Archive()
        async for name, lines in self._files(user):
            await asyncio.to_thread(archive.add, name, lines)  # compression takes time
            yield archive.take()
        archive.add("manifest.json", [_manifest(user, self._services.clock.now(), archive.names)])
        archive.close()
        yield archive.take()

    async def _files(self, user: str) -> AsyncGenerator[tuple[str, Iterable[bytes]], None]:
        """Yield the files of the archive with their lines."""
        store = self._services.store.personal
        for kind, values in (await store.elsewhere(Scope(), user)).items():
            yield f"{kind}.jsonl", map(_line, values)
        for number, name in enumerate(await store.conversations(Scope(), user), 1):
            found = await store.conversation(Scope(), name, user)
            if found is None:
                continue
            folder = f"conversations/{number}"
            for file, lines in _conversation_files(found):
                yield f"{folder}/{file}", lines
            if found.owned:
                yield f"{folder}/prompts.jsonl", [each async for each in self._prompts(found.conversation)]
                for file, body in (await self._services.read_logs(name, found.conversation.no)).items():
                    yield f"{folder}/logs/{file}", [body.rstrip(b"\n")]

    async def _prompts(self, conversation: Conversation) -> AsyncGenerator[bytes, None]:
        """Yield each prompt of a conversation as it was sent, or why it cannot be rendered again."""
        services, scope = self._services, Scope()
        name, owner = conversation.id, conversation.user
        for turn in await services.store.turns(scope, name, last=LARGEST):
            for step in turn.steps:
                line: dict[str, Any] = {"turn": turn.n, "step": step.n}
                try:
                    window = await render_again(services, scope, name, step.manifest, owner=owner)
                    line["messages"] = window.messages
                except NotFound as erased:
                    line["reason"] = str(erased)
                yield _line(line)


class _Archive:
    """A zip archive whose bytes are taken away while it is written."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._pieces: list[bytes] = []
        self._zip = zipfile.ZipFile(self, "w", zipfile.ZIP_DEFLATED)

    def write(self, piece: bytes) -> int:
        """Accept bytes of the archive."""
        self._pieces.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        """Do nothing: nothing is buffered elsewhere."""

    def add(self, name: str, lines: Iterable[bytes]) -> None:
        """Add a file, unless it has no lines."""
        body = b"\n".join(lines)
        if body:
            self.names.append(name)
            self._zip.writestr(name, body + b"\n")

    def close(self) -> None:
        """Write the directory."""
        self._zip.close()

    def take(self) -> bytes:
        """Return the bytes since the last call."""
        pieces, self._pieces = b"".join(self._pieces), []
        return pieces


def _conversation_files(found: PersonalConversation) -> Iterator[tuple[str, Iterable[bytes]]]:
    ids = ids_of(found.posts)
    yield "conversation.json", [to_json(conversation_entry(found.conversation, head=ids.get(found.conversation.head)))]
    yield (
        "messages.jsonl",
        (_line(to_wire(post_entry(post, ids)) | ({"wire": post.wire} if post.wire else {})) for post in found.posts),
    )
    yield "memories.jsonl", map(_line, found.memories)
    yield "audit.jsonl", map(_line, found.audit)
    for table, rows in found.rows.items():
        yield f"{table}.jsonl", map(_line, rows)


def _manifest(user: str, now: float, names: list[str]) -> bytes:
    about = {"user": user, "createdAt": str(Time(now)), "files": names, "contents": FILES, "leftOut": LEFT_OUT}
    return msgspec.json.format(msgspec.json.encode(about))


def _line(value: Any) -> bytes:
    """Return a value as a line of JSON."""
    if isinstance(value, Memory):
        return to_json(stored_memory(value))
    if isinstance(value, Record):
        return to_json(audit_record(value))
    row = {name: _plain(each) for name, each in value.items()} if isinstance(value, dict) else value
    return msgspec.json.encode(row)


def _plain(value: Any) -> Any:
    """Return stored bytes as JSON, as text or in hex."""
    if not isinstance(value, bytes):
        return value
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError):
        with suppress(UnicodeDecodeError):
            return value.decode()
    return value.hex()
