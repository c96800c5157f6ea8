"""Tests of memories with API keys: who can read them and who can change them."""

from typing import Any

import httpx
import pytest
from api_keys import served

from cuebook.errors import Denied

PUT = {"category": "domain", "key": "api.rate", "value": "100 a minute"}


async def test_users_cannot_change_project_knowledge() -> None:
    async with served() as keyed:
        memory = await keyed.cue.memory.put_knowledge("domain", "api.rate", "100 a minute")
        where = f"/api/memories/{memory.id}"
        bob = await keyed.client_as("editor", "bob")
        mara = await keyed.client_as("admin", "mara", organizations=["acme"])
        assert (await bob.get(where)).json()["text"] == "100 a minute"
        for client in (bob, mara):
            for refused in (await client.patch(where, json={"text": "9 a minute"}), await client.delete(where)):
                assert (refused.status_code, "belongs to the project" in refused.text) == (403, True), refused.text
        acme = await mara.patch(where, json={"text": "9 a minute", "organizationId": "acme"})
        assert acme.status_code == 403
        assert (await mara.delete(f"{where}?organizationId=acme")).status_code == 403
        assert (await bob.post(f"/learning/knowledge/{memory.id}/use")).status_code == 200
        with pytest.raises(Denied, match="belongs to the project"):
            await keyed.cue.memory.update(memory.id, "9 a minute", user="bob")
        agent, owner = await keyed.client_as("agent"), await keyed.client_as("owner")
        assert (await agent.patch(where, json={"text": "9 a minute"})).status_code == 403
        assert (await owner.patch(where, json={"text": "90 a minute"})).json()["text"] == "90 a minute"
        assert (await owner.delete(where)).status_code == 200
        assert (await bob.get(where)).status_code == 404


async def test_agent_key_corrects_the_memory_of_a_named_user() -> None:
    async with served() as keyed:
        agent = await keyed.client_as("agent")
        response = await agent.post("/learning/knowledge", json=PUT | {"userId": "ann"})
        where = f"/api/memories/{response.json()['id']}"
        assert (await agent.patch(where, json={"text": "90 a minute"})).status_code == 403
        fixed = await agent.patch(where, json={"text": "90 a minute", "userId": "ann"})
        assert fixed.json()["text"] == "90 a minute"


async def test_errors_show_slashes_in_names_unescaped() -> None:
    async with served() as keyed:
        bob = await keyed.client_as("editor", "bob")
        refused = await bob.put("/api/prompts/persona~kind/labels", json={"name": "live", "version": 1})
        assert refused.json()["detail"].startswith("PUT /api/prompts/persona/kind/labels requires a key")
        missing = await bob.get("/api/memories/a%2Fb")
        assert missing.json()["detail"].startswith("Unknown memory 'a/b'")
        used = await bob.post("/learning/knowledge/a%2Fb/use")
        assert used.json()["detail"].startswith("Unknown knowledge 'a/b'")


async def test_list_rejects_an_unknown_category() -> None:
    async with served() as keyed:
        bob = await keyed.client_as("editor", "bob")
        for path in ("/learning/knowledge?category=x", "/learning/knowledge?category=x&q=rate"):
            answer = await bob.get(path)
            assert (answer.status_code, answer.json()["where"]) == (400, "category")


async def test_keys_cannot_list_memories_of_other_organizations() -> None:
    control = {"longTermMemory": {"scopes": {"user": True, "organization": True}, "shareWithOrganization": True}}
    async with served() as keyed:
        mara = await keyed.client_as("admin", "mara", organizations=["acme"])
        body = {"message": "Our plant is in Quito.", "conversationId": "c1"}
        response = await mara.post("/api/chat", json=body | {"organizationId": "acme", "memoryControl": control})
        assert response.status_code == 200, response.text
        await keyed.cue.settle()
        owner, agent, other = (
            await keyed.client_as("owner"),
            await keyed.client_as("agent"),
            await keyed.client_as("admin", organizations=["umb"]),
        )
        items = (await owner.get("/api/memories")).json()["items"]
        [shared] = [each["id"] for each in items if each["scope"] == "organization"]
        for client in (agent, other):
            for path in ("/api/memories", "/api/memories/export"):
                scopes = [each["scope"] for each in (await client.get(path)).json()["items"]]
                assert "user" in scopes, path
                assert "organization" not in scopes, path
            assert (await client.get(f"/api/memories/{shared}")).status_code == 404
        own = await keyed.client_as("agent", organizations=["acme"])
        for client in (owner, own):
            assert (await client.get(f"/api/memories/{shared}")).json()["text"] == "Our plant is in Quito."
            assert shared in (await client.get("/api/memories/export")).text


