"""What every store must do, as tests: a backend is done when a subclass of `StoreContract` passes on the real engine.

    class TestMyStore(StoreContract):
        async def make_store(self) -> Store:
            return MyStore(...)  # empty

It needs pytest, and anyio's plugin to run what is async: `pip install cuebook[testing]`.
"""

from collections.abc import AsyncIterator

try:
    import pytest
except ImportError as error:
    msg = "a store's contract is run by pytest, which is not installed; install cuebook[testing]"
    raise ImportError(msg) from error

from cuebook.ports.store import Store
from cuebook.testing.contract_keys import KeysContract
from cuebook.testing.contract_leases import LeasesContract
from cuebook.testing.contract_memory import MemoryContract
from cuebook.testing.contract_outcomes import OutcomeContract
from cuebook.testing.contract_places import PlacesContract
from cuebook.testing.contract_posts import PostsContract
from cuebook.testing.contract_prompts import PromptContract
from cuebook.testing.contract_reading import ReadingContract
from cuebook.testing.contract_reflections import ReflectionContract
from cuebook.testing.contract_scopes import ScopesContract
from cuebook.testing.contract_talks import TalksContract
from cuebook.testing.contract_turn_on import TurnOnContract
from cuebook.testing.contract_turns import TurnsContract
from cuebook.testing.contract_vectors import VectorsContract


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
