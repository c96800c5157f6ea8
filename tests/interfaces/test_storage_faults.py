"""Tests of a server whose disk, database file or key file fails: it refuses writes, says why, and still erases."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from commands import CommandRunner, write_messages
from shared_app import app_of

from conftest import BASE, config
from cuebook import Cuebook, Posted
from storage.databases import mounted

#: Texts that are not UTF-8.
DAMAGE = [
    f"UPDATE {column} = CAST(x'5365637265742e20ff' AS TEXT)" for column in ("memory SET text", "post SET message")
]


def change(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as database, database:
        for statement in statements:
            database.execute(statement)


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
        assert sorted(each.name for each in place.iterdir()) == ["my.db", "my.db.audit.jsonl", "my.db.key"]


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


@pytest.mark.parametrize("value", ["'x'", "x'ff'", "CAST(x'ff' AS TEXT)", "1.5"])
def test_a_schema_version_that_is_no_number_is_damage(here: CommandRunner, value: str) -> None:
    here("memory", "add", "Lives in Bergen.", "--user", "ann")
    change(here.folder / ".cuebook/cuebook.db", f"UPDATE schema_version SET version = {value}")  # noqa: S608
    assert "has no valid schema version. It is damaged: restore it from a backup." in here("doctor", code=1)
    assert "has no valid schema version." in here("memory", "list", code=1)


def test_a_text_that_is_not_utf8_is_named_by_doctor_and_refused_without_its_content(
    here: CommandRunner, tmp_path: Path
) -> None:
    here("memory", "add", "Lives in Bergen.", "--user", "ann")
    here("conversation", "import", write_messages(tmp_path, ("user", "I moved to Bergen.")), "--user", "ann")
    file = here.folder / ".cuebook/cuebook.db"
    change(file, *DAMAGE)
    for arguments in (
        ["memory", "list", "--user", "ann"],
        ["memory", "export", "--user", "ann"],
        ["conversation", "export", "--all"],
    ):
        refused = here(*arguments, code=1)
        assert "The database is damaged: a text in column" in refused
        assert "Secret" not in refused
    named = "column 'text' of the row of 'memory' with no 1 has another type, or is not UTF-8"
    assert named in here("doctor", code=1)
    assert "' of user 'ann' was changed" in here("audit", "verify", code=1)
    here("backup", str(tmp_path / "x.backup"))


async def test_a_server_refuses_to_read_a_text_that_is_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / "my.db"
    async with (
        Cuebook.open(config(store=str(file))) as cue,
        httpx.AsyncClient(transport=httpx.ASGITransport(app_of(cue)), base_url=BASE) as client,
    ):
        await cue.memory.add("Lives in Bergen.", user="ann")
        await cue.append("trip", [Posted(message="I moved to Bergen.", sender="ann")], user="ann")
        change(file, *DAMAGE)
        for path in ("memories?userId=ann", "conversations/trip/posts"):
            answer = await client.get(f"/api/{path}")
            assert (answer.status_code, answer.json()["type"]) == (500, "urn:cuebook:problem:backend"), answer.text
            assert "is not UTF-8" in answer.text
            assert "Secret" not in answer.text
        assert (await client.post("/api/audit/verify")).json()["data"]["found"] == 1


@pytest.mark.parametrize("value", ["{", '{"state": "odd"}', "\xff"])
async def test_a_stored_value_that_is_not_valid_is_refused_without_its_content(tmp_path: Path, value: str) -> None:
    file = tmp_path / "my.db"
    async with (
        Cuebook.open(config(store=str(file))) as cue,
        httpx.AsyncClient(transport=httpx.ASGITransport(app_of(cue)), base_url=BASE) as client,
    ):
        receipt = await cue.memory.forget(user="ann")
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("UPDATE receipt SET body = ?", (value.encode("latin-1"),))
        answer = await client.get(f"/api/receipts/{receipt.id}")
        assert (answer.status_code, answer.json()["type"]) == (500, "urn:cuebook:problem:backend")
        detail = "The database is damaged: a stored value is not valid JSON. Restore a backup."
        assert answer.json()["detail"] == detail
