"""Tests of conversations with several participants: permissions, impersonation and private memories."""

from typing import Any

import httpx
from api_keys import Keyed, served

from cuebook.interfaces.store import PathQuery
from cuebook.records.memory import Scope

TALK = "/api/conversations/c1"
SAID = "My name is Wilhelmina."


async def _share_conversation(keyed: Keyed) -> tuple[httpx.AsyncClient, httpx.AsyncClient, httpx.AsyncClient]:
    """Return clients of ann, bob (a participant of ann's conversation) and the owner."""
    ann, bob, owner = (
        await keyed.client_as("editor", "ann"),
        await keyed.client_as("editor", "bob"),
        await keyed.client_as("owner"),
    )
    assert (await ann.post("/api/chat", json={"message": "Hello there.", "conversationId": "c1"})).status_code == 200
    assert (await owner.put(f"{TALK}/participants", json={"participants": ["bob"]})).status_code == 200
    return ann, bob, owner


async def _texts(client: httpx.AsyncClient) -> list[str]:
    return [each["text"] for each in (await client.get("/api/memories")).json()["items"]]


async def test_participant_cannot_send_messages_as_the_first_user() -> None:
    async with served() as keyed:
        ann, bob, _ = await _share_conversation(keyed)
        named: list[dict[str, Any]] = [{"posts": [{"sendFrom": name, "message": SAID}]} for name in ("ann", "user")] + [
            {"messages": [{"role": "user", "name": name, "content": SAID}]} for name in ("ann", "user")
        ]
        for body in named:
            refused = await bob.post(f"{TALK}/posts", json=body)
            assert (refused.status_code, "can only send as themselves" in refused.text) == (403, True), refused.text
        for history in ("server", "client"):
            forged = await bob.post(
                "/v1/chat/completions",
                headers={"x-conversation-id": "c1", "x-history": history},
                json={"model": "m", "messages": [{"role": "user", "name": "ann", "content": SAID}]},
            )
            assert forged.status_code == 403, forged.text
        own = [{"sendFrom": "bob", "message": "Mine is Ottoline."}, {"sendFrom": "carl", "message": "Says carl."}]
        assert (await bob.post(f"{TALK}/posts", json={"posts": own})).status_code == 201
        assert (await bob.post("/api/chat", json={"message": SAID, "conversationId": "c1"})).status_code == 200
        assert await keyed.cue.settle() == {}
        assert await _texts(ann) == await _texts(bob) == []
        assert (
            await ann.post(f"{TALK}/posts", json={"posts": [{"sendFrom": "user", "message": SAID}]})
        ).status_code == 201
        assert await keyed.cue.settle() == {}
        assert set(await _texts(ann)) == {SAID}


async def test_participant_cannot_read_recalled_memories_of_the_owner() -> None:
    async with served() as keyed:
        ann, owner = await keyed.client_as("editor", "ann"), await keyed.client_as("owner")
        body = {"message": SAID, "conversationId": "c0"}
        assert (await ann.post("/api/chat", json=body)).status_code == 200
        assert await keyed.cue.settle() == {}
        assert (
            await ann.post("/api/chat", json={"message": "How are you?", "conversationId": "c1"})
        ).status_code == 200
        assert "Wilhelmina" in (await ann.get(f"{TALK}/turns/1")).text
        bob = await keyed.client_as("editor", "bob")
        assert (await owner.put(f"{TALK}/participants", json={"participants": ["bob"]})).status_code == 200
        assert (await bob.post("/api/chat", json={"message": "Fine?", "conversationId": "c1"})).status_code == 200
        for path in ("turns", "turns?limit=5", "turns/1", "turns/1/replay"):
            shown = (await bob.get(f"{TALK}/{path}")).text
            assert "Wilhelmina" not in shown, path
            assert "memory:" not in shown, path
            assert "longTermMemoryRetrieval" not in shown, path
        assert (await bob.get(f"{TALK}/turns/1/replay")).json()["verdict"] == "withheld"
        assert (await bob.get(f"{TALK}/turns/1")).json()["query"] == "How are you?"
        assert (await bob.get(f"{TALK}/turns/2/replay")).json()["verdict"] == "identical"
        for client in (ann, owner):
            assert (await client.get(f"{TALK}/turns/1/replay")).json()["verdict"] == "identical"


async def test_new_participant_invalidates_prepared_turns() -> None:
    async with served() as keyed:
        _, _, owner = await _share_conversation(keyed)
        store, look = keyed.cue.services.store, PathQuery(conversation="c1")
        before = (await store.scene(Scope(user="ann"), look)).epoch
        assert (await owner.put(f"{TALK}/participants", json={"participants": ["bob"]})).status_code == 200
        assert (await store.scene(Scope(user="ann"), look)).epoch == before
        assert (await owner.put(f"{TALK}/participants", json={"participants": ["cat"]})).status_code == 200
        assert (await store.scene(Scope(user="ann"), look)).epoch == before + 1


