"""Tests of the MCP tools at `/mcp` of a real server: each API key gets only its own data."""

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
async def mcp_client(live: Live, token: str | None = None, mode: str = "auto", **headers: str) -> AsyncIterator[Client]:
    auth = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(
        headers=auth | {name.replace("_", "-"): each for name, each in headers.items()}
    ) as http:
        with anyio.fail_after(60):
            async with Client(streamable_http_client(f"{live.url}/mcp", http_client=http), mode=mode) as client:
                yield client


def key(live: Live, role: Role, user: str | None = None, **more: Any) -> str:
    return live.ask_cue(lambda: live.cue.keys.new(role, user=user, **more)).token


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_client_without_keys_can_name_a_user(serve_live: Callable[..., Live], mode: str) -> None:
    live = serve_live()
    async with mcp_client(live, mode=mode, x_user_id="ann") as client:
        stored = await client.call_tool("remember", {"text": "Ann is allergic to shrimp."})
        assert stored.structured_content["category"] == "user_preference"
        result = await client.call_tool("recall", {"query": "shrimp"})
        assert "shrimp" in result.structured_content["hits"][0]["text"]
    async with mcp_client(live, mode=mode) as client:
        mine = await client.call_tool("recall", {"query": "shrimp", "user": "bob"})
        assert mine.structured_content["hits"] == []
        hers = await client.call_tool("recall", {"query": "shrimp", "user": "ann"})
        assert len(hers.structured_content["hits"]) == 1


