"""Tests of memory scope settings: the host's settings, the defaults with API keys, and the request's policy."""

from pathlib import Path
from typing import Any

import pytest
from api_keys import Keyed, served

from cuebook.config import build
from cuebook.records.answer import to_wire
from cuebook.records.key import LongTermMemoryChange, OrganizationMemoryChange

SHARES = {"longTermMemory": {"scopes": {"user": True, "organization": True}, "shareWithOrganization": True}}


async def scopes_of(keyed: Keyed, *, talk: str = "c1", **more: Any) -> set[str]:
    """Chat with a user's key. Return the active scopes, which must be equal for `/api/chat` and `/v1`."""
    client = await keyed.client_as("editor", "ann", organizations=["acme"])
    response = await client.post("/api/chat", json={"message": "I live in Oslo.", "conversationId": talk} | more)
    assert response.status_code == 200, response.text
    body = {"model": "m", "messages": [{"role": "user", "content": "I live in Oslo."}]}
    headers = {"x-conversation-id": f"{talk}-v1"}
    if "organizationId" in more:
        headers["x-organization-id"] = more["organizationId"]
    assert (await client.post("/v1/chat/completions", json=body, headers=headers)).status_code == 200
    turns = [to_wire(await keyed.cue.turns.show(name, 1)) for name in (talk, f"{talk}-v1")]
    results = [each["metadata"]["longTermMemoryPolicy"]["scopes"] for each in turns]
    assert results[0] == response.json()["metadata"]["longTermMemoryPolicy"]["scopes"]
    without = {} if results[0]["user"] else {"conversation": False}
    assert results[1] == results[0] | without, "Without user memory, nothing is added to a client's messages."
    return {name for name, on in results[0].items() if on}


@pytest.mark.parametrize(
    ("settings", "on"),
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
async def test_configured_scopes_apply_to_api_keys(settings: Any, on: set[str]) -> None:
    async with served(where=build(arguments={"store.url": ":memory:"}, **settings)) as keyed:
        assert await scopes_of(keyed, organizationId="acme") == on
        assert await scopes_of(keyed, talk="c2") == on - {"organization"}, "The request names no organization."
        await keyed.cue.settle()
        kinds = {each.scope for each in (await keyed.cue.memory.list(limit=200)).items}
        assert kinds == on - {"conversation", "organization"}


async def test_request_overrides_the_configured_scopes() -> None:
    config = build(arguments={"store.url": ":memory:"}, file={"memory": {"user": False, "persona": False}})
    async with served(where=config) as keyed:
        on = await keyed.client_as("editor", "ann")
        asks = {"message": "I live in Oslo.", "memoryControl": {"longTermMemory": {"scopes": {"user": True}}}}
        assert (await on.post("/api/chat", json=asks)).status_code == 200
        await keyed.cue.settle()
        stored = (await keyed.cue.memory.list(limit=200)).items
        assert [(each.scope, each.text) for each in stored] == [("user", "I live in Oslo.")]


async def test_configured_organization_scope_works_without_keys(tmp_path: Path) -> None:
    file = tmp_path / "cuebook.toml"
    file.write_text("[memory]\norganization = true\n", encoding="utf-8")
    async with served(where=file) as keyed:
        client = keyed.client()
        body = {"message": "Our plant is in Quito.", "conversationId": "c1", "userId": "mara"}
        response = await client.post("/api/chat", json=body | {"organizationId": "acme", "memoryControl": SHARES})
        assert response.status_code == 200, response.text
        await keyed.cue.settle()
        asks = {"message": "Where is our plant?", "userId": "eve", "organizationId": "acme"}
        hits = (await client.post("/api/chat", json=asks)).json()["metadata"]["longTermMemoryRetrieval"]["hits"]
        assert [each["scope"] for each in hits] == ["organization"]
        asks.pop("organizationId")
        hits = (await client.post("/api/chat", json=asks)).json()["metadata"]["longTermMemoryRetrieval"]["hits"]
        assert hits == []


async def test_turn_metadata_reports_whether_sharing_works() -> None:
    async with served() as keyed:
        keys = {
            "mara": await keyed.client_as("admin", "mara", organizations=["acme"]),
            "eve": await keyed.client_as("editor", "eve", organizations=["acme"]),
        }

        async def sharing_metadata(user: str, *, organization: str | None = "acme", **terms: Any) -> Any:
            control = {"longTermMemory": SHARES["longTermMemory"] | terms}
            body = {"message": "Our plant is in Quito.", "organizationId": organization, "memoryControl": control}
            response = await keys[user].post("/api/chat", json=body)
            assert response.status_code == 200, response.text
            result = to_wire(await keyed.cue.turns.show(response.json()["conversationId"], 1))
            metadata = response.json()["metadata"]
            assert result["metadata"].get("longTermMemorySharing") == metadata.get("longTermMemorySharing")
            return metadata.get("longTermMemorySharing")

        assert await sharing_metadata("mara") == {"shared": True}
        refused = {"shared": False, "reason": "the API key may not publish; it needs the role admin or higher"}
        assert await sharing_metadata("eve") == refused
        assert await sharing_metadata("eve", shareWithOrganization=False) is None
        assert "names no organization" in (await sharing_metadata("mara", organization=None))["reason"]
        assert "scopes.organization" in (await sharing_metadata("mara", scopes={"organization": False}))["reason"]
        assert "storeAtomicDocs" in (await sharing_metadata("mara", storeAtomicDocs=False))["reason"]
        assert "enabled" in (await sharing_metadata("mara", enabled=False))["reason"]
        no_writes = OrganizationMemoryChange(long_term_memory=LongTermMemoryChange(allow_writes=False))
        await keyed.cue.organizations.change("acme", no_writes)
        assert "the organization's settings" in (await sharing_metadata("mara"))["reason"]
