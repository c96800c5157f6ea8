"""Tests of erasure over HTTP and on the command line: requests, receipts, pending erasures and refusals."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from commands import CommandRunner, cuebook
from shared_app import app_of

from conftest import BASE, config
from cuebook import Cuebook
from cuebook.testing.doubles import ScriptedModel

POSTS = {"posts": [{"sendFrom": "ann", "message": "My boat lies in Zanzibarquokka."}], "userId": "ann"}


async def store_posts(client: httpx.AsyncClient, conversation: str = "c1", **more: Any) -> None:
    answer = await client.post(f"/api/conversations/{conversation}/posts", json=POSTS | more)
    assert answer.status_code == 201


async def test_forgetting_a_user_returns_a_readable_receipt(client: httpx.AsyncClient) -> None:
    await store_posts(client)
    await store_posts(client, "c2")
    answer = await client.post("/api/memories/forget", json={"userId": "ann", "reason": "asked by mail"})
    assert answer.status_code == 200
    receipt = answer.json()["receipt"]
    assert (receipt["state"], receipt["kind"], receipt["reason"]) == ("done", "user", "asked by mail")
    assert receipt["counts"]["conversations"] == 2
    assert receipt["signature"].startswith("ed25519:")
    assert "ann" not in receipt["asked"]
    assert (await client.get("/api/conversations")).json()["items"] == []
    second = await client.get(f"/api/receipts/{receipt['id']}")
    assert (second.status_code, second.json()["receipt"]) == (200, receipt)
    assert (await client.get("/api/receipts/receipt-x")).status_code == 404
    zeros = await client.post("/api/memories/forget", json={"userId": "ann"})
    assert (zeros.status_code, sum(zeros.json()["receipt"]["counts"].values())) == (200, 0)


async def test_forget_request_names_exactly_one_target(client: httpx.AsyncClient) -> None:
    for body in ({}, {"userId": "ann", "conversationId": "c1"}, {"memoryIds": []}, {"userId": ""}, {"user": "ann"}):
        answer = await client.post("/api/memories/forget", json=body)
        assert answer.status_code == 400, body


async def test_dry_run_reports_counts_and_erases_nothing(client: httpx.AsyncClient, cue: Cuebook) -> None:
    await store_posts(client)
    answer = await client.post("/api/memories/forget", json={"userId": "ann", "dryRun": True})
    assert (answer.status_code, list(answer.json())) == (200, ["wouldForget"])
    result = answer.json()["wouldForget"]
    assert (result["counts"]["posts"], result["conversations"]) == (
        1,
        [{"conversationId": "c1", "posts": 1, "left": 0}],
    )
    assert (await client.get("/api/conversations/c1")).status_code == 200
    assert await cue.memory.receipts() == []


async def test_user_cannot_forget_conversations_of_others(client: httpx.AsyncClient) -> None:
    await store_posts(client)
    asks = {"conversationId": "c1"}
    answer = await client.post("/api/memories/forget", json=asks, headers={"x-user-id": "bob"})
    assert (answer.status_code, sum(answer.json()["receipt"]["counts"].values())) == (200, 0)
    assert (await client.get("/api/conversations/c1")).status_code == 200
    answer = await client.post("/api/memories/forget", json=asks, headers={"x-user-id": "ann"})
    assert answer.json()["receipt"]["counts"]["conversations"] == 1


async def test_erasure_during_another_read_is_pending(tmp_path: Path) -> None:
    cue = Cuebook.open(config(store=str(tmp_path / "cuebook.db")), model=ScriptedModel(default="Noted."), worker=False)
    async with cue:
        transport = httpx.ASGITransport(app=app_of(cue))
        async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
            await store_posts(client)
            with closing(sqlite3.connect(tmp_path / "cuebook.db", isolation_level=None)) as reader:
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM post").fetchone()
                answer = await client.post("/api/memories/forget", json={"conversationId": "c1"})
                assert (answer.status_code, answer.json()["receipt"]["state"]) == (202, "pending")
                place = f"/api/receipts/{answer.json()['receipt']['id']}"
                assert (await client.get(place)).status_code == 202
            signed = await client.get(place)
            assert (signed.status_code, signed.json()["receipt"]["state"]) == (200, "done")


async def test_memory_is_forgotten_by_id(client: httpx.AsyncClient, cue: Cuebook) -> None:
    policy = {"longTermMemory": {"scopes": {"user": True}}}
    body = {"message": "I live in Oslo.", "conversationId": "c1", "userId": "ann", "memoryControl": policy}
    assert (await client.post("/api/chat", json=body)).status_code == 200
    await cue.settle()
    [memory] = (await client.get("/api/memories?userId=ann")).json()["items"]
    place = f"/api/memories/{memory['id']}"
    assert (await client.delete(place, headers={"x-user-id": "bob"})).status_code == 404
    answer = await client.delete(f"{place}?userId=ann")
    assert (answer.status_code, answer.json()["receipt"]["counts"]["memories"]) == (200, 1)
    assert (await client.get("/api/memories?userId=ann")).json()["items"] == []
    assert (await client.delete(f"{place}?userId=ann")).status_code == 404
    answer = await client.post("/api/memories/forget", json={"memoryIds": [memory["id"]]})
    assert sum(answer.json()["receipt"]["counts"].values()) == 0


async def test_deleted_counts_match_the_receipt(client: httpx.AsyncClient, cue: Cuebook) -> None:
    await store_posts(client)
    assert (await client.post("/api/chat", json={"message": "Hm?", "conversationId": "c1", "userId": "ann"})).is_success
    await cue.settle()
    deleted = (await client.delete("/api/conversations/c1?userId=ann")).json()["deleted"]
    [receipt] = await cue.memory.receipts()
    assert deleted == dict(receipt.counts)
    assert (deleted["conversations"], deleted["posts"], deleted["turns"]) == (1, 3, 1)
    assert all(name.isalpha() and name[0].islower() for name in deleted), "camelCase"


# ---- the command line


@pytest.fixture
def import_post(here: CommandRunner) -> Callable[[], None]:
    """Return a function that imports ann's post into c1."""

    def run_import() -> None:
        file = here.folder / "talk.json"
        file.write_text(json.dumps([{"role": "user", "content": "My boat lies in Zanzibarquokka."}]))
        here("conversation", "import", str(file), "--conversation", "c1", "--user", "ann")

    return run_import


