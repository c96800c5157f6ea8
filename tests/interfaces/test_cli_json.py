"""Tests that `--json` output equals the answers of the HTTP API."""

import json
from typing import Any

import httpx
from commands import CommandRunner
from shared_app import app_of

from cuebook import Ask, Cuebook
from cuebook.app.setup.project_files import load_config

#: Each command and the route that returns the same JSON.
SAME = [
    (("conversation", "list"), "/api/conversations"),
    (("conversation", "session", "c1"), "/api/conversations/c1/session"),
    (("conversation", "shared", "c1"), "/api/conversations/c1/shared-entries"),
    (("turn", "list", "c1"), "/api/conversations/c1/turns"),
    (("turn", "show", "c1", "1"), "/api/conversations/c1/turns/1"),
    (("turn", "replay", "c1", "1"), "/api/conversations/c1/turns/1/replay"),
    (("memory", "list", "c1", "--ended"), "/api/conversations/c1/items?ended=true"),
    (("memory", "show", "c1"), "/api/conversations/c1/summary"),
]


async def test_json_output_equals_the_http_api(here: CommandRunner) -> None:
    async with Cuebook.open(load_config(here.folder, environment={})) as cue:
        messages = [{"role": "user", "content": f"We decided to paint wall {n} blue."} for n in range(30)]
        await cue.append("c1", messages)
        await cue.settle()
        await cue.ask(Ask("And wall 7?", "c1"))
        transport = httpx.ASGITransport(app_of(cue))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            answers = [(await client.get(route)).json() for _, route in SAME]
            about = (await client.get("/api/conversations/c1")).json()
            posts = (await client.get("/api/conversations/c1/posts")).json()
            response = await client.post("/api/memories/search", json={"query": "wall 7", "conversationId": "c1"})
    for (command, route), answer in zip(SAME, answers, strict=True):
        assert here.json(*command) == answer, route
    assert here.json("conversation", "show", "c1") == about | {"posts": posts["items"]}
    assert _without_time(here.json("memory", "search", "wall 7", "--conversation", "c1")) == _without_time(
        response.json()
    )


def _without_time(found: dict[str, Any]) -> str:
    """Return hits without the fields that depend on the time of the query."""
    return json.dumps([{**hit, "score": 0, "why": ""} for hit in found["hits"]])
