"""Tests for any store of agent memories, also other projects': subclass `MemoryStoreSuite` in a test module.

The suite checks what users of memory stores report as faults: memories of another user, stale texts after an update,
deleted memories in results, new memories that no search finds, and a deletion that reaches too far. It needs pytest.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Protocol

import pytest


class MemoryStore(Protocol):
    """A store as the suite calls it. Write these methods over the store to test."""

    def add(self, user: str, text: str) -> str:
        """Store a memory of a user; return its id."""

    def get(self, user: str, memory: str) -> str | None:
        """Return the text of a memory, None for an unknown or deleted one."""

    def update(self, user: str, memory: str, text: str) -> None:
        """Replace the text of a memory. Raises an error for an unknown one."""

    def delete(self, user: str, memory: str) -> None:
        """Delete a memory. Raises an error for an unknown one."""

    def clear(self, user: str) -> None:
        """Delete all memories of a user."""

    def list(self, user: str) -> Sequence[str]:
        """Return the texts of all memories of a user, in any order."""

    def search(self, user: str, query: str, limit: int) -> Sequence[str]:
        """Return the texts that match a query, best first, at most `limit`."""


#: Users whose names a careless pattern or prefix confuses.
USERS: Final = ("ann", "ann2", "Ann", "an%", "a_n", "ann/notes", "änn", "ann\\'; --")
TEXTS: Final = (
    "I prefer the aisle seat on trains.",
    "Mein Büro liegt in Zürich, im 3. Stock.",
    "私は毎朝ほうじ茶を飲みます。",
    'Line one about gardening.\nLine two: "quotes", 100% {braces} and \\backslashes\\ 🪴',
    "The budget for the kitchen is 12,500 euros. " * 40 + "It is final.",
)


class MemoryStoreSuite(ABC):
    """Subclass it as `class TestMyStore(MemoryStoreSuite)` and implement `open_store`; pytest runs its tests.

    Set `durable = False` for a store that a second `open_store` with the same folder does not find again, and
    `selective = False` for one that returns memories for unrelated queries too.
    """

    durable = True
    selective = True

    @abstractmethod
    def open_store(self, folder: Path) -> AbstractContextManager[MemoryStore]:
        """Open a store that keeps its data in a folder, and close it at the end."""

    def test_texts_are_stored_verbatim(self, tmp_path: Path) -> None:
        with self.open_store(tmp_path) as store:
            ids = [store.add("ann", text) for text in TEXTS]
            assert len(set(ids)) == len(TEXTS)
            assert [store.get("ann", each) for each in ids] == list(TEXTS)
            assert sorted(store.list("ann")) == sorted(TEXTS)

    def test_a_new_memory_is_found_at_once(self, tmp_path: Path) -> None:
        with self.open_store(tmp_path) as store:
            store.add("ann", "My dentist is called Doctor Quimby.")
            for number in range(20):
                store.add("ann", f"Note {number}: the weather on day {number} was mild.")
            best = store.search("ann", "What is my dentist called?", 5)[:1]
            assert "Quimby" in "".join(best)
            assert len(store.search("ann", "What was the weather?", 3)) <= 3

    def test_an_unrelated_query_finds_nothing(self, tmp_path: Path) -> None:
        if not self.selective:
            pytest.skip("the store returns memories for unrelated queries")
        with self.open_store(tmp_path) as store:
            store.add("ann", "My dentist is called Doctor Quimby.")
            assert list(store.search("ann", "quantum chromodynamics lattice", 5)) == []

    def test_an_update_replaces_the_text_everywhere(self, tmp_path: Path) -> None:
        with self.open_store(tmp_path) as store:
            memory = store.add("ann", "I live in Lisbon.")
            store.update("ann", memory, "I live in Tromsø.")
            assert store.get("ann", memory) == "I live in Tromsø."
            assert list(store.list("ann")) == ["I live in Tromsø."]
            assert not [text for text in store.search("ann", "Do I live in Lisbon?", 9) if "Lisbon" in text]

    def test_a_deleted_memory_is_found_nowhere(self, tmp_path: Path) -> None:
        with self.open_store(tmp_path) as store:
            memory, other = store.add("ann", "My cat is called Mittens."), store.add("ann", "My dog is called Rex.")
            store.delete("ann", memory)
            assert store.get("ann", memory) is None
            assert not [text for text in store.search("ann", "What is my cat called?", 9) if "Mittens" in text]
            assert list(store.list("ann")) == ["My dog is called Rex."]
            assert store.get("ann", other) is not None

    def test_unknown_memories_are_refused(self, tmp_path: Path) -> None:
        with self.open_store(tmp_path) as store:
            memory = store.add("ann", "My cat is called Mittens.")
            store.delete("ann", memory)
            assert store.get("ann", memory) is None
            with pytest.raises(Exception):  # noqa: B017, PT011  # each store has its own errors
                store.update("ann", memory, "x")
            with pytest.raises(Exception):  # noqa: B017, PT011
                store.delete("ann", memory)

    def test_users_are_apart(self, tmp_path: Path) -> None:
        with self.open_store(tmp_path) as store:
            for user in USERS:
                store.add(user, f"The secret word of {user} is about turnips.")
            for user in USERS:
                own = [f"The secret word of {user} is about turnips."]
                assert list(store.list(user)) == own
                assert list(store.search(user, "What is the secret word about turnips?", 20)) == own

    def test_clearing_a_user_leaves_the_others(self, tmp_path: Path) -> None:
        with self.open_store(tmp_path) as store:
            for user in USERS:
                store.add(user, f"A memory of {user}.")
            for number, user in enumerate(USERS, start=1):
                store.clear(user)
                assert [each for each in USERS if not store.list(each)] == list(USERS[:number])
            store.clear(USERS[0])

    def test_memories_survive_a_restart(self, tmp_path: Path) -> None:
        if not self.durable:
            pytest.skip("the store is in memory")
        with self.open_store(tmp_path) as store:
            memory = store.add("ann", "My dentist is called Doctor Quimby.")
        with self.open_store(tmp_path) as store:
            assert store.get("ann", memory) == "My dentist is called Doctor Quimby."
            assert store.search("ann", "Who is my dentist?", 5)

    @pytest.mark.parametrize("seed", range(2))
    def test_random_calls_leave_what_a_dictionary_has(self, tmp_path: Path, seed: int) -> None:
        dice, expected = random.Random(seed), dict[tuple[str, str], str]()  # noqa: S311  # repeatable calls
        with self.open_store(tmp_path) as store:
            for number in range(20):
                user = dice.choice(USERS[:3])
                keys = [key for key in expected if key[0] == user]
                call = dice.choice(("add", "add", "add", "update", "delete", "clear") if keys else ("add",))
                _apply(store, expected, call, number, keys, user, dice)
                assert sorted(store.list(user)) == sorted(text for key, text in expected.items() if key[0] == user)
            assert {key: store.get(*key) for key in expected} == expected


def _apply(store: MemoryStore, expected: dict[tuple[str, str], str], call: str, number: int, *rest: Any) -> None:
    """Make a call on the store and on the dictionary that it must equal."""
    keys, user, dice = rest
    text = f"Fact {number} of {user}."
    if call == "add":
        expected[user, store.add(user, text)] = text
    elif call == "clear":
        store.clear(user)
        for key in keys:
            del expected[key]
    else:
        owner, memory = dice.choice(keys)
        if call == "update":
            store.update(owner, memory, text)
            expected[owner, memory] = text
        else:
            store.delete(owner, memory)
            del expected[owner, memory]