async def test_key_is_limited_to_its_role_and_user(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    owner = key(live, "owner")
    ann, bob, watching = key(live, "editor", "ann"), key(live, "editor", "bob"), key(live, "viewer", "ann")

    async with mcp_client(live, ann) as client:
        stored = await client.call_tool("remember", {"text": "Ann is allergic to shrimp."})
        memory = stored.structured_content["id"]
        await client.call_tool("remember", {"text": "The boat is blue.", "conversation": "boats"})
        refused = await client.call_tool("recall", {"query": "x", "user": "bob"})
        assert refused.is_error
        assert "cannot act for others" in refused.content[0].text

    async with mcp_client(live, bob) as client:
        assert (await client.call_tool("recall", {"query": "shrimp boat"})).structured_content["hits"] == []
        assert (await client.call_tool("history", {"conversation": "boats"})).is_error
        assert (await client.call_tool("forget", {"ids": [memory]})).is_error
        listed = await client.list_resources()
        assert listed.resources == []
        with pytest.raises(MCPError):
            await client.read_resource(f"cuebook://memories/{memory}")
        with pytest.raises(MCPError):
            await client.read_resource("cuebook://conversations/boats")

    async with mcp_client(live, watching) as client:
        assert [each.name for each in (await client.list_tools()).tools] == ["recall", "why", "history"]
        assert (await client.call_tool("recall", {"query": "shrimp"})).structured_content["hits"]
        for name, arguments in (("remember", {"text": "x"}), ("forget", {"ids": [memory]})):
            answer = await client.call_tool(name, arguments)
            assert answer.is_error
            assert "requires a key with role editor" in answer.content[0].text

    async with mcp_client(live, owner) as client:
        assert not (await client.call_tool("forget", {"ids": [memory], "user": "ann"})).is_error
    async with mcp_client(live, ann) as client:
        hits = (await client.call_tool("recall", {"query": "shrimp"})).structured_content["hits"]
        assert hits == []


async def test_tenants_and_organizations_are_isolated(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    first = key(live, "agent")
    other = live.ask_cue(lambda: live.cue.of("other").keys.new("agent")).token
    async with mcp_client(live, first) as client:
        await client.call_tool("remember", {"text": "The code word is heron.", "user": "ann"})
        refused = await client.call_tool("recall", {"query": "x", "organization": "acme"})
        assert "Unknown organization 'acme'" in refused.content[0].text
        assert (await client.call_tool("forget", {"query": "heron"})).is_error  # the request names no user
    async with mcp_client(live, other) as client:
        result = await client.call_tool("recall", {"query": "code word", "user": "ann"})
        assert result.structured_content["hits"] == []


async def test_request_without_a_key_is_rejected(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    key(live, "owner")
    async with httpx.AsyncClient(base_url=live.url, headers=ACCEPT) as http:
        answer = await http.post("/mcp", json=HELLO)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert (await http.post("/mcp", json=HELLO, headers={"authorization": "Bearer cue_x_y"})).status_code == 401


async def test_general_request_checks_apply_to_mcp(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    async with httpx.AsyncClient(base_url=live.url, headers=ACCEPT) as http:
        answer = await http.post("/mcp", json=HELLO)
        assert answer.status_code == 200
        assert answer.json()["result"]["serverInfo"]["name"] == "cuebook"
        assert "mcp-session-id" not in answer.headers
        assert (await http.post("/mcp", json=HELLO, headers={"origin": "https://evil.example"})).status_code == 403
        assert (await http.post("/mcp", json=HELLO, headers={"host": "evil.example"})).status_code == 403
        assert (await http.get("/mcp")).status_code == 405  # no server-initiated messages
        assert (await http.delete("/mcp")).status_code == 405  # no sessions
        assert (await http.post("/mcp", content=b"{", headers={"content-type": "application/json"})).status_code == 400
        large = {**HELLO, "params": {"x": "y" * (live.cue.config.settings.server.max_body + 1)}}
        assert (await http.post("/mcp", json=large)).status_code == 413
        named = await http.post("/mcp?colour=red", json=HELLO)
        assert named.status_code == 400
        assert "colour" in named.text


async def test_participant_reads_but_cannot_forget(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    ann, bob = key(live, "editor", "ann"), key(live, "editor", "bob")
    async with mcp_client(live, ann) as client:
        await client.call_tool("remember", {"text": "My sister Ilse lives in Oslo.", "conversation": "family"})
    async with mcp_client(live, bob) as client:
        assert (await client.call_tool("history", {"conversation": "family"})).is_error
    live.ask_cue(lambda: live.cue.conversations.participants("family", ["bob"]))
    async with mcp_client(live, bob) as client:
        history = await client.call_tool("history", {"conversation": "family"})
        assert "Oslo" in history.structured_content["posts"][0]["message"]
        matches = await client.call_tool("forget", {"query": "where does Ilse live?", "conversation": "family"})
        assert matches.structured_content["candidates"] == []
        [item] = live.ask_cue(lambda: live.cue.memory.items("family"))
        refused = await client.call_tool("forget", {"ids": [f"item:family:{item.id}"]})
        assert refused.is_error
    async with mcp_client(live, ann) as client:
        matches = await client.call_tool("forget", {"query": "where does Ilse live?"})
        [candidate] = matches.structured_content["candidates"]
        gone = await client.call_tool("forget", {"ids": [candidate["id"]]})
        assert gone.structured_content["receipt"]["state"] == "done"
        matches = await client.call_tool("forget", {"query": "where does Ilse live?"})
        assert matches.structured_content["candidates"] == []


async def test_completions_only_contain_accessible_values(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    params = (Param(name="loud", type="boolean", default="false"), Param(name="name"))
    live.ask_cue(lambda: live.cue.prompts.save("greet", sections={"body": "$name, $loud."}, params=params))
    conversations, memories = (
        ResourceTemplateReference(uri=f"cuebook://{kind}/{{id}}") for kind in ("conversations", "memories")
    )
    greet = PromptReference(name="greet")
    async with mcp_client(live) as client:
        for name, user in [("trip/oslo", "ann"), ("Trip to Vlieland", "ann"), ("house", "ann"), ("trips", "bob")]:
            await client.call_tool("remember", {"text": "A boat.", "conversation": name, "user": user})
        stored = await client.call_tool("remember", {"text": "Ann likes tea.", "user": "ann"})
        memory = stored.structured_content["id"]

    async with mcp_client(live, x_user_id="ann") as client:
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


async def events_until(subscription: Subscription, event: object) -> set[object]:
    """Wait for an event and return all events up to it."""
    seen = set[object]()
    while event not in seen:
        seen.add(await anext(subscription))
    return seen


async def test_listener_only_receives_events_it_may_read(serve_live: Callable[..., Live]) -> None:
    live = serve_live()
    ann, bob = key(live, "editor", "ann"), key(live, "editor", "bob")
    async with mcp_client(live, bob) as client:
        await client.call_tool("remember", {"text": "The boat is blue.", "conversation": "boats"})
        hers = [f"cuebook://conversations/{name}" for name in ("house", "boats")]
    async with mcp_client(live, ann) as client, mcp_client(live, bob) as other:
        await client.call_tool("remember", {"text": "The door is red.", "conversation": "house"})
        wanted = {"prompts_list_changed": True, "resources_list_changed": True, "resource_subscriptions": hers}
        async with client.listen(**wanted) as subscription:
            assert subscription.honored.resource_subscriptions == ["cuebook://conversations/house"]
            await other.call_tool("remember", {"text": "The boat is big.", "conversation": "boats"})
            await other.call_tool("remember", {"text": "Bob likes tea.", "conversation": "tea"})
            await client.call_tool("remember", {"text": "The key is under the mat.", "conversation": "house"})
            assert await events_until(subscription, ResourceUpdated(hers[0])) <= {ResourceUpdated(hers[0])}
            await client.call_tool("remember", {"text": "Ann likes tea."})
            await events_until(subscription, ResourcesListChanged())
            saved = live.ask_cue(lambda: live.cue.prompts.save("greet", sections={"body": "Hello."}))
            await events_until(subscription, PromptsListChanged())
            live.ask_cue(lambda: live.cue.prompts.label("greet", "prod", version=saved.number))
            await events_until(subscription, PromptsListChanged())
            live.ask_cue(lambda: live.cue.conversations.participants("boats", ["ann"]))
            assert ResourceUpdated(hers[1]) not in await events_until(
                subscription, ResourcesListChanged()
            )  # ann can read it from now on
            [ann_key] = [each for each in live.ask_cue(live.cue.keys.list) if each.user_id == "ann"]
            live.ask_cue(lambda: live.cue.keys.revoke(ann_key.id))
            with pytest.raises(StopAsyncIteration):
                await events_until(subscription, None)


async def test_listeners_are_limited_and_end_when_the_server_stops(serve_live: Callable[..., Live]) -> None:
    live = serve_live(config(watchers=1))
    async with mcp_client(live) as client, client.listen(tools_list_changed=True) as subscription:
        with pytest.raises(MCPError, match=r"server\.watchers allows 1"):
            async with client.listen(tools_list_changed=True):
                pass
        live.server.should_exit = True
        with pytest.raises(StopAsyncIteration):
            await anext(subscription)


async def test_slow_tool_reports_progress(serve_live: Callable[..., Live]) -> None:
    live, progress_reports = serve_live(), []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        progress_reports.append((progress, total, message))

    async with mcp_client(live) as client:
        stored = await client.call_tool("remember", {"text": "Ann likes tea."}, progress_callback=on_progress)
        assert progress_reports == []
        ids = {"ids": [stored.structured_content["id"]]}
        gone = await client.call_tool("forget", ids, progress_callback=on_progress)
        assert gone.structured_content["receipt"]["state"] == "done"
        assert progress_reports[0] == (0, None, "Forgetting")
