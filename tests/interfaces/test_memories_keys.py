"""Memories under keys: whose they are to read, and whose to change."""

from typing import Any

import httpx
import pytest
from api_keys import served

from cuebook.errors import Denied

PUT = {"category": "domain", "key": "api.rate", "value": "100 a minute"}


async def test_what_the_book_knows_is_no_users_to_change() -> None:
    async with served() as keyed:
        known = await keyed.cue.memories.put("domain", "api.rate", "100 a minute")
        where = f"/api/memories/{known.id}"
        bob = await keyed.holder("editor", "bob")
        mara = await keyed.holder("admin", "mara", organizations=["acme"])
        assert (await bob.get(where)).json()["text"] == "100 a minute"
        for client in (bob, mara):
            for refused in (await client.patch(where, json={"text": "9 a minute"}), await client.delete(where)):
                assert (refused.status_code, "belongs to the project" in refused.text) == (403, True), refused.text
        acme = await mara.patch(where, json={"text": "9 a minute", "organizationId": "acme"})
        assert acme.status_code == 403
        assert (await mara.delete(f"{where}?organizationId=acme")).status_code == 403
        assert (await bob.post(f"/learning/knowledge/{known.id}/use")).status_code == 200
        with pytest.raises(Denied, match="belongs to the project"):
            await keyed.cue.memories.correct(known.id, "9 a minute", user="bob")
        agent, owner = await keyed.holder("agent"), await keyed.holder("owner")
        assert (await agent.patch(where, json={"text": "9 a minute"})).status_code == 403
        assert (await owner.patch(where, json={"text": "90 a minute"})).json()["text"] == "90 a minute"
        assert (await owner.delete(where)).status_code == 200
        assert (await bob.get(where)).status_code == 404


async def test_an_agents_key_corrects_a_users_memory_when_it_names_the_user() -> None:
    async with served() as keyed:
        agent = await keyed.holder("agent")
        kept = await agent.post("/learning/knowledge", json=PUT | {"userId": "ann"})
        where = f"/api/memories/{kept.json()['id']}"
        assert (await agent.patch(where, json={"text": "90 a minute"})).status_code == 403
        fixed = await agent.patch(where, json={"text": "90 a minute", "userId": "ann"})
        assert fixed.json()["text"] == "90 a minute"


async def test_a_slash_in_a_name_is_shown_as_one() -> None:
    async with served() as keyed:
        bob = await keyed.holder("editor", "bob")
        refused = await bob.put("/api/prompts/persona~kind/labels", json={"name": "live", "version": 1})
        assert refused.json()["detail"].startswith("PUT /api/prompts/persona/kind/labels requires a key")
        missing = await bob.get("/api/memories/a%2Fb")
        assert missing.json()["detail"].startswith("Unknown memory 'a/b'")
        used = await bob.post("/learning/knowledge/a%2Fb/use")
        assert used.json()["detail"].startswith("Unknown knowledge 'a/b'")


async def test_a_category_that_is_none_is_refused_by_the_list_too() -> None:
    async with served() as keyed:
        bob = await keyed.holder("editor", "bob")
        for path in ("/learning/knowledge?category=x", "/learning/knowledge?category=x&q=rate"):
            answer = await bob.get(path)
            assert (answer.status_code, answer.json()["where"]) == (400, "category")


async def test_an_organizations_memories_are_in_no_list_of_a_key_that_is_not_its_own() -> None:
    control = {"longTermMemory": {"scopes": {"user": True, "organization": True}, "shareWithOrganization": True}}
    async with served() as keyed:
        mara = await keyed.holder("admin", "mara", organizations=["acme"])
        body = {"message": "Our plant is in Quito.", "conversationId": "c1"}
        told = await mara.post("/api/chat", json=body | {"organizationId": "acme", "memoryControl": control})
        assert told.status_code == 200, told.text
        await keyed.cue.settle()
        owner, agent, other = (
            await keyed.holder("owner"),
            await keyed.holder("agent"),
            await keyed.holder("admin", organizations=["umb"]),
        )
        items = (await owner.get("/api/memories")).json()["items"]
        [shared] = [each["id"] for each in items if each["scope"] == "organization"]
        for client in (agent, other):
            for path in ("/api/memories", "/api/memories/export"):
                scopes = [each["scope"] for each in (await client.get(path)).json()["items"]]
                assert "user" in scopes, path
                assert "organization" not in scopes, path
            assert (await client.get(f"/api/memories/{shared}")).status_code == 404
        own = await keyed.holder("agent", organizations=["acme"])
        for client in (owner, own):
            assert (await client.get(f"/api/memories/{shared}")).json()["text"] == "Our plant is in Quito."
            assert shared in (await client.get("/api/memories/export")).text


