"""A time zone over HTTP and on the command line: taken, kept, and refused by the name of its field."""

import json

import httpx
import pytest
from commands import Here

from conftest import Live

HERE = "Europe/Amsterdam"
POSTS = [
    *({"sendFrom": "ann", "message": f"Nothing new but the {word}.", "timestamp": f"2026-01-0{n}T12:00:00Z"}
      for n, word in enumerate("bread cheese rain bus soap lamp chair".split(), 1)),
    {"id": "a", "sendFrom": "ann", "message": "We sailed to Texel.", "timestamp": "2026-04-30T12:00:00+02:00"},
    {"id": "b", "sendFrom": "ann", "message": "We sailed to Vlieland.", "timestamp": "2026-05-01T00:30:00+02:00"},
]  # fmt: skip


async def found(client: httpx.AsyncClient, query: str, **more: str) -> str:
    answer = await client.post("/api/memories/search", json={"query": query, "conversationId": "c1"} | more)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["hits"][0]["text"])


async def test_posts_of_a_zone_are_found_by_its_days(client: httpx.AsyncClient) -> None:
    answer = await client.post("/api/conversations/c1/posts", json={"posts": POSTS, "timeZone": HERE})
    assert answer.status_code == 201, answer.text
    assert await found(client, "Where did we sail on 1 May?") == "We sailed to Vlieland."
    assert await found(client, "Where did we sail on 30 April?") == "We sailed to Texel."
    kept = (await client.get("/api/conversations/c1")).json()["metadata"]
    assert kept["timeZone"] == HERE


async def test_a_chat_keeps_the_zone_and_a_window_tells_its_days(client: httpx.AsyncClient) -> None:
    body = {"message": "Hi", "conversationId": "c2", "timeZone": "Asia/Kathmandu"}
    assert (await client.post("/api/chat", json=body)).status_code == 200
    assert (await client.get("/api/conversations/c2")).json()["metadata"]["timeZone"] == "Asia/Kathmandu"
    assert (await client.post("/api/assemble", json=body | {"timeZone": HERE})).status_code == 200
    kept = (await client.get("/api/conversations/c2")).json()["metadata"]["timeZone"]
    assert kept == "Asia/Kathmandu", "an assembled window stores nothing"


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/api/chat", {"message": "Hi", "conversationId": "c3"}),
        ("/api/assemble", {"message": "Hi", "conversationId": "c3"}),
        ("/api/conversations/c3/posts", {"posts": POSTS}),
        ("/api/memories/search", {"query": "Hi"}),
    ],
)
async def test_an_unknown_zone_is_400_naming_the_field(client: httpx.AsyncClient, route: str, body: dict) -> None:
    answer = await client.post(route, json=body | {"timeZone": "Europe/Atlantis"})
    assert answer.status_code == 400
    assert "timeZone" in answer.text
    assert "Europe/Atlantis" in answer.json()["detail"]
    assert (await client.get("/api/conversations/c3")).status_code == 404


def test_the_openai_wire_takes_it_in_a_header_of_our_own(relayed: Live, upstream) -> None:
    body = {"model": "plain", "messages": [{"role": "user", "content": "Hello"}]}
    with httpx.Client(base_url=relayed.url, timeout=20) as client:
        headers = {"X-Conversation-Id": "c4", "X-Time-Zone": "Pacific/Kiritimati"}
        assert client.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
        assert "x-time-zone" not in upstream.last.headers
        kept = client.get("/api/conversations/c4").json()["metadata"]
        assert kept["timeZone"] == "Pacific/Kiritimati"
        refused = client.post("/v1/chat/completions", json=body, headers=headers | {"X-Time-Zone": "Moon/Base"})
        assert refused.status_code == 400
        assert "X-Time-Zone" in refused.json()["error"]["message"]


def test_the_command_line_imports_asks_and_shows_days_of_a_zone(here: Here) -> None:
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
        HERE,
    )
    assert "2026-05-01 ann" in here("memory", "search", "sailed Vlieland", "--conversation", "c1", "--user", "ann")
    shown = here("memory", "search", "sailed Vlieland", "--conversation", "c1", "--user", "ann", "--time-zone", "UTC")
    assert "2026-04-30 ann" in shown
    assert here.json("conversation", "show", "c1", "--user", "ann")["metadata"]["timeZone"] == HERE
    file = str(here.folder / "export.json")
    here("conversation", "export", "c1", "--user", "ann", "-o", file)
    here("conversation", "import", file, "--conversation", "again", "--user", "ann")
    assert here.json("conversation", "show", "again", "--user", "ann")["metadata"]["timeZone"] == HERE