async def test_statistics_count_only_accessible_memories() -> None:
    control = {"longTermMemory": {"scopes": {"user": True, "organization": True}, "shareWithOrganization": True}}
    async with served() as keyed:
        mara = await keyed.client_as("admin", "mara", organizations=["acme"])
        body = {"message": "Our plant is in Quito.", "conversationId": "c1", "organizationId": "acme"}
        assert (await mara.post("/api/chat", json=body | {"memoryControl": control})).status_code == 200
        await keyed.cue.settle()

        async def memory_count(client: httpx.AsyncClient) -> int:
            count: int = (await client.get("/learning/memory/stats")).json()["byType"]["cross_session"]
            assert count == len((await client.get("/api/memories")).json()["items"]), (
                "The count must equal the number of listed memories."
            )
            return count

        assert await memory_count(await keyed.client_as("owner")) == 3, (
            "One each of the user, the persona and the organization."
        )
        assert await memory_count(await keyed.client_as("agent", organizations=["acme"])) == 3
        assert await memory_count(await keyed.client_as("agent")) == 2
        assert await memory_count(await keyed.client_as("agent", organizations=["umb"])) == 2
        assert await memory_count(mara) == 2
        assert await memory_count(await keyed.client_as("viewer", "bob", organizations=["acme"])) == 0


async def test_receipt_is_readable_by_its_user_and_admins() -> None:
    async with served() as keyed:
        owner, ann, bob = (
            await keyed.client_as("owner"),
            await keyed.client_as("editor", "ann"),
            await keyed.client_as("editor", "bob"),
        )
        admin, agent = await keyed.client_as("admin"), await keyed.client_as("agent")
        posts = {"posts": [{"sendFrom": "ann", "message": "I live in Oslo."}]}
        assert (await ann.post("/api/conversations/c1/posts", json=posts)).status_code == 201
        assert (await ann.post("/api/conversations/c2/posts", json=posts)).status_code == 201
        own = await ann.post("/api/memories/forget", json={"conversationId": "c1", "reason": "a private matter"})
        of_all = await owner.post("/api/memories/forget", json={"userId": "ann", "reason": "asked by mail"})
        nothing = await bob.post("/api/memories/forget", json={"conversationId": "c2"})
        for answer, readers, others in (
            (own, (owner, admin, ann), (bob, agent)),
            (of_all, (owner, admin, ann), (bob, agent)),
            (nothing, (owner, admin, bob), (ann, agent)),
        ):
            place = f"/api/receipts/{answer.json()['receipt']['id']}"
            for client in readers:
                assert (await client.get(place)).json() == answer.json()
            for client in others:
                missing = await client.get(place)
                assert missing.status_code == 404
                assert missing.json()["detail"].startswith("Unknown receipt 'receipt-")
            named = await agent.get(place, params={"userId": "ann"})
            assert named.status_code == (200 if ann in readers else 404), "An agent acts for the user it names."


async def test_search_covers_only_conversations_of_the_participant() -> None:
    async with served() as keyed:
        owner, ann, bob = (
            await keyed.client_as("owner"),
            await keyed.client_as("editor", "ann"),
            await keyed.client_as("editor", "bob"),
        )
        for client, talk, text in ((ann, "c1", "The boat lies in Quito."), (bob, "c2", "My boat lies in Bergen.")):
            posts = {"posts": [{"sendFrom": text.split()[0], "message": text}]}
            assert (await client.post(f"/api/conversations/{talk}/posts", json=posts)).status_code == 201

        async def found_places(client: httpx.AsyncClient, **more: Any) -> set[str]:
            body = {"query": "Where does the boat lie?"} | more
            hits = (await client.post("/api/memories/search", json=body)).json()["hits"]
            return {place for place in ("Quito", "Bergen") if any(place in each["text"] for each in hits)}

        assert await found_places(bob) == {"Bergen"}
        place = "/api/conversations/c1/participants"
        assert (await owner.put(place, json={"participants": ["bob"]})).status_code == 200
        assert await found_places(bob) == {"Quito", "Bergen"}
        assert await found_places(bob, scopes=["conversation", "user"]) == {"Quito", "Bergen"}
        assert await found_places(bob, conversationId="c1") == {"Quito"}
        assert await found_places(ann) == {"Quito"}
        assert await found_places(await keyed.client_as("editor", "mara")) == set()
        assert (await owner.put(place, json={"participants": []})).status_code == 200
        assert await found_places(bob) == {"Bergen"}
        assert (await owner.put(place, json={"participants": ["bob"]})).status_code == 200
        await keyed.cue.memory.forget(user="bob")
        assert await found_places(bob) == set()
        assert await found_places(ann) == {"Quito"}