@pytest.mark.slow
def test_forget_command_erases_and_its_receipt_is_verified(
    here: CommandRunner, import_post: Callable[[], None]
) -> None:
    import_post()
    refused = here("memory", "forget", "--user", "ann", code=1)
    assert "Nothing was forgotten. Use --yes to skip the confirmation." in refused
    assert len(here.json("conversation", "list")["items"]) == 1
    would = here("memory", "forget", "--user", "ann", "--dry-run")
    erased = "conversations (1), entries of the full-text index (1), posts (1)"
    assert would.startswith(f"dry run: nothing was erased; would erase: {erased}")
    assert "  conversation c1: 1 post\n" in would
    would = here.json("memory", "forget", "--user", "ann", "--dry-run")["wouldForget"]
    receipt = here.json("memory", "forget", "--user", "ann", "--yes")["receipt"]
    assert {kind: count for kind, count in receipt["counts"].items() if count} == would["counts"]
    assert here.json("conversation", "list")["items"] == []
    assert not [file for file in here.folder.rglob("*") if file.is_file() and b"Zanzibarquokka" in file.read_bytes()
                and file.name != "talk.json"]  # fmt: skip
    listed = here.json("memory", "receipt", "list")["items"]
    assert listed == [receipt]
    assert here("memory", "receipt", "verify", receipt["id"], "--about", "ann").startswith(
        "ok: signed by this database"
    )
    assert "it does not cover 'bob'" in here("memory", "receipt", "verify", receipt["id"], "--about", "bob", code=1)
    file = here.folder / "receipt.json"
    file.write_text(here("memory", "receipt", "show", receipt["id"]))
    assert here.json("memory", "receipt", "verify", str(file))["ok"] is True
    file.write_text(file.read_text().replace('"conversations": 1', '"conversations": 0'))
    assert here.json("memory", "receipt", "verify", str(file), code=1)["ok"] is False
    file.write_text("{}")
    assert "Not a receipt" in here("memory", "receipt", "verify", str(file), code=1)


def test_forget_requires_a_target_and_yes_in_a_pipe(tmp_path: Path) -> None:
    cuebook("init", "project", cwd=tmp_path)
    done = cuebook("memory", "forget", cwd=tmp_path / "project")
    assert done.returncode == 2
    assert "Nothing to forget" in done.stderr
    done = cuebook("memory", "forget", "--user", "ann", cwd=tmp_path / "project", stdin="y\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "--yes" in done.stderr


@pytest.mark.slow
def test_the_import_of_an_old_export_of_a_forgotten_user_asks(here: CommandRunner, tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(json.dumps([{"role": "user", "content": "I like plums"}]))
    here("conversation", "import", str(old), "--conversation", "c1", "--user", "ann")
    here("conversation", "export", "c1", "-o", str(new))
    assert "exports and backups of audit records" in here("memory", "forget", "--user", "ann", "--yes")
    for file in (old, new):
        refusal = here("conversation", "import", str(file), "--conversation", "c2", "--user", "ann", code=1)
        assert "c2: its user was forgotten on " in refusal
        assert "Nothing was imported. Use --yes to skip the confirmation." in refusal
    assert here.json("conversation", "list")["items"] == []
    here("conversation", "import", str(new), "--conversation", "c2", "--yes")
    returned = json.loads(new.read_text())
    for post in returned["posts"]:
        post["timestamp"] = "2099-01-01T00:00:00Z"
    new.write_text(json.dumps(returned))
    assert "1 of 1 post new" in here("conversation", "import", str(new), "--conversation", "c3")