async def test_what_an_organization_knows_is_counted_for_its_own_keys_only() -> None:
    control = {"longTermMemory": {"scopes": {"user": True, "organization": True}, "shareWithOrganization": True}}
    async with served() as keyed:
        mara = await keyed.holder("admin", "mara", organizations=["acme"])
        body = {"message": "Our plant is in Quito.", "conversationId": "c1", "organizationId": "acme"}
        assert (await mara.post("/api/chat", json=body | {"memoryControl": control})).status_code == 200
        await keyed.cue.settle()

        async def counted(client: httpx.AsyncClient) -> int:
            count: int = (await client.get("/learning/memory/stats")).json()["byType"]["cross_session"]
            assert count == len((await client.get("/api/memories")).json()["items"]), "what is counted is listed"
            return count

        assert await counted(await keyed.holder("owner")) == 3, "the user's, the persona's of them, the organization's"
        assert await counted(await keyed.holder("agent", organizations=["acme"])) == 3
        assert await counted(await keyed.holder("agent")) == 2
        assert await counted(await keyed.holder("agent", organizations=["umb"])) == 2
        assert await counted(mara) == 2
        assert await counted(await keyed.holder("viewer", "bob", organizations=["acme"])) == 0


async def test_a_receipt_is_for_whom_it_concerns_and_for_admins() -> None:
    async with served() as keyed:
        owner, ann, bob = (
            await keyed.holder("owner"), await keyed.holder("editor", "ann"), await keyed.holder("editor", "bob"),
        )  # fmt: skip
        admin, agent = await keyed.holder("admin"), await keyed.holder("agent")
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
            assert named.status_code == (200 if ann in readers else 404), "an agent speaks for a user"


async def test_a_search_of_everything_looks_into_conversations_one_was_let_into_and_no_others() -> None:
    async with served() as keyed:
        owner, ann, bob = (
            await keyed.holder("owner"), await keyed.holder("editor", "ann"), await keyed.holder("editor", "bob"),
        )  # fmt: skip
        for client, talk, text in ((ann, "c1", "The boat lies in Quito."), (bob, "c2", "My boat lies in Bergen.")):
            posts = {"posts": [{"sendFrom": text.split()[0], "message": text}]}
            assert (await client.post(f"/api/conversations/{talk}/posts", json=posts)).status_code == 201

        async def found(client: httpx.AsyncClient, **more: Any) -> set[str]:
            asked = {"query": "Where does the boat lie?"} | more
            hits = (await client.post("/api/memories/search", json=asked)).json()["hits"]
            return {place for place in ("Quito", "Bergen") if any(place in each["text"] for each in hits)}

        assert await found(bob) == {"Bergen"}
        place = "/api/conversations/c1/participants"
        assert (await owner.put(place, json={"participants": ["bob"]})).status_code == 200
        assert await found(bob) == {"Quito", "Bergen"}
        assert await found(bob, scopes=["conversation", "user"]) == {"Quito", "Bergen"}
        assert await found(bob, conversationId="c1") == {"Quito"}
        assert await found(ann) == {"Quito"}
        assert await found(await keyed.holder("editor", "mara")) == set()
        assert (await owner.put(place, json={"participants": []})).status_code == 200
        assert await found(bob) == {"Bergen"}
        assert (await owner.put(place, json={"participants": ["bob"]})).status_code == 200
        await keyed.cue.memory.forget(user="bob")
        assert await found(bob) == set()
        assert await found(ann) == {"Quito"}
