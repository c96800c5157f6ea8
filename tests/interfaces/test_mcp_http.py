"""The same tools at `/mcp` of a real server, spoken with the SDK's own client: each key gets what is its own."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, Subscription
from mcp_types import PromptReference, ResourceTemplateReference

from conftest import Live, config
from cuebook.records.key import Role
from cuebook.records.prompt import Param

HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


@asynccontextmanager
async def spoken(live: Live, token: str | None = None, mode: str = "auto", **headers: str) -> AsyncIterator[Client]:
    shown = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(
        headers=shown | {name.replace("_", "-"): each for name, each in headers.items()}
    ) as http:
        with anyio.fail_after(60):
            async with Client(streamable_http_client(f"{live.url}/mcp", http_client=http), mode=mode) as client:
                yield client


def key(live: Live, role: Role, user: str | None = None, **more: Any) -> str:
    return live.ask_cue(lambda: live.cue.keys.new(role, user=user, **more)).token


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_who_brings_no_key_where_there_are_none_names_a_user(serve_live: Callable[..., Live], mode: str) -> None:
    live = serve_live()
    async with spoken(live, mode=mode, x_user_id="ann") as client:
        kept = await client.call_tool("remember", {"text": "Ann is allergic to shrimp."})
        assert kept.structured_content["category"] == "user_preference"
        found = await client.call_tool("recall", {"query": "shrimp"})
        assert "shrimp" in found.structured_content["hits"][0]["text"]
    async with spoken(live, mode=mode) as client:
        mine = await client.call_tool("recall", {"query": "shrimp", "user": "bob"})
        assert mine.structured_content["hits"] == []
        hers = await client.call_tool("recall", {"query": "shrimp", "user": "ann"})
        assert len(hers.structured_content["hits"]) == 1


async def test_a_key_gets_what_its_role_and_its_user_may(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    owner = key(live, "owner")
    ann, bob, watching = key(live, "editor", "ann"), key(live, "editor", "bob"), key(live, "viewer", "ann")

    async with spoken(live, ann) as client:
        kept = await client.call_tool("remember", {"text": "Ann is allergic to shrimp."})
        memory = kept.structured_content["id"]
        await client.call_tool("remember", {"text": "The boat is blue.", "conversation": "boats"})
        refused = await client.call_tool("recall", {"query": "x", "user": "bob"})
        assert refused.is_error
        assert "cannot act for others" in refused.content[0].text

    async with spoken(live, bob) as client:
        assert (await client.call_tool("recall", {"query": "shrimp boat"})).structured_content["hits"] == []
        assert (await client.call_tool("history", {"conversation": "boats"})).is_error
        assert (await client.call_tool("forget", {"ids": [memory]})).is_error
        listed = await client.list_resources()
        assert listed.resources == []
        with pytest.raises(MCPError):
            await client.read_resource(f"cuebook://memories/{memory}")
        with pytest.raises(MCPError):
            await client.read_resource("cuebook://conversations/boats")

    async with spoken(live, watching) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["recall", "why", "history"]
        assert (await client.call_tool("recall", {"query": "shrimp"})).structured_content["hits"]
        for name, given in (("remember", {"text": "x"}), ("forget", {"ids": [memory]})):
            answer = await client.call_tool(name, given)
            assert answer.is_error
            assert "requires a key with role editor" in answer.content[0].text

    async with spoken(live, owner) as client:
        assert not (await client.call_tool("forget", {"ids": [memory], "user": "ann"})).is_error
    async with spoken(live, ann) as client:
        hits = (await client.call_tool("recall", {"query": "shrimp"})).structured_content["hits"]
        assert hits == []


async def test_tenants_and_organizations_are_kept_apart(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    first = key(live, "agent")
    other = live.ask_cue(lambda: live.cue.of("other").keys.new("agent")).token
    async with spoken(live, first) as client:
        await client.call_tool("remember", {"text": "The code word is heron.", "user": "ann"})
        refused = await client.call_tool("recall", {"query": "x", "organization": "acme"})
        assert "Unknown organization 'acme'" in refused.content[0].text
        assert (await client.call_tool("forget", {"query": "heron"})).is_error  # whose is not said
    async with spoken(live, other) as client:
        found = await client.call_tool("recall", {"query": "code word", "user": "ann"})
        assert found.structured_content["hits"] == []


async def test_without_its_key_nothing_is_spoken(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    key(live, "owner")
    async with httpx.AsyncClient(base_url=live.url, headers=ACCEPT) as http:
        answer = await http.post("/mcp", json=HELLO)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert (await http.post("/mcp", json=HELLO, headers={"authorization": "Bearer cue_x_y"})).status_code == 401


async def test_requests_are_held_to_what_all_are(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    async with httpx.AsyncClient(base_url=live.url, headers=ACCEPT) as http:
        answer = await http.post("/mcp", json=HELLO)
        assert answer.status_code == 200
        assert answer.json()["result"]["serverInfo"]["name"] == "cuebook"
        assert "mcp-session-id" not in answer.headers
        assert (await http.post("/mcp", json=HELLO, headers={"origin": "https://evil.example"})).status_code == 403
        assert (await http.post("/mcp", json=HELLO, headers={"host": "evil.example"})).status_code == 403
        assert (await http.get("/mcp")).status_code == 405  # nothing is told unasked
        assert (await http.delete("/mcp")).status_code == 405  # no session is kept
        assert (await http.post("/mcp", content=b"{", headers={"content-type": "application/json"})).status_code == 400
        large = {**HELLO, "params": {"x": "y" * (live.cue.config.settings.server.max_body + 1)}}
        assert (await http.post("/mcp", json=large)).status_code == 413
        named = await http.post("/mcp?colour=red", json=HELLO)
        assert named.status_code == 400
        assert "colour" in named.text


async def test_a_guest_reads_what_was_said_and_forgets_nothing_of_it(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    ann, bob = key(live, "editor", "ann"), key(live, "editor", "bob")
    async with spoken(live, ann) as client:
        await client.call_tool("remember", {"text": "My sister Ilse lives in Oslo.", "conversation": "family"})
    async with spoken(live, bob) as client:
        assert (await client.call_tool("history", {"conversation": "family"})).is_error
    live.ask_cue(lambda: live.cue.conversations.participants("family", ["bob"]))
    async with spoken(live, bob) as client:
        said = await client.call_tool("history", {"conversation": "family"})
        assert "Oslo" in said.structured_content["posts"][0]["message"]
        meant = await client.call_tool("forget", {"query": "where does Ilse live?", "conversation": "family"})
        assert meant.structured_content["candidates"] == []
        [item] = live.ask_cue(lambda: live.cue.memory.items("family"))
        refused = await client.call_tool("forget", {"ids": [f"item:family:{item.id}"]})
        assert refused.is_error
    async with spoken(live, ann) as client:
        meant = await client.call_tool("forget", {"query": "where does Ilse live?"})
        [candidate] = meant.structured_content["candidates"]
        gone = await client.call_tool("forget", {"ids": [candidate["id"]]})
        assert gone.structured_content["receipt"]["state"] == "done"
        meant = await client.call_tool("forget", {"query": "where does Ilse live?"})
        assert meant.structured_content["candidates"] == []


async def test_what_is_typed_is_completed_for_who_types_it(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    params = (Param(name="loud", type="boolean", default="false"), Param(name="name"))
    live.ask_cue(lambda: live.cue.prompts.save("greet", sections={"body": "$name, $loud."}, params=params))
    conversations, memories = (
        ResourceTemplateReference(uri=f"cuebook://{kind}/{{id}}") for kind in ("conversations", "memories")
    )
    greet = PromptReference(name="greet")
    async with spoken(live) as client:
        for name, user in [("trip/oslo", "ann"), ("Trip to Vlieland", "ann"), ("house", "ann"), ("trips", "bob")]:
            await client.call_tool("remember", {"text": "A boat.", "conversation": name, "user": user})
        kept = await client.call_tool("remember", {"text": "Ann likes tea.", "user": "ann"})
        memory = kept.structured_content["id"]

    async with spoken(live, x_user_id="ann") as client:
        for ref, name, begun, values in [
            (greet, "loud", "", ["false", "true"]),
            (greet, "loud", "T", ["true"]),
            (greet, "name", "", []),
            (conversations, "id", "trip", ["Trip to Vlieland", "trip/oslo"]),
            (memories, "id", memory[:3], [memory]),
            (memories, "id", "z", []),
        ]:
            assert (await client.complete(ref, {"name": name, "value": begun})).completion.values == values
        for ref, name in [(greet, "else"), (PromptReference(name="none"), "name"), (conversations, "uri")]:
            with pytest.raises(MCPError, match="Unknown "):
                await client.complete(ref, {"name": name, "value": ""})


async def heard(told: Subscription, event: object) -> set[object]:
    """Wait for an event, and give what was told until it came."""
    seen = set[object]()
    while event not in seen:
        seen.add(await anext(told))
    return seen


async def test_who_listens_is_told_of_what_may_be_read_alone(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    ann, bob = key(live, "editor", "ann"), key(live, "editor", "bob")
    async with spoken(live, bob) as client:
        await client.call_tool("remember", {"text": "The boat is blue.", "conversation": "boats"})
        hers = [f"cuebook://conversations/{name}" for name in ("house", "boats")]
    async with spoken(live, ann) as client, spoken(live, bob) as other:
        await client.call_tool("remember", {"text": "The door is red.", "conversation": "house"})
        wanted = {"prompts_list_changed": True, "resources_list_changed": True, "resource_subscriptions": hers}
        async with client.listen(**wanted) as told:
            assert told.honored.resource_subscriptions == ["cuebook://conversations/house"]
            await other.call_tool("remember", {"text": "The boat is big.", "conversation": "boats"})
            await other.call_tool("remember", {"text": "Bob likes tea.", "conversation": "tea"})
            await client.call_tool("remember", {"text": "The key is under the mat.", "conversation": "house"})
            assert await heard(told, ResourceUpdated(hers[0])) <= {ResourceUpdated(hers[0])}
            await client.call_tool("remember", {"text": "Ann likes tea."})
            await heard(told, ResourcesListChanged())
            saved = live.ask_cue(lambda: live.cue.prompts.save("greet", sections={"body": "Hello."}))
            await heard(told, PromptsListChanged())
            live.ask_cue(lambda: live.cue.prompts.label("greet", "prod", version=saved.number))
            await heard(told, PromptsListChanged())
            live.ask_cue(lambda: live.cue.conversations.participants("boats", ["ann"]))
            assert ResourceUpdated(hers[1]) not in await heard(told, ResourcesListChanged())  # now it may be read
            [known] = [each for each in live.ask_cue(live.cue.keys.list) if each.user == "ann"]
            live.ask_cue(lambda: live.cue.keys.revoke(known.id))
            with pytest.raises(StopAsyncIteration):
                await heard(told, None)


async def test_who_listens_takes_a_place_and_is_let_go_when_the_server_stops(serve_live: Callable[..., Live]) -> None:
    live = serve_live(config(watchers=1))
    async with spoken(live) as client, client.listen(tools_list_changed=True) as told:
        with pytest.raises(MCPError, match=r"server\.watchers allows 1"):
            async with client.listen(tools_list_changed=True):
                pass
        live.server.should_exit = True
        with pytest.raises(StopAsyncIteration):
            await anext(told)


async def test_a_tool_that_may_take_long_says_that_it_is_at_work(serve_live: Callable[..., Live]) -> None:
    live, said = serve_live(), []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        said.append((progress, total, message))

    async with spoken(live) as client:
        kept = await client.call_tool("remember", {"text": "Ann likes tea."}, progress_callback=hear)
        assert said == []
        ids = {"ids": [kept.structured_content["id"]]}
        gone = await client.call_tool("forget", ids, progress_callback=hear)
        assert gone.structured_content["receipt"]["state"] == "done"
        assert said[0] == (0, None, "Forgetting")
