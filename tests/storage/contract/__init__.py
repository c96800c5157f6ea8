"""What every store must do, as tests: a backend is done when a subclass of `StoreContract` passes on the real engine.

class TestMyStore(StoreContract):
    async def make_store(self) -> Store:
        return MyStore(...)  # empty
"""

from collections.abc import AsyncIterator

import pytest

from cuebook.interfaces.store import Store
from storage.contract.conversation_list import TalksContract
from storage.contract.keys import KeysContract
from storage.contract.leases import LeasesContract
from storage.contract.memory import MemoryContract
from storage.contract.outcomes import OutcomeContract
from storage.contract.places import PlacesContract
from storage.contract.posts import PostsContract
from storage.contract.prompts import PromptContract
from storage.contract.reading import ReadingContract
from storage.contract.reflections import ReflectionContract
from storage.contract.scopes import ScopesContract
from storage.contract.turn_on import TurnOnContract
from storage.contract.turns import TurnsContract
from storage.contract.vectors import VectorsContract


class StoreContract(
    PostsContract,
    TurnsContract,
    TurnOnContract,
    ReflectionContract,
    LeasesContract,
    MemoryContract,
    ReadingContract,
    ScopesContract,
    PromptContract,
    OutcomeContract,
    KeysContract,
    VectorsContract,
    PlacesContract,
    TalksContract,
):
    """The whole contract. A subclass gives `make_store`, and `reopen` if its store outlives its object."""

    async def make_store(self) -> Store:
        """Give an empty store."""
        raise NotImplementedError

    async def reopen(self) -> Store | None:
        """Give the store made last through another object, None where that cannot be."""
        return None

    @pytest.fixture
    async def store(self) -> AsyncIterator[Store]:
        """Give a store for one test."""
        store = await self.make_store()
        yield store
        await store.aclose()

    async def test_what_was_stored_is_there_for_another_object(self, store: Store) -> None:
        stored = await self.told(store)
        await store.aclose()
        again = await self.reopen()
        if again is None:
            pytest.skip("this store ends with its object")
        try:
            assert await self.retold(again) == stored
        finally:
            await again.aclose()

    async def test_two_objects_see_each_other(self, store: Store) -> None:
        other = await self.reopen()
        if other is None:
            pytest.skip("this store ends with its object")
        try:
            stored = await self.told(store)
            assert await self.retold(other) == stored
        finally:
            await other.aclose()
