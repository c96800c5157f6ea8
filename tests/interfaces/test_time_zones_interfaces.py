"""Tests of time zones over HTTP and on the command line: accepted, stored and validated."""

import json

import httpx
import pytest
from commands import CommandRunner

from conftest import Live

TIME_ZONE = "Europe/Amsterdam"
POSTS = [
    *({"sendFrom": "ann", "message": f"Nothing new but the {word}.", "timestamp": f"2026-01-0{n}T12:00:00Z"}
      for n, word in enumerate("bread cheese rain bus soap lamp chair".split(), 1)),
    {"id": "a", "sendFrom": "ann", "message": "We sailed to Texel.", "timestamp": "2026-04-30T12:00:00+02:00"},
    {"id": "b", "sendFrom": "ann", "message": "We sailed to Vlieland.", "timestamp": "2026-05-01T00:30:00+02:00"},
]  # fmt: skip


async def first_hit(client: httpx.AsyncClient, query: str, **more: str) -> str:
    answer = await client.post("/api/memories/search", json={"query": query, "conversationId": "c1"} | more)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["hits"][0]["text"])


async def test_search_resolves_dates_in_the_conversations_time_zone(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/conversations/c1/posts", json={"posts": POSTS, "timeZone": TIME_ZONE})
    assert answer.status_code == 201, answer.text
    assert await first_hit(client, "Where did we sail on 1 May?") == "We sailed to Vlieland."
    assert await first_hit(client, "Where did we sail on 30 April?") == "We sailed to Texel."
    metadata = (await client.get("/api/conversations/c1")).json()["metadata"]
    assert metadata["timeZone"] == TIME_ZONE


async def test_chat_stores_the_time_zone_and_assemble_does_not(client: httpx.AsyncClient) -> None:
    body = {"message": "Hi", "conversationId": "c2", "timeZone": "Asia/Kathmandu"}
    assert (await client.post("/api/chat", json=body)).status_code == 200
    assert (await client.get("/api/conversations/c2")).json()["metadata"]["timeZone"] == "Asia/Kathmandu"
    assert (await client.post("/api/assemble", json=body | {"timeZone": TIME_ZONE})).status_code == 200
    metadata = (await client.get("/api/conversations/c2")).json()["metadata"]["timeZone"]
    assert metadata == "Asia/Kathmandu", "Assembling a window must store nothing."


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/api/chat", {"message": "Hi", "conversationId": "c3"}),
        ("/api/assemble", {"message": "Hi", "conversationId": "c3"}),
        ("/api/conversations/c3/posts", {"posts": POSTS}),
        ("/api/memories/search", {"query": "Hi"}),
    ],
)
async def test_unknown_time_zone_error_names_the_field(client: httpx.AsyncClient, route: str, body: dict) -> None:
    answer = await client.post(route, json=body | {"timeZone": "Europe/Atlantis"})
    assert answer.status_code == 400
    assert "timeZone" in answer.text
    assert "Europe/Atlantis" in answer.json()["detail"]
    assert (await client.get("/api/conversations/c3")).status_code == 404


def test_openai_api_accepts_the_time_zone_header(relayed: Live, upstream) -> None:
    body = {"model": "plain", "messages": [{"role": "user", "content": "Hello"}]}
    with httpx.Client(base_url=relayed.url, timeout=60) as client:
        headers = {"X-Conversation-Id": "c4", "X-Time-Zone": "Pacific/Kiritimati"}
        assert client.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
        assert "x-time-zone" not in upstream.last.headers
        metadata = client.get("/api/conversations/c4").json()["metadata"]
        assert metadata["timeZone"] == "Pacific/Kiritimati"
        refused = client.post("/v1/chat/completions", json=body, headers=headers | {"X-Time-Zone": "Moon/Base"})
        assert refused.status_code == 400
        assert "X-Time-Zone" in refused.json()["error"]["message"]


@pytest.mark.slow
def test_commands_use_the_time_zone_of_an_import(here: CommandRunner) -> None:
    (here.folder / "talk.json").write_text(json.dumps({"posts": POSTS}), "utf-8")
    here(
        "conversation",
        "import",
        str(here.folder / "talk.json"),
        "--conversation",
        "c1",
        "--user",
        "ann",
        "--time-zone",
        TIME_ZONE,
    )
    assert "2026-05-01 ann" in here("memory", "search", "sailed Vlieland", "--conversation", "c1", "--user", "ann")
    output = here("memory", "search", "sailed Vlieland", "--conversation", "c1", "--user", "ann", "--time-zone", "UTC")
    assert "2026-04-30 ann" in output
    assert here.json("conversation", "show", "c1", "--user", "ann")["metadata"]["timeZone"] == TIME_ZONE
    file = str(here.folder / "export.json")
    here("conversation", "export", "c1", "--user", "ann", "-o", file)
    here("conversation", "import", file, "--conversation", "again", "--user", "ann")
    assert here.json("conversation", "show", "again", "--user", "ann")["metadata"]["timeZone"] == TIME_ZONE
