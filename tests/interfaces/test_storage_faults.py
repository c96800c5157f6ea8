"""Tests of a server whose disk, database file or key file fails: it refuses writes, says why, and still erases."""

import os
import shutil
from pathlib import Path

import httpx
from commands import CommandRunner
from shared_app import app_of

from conftest import BASE, config
from cuebook import Cuebook, Posted
from storage.databases import mounted


async def test_a_server_whose_database_is_removed_is_not_ready(tmp_path: Path) -> None:
    file = tmp_path / "my.db"
    body = {"posts": [{"sendFrom": "ann", "message": "Hi"}]}
    async with (
        Cuebook.open(config(store=str(file))) as cue,
        httpx.AsyncClient(transport=httpx.ASGITransport(app_of(cue)), base_url=BASE) as client,
    ):
        assert (await client.post("/api/conversations/c1/posts", json=body)).status_code == 201
        file.unlink()
        refused = await client.post("/api/conversations/c1/posts", json=body)
        ready = await client.get("/readyz")
    assert (refused.status_code, ready.status_code) == (500, 503)
    assert "The database was removed while it was open: 'my.db'. Nothing of this request was stored." in refused.text
    assert "'my.db'" in ready.text
    assert str(tmp_path) not in ready.text
    assert not file.exists()


async def test_forget_works_on_a_full_disk_from_the_reserve() -> None:
    with mounted("160m") as place:
        async with (
            Cuebook.open(config(store=str(place / "my.db")), worker=False) as cue,
            httpx.AsyncClient(transport=httpx.ASGITransport(app_of(cue)), base_url=BASE) as client,
        ):
            for user in ("ann", "bob"):
                posts = [Posted(sender=user, message=f"{user} likes number {n}. " * 30) for n in range(100)]
                await cue.append(user, posts, user=user)
            await cue.services.store.database.reserve()
            reserved = (place / "my.db-reserve").stat().st_size
            assert 1_000_000 < reserved < 2_000_000
            _fill(place / "ballast")
            large = {"posts": [{"sendFrom": "bob", "message": "x" * 500_000}]}
            refused = await client.post("/api/conversations/bob/posts", json=large)
            assert (refused.status_code, (await client.get("/readyz")).json()["status"]) == (507, "degraded")
            receipt = await cue.memory.forget(user="ann")
            assert receipt.counts["posts"] == 100
            assert [each.id for each in (await cue.conversations.list()).items] == ["bob"]
            (place / "ballast").unlink()
            assert (await client.get("/readyz")).json()["status"] == "ready"
            await cue.memory.finish_receipts()
            assert (await cue.memory.receipt(receipt.id)).state == "done"
            assert (place / "my.db-reserve").exists(), "there is space for it again"
        assert sorted(each.name for each in place.iterdir()) == ["my.db", "my.db.key"]


def _fill(file: Path) -> None:
    with file.open("wb", buffering=0) as ballast:
        free = shutil.disk_usage(file.parent).free
        os.posix_fallocate(ballast.fileno(), 0, free - free % 4096)


def test_a_missing_key_file_is_reported(here: CommandRunner) -> None:
    here.json("key", "new", "--role", "owner")
    key = here.folder / ".cuebook/cuebook.db.key"
    content = key.read_bytes()
    key.unlink()
    for command in ("doctor", "serve"):
        text = here(command, "--port", "0", code=1) if command == "serve" else here(command, code=1)
        assert f"Key file not found: '{key}'. 1 API key of the database" in " ".join(text.split())
    assert not key.exists()
    key.write_bytes(content)
    here("doctor")
