"""Runs the store contract on the SQLite store, in a file and in memory."""

import pytest

from cuebook.storage.store import sqlite_store
from empty_database import write_empty_database
from storage.contract import StoreContract


class TestSqliteFile(StoreContract):
    @pytest.fixture(autouse=True)
    def place(self, tmp_path):
        self.path = tmp_path / "cuebook.db"
        write_empty_database(self.path)

    async def make_store(self):
        return sqlite_store(str(self.path), synchronous="OFF")

    async def reopen(self):
        return sqlite_store(str(self.path), synchronous="OFF")


@pytest.mark.slow  # the tests of the interfaces run on it too
class TestSqliteMemory(StoreContract):
    async def make_store(self):
        return sqlite_store()
