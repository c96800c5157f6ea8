"""Memory across conversations on the OpenAI wire: the organization and the terms, named with each request."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from api_keys import Keyed, served
from upstream import Upstream

from conftest import Live, config
from cuebook.testing import FrozenClock

USER = {"longTermMemory": {"scopes": {"user": True}}}
SHARES = {"longTermMemory": {"scopes": {"user": True, "organization": True}, "shareWithOrganization": True}}


async def say(client: httpx.AsyncClient, text: str, talk: str, *, headers: Any = None, **fields: Any) -> httpx.Response:
    body = {"model": "m", "messages": [{"role": "user", "content": text}]} | fields
    return await client.post("/v1/chat/completions", json=body, headers={"x-conversation-id": talk} | (headers or {}))


async def scopes(keyed: Keyed) -> set[str]:
    await keyed.cue.settle()
    return {each.place.kind for each in (await keyed.cue.memories.page(limit=200)).items}


async def window(keyed: Keyed, talk: str, n: int = 1) -> list[str]:
    shown = (await keyed.cue.turns.show(talk, n))["window"]
    return [each["text"] for each in shown["blocks"] if each["kind"] == "memory"]


async def test_an_organization_is_named_with_each_request_and_needs_the_keys_right() -> None:
    async with served() as keyed:
        mara = await keyed.holder("admin", "mara", organizations=["acme"])
        eve = await keyed.holder("editor", "eve", organizations=["acme"])
        bob = await keyed.holder("editor", "bob")
        told = await say(mara, "Our plant is in Quito.", "c1", headers={
            "x-organization-id": "acme", "x-memory-control": json.dumps(SHARES),
        })  # fmt: skip
        assert told.status_code == 200, told.text
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
        assert not any("Quito" in text for text in await window(keyed, "c5")), "it is asserted each time"
        [kept] = [each for each in (await keyed.cue.conversations.list()).items if each.id == "c3"]
        assert "acme" not in str(kept.metadata)


async def test_only_an_admin_publishes_over_the_openai_wire() -> None:
    async with served() as keyed:
        eve = await keyed.holder("editor", "eve", organizations=["acme"])
        headers = {"x-organization-id": "acme", "x-memory-control": json.dumps(SHARES)}
        assert (await say(eve, "Our plant is in Quito.", "c1", headers=headers)).status_code == 200
        assert await scopes(keyed) == {"user", "persona"}


async def test_under_a_users_key_the_bodys_user_is_the_clients_own_business() -> None:
    async with served() as keyed:
        ann, agent = await keyed.holder("editor", "ann"), await keyed.holder("agent")
        for n, field in enumerate(("user", "safety_identifier")):
            assert (await say(ann, "Hello.", f"own-{n}", **{field: "opaque-7"})).status_code == 200
            assert (await keyed.cue.conversations.get(f"own-{n}")).user == "ann"
            assert (await say(agent, "Hello.", f"named-{n}", **{field: "bob"})).status_code == 200
            assert (await keyed.cue.conversations.get(f"named-{n}")).user == "bob"
        assert (await say(ann, "Hello.", "c3", headers={"x-user-id": "bob"})).status_code == 403


@pytest.mark.parametrize("end", ["revoked", "expired", "chat"])
async def test_an_admins_key_that_ended_before_the_delivery_publishes_no_more(end: str) -> None:
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
            turn = await keyed.cue.turns.show(user, 1)
            assert made.key.id in str(turn)
            assert made.token not in str(turn)
            if (user, end) in (("mara", "revoked"), ("mara", "chat")):
                await keys.revoke(made.key.id)
        clock.advance(2 * 86_400.0)
        await keyed.cue.settle()
        published = (await keyed.cue.memories.page(organization="acme")).items
        assert [each.text for each in published if "mara" in each.text] == []
        assert [each.text for each in published if "nora" in each.text] == ["Our plant of nora is in Quito."]
        own = (await keyed.cue.memories.page(user="mara")).items
        assert any("mara" in each.text for each in own), "her own memory needs no such right"


async def test_the_terms_of_memory_are_read_and_kept_as_those_of_a_chat() -> None:
    async with served() as keyed:
        off = {"longTermMemory": {"enabled": False}}
        given: list[tuple[str, dict[str, Any]]] = [
            ("c1", {"headers": {"x-memory-control": json.dumps(off)}}),
            ("c2", {"metadata": {"memory_control": json.dumps(off)}}),
            ("c3", {"metadata": {"memory_control": off}}),
        ]
        ann = await keyed.holder("editor", "ann")
        for talk, more in given:
            assert (await say(ann, "I live in Oslo.", talk, **more)).status_code == 200
            kept = (await keyed.cue.conversations.get(talk)).metadata["longTermMemoryPolicy"]
            assert kept["enabled"] is False
        assert await scopes(keyed) == set()
        for wrong in ("{", "[]", "1", '{"longTerm": {}}', '{"longTermMemory": {"enabled": "yes"}}'):
            refused = await say(ann, "Hm?", "c4", headers={"x-memory-control": wrong})
            assert (refused.status_code, "emory" in refused.json()["error"]["message"]) == (400, True), wrong
        assert (await say(ann, "Hm?", "c4", metadata={"memory_control": 7})).status_code == 400
        assert (await say(ann, "Hm?", "c5", metadata=None)).status_code == 200


async def test_the_same_key_with_other_terms_is_another_request() -> None:
    async with served() as keyed:
        ann = await keyed.holder("editor", "ann")
        named = {"idempotency-key": "k"}
        first = await say(ann, "I live in Oslo.", "c1", headers=named)
        assert (await say(ann, "I live in Oslo.", "c1", headers=named)).content == first.content
        other = await say(ann, "I live in Oslo.", "c1", headers=named | {"x-memory-control": json.dumps(USER)})
        assert other.status_code == 422


def test_a_real_client_names_both_and_neither_header_goes_upstream(
    upstream: Upstream, serve_live: Callable[..., Live]
) -> None:
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
    found = httpx.get(f"{live.url}/api/memories").json()["items"]
    assert {each["scope"] for each in found} == {"user", "organization"}
