"""Tests of the suite for memory stores: Cuebook passes it, and stores with the faults that it looks for fail it."""

from contextlib import contextmanager, nullcontext

import pytest

from cuebook import BlockingCuebook, NotFound
from cuebook.testing.memory_suite import MemoryStoreSuite


class CuebookStore:
    """Cuebook's memories as the suite calls them."""

    def __init__(self, cue):
        self.memory = cue.memory

    def add(self, user, text):
        return self.memory.add(text, user=user).id

    def get(self, user, memory):
        try:
            return self.memory.get(memory, user=user).text
        except NotFound:
            return None

    def update(self, user, memory, text):
        self.memory.update(memory, text, user=user)

    def delete(self, user, memory):
        self.memory.delete(memory, user=user)

    def clear(self, user):
        self.memory.forget(user=user)

    def list(self, user):
        return [each.text for each in self.memory.list(user=user, limit=100)]

    def search(self, user, query, limit):
        return [each.text for each in self.memory.search(query, user=user, limit=limit)]


class TestCuebook(MemoryStoreSuite):
    @contextmanager
    def open_store(self, folder):
        with BlockingCuebook.open(arguments={"store.url": str(folder / "memories.db")}, worker=False) as cue:
            yield CuebookStore(cue)


class Words:
    """A store in memory that finds texts with a word of the query."""

    def __init__(self):
        self.texts = {}

    def add(self, user, text):
        self.texts[user, str(len(self.texts))] = text
        return str(len(self.texts) - 1)

    def get(self, user, memory):
        return self.texts.get((user, memory))

    def update(self, user, memory, text):
        if self.texts[user, memory] is None:
            raise KeyError(memory)
        self.texts[user, memory] = text

    def delete(self, user, memory):
        self.update(user, memory, None)

    def clear(self, user):
        for key in self.texts:
            if self.owns(user, key[0]):
                self.texts[key] = None

    def owns(self, user, owner):
        return owner == user

    def list(self, user):
        return [text for (owner, _), text in self.texts.items() if text is not None and self.owns(user, owner)]

    def search(self, user, query, limit):
        asked = {word for word in query.lower().strip("?").split() if len(word) > 3}
        found = [(len(asked & {*text.lower().strip(".").split()}), text) for text in self.list(user)]
        return [text for count, text in sorted(found, reverse=True) if count][:limit]


class TestWords(MemoryStoreSuite):
    durable = False

    def open_store(self, folder):
        return nullcontext(Words())


class Prefix(Words):
    def owns(self, user, owner):
        return owner.startswith(user)


class IgnoresCase(Words):
    def owns(self, user, owner):
        return owner.lower() == user.lower()


class ClearsAll(Words):
    def clear(self, user):
        self.texts = dict.fromkeys(self.texts)


class Stale(Words):
    def update(self, user, memory, text):
        super().update(user, memory, text)
        if text is not None:
            self.texts[user, f"{memory} before"] = "I live in Lisbon."


class KeepsDeleted(Words):
    def delete(self, user, memory):
        if self.get(user, memory) is None:
            raise KeyError(memory)


class IgnoresLimit(Words):
    def search(self, user, query, limit):
        return super().search(user, query, 99)


class ReturnsAll(Words):
    def search(self, user, query, limit):
        return super().search(user, query, limit) or self.list(user)[:limit]


class FindsLate(Words):
    def search(self, user, query, limit):
        return super().search(user, query, limit)[1:]


class AcceptsUnknown(Words):
    def delete(self, user, memory):
        self.texts[user, memory] = None


class OneLine(Words):
    def add(self, user, text):
        return super().add(user, text.replace("\n", " "))


@pytest.mark.parametrize(
    ("faulty", "test"),
    [
        (Prefix, "users_are_apart"),
        (IgnoresCase, "users_are_apart"),
        (ClearsAll, "clearing_a_user_leaves_the_others"),
        (Prefix, "clearing_a_user_leaves_the_others"),
        (Stale, "an_update_replaces_the_text_everywhere"),
        (KeepsDeleted, "a_deleted_memory_is_found_nowhere"),
        (KeepsDeleted, "random_calls_leave_what_a_dictionary_has"),
        (IgnoresLimit, "a_new_memory_is_found_at_once"),
        (FindsLate, "a_new_memory_is_found_at_once"),
        (ReturnsAll, "an_unrelated_query_finds_nothing"),
        (AcceptsUnknown, "unknown_memories_are_refused"),
        (OneLine, "texts_are_stored_verbatim"),
        (Words, "memories_survive_a_restart"),
    ],
)
def test_a_faulty_store_fails(tmp_path, faulty, test):
    class Suite(MemoryStoreSuite):
        def open_store(self, folder):
            return nullcontext(faulty())

    extra = {"random_calls_leave_what_a_dictionary_has": (0,)}
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        getattr(Suite(), f"test_{test}")(tmp_path, *extra.get(test, ()))
