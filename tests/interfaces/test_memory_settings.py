"""What the host wrote of the scopes of memory holds for whoever comes with a key; what it left out is A's to say."""

from pathlib import Path
from typing import Any

import pytest
from api_keys import Keyed, served

from cuebook.config import build

SHARES = {"longTermMemory": {"scopes": {"user": True, "organization": True}, "shareWithOrganization": True}}


async def scopes_of(keyed: Keyed, *, talk: str = "c1", **more: Any) -> set[str]:
    """Say something with a key of one user; gives the scopes that held by `/api/chat` and by `/v1` alike."""
    client = await keyed.holder("editor", "ann", organizations=["acme"])
    said = await client.post("/api/chat", json={"message": "I live in Oslo.", "conversationId": talk} | more)
    assert said.status_code == 200, said.text
    body = {"model": "m", "messages": [{"role": "user", "content": "I live in Oslo."}]}
    headers = {"x-conversation-id": f"{talk}-v1"}
    if "organizationId" in more:
        headers["x-organization-id"] = more["organizationId"]
    assert (await client.post("/v1/chat/completions", json=body, headers=headers)).status_code == 200
    turns = [await keyed.cue.turns.show(name, 1) for name in (talk, f"{talk}-v1")]
    told = [each["metadata"]["longTermMemoryPolicy"]["scopes"] for each in turns]
    assert told[0] == told[1] == said.json()["metadata"]["longTermMemoryPolicy"]["scopes"]
    return {name for name, on in told[0].items() if on}


@pytest.mark.parametrize(
    ("given", "on"),
    [
        ({}, {"conversation", "user", "persona", "organization"}),
        ({"file": {"memory": {"user": False}}}, {"conversation", "persona", "organization"}),
        ({"file": {"memory": {"persona": False, "user": True}}}, {"conversation", "user", "organization"}),
        ({"environment": {"CUEBOOK_MEMORY_ORGANIZATION": "no"}}, {"conversation", "user", "persona"}),
        (
            {"environment": {"CUEBOOK_MEMORY_USER": "0", "CUEBOOK_MEMORY_PERSONA": "false"}},
            {"conversation", "organization"},
        ),
    ],
    ids=["unset", "user", "persona", "organization", "both"],
)
async def test_a_scope_the_host_wrote_out_holds_for_keys(given: Any, on: set[str]) -> None:
    async with served(where=build(arguments={"store.url": ":memory:"}, **given)) as keyed:
        assert await scopes_of(keyed, organizationId="acme") == on
        assert await scopes_of(keyed, talk="c2") == on - {"organization"}, "none was named"
        await keyed.cue.settle()
        kinds = {each.place.kind for each in (await keyed.cue.memories.page(limit=200)).items}
        assert kinds == on - {"conversation", "organization"}


async def test_a_request_says_else_than_the_host() -> None:
    config = build(arguments={"store.url": ":memory:"}, file={"memory": {"user": False, "persona": False}})
    async with served(where=config) as keyed:
        on = await keyed.holder("editor", "ann")
        asks = {"message": "I live in Oslo.", "memoryControl": {"longTermMemory": {"scopes": {"user": True}}}}
        assert (await on.post("/api/chat", json=asks)).status_code == 200
        await keyed.cue.settle()
        kept = (await keyed.cue.memories.page(limit=200)).items
        assert [(each.place.kind, each.text) for each in kept] == [("user", "I live in Oslo.")]


async def test_what_an_organization_knows_is_read_where_the_host_says_so_without_keys_too(tmp_path: Path) -> None:
    file = tmp_path / "cuebook.toml"
    file.write_text("[memory]\norganization = true\n", encoding="utf-8")
    async with served(where=file) as keyed:
        client = keyed.client()
        told = {"message": "Our plant is in Quito.", "conversationId": "c1", "userId": "mara"}
        said = await client.post("/api/chat", json=told | {"organizationId": "acme", "memoryControl": SHARES})
        assert said.status_code == 200, said.text
        await keyed.cue.settle()
        asks = {"message": "Where is our plant?", "userId": "eve", "organizationId": "acme"}
        hits = (await client.post("/api/chat", json=asks)).json()["metadata"]["longTermMemoryRetrieval"]["hits"]
        assert [each["scope"] for each in hits] == ["organization"]
        asks.pop("organizationId")
        hits = (await client.post("/api/chat", json=asks)).json()["metadata"]["longTermMemoryRetrieval"]["hits"]
        assert hits == []


async def test_a_turn_that_asks_to_share_is_told_whether_it_does() -> None:
    async with served() as keyed:
        keys = {
            "mara": await keyed.holder("admin", "mara", organizations=["acme"]),
            "eve": await keyed.holder("editor", "eve", organizations=["acme"]),
        }

        async def told(user: str, *, organization: str | None = "acme", **terms: Any) -> Any:
            control = {"longTermMemory": SHARES["longTermMemory"] | terms}
            body = {"message": "Our plant is in Quito.", "organizationId": organization, "memoryControl": control}
            said = await keys[user].post("/api/chat", json=body)
            assert said.status_code == 200, said.text
            shown = await keyed.cue.turns.show(said.json()["conversationId"], 1)
            metadata = said.json()["metadata"]
            assert shown["metadata"].get("longTermMemorySharing") == metadata.get("longTermMemorySharing")
            return metadata.get("longTermMemorySharing")

        assert await told("mara") == {"shared": True}
        refused = {"shared": False, "reason": "the API key may not publish; it needs the role admin or higher"}
        assert await told("eve") == refused
        assert await told("eve", shareWithOrganization=False) is None
        assert "names no organization" in (await told("mara", organization=None))["reason"]
        assert "scopes.organization" in (await told("mara", scopes={"organization": False}))["reason"]
        assert "storeAtomicDocs" in (await told("mara", storeAtomicDocs=False))["reason"]
        assert "enabled" in (await told("mara", enabled=False))["reason"]
        await keyed.cue.organizations.change("acme", {"memory": {"longTermMemory": {"allowWrites": False}}})
        assert "the organization's settings" in (await told("mara"))["reason"]
