"""Tests of authorization: users, organizations and roles cannot access each other's data on a real server."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from conftest import Live, config
from cuebook.testing.doubles import ScriptedModel

SHARES = {"longTermMemory": {"scopes": {"user": True, "organization": True}, "shareWithOrganization": True}}
KEYS: dict[str, tuple[str, str | None, tuple[str, ...]]] = {
    "ann": ("editor", "ann", ("acme",)),
    "bob": ("viewer", "bob", ("umb",)),
    "mara": ("admin", "mara", ("acme",)),
    "uma": ("admin", "uma", ("umb",)),
    "agent": ("agent", None, ()),
    "owner": ("owner", None, ()),
}
ANNS, PLANT = "I live in Zanzibarquokka.", "Our plant is in Xylorimba."


@pytest.fixture
def callers(serve_live: Callable[..., Live], tmp_path: Any) -> Iterator[dict[str, httpx.Client]]:
    live = serve_live(config(store=str(tmp_path / "cuebook.db")), model=ScriptedModel(default="Noted."))
    made = {}
    for name, (role, user, organizations) in KEYS.items():
        key = live.ask_cue(lambda r=role, u=user, o=organizations: live.cue.keys.new(r, user=u, organizations=o))
        made[name] = httpx.Client(
            base_url=live.url, headers={"authorization": f"Bearer {key.token}"}, timeout=60, trust_env=False
        )
    say(made["ann"], ANNS, "a1")
    say(made["mara"], PLANT, "m1", organizationId="acme", memoryControl=SHARES)
    live.ask_cue(live.cue.settle)
    yield made
    for client in made.values():
        client.close()


def say(client: httpx.Client, text: str, talk: str, **more: Any) -> None:
    response = client.post("/api/chat", json={"message": text, "conversationId": talk} | more)
    assert response.status_code == 200, response.text


def test_keys_cannot_read_other_users_data(callers: dict[str, httpx.Client]) -> None:
    owner = callers["owner"]
    memory_ids = {
        each["text"]: each["id"] for each in owner.get("/api/memories").json()["items"] if each["scope"] != "persona"
    }
    assert set(memory_ids) == {ANNS, PLANT}
    shared = next(each["id"] for each in owner.get("/api/memories").json()["items"] if each["scope"] == "organization")
    own = next(each["id"] for each in callers["ann"].get("/api/memories").json()["items"] if each["scope"] == "user")
    for name, client in callers.items():
        seen = "".join(
            client.get(path).text
            for path in ("/api/memories", "/api/memories/export", "/api/conversations", f"/api/memories/{own}")
        ) + json.dumps(client.post("/api/memories/search", json={"query": "Where is it? Where do I live?"}).json())
        assert ("Zanzibarquokka" in seen) == (name in ("ann", "agent", "owner")), name
        organized = client.get("/api/memories?organizationId=acme")
        reads = name in ("ann", "mara", "owner")
        assert organized.status_code == (200 if reads else 404), name
        assert client.get(f"/api/memories/{shared}?organizationId=acme").status_code == (200 if reads else 404), name
        assert client.get("/api/memories/export?organizationId=acme").status_code == (200 if reads else 404), name
        body = {"query": "Where is our plant?", "organizationId": "acme"}
        assert client.post("/api/memories/search", json=body).status_code == (200 if reads else 404), name
        assert client.get("/api/conversations/a1/posts").status_code == (
            200 if name in ("ann", "agent", "owner") else 404
        ), name
        settings = client.get("/api/organizations/acme/settings")
        assert settings.status_code == (200 if name in ("mara", "owner") else 404), name


def test_keys_cannot_change_or_delete_other_users_data(callers: dict[str, httpx.Client]) -> None:
    owner, ann = callers["owner"], callers["ann"]
    shared = next(each["id"] for each in owner.get("/api/memories").json()["items"] if each["scope"] == "organization")
    own = next(each["id"] for each in ann.get("/api/memories").json()["items"] if each["scope"] == "user")
    text = {"text": "Nothing."}
    for name, client in callers.items():
        if name not in ("ann", "owner", "agent"):
            assert client.patch(f"/api/memories/{own}", json=text).status_code in (403, 404), name
            assert client.delete(f"/api/memories/{own}").status_code in (403, 404), name
            assert client.delete("/api/conversations/a1").status_code in (403, 404), name
            assert client.post("/api/memories/forget", json={"userId": "ann"}).status_code == 403, name
            counted = client.post("/api/memories/forget", json={"conversationId": "a1"})
            assert counted.status_code == 403 or not sum(counted.json()["receipt"]["counts"].values()), name
            counted = client.post("/api/memories/forget", json={"memoryIds": [own]})
            assert counted.status_code == 403 or not sum(counted.json()["receipt"]["counts"].values()), name
        if name not in ("mara", "owner"):
            changed = client.patch(f"/api/memories/{shared}", json=text | {"organizationId": "acme"})
            assert changed.status_code in (403, 404), name
            assert client.delete(f"/api/memories/{shared}?organizationId=acme").status_code in (403, 404), name
            assert client.post("/api/memories/forget", json={"organizationId": "acme"}).status_code in (403, 404), name
    assert ANNS in ann.get("/api/memories").text
    assert PLANT in owner.get("/api/memories").text


def test_authorized_keys_can_correct_and_forget_memories(callers: dict[str, httpx.Client]) -> None:
    owner, ann, mara = callers["owner"], callers["ann"], callers["mara"]
    own = next(each["id"] for each in ann.get("/api/memories").json()["items"] if each["scope"] == "user")
    fixed = ann.patch(f"/api/memories/{own}", json={"text": "I live in Bergen."})
    assert fixed.json()["text"] == "I live in Bergen."
    went = mara.post("/api/memories/forget", json={"organizationId": "acme"})
    assert (went.status_code, went.json()["receipt"]["counts"]["memories"]) == (200, 1)
    assert PLANT not in owner.get("/api/memories?organizationId=acme").text
    went = ann.post("/api/memories/forget", json={"userId": "ann"})
    assert (went.status_code, went.json()["receipt"]["counts"]["conversations"]) == (200, 1)
    assert ann.get("/api/memories").json()["items"] == []
    assert "Bergen" not in owner.get("/api/memories").text
