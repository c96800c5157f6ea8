"""Tests of cross-conversation memory on the OpenAI API: organization and memory control per request."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from api_keys import Keyed, served
from upstream import Upstream

from conftest import Live, config
from cuebook.records.answer import to_wire
from cuebook.testing import FrozenClock

USER = {"longTermMemory": {"scopes": {"user": True}}}
SHARES = {"longTermMemory": {"scopes": {"user": True, "organization": True}, "shareWithOrganization": True}}


async def say(client: httpx.AsyncClient, text: str, talk: str, *, headers: Any = None, **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]} | fields
    return await client.post("/v1/chat/completions", json=body, headers={"x-conversation-id": talk} | (headers or {}))


async def scopes(keyed: Keyed) -> set[str]:
    await keyed.cue.settle()
    return {each.scope for each in (await keyed.cue.memory.list(limit=200)).items}


async def window(keyed: Keyed, talk: str, n: int = 1) -> list[str]:
    data = to_wire(await keyed.cue.turns.show(talk, n))["window"]
    return [each["text"] for each in data["blocks"] if each["kind"] == "memory"]


async def test_each_request_names_its_organization_and_needs_membership() -> None:
    async with served() as keyed:
        mara = await keyed.client_as("admin", "mara", organizations=["acme"])
        eve = await keyed.client_as("editor", "eve", organizations=["acme"])
        bob = await keyed.client_as("editor", "bob")
        response = await say(mara, "Our plant is in Quito.", "c1", headers={
            "x-organization-id": "acme", "x-memory-control": json.dumps(SHARES),
        })  # fmt: skip
        assert response.status_code == 200, response.text
        assert await scopes(keyed) == {"user", "persona", "organization"}
        for refused in (
            await say(bob, "Where is our plant?", "c2", headers={"x-organization-id": "acme"}),
            await say(bob, "Where is our plant?", "c2", metadata={"organization_id": "acme"}),
            await say(eve, "Where is our plant?", "c2", headers={"x-organization-id": "umb"}),
        ):
            assert refused.status_code == 404
            assert refused.json()["error"]["message"].startswith("Unknown organization ")
        await say(eve, "Where is our plant?", "c3", headers={"x-organization-id": "acme"})
        assert any("Quito" in text for text in await window(keyed, "c3"))
        await say(eve, "Where is our plant?", "c4", metadata={"organization_id": "acme"})
        assert any("Quito" in text for text in await window(keyed, "c4"))
        assert (await say(eve, "Where is our plant?", "c5")).status_code == 200
        assert not any("Quito" in text for text in await window(keyed, "c5")), (
            "Each request must name the organization."
        )
        [conversation] = [each for each in (await keyed.cue.conversations.list()).items if each.id == "c3"]
        assert "acme" not in str(conversation.metadata)


async def test_only_an_admin_key_shares_with_the_organization() -> None:
    async with served() as keyed:
        eve = await keyed.client_as("editor", "eve", organizations=["acme"])
        headers = {"x-organization-id": "acme", "x-memory-control": json.dumps(SHARES)}
        assert (await say(eve, "Our plant is in Quito.", "c1", headers=headers)).status_code == 200
        assert await scopes(keyed) == {"user", "persona"}


async def test_user_key_ignores_the_user_field_of_the_body() -> None:
    async with served() as keyed:
        ann, agent = await keyed.client_as("editor", "ann"), await keyed.client_as("agent")
        for n, field in enumerate(("user", "safety_identifier")):
            assert (await say(ann, "Hello.", f"own-{n}", **{field: "opaque-7"})).status_code == 200
            assert (await keyed.cue.conversations.get(f"own-{n}")).user == "ann"
            assert (await say(agent, "Hello.", f"named-{n}", **{field: "bob"})).status_code == 200
            assert (await keyed.cue.conversations.get(f"named-{n}")).user == "bob"
        assert (await say(ann, "Hello.", "c3", headers={"x-user-id": "bob"})).status_code == 403


@pytest.mark.parametrize("end", ["revoked", "expired", "chat"])
async def test_ended_admin_key_shares_nothing_more(end: str) -> None:
    clock = FrozenClock()
    async with served(worker=False, clock=clock) as keyed:
        keys = keyed.cue.keys
        for user in ("mara", "nora"):
            days = 1.0 if (user, end) == ("mara", "expired") else None
            made = await keys.new("admin", user=user, organizations=["acme"], expires_days=days)
            client, told = keyed.client(made.token), f"Our plant of {user} is in Quito."
            if end == "chat":
                body = {"message": told, "conversationId": user, "organizationId": "acme", "memoryControl": SHARES}
                assert (await client.post("/api/chat", json=body)).status_code == 200
            else:
                headers = {"x-organization-id": "acme", "x-memory-control": json.dumps(SHARES)}
                assert (await say(client, told, user, headers=headers)).status_code == 200
            turn = to_wire(await keyed.cue.turns.show(user, 1))
            assert made.id in str(turn)
            assert made.token not in str(turn)
            if (user, end) in (("mara", "revoked"), ("mara", "chat")):
                await keys.revoke(made.id)
        clock.advance(2 * 86_400.0)
        await keyed.cue.settle()
        published = (await keyed.cue.memory.list(organization="acme")).items
        assert [each.text for each in published if "mara" in each.text] == []
        assert [each.text for each in published if "nora" in each.text] == ["Our plant of nora is in Quito."]
        own = (await keyed.cue.memory.list(user="mara")).items
        assert any("mara" in each.text for each in own), "Her own memory needs no admin key."


async def test_memory_control_is_read_and_stored() -> None:
    async with served() as keyed:
        off = {"longTermMemory": {"enabled": False}}
        cases: list[tuple[str, dict[str, Any]]] = [
            ("c1", {"headers": {"x-memory-control": json.dumps(off)}}),
            ("c2", {"metadata": {"memory_control": json.dumps(off)}}),
            ("c3", {"metadata": {"memory_control": off}}),
        ]
        ann = await keyed.client_as("editor", "ann")
        for talk, more in cases:
            assert (await say(ann, "I live in Oslo.", talk, **more)).status_code == 200
            policy = (await keyed.cue.conversations.get(talk)).metadata["longTermMemoryPolicy"]
            assert policy["enabled"] is False
        assert await scopes(keyed) == set()
        for wrong in ("{", "[]", "1", '{"longTerm": {}}', '{"longTermMemory": {"enabled": "yes"}}'):
            refused = await say(ann, "Hm?", "c4", headers={"x-memory-control": wrong})
            assert (refused.status_code, "emory" in refused.json()["error"]["message"]) == (400, True), wrong
        assert (await say(ann, "Hm?", "c4", metadata={"memory_control": 7})).status_code == 400
        assert (await say(ann, "Hm?", "c5", metadata=None)).status_code == 200


async def test_idempotency_key_with_other_memory_control_is_rejected() -> None:
    async with served() as keyed:
        ann = await keyed.client_as("editor", "ann")
        named = {"idempotency-key": "k"}
        first = await say(ann, "I live in Oslo.", "c1", headers=named)
        assert (await say(ann, "I live in Oslo.", "c1", headers=named)).content == first.content
        other = await say(ann, "I live in Oslo.", "c1", headers=named | {"x-memory-control": json.dumps(USER)})
        assert other.status_code == 422


def test_memory_headers_of_a_client_are_not_forwarded(upstream: Upstream, serve_live: Callable[..., Live]) -> None:
    live = serve_live(config(upstream=upstream.url))
    with openai.OpenAI(base_url=f"{live.url}/u/ann/v1", api_key="x") as client:
        client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "We decided to ship on Monday."}],
            metadata={"memory_control": json.dumps(SHARES)},
            extra_headers={"X-Organization-Id": "acme"},
        )
        assert "x-organization-id" not in upstream.last.headers
        assert upstream.last.fields["metadata"] == {"memory_control": json.dumps(SHARES)}
        client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": "When do we ship?"}],
            extra_headers={"X-Memory-Control": json.dumps(USER)},
        )
        assert "x-memory-control" not in upstream.last.headers
    live.ask_cue(live.cue.settle)
    items = httpx.get(f"{live.url}/api/memories").json()["items"]
    assert {each["scope"] for each in items} == {"user", "organization"}
