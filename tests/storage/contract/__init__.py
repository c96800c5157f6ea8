"""The store contract as tests: a backend is complete when a subclass of `StoreContract` passes on its real engine.

class TestMyStore(StoreContract):
    async def make_store(self) -> Store:
        return MyStore(...)  # empty
"""

from collections.abc import AsyncIterator

import pytest

from cuebook.storage.store import Store
from storage.contract.claims import ClaimsContract
from storage.contract.conversation_list import ConversationListContract
from storage.contract.documents import DocumentsContract
from storage.contract.keys import KeysContract
from storage.contract.last_turn import LastTurnContract
from storage.contract.leases import LeasesContract
from storage.contract.memory import MemoryContract
from storage.contract.outcomes import OutcomeContract
from storage.contract.places import PlacesContract
from storage.contract.posts import PostsContract
from storage.contract.prompts import PromptContract
from storage.contract.reading import ReadingContract
from storage.contract.reflections import ReflectionContract
from storage.contract.scopes import ScopesContract
from storage.contract.turns import TurnsContract
from storage.contract.vectors import VectorsContract


class StoreContract(
    PostsContract,
    TurnsContract,
    LastTurnContract,
    ReflectionContract,
    LeasesContract,
    MemoryContract,
    ReadingContract,
    ScopesContract,
    PromptContract,
    OutcomeContract,
    KeysContract,
    DocumentsContract,
    VectorsContract,
    PlacesContract,
    ConversationListContract,
    ClaimsContract,
):
    """The whole contract. A subclass defines `make_store`, and `reopen` if data outlives the store object."""

    async def make_store(self) -> Store:
        """Return an empty store."""
        raise NotImplementedError

    async def reopen(self) -> Store | None:
        """Return the last made store through another object, or None if that is impossible."""
        return None

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        """Yield a store for one test."""
        store = await self.make_store()
        yield store
        await store.aclose()

    async def test_another_object_reads_the_stored_data(self, store: Store) -> None:
        stored = await self.store_everything(store)
        await store.aclose()
        again = await self.reopen()
        if again is None:
            pytest.skip("this store ends with its object")
        try:
            assert await self.load_everything(again) == stored
        finally:
            await again.aclose()

    async def test_two_objects_see_each_others_writes(self, store: Store) -> None:
        other = await self.reopen()
        if other is None:
            pytest.skip("this store ends with its object")
        try:
            stored = await self.store_everything(store)
            assert await self.load_everything(other) == stored
        finally:
            await other.aclose()