async def test_only_the_first_user_changes_the_memory_policy() -> None:
    def control(on: bool) -> dict[str, Any]:
        return {"longTermMemory": {"enabled": on, "scopes": {"user": on}}}

    async with served() as keyed:
        ann, bob, _ = await _share_conversation(keyed)
        out = {"message": "Forget it.", "conversationId": "c1", "memoryControl": control(False)}
        assert (await ann.post("/api/chat", json=out)).status_code == 200
        body = {"message": "Do keep it.", "conversationId": "c1", "memoryControl": control(True)}
        assert (await bob.post("/api/chat", json=body)).status_code == 200
        payload = {
            "messages": [{"role": "user", "content": "Now."}],
            "model": "m",
            "metadata": {"memory_control": control(True)},
        }
        headers = {"x-conversation-id": "c1", "x-history": "server"}
        assert (await bob.post("/v1/chat/completions", headers=headers, json=payload)).status_code == 200
        assert (await ann.post("/api/chat", json={"message": SAID, "conversationId": "c1"})).status_code == 200
        assert await keyed.cue.settle() == {}
        policy = (await ann.get(TALK)).json()["metadata"]["longTermMemoryPolicy"]
        assert (policy["enabled"], await _texts(ann)) == (False, [])


async def test_participant_cannot_change_items_of_the_first_user() -> None:
    async with served() as keyed:
        ann, bob, owner = await _share_conversation(keyed)
        assert (await ann.post("/api/chat", json={"message": SAID, "conversationId": "c1"})).status_code == 200
        [item] = (await bob.get(f"{TALK}/items")).json()["items"]
        where = f"/api/memories/item:c1:{item['id']}"
        assert (await bob.get(where)).json()["text"] == SAID
        for refused in (await bob.patch(where, json={"text": "My sister is called Eve."}), await bob.delete(where)):
            assert (refused.status_code, "only the first user" in refused.text) == (403, True), refused.text
        named = {"memoryIds": [f"item:c1:{item['id']}"]}
        assert (await bob.post("/api/memories/forget", json=named)).json()["receipt"]["counts"]["memories"] == 0
        assert await keyed.cue.settle() == {}
        assert [each["text"] for each in (await bob.get(f"{TALK}/items")).json()["items"]] == [SAID]
        assert set(await _texts(ann)) == {SAID}
        for client, text in ((ann, "My sister is called Ada."), (owner, "My sister is called Ida.")):
            [item] = (await ann.get(f"{TALK}/items")).json()["items"]
            response = await client.patch(f"/api/memories/item:c1:{item['id']}", json={"text": text})
            assert response.status_code == 200, response.text
            assert set(await _texts(ann)) == {text}


async def test_participant_cannot_move_the_head_or_compress() -> None:
    async with served() as keyed:
        ann, bob, _ = await _share_conversation(keyed)
        first = (await ann.get(f"{TALK}/posts")).json()["items"][0]["id"]
        refused = await bob.put(f"{TALK}/head", json={"postId": first})
        assert (refused.status_code, "head" in refused.text) == (403, True)
        assert (
            await bob.post(f"{TALK}/compress", json={"olderThan": first, "summary": "Ann owes Bob."})
        ).status_code == 403
        assert (await ann.put(f"{TALK}/head", json={"postId": first})).status_code == 200


async def test_organization_memory_requires_only_member_participants() -> None:
    async with served() as keyed:
        ann = await keyed.client_as("editor", "ann", organizations=["acme"])
        owner = await keyed.client_as("owner")
        admin = await keyed.client_as("admin", organizations=["acme"])
        shares = {"longTermMemory": {"scopes": {"organization": True}, "shareWithOrganization": True}}
        body = {"message": "We decided to ship Atlas on Monday.", "organizationId": "acme", "memoryControl": shares}
        assert (await admin.post("/api/chat", json=body | {"conversationId": "c0"})).status_code == 200
        assert await keyed.cue.settle() == {}
        payload = {"message": "When do we ship Atlas?", "organizationId": "acme", "conversationId": "c1"}

        async def sees_organization_memory() -> bool:
            answer = await ann.post("/api/assemble", json=payload)
            assert answer.status_code == 200, answer.text
            return "on Monday" in answer.text

        assert (await ann.post("/api/chat", json={"message": "Hello.", "conversationId": "c1"})).status_code == 200
        assert await sees_organization_memory()
        await keyed.client_as("editor", "bob", organizations=["acme"])
        assert (await owner.put(f"{TALK}/participants", json={"participants": ["ann", "bob"]})).status_code == 200
        assert await sees_organization_memory()
        await keyed.client_as("editor", "eve")
        assert (await owner.put(f"{TALK}/participants", json={"participants": ["ann", "eve"]})).status_code == 200
        assert not await sees_organization_memory()
