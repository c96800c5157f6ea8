"""The Store: conversations, their turns and summaries, and one store of each other noun, over one database."""

import asyncio
from typing import Any

from cuebook.config import SERVERS
from cuebook.records.memory import Scope
from cuebook.storage import erasure
from cuebook.storage.access import own_key
from cuebook.storage.audit import AuditStore, SealStore
from cuebook.storage.claims import ClaimStore
from cuebook.storage.conversation_list import ConversationListStore
from cuebook.storage.database.holders import Holders
from cuebook.storage.database.postgres import PostgresDatabase
from cuebook.storage.database.sqlite import SqliteDatabase
from cuebook.storage.database.sqlite_files import MEMORY
from cuebook.storage.database.transaction import Database, Failpoints, KeyedRequest, Transaction, read_all, write
from cuebook.storage.deliveries import MemoryStore
from cuebook.storage.documents import DocumentStore
from cuebook.storage.erasure import ErasureStore
from cuebook.storage.keys import KeyStore
from cuebook.storage.outcomes import OutcomeStore
from cuebook.storage.personal import PersonalReader
from cuebook.storage.prompts import PromptStore
from cuebook.storage.reads import ConversationReader
from cuebook.storage.reflections import ReflectionStore
from cuebook.storage.summaries import SummaryStore
from cuebook.storage.tuning import TuningStore
from cuebook.storage.turns import TurnStore
from cuebook.storage.vectors import VectorStore
from cuebook.storage.writes import ConversationWriter

#: Milliseconds for which a deletion waits for readers to release the log.
PATIENCE_MS = 1000


class Store(ConversationReader, ConversationWriter, TurnStore, SummaryStore):
    """Stores conversations, turns, memory, prompts and their audit records. A write that has returned is durable."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.prompts = PromptStore(database)
        self.outcomes = OutcomeStore(database)
        self.audit = AuditStore(database)
        self.claims = ClaimStore(database)
        self.vectors = VectorStore(database)
        self.tuning = TuningStore(database)
        self.erasure = ErasureStore(database, self)
        self.personal = PersonalReader(database)
        self.keys = KeyStore(database)
        self.documents = DocumentStore(database)
        self.seals = SealStore(database)
        self.memories = MemoryStore(database, self.cache)
        self.reflections = ReflectionStore(database)
        self.talks = ConversationListStore(database)

    async def delete(self, scope: Scope, conversation: str) -> dict[str, int]:
        """Delete a conversation, then its bytes in the database's files; return the rows by table.

        While another process reads, the bytes remain until a later call of `expire` finds the files free.
        """
        counts = await self._delete(scope, conversation)
        await self.erasure.emptied(patience_ms=PATIENCE_MS)
        return counts

    @write
    def _delete(self, transaction: Transaction, conversation: str) -> dict[str, int]:
        return erasure.delete(transaction, conversation)

    def keyed_request(self, scope: Scope, key: str, digest: bytes, *, name: str, at: float) -> KeyedRequest:
        """Return a request with an Idempotency-Key: its stored form and its name; `digest` identifies the request."""
        return KeyedRequest(tenant=scope.tenant, key=own_key(scope, key), digest=digest, name=name, at=at)

    async def answer_of(self, request: KeyedRequest) -> bytes | None:
        """Return the stored answer of a request with an Idempotency-Key, None if it must run. Raises KeyReused."""
        return await self.database.read(request.answer)

    async def finish(self, request: KeyedRequest, answer: bytes) -> bytes:
        """Store the answer of a request, and return the first one stored. Raises KeyReused."""
        return await self.database.write(
            lambda transaction: request.finish(transaction, answer), tenant=request.tenant, subject=request.subject
        )

    @read_all
    def due_pairs(
        self, transaction: Transaction, statement: str, /, *, limit: int = 100, **values: Any
    ) -> list[tuple[str, str]]:
        """Return due conversations or memories of all tenants, as a named statement selects them: tenant and id."""
        return transaction.run(statement, limit=limit, **values).fetchall()

    @write
    def drop_answers(self, transaction: Transaction) -> None:
        """Delete the stored answers of requests, which may contain data that is about to be erased."""
        transaction.run("answers_drop")

    async def check(self, *, whole: bool = False) -> dict[str, Any]:
        """Check that the store works and return its counts; `whole` runs an integrity check of the database."""
        return await self.database.check(whole=whole) | await self._counts() | {"full": self.database.is_full}

    @read_all
    def _counts(self, transaction: Transaction) -> dict[str, int]:
        return transaction.rows("conversation_counts")[0]

    async def announce(self, profile: str) -> None:
        """Let other processes of the database know the profile that this server uses."""
        await asyncio.to_thread(self.database.holders.announce, profile)

    @property
    def announces(self) -> bool:
        """Return whether this process announced a profile."""
        return self.database.holders.announces

    async def announced(self) -> list[str]:
        """Return the profiles that servers in other processes use, the newest announcement first."""
        return await asyncio.to_thread(self.database.holders.announced)

    async def aclose(self) -> None:
        """Finish queued writes and close the database."""
        await self.database.aclose()


def open_store(url: str, *, synchronous: str = "FULL", failpoints: Failpoints | None = None, key: bytes = b"") -> Store:
    """Open a store on a PostgreSQL server, in a SQLite file or in memory. `key` seals documents and memories. Blocks.

    Raises BackendError, InvalidInput.
    """
    if url.startswith(SERVERS):
        return Store(PostgresDatabase(url, failpoints=failpoints, key=key))
    return sqlite_store(url, synchronous=synchronous, failpoints=failpoints, key=key)


def sqlite_store(
    path: str = MEMORY,
    *,
    synchronous: str = "FULL",
    failpoints: Failpoints | None = None,
    holders: Holders | None = None,
    key: bytes = b"",
) -> Store:
    """Open a store in one SQLite file, or in memory."""
    return Store(SqliteDatabase(path, synchronous=synchronous, failpoints=failpoints, holders=holders, key=key))
