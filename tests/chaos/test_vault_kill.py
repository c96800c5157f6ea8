"""kill -9 while secrets are kept: a post is there with what was sealed of it, or not at all; no file holds a value."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from keeper import SECRET

from cuebook import Cuebook
from cuebook.backends.box import make_key_file
from cuebook.config import build

KEEPER = Path(__file__).with_name("keeper.py")
PLACES = [
    "append.stored:kill@2",
    "commit.before:kill@4",
    "commit.after:kill@4",
    "open.stored:kill",
    "checkpoint.stored:kill@3",
    "stream.ended:kill",
    "close.stored:kill",
]


class Later:
    """A clock ahead of every lease the dead process held."""

    def now(self) -> float:
        return time.time() + 120


def kept_until_killed(folder: Path, key: Path, failpoint: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(KEEPER), str(folder), str(key)],
        env={**os.environ, "CUEBOOK_FAILPOINT": failpoint},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("failpoint", PLACES)
async def test_a_post_and_its_sealed_values_stand_together_after_a_kill(tmp_path: Path, failpoint: str) -> None:
    folder, key = tmp_path / "store", tmp_path / "vault.key"
    folder.mkdir()
    make_key_file(key)
    said = await asyncio.to_thread(kept_until_killed, folder, key, failpoint)
    settings = {"store.url": "book.db", "secrets.vault": True, "secrets.vault_key_file": str(key)}
    config = build(arguments=settings, folder=str(folder))
    async with Cuebook.open(config, clock=Later(), worker=False) as book:
        await book.work()
        posts = await book.conversations.posts("c")
        with_tokens = {post.id for post in posts if "[[secret:github_token#" in post.message}
        revealed = await book.vault.reveal("c")
        assert {each.post for each in revealed} == with_tokens
        values = [value for each in revealed for value in each.values]
        assert all(SECRET.startswith(value) for value in values), "an answer may have broken off in the middle of one"
        assert set(said) <= {post.id for post in posts}
        assert (await book.vault.census()).unreadable == 0
    for file in folder.rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
    with closing(sqlite3.connect(folder / "book.db")) as connection:
        sealed = connection.execute("SELECT DISTINCT conversation, seq FROM sealed").fetchall()
        assert set(sealed) <= set(connection.execute("SELECT conversation, seq FROM post").fetchall())
