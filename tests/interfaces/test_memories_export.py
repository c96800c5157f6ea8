"""Tests of memory export: it streams in pieces and leaves nothing running when the client disconnects."""

import asyncio
import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable

import httpx
import pytest
from shared_app import app_of

from conftest import BASE, Live
from cuebook import Cuebook
from cuebook.interfaces.store import PlaceChange
from cuebook.records.memory import Memory, Place, Scope

MANY = 3_000
LONG = 2_000


async def store_memories(cue: Cuebook, user: str, count: int) -> None:
    """Store memories of about LONG characters."""
    place = Place("user", user)
    made = [
        Memory(
            id=f"{user}{n}",
            kind=place.kind,
            owner=place.id,
            category="facts",
            text=f"{user} {n} " + "x" * LONG,
            written=True,
        )
        for n in range(count)
    ]
    change = PlaceChange(place=place, generation=0, memories=tuple(made))
    assert await cue.services.store.memories.save(Scope(), change, now=1.0)


@pytest.mark.slow
async def test_export_lists_all_memories_of_a_user(cue: Cuebook, client: httpx.AsyncClient) -> None:
    await store_memories(cue, "ann", 450)
    await store_memories(cue, "bob", 3)
    exported = await client.get("/api/memories/export?userId=ann")
    assert exported.headers["content-type"] == "application/json"
    assert [each["id"] for each in exported.json()["items"]] == [f"ann{n}" for n in range(450)]
    assert set(exported.json()) == {"items"}
    assert (await client.get("/api/memories/export?userId=nobody")).json() == {"items": []}
    assert len((await client.get("/api/memories/export")).json()["items"]) == 453


@pytest.mark.slow
def test_long_export_streams_and_stops_on_disconnect(
    serve_live: Callable[..., Live],
) -> None:
    live = serve_live()
    live.ask_cue(lambda: store_memories(live.cue, "ann", MANY))
    tasks = live.ask_cue(_tasks)
    with httpx.Client(base_url=live.url, timeout=60) as client:
        size, body = 0, b""
        tracemalloc.start()
        with client.stream("GET", "/api/memories/export?userId=ann") as answer:
            assert answer.status_code == 200
            assert "content-length" not in answer.headers
            for piece in answer.iter_raw():
                size, body = size + len(piece), (body + piece)[-200:]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert size > MANY * LONG
        assert body.endswith(b"]}")
        assert peak < size / 2, "The export must not be in memory as a whole."
    with httpx.Client(base_url=live.url) as client, client.stream("GET", "/api/memories/export?userId=ann") as answer:
        assert next(answer.iter_raw(10))
    while live.ask_cue(_tasks) > tasks:  # no task remains after the disconnect
        live.ask_cue(lambda: asyncio.sleep(0.05))
    assert httpx.get(f"{live.url}/api/memories?userId=ann&limit=1").json()["items"][0]["id"] == "ann0"


async def _tasks() -> int:
    return len([each for each in asyncio.all_tasks() if "export" in str(each.get_coro()) or "_send" in str(each)])


async def test_unauthorized_export_is_rejected_before_it_starts(cue: Cuebook) -> None:
    key = await cue.keys.new("editor", user="ann")
    transport = httpx.ASGITransport(app_of(cue))
    shown = {"authorization": f"Bearer {key.token}"}
    async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=shown) as client:
        refused = await client.get("/api/memories/export?userId=bob")
        assert (refused.status_code, json.loads(refused.content)["status"]) == (403, 403)
        assert (await client.get("/api/memories/export?organizationId=acme")).status_code == 404
        assert (await client.get("/api/memories/export?userId=bob&everything=true")).status_code == 403
        await cue.append("c", [{"role": "user", "content": "I live in Oslo."}], user="ann")
        exported = await client.get("/api/memories/export?everything=true")
        assert exported.headers["content-type"] == "application/zip"
        archive = zipfile.ZipFile(io.BytesIO(exported.content))
        assert b"I live in Oslo." in archive.read("conversations/1/messages.jsonl")
